//! A call of a pair near its limit: the agent knows what is left, and returns that with the answer.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::harness::Session;
use crate::harness::calls::{BLOCK_CALLS, Pace, by_blocks};
use crate::harness::figure::{Figure, Target};

use super::looped::{Loop, NEAR_USED};
use super::{BLOCKS, Calls, ROUNDS, Setting};

/// How long the agent may take to receive the notices.
const RECEIVED_WITHIN: Duration = Duration::from_secs(20);

/// Brings every pair near its limit, waits for all notices, and measures calls of the pairs.
pub(super) fn run(
    session: &mut Session,
    looped: &Loop,
    setting: &Setting,
    call_ns_max: f64,
) -> anyhow::Result<()> {
    session.step("on pairs with a notice");
    let calls = Calls::on(0, setting.pairs);
    for name in &calls.names {
        let _ = looped.near.hit_n(name, NEAR_USED)?;
    }
    let begun = Instant::now();
    // The agent's own number of notices would not do: it may have some of other resources.
    let is_near = |name: &String| looped.near.peek(name).is_ok_and(|left| left.is_near());
    while !calls.names.iter().all(is_near) {
        ensure!(
            begun.elapsed() < RECEIVED_WITHIN,
            "{} of {} pairs have a notice",
            calls.names.iter().filter(|name| is_near(name)).count(),
            setting.pairs
        );
        // The agent receives notices only of pairs that it has called.
        for name in &calls.names {
            let _ = looped.near.hit(name)?;
        }
        looped.settle()?;
    }
    let (mut rounds, mut near) = (Vec::new(), 0_u64);
    let before = looped.recorded();
    for round in 0..ROUNDS {
        let shift = round * BLOCKS * BLOCK_CALLS;
        let cost = by_blocks(BLOCKS, Pace::million_per_second(), |number| {
            let answer = looped.near.hit(calls.at(shift + number));
            near += u64::from(answer.is_ok_and(|allowed| allowed.is_near()));
        });
        rounds.push(cost.wall_ns);
    }
    let made = (ROUNDS * BLOCKS * BLOCK_CALLS) as u64;
    let name = format!("let through near its limit, {}: p50", setting.name());
    let target = Target::AtMost(call_ns_max);
    if near != made {
        // Other calls take another path, and are cheaper.
        let why = format!("{} of {made} calls were not near the limit", made - near);
        session.add(Figure::absent(name, "ns", why).target(target));
    } else if let Some(figure) = Figure::of_rounds(name, "ns", &rounds) {
        let recorded = looped.accepted_percent(before, made);
        session.add(figure.target(target).note(format!(
            "each of these calls returned what is left; {recorded:.2} % of them recorded"
        )));
    }
    Ok(())
}
