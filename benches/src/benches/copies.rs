//! Taking a copy and giving it back: optimistic, hot, one thread.
//!
//! ```text
//! loop      an aggregator of its own, an agent of this process
//! round     ours, then the peer
//! ```
//!
//! The peer is `tokio::sync::Semaphore`, one for each domain and already at hand: it counts in this
//! process alone, looks up no name, records nothing, and returns nothing when a process dies. Both
//! are paced at 250,000 turns a second, which are 500,000 operations: of twice a million a second the
//! agent drops a third, and would be measured at work that it does not do. The cost is reported beside
//! the share that was recorded.

use std::hint::black_box;
use std::time::Duration;

use anyhow::ensure;
use tokio::sync::Semaphore;
use tollgate_agent::Stats;

use crate::harness::Session;
use crate::harness::agents::{block_on, connected};
use crate::harness::aggregator::Aggregator;
use crate::harness::calls::{BLOCK_CALLS, Pace, by_blocks};
use crate::harness::figure::{Figure, Target};
use crate::load::names::domain;

const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 1000
"#;

/// Interleaved rounds.
const ROUNDS: usize = 21;
/// Blocks of a round: 240 ms.
const BLOCKS: usize = 60;
/// A million turns in this many seconds.
const SECONDS: u64 = 4;
/// Domains, one after the other.
const PAIRS: u32 = 1_000;

/// Runs the benchmark.
///
/// # Errors
///
/// If the aggregator does not start, or a copy is refused that nobody else holds.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    session.step("the agent finds the aggregator");
    let aggregator = Aggregator::start(LIMITS, 16)?;
    let agent = connected("bench", &aggregator.agents)?;
    let sandbox = agent.copies("sandbox");
    ensure!(
        block_on(agent.ready(Duration::from_secs(40)))?,
        "the agent has found no aggregator"
    );
    let names: Vec<String> = (0..PAIRS).map(domain).collect();
    let semaphores: Vec<Semaphore> = (0..PAIRS).map(|_| Semaphore::new(1_000)).collect();
    let at = |number: usize| number % PAIRS as usize;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    let mut refused = 0;
    for round in 0..ROUNDS {
        session.step(&format!("reserve and drop: round {round} of {ROUNDS}"));
        let cost = by_blocks(BLOCKS, Pace::million_in_seconds(SECONDS), |number| {
            refused += u64::from(black_box(sandbox.reserve(&names[at(number)], 1)).is_err());
        });
        ours.push(cost.wall_ns);
        let cost = by_blocks(BLOCKS, Pace::million_in_seconds(SECONDS), |number| {
            let _ = black_box(semaphores[at(number)].try_acquire());
        });
        peer.push(cost.wall_ns);
    }
    ensure!(
        refused == 0,
        "{refused} copies were refused that nobody holds"
    );
    let made = (ROUNDS * BLOCKS * BLOCK_CALLS) as u64;
    if let Some(figure) = Figure::of_rounds("reserve and drop, 1k pairs: p50", "ns", &ours) {
        session.add(
            figure
                .target(Target::AtMost(150.0))
                .peer("tokio semaphore, found already", &peer)
                .note(recorded(&agent.stats(), made)),
        );
    }
    Ok(())
}

fn recorded(stats: &Stats, made: u64) -> String {
    let unrecorded = stats.holds_unrecorded as f64 * 100.0 / made.max(1) as f64;
    format!(
        "{:.2} % of these holds recorded; {} operations dropped at the bound and healed by lists",
        100.0 - unrecorded,
        stats.hold_operations_dropped
    )
}
