//! How long the copies of a killed agent are unavailable.
//!
//! ```text
//! parent     an agent that listens; starts twenty processes, each of which takes all copies of a domain
//! kill -9    one after the other, so that kills fall anywhere between heartbeats and ticks
//! back       the domain's lift enters the list of the agent that listens − the kill
//! ```
//!
//! Afterwards the benchmark takes every domain's copies again, and they must be confirmed: a lift alone
//! proves no count. The log's ticks decide when an agent is gone, so most of the time is the timeout
//! itself.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use tollgate_agent::{Agent, Change, Confirmation, Hold};

use crate::harness::Session;
use crate::harness::agents::{block_on, connected};
use crate::harness::aggregator::Aggregator;
use crate::harness::child::{Part, argument, end_with_parent, send_to_parent};
use crate::harness::clock::monotonic_ns;
use crate::harness::figure::{Figure, Target};
use crate::harness::stats::percentile;
use crate::load::names::domain;

/// How many agents are killed in one round.
const AT_A_TIME: u32 = 20;
/// Rounds: a hundred kills, or five times as many.
const USUAL: u32 = 5;
const FULL: u32 = 25;
/// The time between kills: prime to ticks and heartbeats, so that kills occur in all of their phases.
const BETWEEN: Duration = Duration::from_millis(37);
/// Copies that are not back by then count as lost.
const LOST_AFTER: Duration = Duration::from_secs(30);

const RESOURCE: &str = "sandbox";
const COPIES: u32 = 3;
const AGENT_TIMEOUT_MS: f64 = 2_000.0;
const LIMITS: &str = r#"
version = 1
rules = 2
[engine]
agent_timeout = "2s"
[copies.sandbox]
limit = 3
"#;

/// When domains were opened, in nanoseconds of the monotonic clock.
#[derive(Default)]
struct Opened {
    at: Mutex<HashMap<String, u64>>,
    changed: Condvar,
}

/// Runs the benchmark.
///
/// # Errors
///
/// If a process cannot take copies that nobody else holds.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let rounds = if session.is_full() { FULL } else { USUAL };
    let aggregator = Aggregator::start(LIMITS, 16)?;
    let opened = Arc::new(Opened::default());
    let listener = listening(&aggregator.agents, &opened)?;
    let (mut back, mut lost) = (Vec::new(), 0u64);
    for round in 0..rounds {
        session.step(&format!("{AT_A_TIME} kills, round {round} of {rounds}"));
        let domains: Vec<String> = (0..AT_A_TIME)
            .map(|number| domain(round * AT_A_TIME + number))
            .collect();
        let holders = hold_all(&aggregator, &domains)?;
        let mut killed = Vec::new();
        for holder in holders {
            killed.push(monotonic_ns());
            // Dropping kills it by signal 9.
            drop(holder);
            std::thread::sleep(BETWEEN);
        }
        let at = opened.wait_for(&domains);
        for (name, killed_ns) in domains.iter().zip(killed) {
            match at.get(name) {
                Some(opened_ns) => back.push(opened_ns.saturating_sub(killed_ns)),
                None => lost += u64::from(COPIES),
            }
        }
        lost += not_to_be_had(&listener, &domains)?;
    }
    report(session, back, lost);
    Ok(())
}

fn report(session: &mut Session, mut back: Vec<u64>, lost: u64) {
    let kills = back.len();
    let most = AGENT_TIMEOUT_MS + 500.0;
    for (name, share, target) in [
        ("a killed agent's copies back: p50", 0.5, None),
        ("a killed agent's copies back: p99", 0.99, Some(most)),
        ("a killed agent's copies back: longest", 1.0, None),
    ] {
        let Some(ns) = percentile(&mut back, share) else {
            continue;
        };
        let note = format!(
            "{kills} processes killed with signal 9, {AT_A_TIME} within a second; agent_timeout {AGENT_TIMEOUT_MS} ms"
        );
        let figure = Figure::single(name, "ms", ns as f64 / 1e6).note(note);
        session.add(match target {
            Some(most) => figure.target(Target::AtMost(most)),
            None => figure,
        });
    }
    session.add(
        Figure::single("copies lost", "", lost as f64)
            .target(Target::AtMost(0.0))
            .note("not lifted within 30 s, or not confirmed to who took them afterwards"),
    );
}

fn listening(aggregator: &str, opened: &Arc<Opened>) -> anyhow::Result<Agent> {
    let opening = Arc::clone(opened);
    let agent = Agent::builder()
        .name("bench-listens")
        .aggregator(aggregator)
        .on_statement(move |news| {
            if news.change() == Change::Opened {
                opening.take_in(news.domain().unwrap_or_default());
            }
        })
        .build()?;
    let _ = agent.copies(RESOURCE);
    ensure!(
        block_on(agent.ready(Duration::from_secs(40)))?,
        "the agent has found no aggregator"
    );
    Ok(agent)
}

/// Starts one process per domain, which takes all copies of the domain.
fn hold_all(aggregator: &Aggregator, domains: &[String]) -> anyhow::Result<Vec<Part>> {
    let start = |name: &String| {
        let args = [aggregator.agents.clone(), name.clone()];
        Part::start("copies-holder", &args)
    };
    let mut holders = domains.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    for holder in &mut holders {
        ensure!(
            holder.receive::<bool>()?,
            "what nobody holds is not confirmed"
        );
    }
    Ok(holders)
}

/// Takes all copies of the domains, which should be possible, and returns them. Returns how many domains
/// had missing copies.
fn not_to_be_had(agent: &Agent, domains: &[String]) -> anyhow::Result<u64> {
    let sandbox = agent.copies(RESOURCE);
    let mut missing = 0;
    let holds: Vec<Hold> = domains
        .iter()
        .filter_map(|name| sandbox.reserve(name, COPIES).ok())
        .collect();
    missing += (domains.len() - holds.len()) as u64 * u64::from(COPIES);
    for hold in &holds {
        let verdict = async { tokio::time::timeout(LOST_AFTER, hold.confirmed()).await };
        missing += match block_on(verdict)? {
            Ok(Confirmation::Confirmed) => 0,
            Ok(Confirmation::Excess { copies, .. }) => u64::from(copies),
            _ => u64::from(COPIES),
        };
    }
    Ok(missing)
}

impl Opened {
    fn take_in(&self, domain: &str) {
        let at_ns = monotonic_ns();
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.entry(domain.to_owned()).or_insert(at_ns);
        self.changed.notify_all();
    }

    /// When these domains were opened; waits until all are, or until no more can be expected.
    fn wait_for(&self, domains: &[String]) -> HashMap<String, u64> {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let missing =
            |at: &mut HashMap<String, u64>| domains.iter().any(|name| !at.contains_key(name));
        let waited = self.changed.wait_timeout_while(at, LOST_AFTER, missing);
        let (at, _) = waited.unwrap_or_else(PoisonError::into_inner);
        at.clone()
    }
}

/// The child: takes all copies of a domain, and waits to be killed.
///
/// # Errors
///
/// If its settings are invalid, or its copies are refused.
pub fn child_holder(args: &[String]) -> anyhow::Result<()> {
    let (address, name): (String, String) =
        (argument(args, 0, "address")?, argument(args, 1, "domain")?);
    let agent = connected(&format!("bench-{name}"), &address)?;
    let sandbox = agent.copies(RESOURCE);
    ensure!(
        block_on(agent.ready(Duration::from_secs(40)))?,
        "the agent has found no aggregator"
    );
    let hold = sandbox.reserve(&name, COPIES)?;
    send_to_parent(&(block_on(hold.confirmed())? == Confirmation::Confirmed))?;
    end_with_parent();
    loop {
        std::thread::park();
    }
}
