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
    while looped.agent.stats().near_live < u64::from(setting.pairs) {
        ensure!(
            begun.elapsed() < RECEIVED_WITHIN,
            "{} of {} pairs have a notice",
            looped.agent.stats().near_live,
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
    if let Some(figure) = Figure::of_rounds(name, "ns", &rounds) {
        session.add(figure.target(Target::AtMost(call_ns_max)).note(format!(
            "{:.2} % of these calls recorded, {:.2} % told what is left",
            looped.accepted_percent(before, made),
            near as f64 * 100.0 / made as f64
        )));
    }
    Ok(())
}
