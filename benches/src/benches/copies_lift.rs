//! How long after a release in one process another process, which was denied, can take a copy.
//!
//! ```text
//! holder    takes the one copy of an unused domain
//! waiter    is denied ........................... the lift enters its list; a call takes the copy
//! holder          stamps the clock, releases ...│
//!                 └────────────── delay ────────┘
//! ```
//!
//! On the journal, and on a real Kafka if this machine can run one; there both agents write to Kafka
//! directly. All stamps are of one clock that the processes of a machine share.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tollgate_agent::{Agent, Change, Copies, Hold, Refused};

use crate::harness::Session;
use crate::harness::agents::block_on;
use crate::harness::aggregator::Aggregator;
use crate::harness::child::{Part, argument, send_to_parent};
use crate::harness::clock::monotonic_ns;
use crate::harness::figure::{Figure, Target};
use crate::harness::kafka::{LocalKafka, StartError};
use crate::harness::stats::percentile;
use crate::load::names::domain;

const USUAL: u32 = 500;
const FULL: u32 = 5_000;
/// Warm-up rounds.
const WARM_UP: u32 = 30;
/// Warm-up rounds on Kafka: a broker that was just started interprets its code, and takes twice as long for
/// a thousand rounds or more.
const WARM_UP_KAFKA: u32 = 2_000;
const RECEIVED_WITHIN: Duration = Duration::from_secs(20);

const RESOURCE: &str = "sandbox";
const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 1
"#;

/// Runs the benchmark.
///
/// # Errors
///
/// If agents and aggregator do not work together.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let rounds = if session.is_full() { FULL } else { USUAL };
    session.step("on the journal");
    let aggregator = Aggregator::start(LIMITS, 16)?;
    let delays = measure(std::slice::from_ref(&aggregator.agents), WARM_UP, rounds)?;
    report(session, "journal", delays, 1.0);
    drop(aggregator);
    session.step("on Kafka");
    match LocalKafka::start_to_measure() {
        Ok(kafka) => {
            let aggregator = Aggregator::start_on(&kafka, "bench-lift", LIMITS, 16)?;
            let place = [
                aggregator.agents.clone(),
                kafka.bootstrap().to_owned(),
                "bench-lift".to_owned(),
            ];
            let delays = measure(&place, WARM_UP_KAFKA, rounds)?;
            report(session, "Kafka", delays, 2.0);
        }
        Err(StartError::Absent { reason }) => {
            session.add(Figure::absent(
                "Kafka: release to possible elsewhere: p50",
                "ms",
                reason,
            ));
        }
        Err(error) => return Err(error).context("starting Kafka"),
    }
    Ok(())
}

/// Delays in nanoseconds, without the warm-up rounds. `place` names the aggregator, and Kafka, for the
/// agents.
fn measure(place: &[String], warm_up: u32, rounds: u32) -> anyhow::Result<Vec<u64>> {
    let start = |name: &str| {
        let args = [&[name.to_owned()], place].concat();
        Part::start("copies-lift-agent", &args)
    };
    let (mut holder, mut waiter) = (start("bench-holds")?, start("bench-waits")?);
    for part in [&mut holder, &mut waiter] {
        ensure!(part.receive::<bool>()?, "an agent has found no aggregator");
    }
    let mut delays = Vec::new();
    for number in 0..warm_up + rounds {
        holder.send(&format!("take {number}"))?;
        waiter.send(&format!("denied {number}"))?;
        ensure!(waiter.receive::<bool>()?, "{number}: not denied elsewhere");
        holder.send(&format!("release {number}"))?;
        waiter.send(&format!("opened {number}"))?;
        let released: u64 = holder.receive()?;
        let opened: u64 = waiter.receive()?;
        if warm_up <= number {
            delays.push(opened.saturating_sub(released));
        }
    }
    Ok(delays)
}

fn report(session: &mut Session, log: &str, mut delays: Vec<u64>, most_ms: f64) {
    let rounds = delays.len();
    for (what, share, target) in [
        ("p50", 0.5, Some(most_ms)),
        ("p99", 0.99, None),
        ("longest", 1.0, None),
    ] {
        let Some(ns) = percentile(&mut delays, share) else {
            continue;
        };
        let name = format!("{log}: release to possible elsewhere: {what}");
        let figure = Figure::single(name, "ms", ns as f64 / 1e6).note(format!(
            "{rounds} domains, one after the other, two processes"
        ));
        session.add(match target {
            Some(most) => figure.target(Target::AtMost(most)),
            None => figure,
        });
    }
}

/// The last change of each domain that the agent received, and when.
#[derive(Default)]
struct ReceivedChanges {
    last: Mutex<HashMap<String, (Change, u64)>>,
    changed: Condvar,
}

impl ReceivedChanges {
    fn take_in(&self, domain: &str, change: Change) {
        let at_ns = monotonic_ns();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(domain.to_owned(), (change, at_ns));
        self.changed.notify_all();
    }

    /// When this change of a domain was received; `None` if that takes too long.
    fn wait_for(&self, domain: &str, wanted: Change) -> Option<u64> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let other = |last: &mut HashMap<String, (Change, u64)>| {
            last.get(domain).is_none_or(|(change, _)| *change != wanted)
        };
        let waited = self
            .changed
            .wait_timeout_while(last, RECEIVED_WITHIN, other);
        let (last, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let (change, at_ns) = last.get(domain)?;
        (*change == wanted).then_some(*at_ns)
    }
}

/// The child: one agent.
///
/// # Errors
///
/// If its settings are invalid, or the parent sends an unexpected line.
pub fn child_agent(args: &[String]) -> anyhow::Result<()> {
    let received = Arc::new(ReceivedChanges::default());
    let agent = agent(args, &received)?;
    let sandbox = agent.copies(RESOURCE);
    send_to_parent(&block_on(agent.ready(Duration::from_secs(20)))?)?;
    let mut held: HashMap<String, Hold> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        let (what, number) = line
            .split_once(' ')
            .with_context(|| format!("received {line:?}"))?;
        let name = domain(number.parse()?);
        match what {
            "take" => {
                held.insert(name.clone(), sandbox.reserve(&name, 1)?);
            }
            "release" => {
                let hold = held.remove(&name);
                let at_ns = monotonic_ns();
                drop(hold);
                send_to_parent(&at_ns)?;
            }
            "denied" => {
                let denied = received.wait_for(&name, Change::Denied).is_some();
                send_to_parent(&(denied && is_denied(&sandbox, &name)))?;
            }
            "opened" => {
                let heard_ns = received.wait_for(&name, Change::Opened);
                heard_ns.with_context(|| format!("{name} is not lifted"))?;
                send_to_parent(&first_taken_ns(&sandbox, &name)?)?;
            }
            _ => anyhow::bail!("received {line:?}"),
        }
    }
    Ok(())
}

/// Whether calls are refused. Calls see a received change a moment later.
fn is_denied(copies: &Copies, domain: &str) -> bool {
    let until = Instant::now() + RECEIVED_WITHIN;
    while Instant::now() < until {
        if matches!(copies.peek(domain), Err(Refused::Denied(_))) {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// When a call first took a copy.
fn first_taken_ns(copies: &Copies, domain: &str) -> anyhow::Result<u64> {
    let until = Instant::now() + RECEIVED_WITHIN;
    loop {
        match copies.reserve(domain, 1) {
            Ok(hold) => {
                let at_ns = monotonic_ns();
                drop(hold);
                return Ok(at_ns);
            }
            Err(error) => ensure!(Instant::now() < until, "{domain}: {error}"),
        }
        std::thread::yield_now();
    }
}

fn agent(args: &[String], received: &Arc<ReceivedChanges>) -> anyhow::Result<Agent> {
    let (name, address): (String, String) =
        (argument(args, 0, "name")?, argument(args, 1, "address")?);
    let sink = Arc::clone(received);
    let mut builder = Agent::builder()
        .name(&name)
        .aggregator(&address)
        .on_statement(move |news| {
            sink.take_in(news.domain().unwrap_or_default(), news.change());
        });
    if let (Some(bootstrap), Some(prefix)) = (args.get(2), args.get(3)) {
        builder = builder.kafka(bootstrap).kafka_topic_prefix(prefix);
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lift_is_distinguished_from_the_denial_before_it() {
        let received = ReceivedChanges::default();
        received.take_in("a", Change::Denied);
        let denied = received.wait_for("a", Change::Denied);
        received.take_in("a", Change::Opened);
        let opened = received.wait_for("a", Change::Opened);
        assert!(denied.is_some() && denied <= opened);
    }
}
