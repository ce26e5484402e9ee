//! An aggregator is killed and restarted: how long until a thousand agents receive its feed again.
//!
//! ```text
//! parent    kills the aggregator (signal 9), restarts it on its journal and its ports
//! agents    four processes of 250; one of them fills a window as soon as the aggregator listens again
//! end       every agent has received that denial
//! ```
//!
//! The time is measured from the instant at which the new process listens. Agents reconnect by themselves, with
//! their shipped settings; without TLS, and with TLS and tokens. The aggregator with TLS allows as many pending
//! handshakes from one address as in all, since all agents have one address here. (No agent is blind meanwhile:
//! its watermarks of rates hold for a minute.)

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use tollgate_agent::Agent;

use crate::harness::Session;
use crate::harness::agents::{block_on, builder};
use crate::harness::aggregator::Aggregator;
use crate::harness::child::{Part, argument, send_to_parent};
use crate::harness::clock::monotonic_ns;
use crate::harness::figure::{Figure, Target};

const PROCESSES: u64 = 4;
const AGENTS: u64 = 250;
const ROUNDS: u64 = 3;
/// How long the aggregator stays away before the restart: every agent notices that.
const AWAY: Duration = Duration::from_secs(3);
/// After this time the benchmark gives up on an agent that is still blind, and on the round.
const WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

const RESOURCE: &str = "api.closed";
const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.closed"]
tiers = [{ limit = 1, window = "1h", active = "1h" }]
"#;

/// When the last agent of a process received a denial, or when the call that caused the denial was made.
#[derive(Debug, Serialize, Deserialize)]
struct Back {
    at_ns: u64,
}

/// Runs the benchmark.
///
/// # Errors
///
/// If a process cannot be started, or an agent stays blind.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    tollgate_server::edge::raise_descriptors();
    let agents = PROCESSES * AGENTS;
    let name = format!("until {agents} agents hear again");
    measure(session, Aggregator::start(LIMITS, 16)?, &name)?;
    let name = format!("{name}, over TLS and with tokens");
    measure(session, Aggregator::start_secured(LIMITS, 16)?, &name)
}

fn measure(session: &mut Session, mut aggregator: Aggregator, name: &str) -> anyhow::Result<()> {
    let mut parts = Vec::new();
    for process in 0..PROCESSES {
        let args = [&[process.to_string()][..], &aggregator.place()].concat();
        parts.push(Part::start("comeback-agents", &args)?);
    }
    for part in &mut parts {
        ensure!(part.receive::<bool>()?, "an agent has found no aggregator");
    }
    let mut back_s = Vec::new();
    for round in 0..ROUNDS {
        session.step(&format!("{name}, round {}", round + 1));
        aggregator.kill()?;
        std::thread::sleep(AWAY);
        aggregator.again()?;
        let listens_ns = monotonic_ns();
        parts[0].send(&format!("hit {round}"))?;
        parts[0].receive::<Back>()?;
        let last_ns = ask_all(&mut parts, &format!("received {round}"))?;
        back_s.push(last_ns.saturating_sub(listens_ns) as f64 / 1e9);
    }
    if let Some(figure) = Figure::of_rounds(name, "s", &back_s) {
        let note = "all on one machine, beside the aggregator; killed with signal 9, away for 3 s";
        session.add(figure.target(Target::AtMost(5.0)).note(note));
    }
    Ok(())
}

/// Sends the same line to all processes. Returns the latest instant of their answers.
fn ask_all(parts: &mut [Part], what: &str) -> anyhow::Result<u64> {
    parts.iter_mut().try_for_each(|part| part.send(what))?;
    let mut last_ns = 0;
    for part in parts {
        last_ns = last_ns.max(part.receive::<Back>()?.at_ns);
    }
    Ok(last_ns)
}

/// The denials that the agents of this process received, by agent and by the number of the denial's round.
type ReceivedRounds = Arc<Mutex<HashSet<(u64, u64)>>>;

/// The child: many agents.
///
/// # Errors
///
/// If settings are invalid, an agent stays blind, or the parent sends an unexpected line.
pub fn child_agents(args: &[String]) -> anyhow::Result<()> {
    tollgate_server::edge::raise_descriptors();
    let process: u64 = argument(args, 0, "process")?;
    let place = args.get(1..).unwrap_or_default();
    let received = ReceivedRounds::default();
    let last_ns = Arc::new(AtomicU64::new(0));
    let mut agents: Vec<Agent> = Vec::new();
    for number in 0..AGENTS {
        let (sink, at_ns) = (Arc::clone(&received), Arc::clone(&last_ns));
        let agent = builder(&format!("bench-{process}-{number}"), place)?
            .on_statement(move |news| {
                let round = news.domain().and_then(|domain| domain.parse().ok());
                if let Some(round) = round {
                    let mut received = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    received.insert((number, round));
                    at_ns.fetch_max(monotonic_ns(), Ordering::Relaxed);
                }
            })
            .build()?;
        // An agent receives denials of the resources that it uses.
        let _ = agent.rate(RESOURCE);
        agents.push(agent);
    }
    for agent in &agents {
        ensure!(block_on(agent.ready(WITHIN))?, "an agent is not ready");
    }
    send_to_parent(&true)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let at_ns = match line.split_once(' ') {
            Some(("hit", round)) => {
                let at_ns = monotonic_ns();
                ensure!(
                    agents[0].rate(RESOURCE).hit(round).is_ok(),
                    "it is denied before it was hit"
                );
                at_ns
            }
            Some(("received", round)) => {
                let round: u64 = round.parse()?;
                wait(|| {
                    let received = received.lock().unwrap_or_else(PoisonError::into_inner);
                    (0..AGENTS).all(|number| received.contains(&(number, round)))
                })?;
                last_ns.load(Ordering::Relaxed)
            }
            _ => bail!("received {line:?}"),
        };
        send_to_parent(&Back { at_ns })?;
    }
    Ok(())
}

fn wait(mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so() {
        ensure!(begun.elapsed() < WITHIN, "not within {WITHIN:?}");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
