//! One agent in a process of its own that offers calls on one pair at given instants.
//!
//! ```text
//! parent   starts it, waits until it is ready, and sends a [`Schedule`]
//! child    makes each call when it is due, and answers with the results of all calls
//! ```
//!
//! A late call is made at once, so that a busy machine also offers all calls, in bursts.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::agents::{block_on, connected_by};
use super::child::{Part, argument, end_with_parent, send_to_parent};
use super::clock::wall_us;

/// How long a child may take to receive the feed of its aggregator, which may still be creating its topics.
const RECEIVED_WITHIN: Duration = Duration::from_secs(60);

/// The child's name in the catalog.
pub const PACED_AGENT: &str = "paced-agent";

/// When calls are due, in microseconds of the wall clock, and how many copies each of them asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// The instant that the answer's times are relative to.
    pub start_us: u64,
    /// The first call.
    pub first_us: u64,
    /// The time between calls.
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

/// Starts a child that offers calls on one pair. `place` names its aggregator, and Kafka if it writes to Kafka
/// directly: address, bootstrap servers, topic prefix.
///
/// # Errors
///
/// If it cannot be started.
pub fn start(name: &str, resource: &str, domain: &str, place: &[String]) -> anyhow::Result<Part> {
    let own = [name, resource, domain].map(str::to_owned);
    Part::start(PACED_AGENT, &[&own, place].concat())
}

/// Waits until the child has received the feed of its aggregator.
///
/// # Errors
///
/// If it does not.
pub fn await_ready(part: &mut Part) -> anyhow::Result<()> {
    ensure!(part.receive::<bool>()?, "an agent has found no aggregator");
    Ok(())
}

/// Sends the child its schedule; its answer is an [`Offered`].
///
/// # Errors
///
/// If it has ended.
pub fn send(part: &mut Part, schedule: Schedule) -> anyhow::Result<()> {
    part.send(&serde_json::to_string(&schedule)?)
}

/// The child.
///
/// # Errors
///
/// If its settings are invalid, or the parent sends an unexpected line.
pub fn child_agent(args: &[String]) -> anyhow::Result<()> {
    let of = |index, what| argument::<String>(args, index, what);
    let name = of(0, "name")?;
    let place = args.get(3..).unwrap_or_default();
    let agent = connected_by(&name, place)?;
    let rate = agent.rate(&of(1, "resource")?);
    let domain = of(2, "domain")?;
    send_to_parent(&block_on(agent.ready(RECEIVED_WITHIN))?)?;
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
    send_to_parent(&Offered { calls, dropped })
}
