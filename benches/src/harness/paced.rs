//! One agent in a process of its own that offers calls on one pair at given instants.
//!
//! ```text
//! parent   starts it, hears that it is ready, and tells a [`Schedule`]
//! child    makes each call when it is due, and answers with what became of all of them
//! ```
//!
//! A call that is late is made at once, so that a busy machine offers what was asked for, in bursts.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::agents::{block_on, connected_by};
use super::child::{Part, argument, end_with_parent, say};
use super::clock::wall_us;

/// Within what time a child hears of an aggregator, which may still make its topics.
const HEARD_WITHIN: Duration = Duration::from_secs(60);

/// How a catalogue names the child.
pub const PACED_AGENT: &str = "paced-agent";

/// When calls are due, in microseconds of the wall clock, and how many copies each of them asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// What instants in the answer are counted from.
    pub start_us: u64,
    /// The first call.
    pub first_us: u64,
    /// From call to call.
    pub period_us: u64,
    /// How many calls.
    pub count: u64,
    /// Copies of each.
    pub copies: u32,
}

/// What the child offered.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Offered {
    /// Each call: microseconds after the start, and whether it was let through.
    pub calls: Vec<(u64, bool)>,
    /// Hits that its agent dropped.
    pub dropped: u64,
}

/// Starts a child that offers calls on one pair. It reaches its aggregator, and Kafka where it is to write there
/// directly, by `place`: address, bootstrap servers, topic prefix.
///
/// # Errors
///
/// Where it cannot be started.
pub fn start(name: &str, resource: &str, domain: &str, place: &[String]) -> anyhow::Result<Part> {
    let own = [name, resource, domain].map(str::to_owned);
    Part::start(PACED_AGENT, &[&own, place].concat())
}

/// Waits until the child has heard of its aggregator.
///
/// # Errors
///
/// Where it has not.
pub fn await_ready(part: &mut Part) -> anyhow::Result<()> {
    ensure!(part.hear::<bool>()?, "an agent has heard of no aggregator");
    Ok(())
}

/// Tells the child what to offer; its answer is an [`Offered`].
///
/// # Errors
///
/// Where it has gone.
pub fn tell(part: &mut Part, schedule: Schedule) -> anyhow::Result<()> {
    part.tell(&serde_json::to_string(&schedule)?)
}

/// The child.
///
/// # Errors
///
/// Where its settings are bad, or the parent says what was not agreed.
pub fn child_agent(args: &[String]) -> anyhow::Result<()> {
    let of = |index, what| argument::<String>(args, index, what);
    let name = of(0, "name")?;
    let place = args.get(3..).unwrap_or_default();
    let agent = connected_by(&name, place)?;
    let rate = agent.rate(&of(1, "resource")?);
    let domain = of(2, "domain")?;
    say(&block_on(agent.ready(HEARD_WITHIN))?)?;
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Ok(());
    }
    end_with_parent();
    let schedule: Schedule = serde_json::from_str(&line)?;
    let mut calls = Vec::with_capacity(schedule.count as usize);
    for number in 0..schedule.count {
        let due_us = schedule.first_us + number * schedule.period_us;
        std::thread::sleep(Duration::from_micros(due_us.saturating_sub(wall_us())));
        let at_us = wall_us();
        let let_through = rate.hit_n(&domain, schedule.copies).is_ok();
        calls.push((at_us.saturating_sub(schedule.start_us), let_through));
    }
    let dropped = agent.stats().hits_dropped();
    say(&Offered { calls, dropped })
}
