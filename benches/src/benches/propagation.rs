//! How long a denial takes from the call that fills a window into the deny list of the slowest agent.
//!
//! ```text
//! parent    has one of eight agent processes, in turn, hit a new domain
//! agent     stamps the monotonic clock, calls; and stamps it again whenever a denial was entered
//! delay     the latest entry of all eight − the call
//! ```
//!
//! On the journal, where rounds without and with TLS and tokens alternate; and on a real Kafka if this machine can
//! run one, where agents write to Kafka directly. The limit is one hit an hour, so that every call fills a window.
//! All stamps are of one clock that the processes of a machine share; the thread that enters a denial takes the
//! second stamp.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::harness::Session;
use crate::harness::agents::{block_on, builder};
use crate::harness::aggregator::Aggregator;
use crate::harness::child::{Part, argument, send_to_parent};
use crate::harness::clock::monotonic_ns;
use crate::harness::figure::{Figure, Target};
use crate::harness::kafka::{LocalKafka, StartError};
use crate::harness::stats::percentile;
use crate::load::names::domain;
use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

const AGENTS: usize = 8;
/// The time between denials: long compared with the delay, so that denials do not influence each other.
const EVERY: Duration = Duration::from_millis(10);
const USUAL: u32 = 1_000;
const FULL: u32 = 10_000;
/// On the journal the denials are divided into this many rounds.
const ROUNDS: u32 = 3;
/// Warm-up denials: connections, caches, the first pages of the journal.
const WARM_UP: u32 = 50;
/// The same on Kafka: a broker that was just started interprets its code, and takes twice as long at first.
const WARM_UP_KAFKA: u32 = 2_000;
const RECEIVED_WITHIN: Duration = Duration::from_secs(5);

const RESOURCE: &str = "api.closed";
const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.closed"]
tiers = [{ limit = 1, window = "1h", active = "1h" }]
"#;

/// What an agent process saw: domains by number, with nanoseconds of the monotonic clock.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    called: Vec<(u32, u64)>,
    received: Vec<(u32, u64)>,
}

/// Runs the benchmark.
///
/// # Errors
///
/// If agents and aggregator do not work together.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let denials = if session.is_full() { FULL } else { USUAL };
    on_journal(session, denials / ROUNDS)?;
    session.step("on Kafka");
    match LocalKafka::start_to_measure() {
        Ok(kafka) => {
            let prefix = "bench-propagation";
            let aggregator = Aggregator::start_on(&kafka, prefix, LIMITS, 16)?;
            let place = [
                aggregator.agents.clone(),
                kafka.bootstrap().to_owned(),
                prefix.to_owned(),
            ];
            let delays = measure(&place, WARM_UP_KAFKA, denials)?;
            delays.report(session, "Kafka, ", Some((2.0, 10.0)));
        }
        Err(StartError::Absent { reason }) => {
            let name = "Kafka, to the slowest agent: p50";
            session.add(Figure::absent(name, "ms", reason));
        }
        Err(error) => return Err(error).context("starting Kafka"),
    }
    Ok(())
}

/// Rounds of this many denials, without and with TLS and tokens.
fn on_journal(session: &mut Session, denials: u32) -> anyhow::Result<()> {
    let (mut plain, mut secured) = <(Rounds, Rounds)>::default();
    for round in 1..=ROUNDS {
        session.step(&format!("on the journal, round {round} of {ROUNDS}"));
        plain.add(&Aggregator::start(LIMITS, 16)?, denials)?;
        secured.add(&Aggregator::start_secured(LIMITS, 16)?, denials)?;
    }
    plain.delays.report(session, "", Some((1.0, 5.0)));
    secured.delays.report(session, "TLS and tokens, ", None);
    let name = "to the slowest agent: p50 with TLS and tokens, beside without";
    if let Some(ratio) = Figure::of_ratio(name, &secured.p50_ns, &plain.p50_ns) {
        session.add(ratio.target(Target::AtMost(1.15)));
    }
    Ok(())
}

/// Delays of rounds.
#[derive(Default)]
struct Rounds {
    delays: Delays,
    /// The median delay to the slowest agent, by round.
    p50_ns: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, aggregator: &Aggregator, denials: u32) -> anyhow::Result<()> {
        let mut round = measure(&aggregator.place(), WARM_UP, denials)?;
        let p50_ns = percentile(&mut round.slowest, 0.5);
        self.p50_ns.extend(p50_ns.map(|ns| ns as f64));
        self.delays.slowest.append(&mut round.slowest);
        self.delays.each.append(&mut round.each);
        self.delays.undelivered += round.undelivered;
        Ok(())
    }
}

/// The delays of `denials` denials after the warm-up. `place` names the aggregator, and Kafka, for the agents.
fn measure(place: &[String], warm_up: u32, denials: u32) -> anyhow::Result<Delays> {
    let mut parts = Vec::new();
    for number in 0..AGENTS {
        let args = [&[format!("bench-{number}")], place].concat();
        parts.push(Part::start("propagation-agent", &args)?);
    }
    for part in &mut parts {
        ensure!(part.receive::<bool>()?, "an agent has found no aggregator");
    }
    let mut due = Instant::now();
    for number in 0..warm_up + denials {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due += EVERY;
        parts[number as usize % AGENTS].send(&number.to_string())?;
    }
    let mut seen = Vec::new();
    for part in &mut parts {
        part.send(&format!("report {}", warm_up + denials))?;
    }
    for part in &mut parts {
        seen.push(part.receive::<Seen>()?);
    }
    Ok(Delays::of(&seen, warm_up))
}

/// Delays in nanoseconds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Delays {
    /// One per denial: until the slowest agent had it.
    slowest: Vec<u64>,
    /// One per denial and agent.
    each: Vec<u64>,
    /// Denials that some agent never received.
    undelivered: u64,
}

impl Delays {
    /// Combines what the agents saw of the domains from `first` on.
    fn of(seen: &[Seen], first: u32) -> Self {
        let received: Vec<HashMap<u32, u64>> = seen
            .iter()
            .map(|seen| seen.received.iter().copied().collect())
            .collect();
        let mut delays = Self::default();
        let called = seen.iter().flat_map(|seen| &seen.called);
        for (number, called_ns) in called.filter(|(number, _)| first <= *number) {
            let of_all: Vec<u64> = received
                .iter()
                .filter_map(|received| received.get(number))
                .map(|heard_ns| heard_ns.saturating_sub(*called_ns))
                .collect();
            match of_all.iter().max() {
                Some(slowest) if of_all.len() == seen.len() => delays.slowest.push(*slowest),
                _ => delays.undelivered += 1,
            }
            delays.each.extend(of_all);
        }
        delays
    }

    /// Adds figures, with targets for p50 and p99 in milliseconds.
    fn report(mut self, session: &mut Session, log: &str, targets: Option<(f64, f64)>) {
        let (p50_ms, p99_ms) = targets.unzip();
        let denials = self.slowest.len();
        let mut add =
            |name: &str, values: &mut [u64], share: f64, most: Option<f64>, note: String| {
                let Some(delay_ns) = percentile(values, share) else {
                    return;
                };
                let name = format!("{log}{name}");
                let figure = Figure::single(name, "ms", delay_ns as f64 / 1e6).note(note);
                session.add(match most {
                    Some(most) => figure.target(Target::AtMost(most)),
                    None => figure,
                });
            };
        let note = || {
            format!(
                "{denials} denials, {AGENTS} agent processes, one each {} ms",
                EVERY.as_millis()
            )
        };
        add(
            "to the slowest agent: p50",
            &mut self.slowest,
            0.5,
            p50_ms,
            note(),
        );
        add(
            "to the slowest agent: p99",
            &mut self.slowest,
            0.99,
            p99_ms,
            note(),
        );
        add(
            "to the slowest agent: longest",
            &mut self.slowest,
            1.0,
            None,
            note(),
        );
        add("to each agent: p50", &mut self.each, 0.5, None, note());
        add("to each agent: p99", &mut self.each, 0.99, None, note());
        session.add(
            Figure::single(
                format!("{log}denials that an agent never received"),
                "",
                self.undelivered as f64,
            )
            .target(Target::AtMost(0.0)),
        );
    }
}

#[derive(Default)]
struct ReceivedDenials {
    list: Mutex<Vec<(u32, u64)>>,
    changed: Condvar,
}

impl ReceivedDenials {
    fn take_in(&self, domain: &str) {
        let at_ns = monotonic_ns();
        let number = domain
            .rsplit_once(':')
            .and_then(|(_, number)| number.parse().ok());
        if let Some(number) = number {
            self.list
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((number, at_ns));
            self.changed.notify_all();
        }
    }

    /// What was received, once there are `count` entries, or no more can be expected.
    fn wait_for(&self, count: usize) -> Vec<(u32, u64)> {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(list, RECEIVED_WITHIN, |list| list.len() < count);
        let (list, _) = waited.unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}

/// The child: one agent.
///
/// # Errors
///
/// If its settings are invalid, or the parent sends an unexpected line.
pub fn child_agent(args: &[String]) -> anyhow::Result<()> {
    let name: String = argument(args, 0, "name")?;
    let received = Arc::new(ReceivedDenials::default());
    let sink = Arc::clone(&received);
    let agent = builder(&name, args.get(1..).unwrap_or_default())?
        .on_statement(move |news| sink.take_in(news.domain().unwrap_or_default()))
        .build()?;
    let rate = agent.rate(RESOURCE);
    send_to_parent(&block_on(agent.ready(Duration::from_secs(10)))?)?;
    let mut called = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        if let Some(count) = line.strip_prefix("report ") {
            let received = received.wait_for(count.parse()?);
            return send_to_parent(&Seen { called, received });
        }
        let number: u32 = line.parse().with_context(|| format!("received {line:?}"))?;
        let name = domain(number);
        let at_ns = monotonic_ns();
        let answer = rate.hit(&name);
        ensure!(answer.is_ok(), "{name} is denied before it was hit");
        called.push((number, at_ns));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_ends_with_the_slowest_agent() {
        let seen = [
            Seen {
                called: vec![(0, 5), (1, 100), (3, 300)],
                received: vec![(0, 9), (1, 130), (2, 240), (3, 310)],
            },
            Seen {
                called: vec![(2, 200)],
                received: vec![(0, 8), (1, 150), (2, 210)],
            },
        ];
        let delays = Delays::of(&seen, 1);
        assert_eq!(delays.slowest, [50, 40]);
        assert_eq!(delays.each, [30, 50, 10, 40, 10]);
        assert_eq!(delays.undelivered, 1);
    }
}
