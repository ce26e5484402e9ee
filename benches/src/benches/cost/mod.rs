//! The cost of a decision: CPU microseconds of all processes together, at everyday rates and at none.
//!
//! ```text
//! ours         a process that calls its agent, and an aggregator with a journal and 16 partitions
//! Redis        a process that runs a script (INCR, and EXPIRE at the first) over a connection, and redis-server
//! gubernator   a process that asks by gRPC (tonic), and one node
//! ratelimit    a process that asks by gRPC as Envoy does, envoyproxy/ratelimit, and redis-server
//! cost         CPU of all these processes while calls are made − what the pace alone takes the caller, ÷ decisions
//! ```
//!
//! limitador-server comes neither by crates.io nor by another package registry; so it is not among them.
//!
//! One thread makes calls when they are due, each on a random domain; a late call at once. The CPU time that a
//! thread takes to wait for the next call is not part of the cost; it is measured separately, just before, without
//! calls. CPU time is what the scheduler counts, in nanoseconds, of every thread of a process. Rounds of all sides
//! and rates alternate. If a peer does not reach an offered rate, it has no figure, and is not offered that rate again.
//!
//! Idle figures: CPU time, and how many times threads waited, over some seconds without calls, of all sides at once; when
//! nobody has called for so long that the last snapshots were taken.

mod caller;

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::child::Part;
use crate::harness::figure::{Figure, Target};
use crate::harness::peers::gubernator::Gubernator;
use crate::harness::peers::ratelimit::RateLimit;
use crate::harness::peers::redis::Redis;
use crate::harness::peers::{Peer, StartError};
use crate::harness::serving::ProcessUsage;
use crate::harness::stats::Spread;
use caller::{CallOrder, Spent};
pub use caller::{child_agent, child_gubernator, child_ratelimit, child_redis};

/// Decisions a second, and the allowed cost of one, in microseconds of CPU.
const RATES: [(u64, f64); 4] = [(1_000, 25.0), (10_000, 12.0), (30_000, 8.0), (100_000, 4.0)];

const ROUNDS: usize = 5;

/// The number of domains, each called less than 100 times a second: at the greatest rate a tenth of that.
const DOMAINS: u32 = 10_000;

const RESOURCE: &str = "api.search";
const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "100/s"
"#;
const PARTITIONS: u32 = 16;

/// How much of a core an idle agent, and an idle aggregator, may take, in percent.
const IDLE_AGENT: f64 = 0.1;
const IDLE_AGGREGATOR: f64 = 0.3;

/// How long the last batches take to be sent and answered.
const SETTLES_IN: Duration = Duration::from_millis(200);

/// After the last call an aggregator takes a snapshot of each partition, 30 s after the one before: only then is it idle.
const IDLE_AFTER: Duration = Duration::from_secs(35);

/// From this percentage on an offered rate counts as reached.
const REACHED: f64 = 98.0;

/// A kind of peer: its name in figures, its name in remarks, its caller's part, and how to start its servers.
struct PeerKind {
    name: &'static str,
    short: &'static str,
    caller: &'static str,
    start: fn() -> Result<Box<dyn Peer>, StartError>,
}

const PEERS: [PeerKind; 3] = [
    PeerKind {
        name: "Redis, a script in line",
        short: "Redis",
        caller: "cost-redis",
        start: || Ok(Box::new(Redis::start()?)),
    },
    PeerKind {
        name: "gubernator, one node",
        short: "gubernator",
        caller: "cost-gubernator",
        start: || Ok(Box::new(Gubernator::start()?)),
    },
    PeerKind {
        name: "envoyproxy/ratelimit, Redis",
        short: "ratelimit",
        caller: "cost-ratelimit",
        start: || Ok(Box::new(RateLimit::start()?)),
    },
];

/// A caller and the processes that it asks.
struct Side {
    caller: Part,
    servers: Vec<u32>,
}

/// A peer during the benchmark.
struct BesidePeer {
    kind: &'static PeerKind,
    /// Its running processes; the reason, if this machine lacks it.
    side: Result<(Side, Box<dyn Peer>), String>,
    /// By rates.
    costs: Vec<Costs>,
    /// Its idle servers.
    idle: Idle,
}

/// What idle processes take, by rounds.
#[derive(Clone, Debug, Default)]
struct Idle {
    /// The share of a core, in percent.
    cpu: Vec<f64>,
    /// Waits of threads a second.
    waits: Vec<f64>,
}

impl Idle {
    fn add(&mut self, used: ProcessUsage, span: Duration) {
        self.cpu
            .push(100.0 * used.cpu_ns as f64 / 1e9 / span.as_secs_f64());
        self.waits.push(used.waits as f64 / span.as_secs_f64());
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// If agent and aggregator do not work together.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let aggregator = Aggregator::start(LIMITS, PARTITIONS)?;
    let caller = Part::start("cost-agent", std::slice::from_ref(&aggregator.agents))?;
    let mut ours = Side::ready(caller, vec![aggregator.id()])?;
    let mut peers = Vec::new();
    for kind in &PEERS {
        peers.push(BesidePeer::start(kind).with_context(|| format!("starting {}", kind.name))?);
    }
    let seconds = if session.is_full() { 10 } else { 2 };
    let mut costs = vec![Costs::default(); RATES.len()];
    let (mut idle_agent, mut idle_aggregator) = (Idle::default(), Idle::default());
    for round in 1..=ROUNDS {
        session.step(&format!("round {round} of {ROUNDS}"));
        for (at, ((rate, _), of_ours)) in RATES.iter().zip(&mut costs).enumerate() {
            of_ours.add(&ours.spend(*rate, seconds)?);
            for peer in &mut peers {
                peer.spend(at, seconds)?;
            }
        }
    }
    std::thread::sleep(IDLE_AFTER);
    let span = Duration::from_secs(2 * seconds);
    for round in 1..=ROUNDS {
        session.step(&format!("idle, round {round} of {ROUNDS}"));
        let (agent, aggregator) = idle_of(&ours, &mut peers, span)?;
        idle_agent.add(agent, span);
        idle_aggregator.add(aggregator, span);
    }
    for (at, of_ours) in costs.iter().enumerate() {
        session.add(figure(at, of_ours, &peers));
    }
    let name = format!("an idle aggregator, {PARTITIONS} partitions");
    add_idle(session, "an idle agent", (&idle_agent, IDLE_AGENT), &[]);
    add_idle(session, &name, (&idle_aggregator, IDLE_AGGREGATOR), &peers);
    Ok(())
}

/// Adds the figures of an idle process, which may take `most` percent of a core, beside those of peers.
fn add_idle(session: &mut Session, name: &str, (ours, most): (&Idle, f64), peers: &[BesidePeer]) {
    let beside = |figure: Figure, of: fn(&Idle) -> &[f64]| {
        let all = peers.iter();
        all.fold(figure, |figure, peer| {
            figure.peer(peer.kind.name, of(&peer.idle))
        })
    };
    if let Some(figure) = Figure::of_rounds(name, "% of a core", &ours.cpu) {
        session.add(beside(figure.target(Target::AtMost(most)), |idle| {
            &idle.cpu
        }));
    }
    if let Some(figure) = Figure::of_rounds(format!("{name}: waits"), "a second", &ours.waits) {
        session.add(beside(figure, |idle| &idle.waits));
    }
}

impl BesidePeer {
    fn start(kind: &'static PeerKind) -> anyhow::Result<Self> {
        let side = match (kind.start)() {
            Ok(servers) => {
                let caller = Part::start(kind.caller, &[servers.address()])?;
                Ok((Side::ready(caller, servers.ids())?, servers))
            }
            Err(StartError::Absent { reason }) => Err(reason),
            Err(StartError::Failed(error)) => return Err(error),
        };
        Ok(Self {
            kind,
            side,
            costs: vec![Costs::default(); RATES.len()],
            idle: Idle::default(),
        })
    }

    /// Has its caller make calls at the rate with this index, unless it has failed to reach it.
    fn spend(&mut self, at: usize, seconds: u64) -> anyhow::Result<()> {
        let costs = &mut self.costs[at];
        if let Ok((side, _)) = &mut self.side
            && costs.misses_none()
        {
            costs.add(&side.spend(RATES[at].0, seconds)?);
        }
        Ok(())
    }

    /// What a remark says of it at the rate with this index.
    fn remark(&self, at: usize) -> String {
        let (name, costs) = (self.kind.short, &self.costs[at]);
        match &self.side {
            Err(why) => format!("no {name} beside it: {why}"),
            Ok(_) if !costs.is_reached() => {
                format!("{name}: one connection does not reach the rate")
            }
            Ok(_) => format!(
                "{name}: caller {:.1}, server {:.1}",
                median(&costs.caller),
                median(&costs.server)
            ),
        }
    }
}

/// Costs of one side at one rate, by rounds.
#[derive(Clone, Debug, Default)]
struct Costs {
    /// Of one decision, in microseconds.
    whole: Vec<f64>,
    caller: Vec<f64>,
    server: Vec<f64>,
    /// The share of the rate that was reached, in percent.
    reached: Vec<f64>,
}

/// CPU of one run.
#[derive(Clone, Copy, Debug)]
struct CostRun {
    decisions: u64,
    reached: f64,
    caller_ns: u64,
    server_ns: u64,
}

impl Costs {
    fn add(&mut self, run: &CostRun) {
        let each = |ns: u64| ns as f64 / 1e3 / run.decisions.max(1) as f64;
        self.whole.push(each(run.caller_ns + run.server_ns));
        self.caller.push(each(run.caller_ns));
        self.server.push(each(run.server_ns));
        self.reached.push(run.reached);
    }

    /// Whether the rate was reached in every round.
    fn is_reached(&self) -> bool {
        !self.reached.is_empty() && self.misses_none()
    }

    /// Whether no round so far failed to reach the rate.
    fn misses_none(&self) -> bool {
        self.reached.iter().all(|percent| REACHED <= *percent)
    }
}

fn median(rounds: &[f64]) -> f64 {
    Spread::of(rounds).map_or(0.0, |of| of.median)
}

fn figure(at: usize, ours: &Costs, peers: &[BesidePeer]) -> Figure {
    let (rate, target) = RATES[at];
    let name = format!("a decision at {}/s", thousands(rate));
    let unit = "us of CPU";
    if !ours.is_reached() {
        return Figure::absent(name, unit, "the rate was not reached")
            .target(Target::AtMost(target));
    }
    let Some(figure) = Figure::of_rounds(&*name, unit, &ours.whole) else {
        return Figure::absent(name, unit, "no round");
    };
    let mut note = format!(
        "{DOMAINS} domains by chance under 100/s; agent {:.1}, aggregator {:.1}",
        median(&ours.caller),
        median(&ours.server)
    );
    for peer in peers {
        note.push_str("; ");
        note.push_str(&peer.remark(at));
    }
    let figure = figure.target(Target::AtMost(target)).note(note);
    peers.iter().fold(figure, |figure, peer| {
        let rounds = &peer.costs[at];
        match rounds.is_reached() {
            true => figure.peer(peer.kind.name, &rounds.whole),
            false => figure,
        }
    })
}

fn thousands(rate: u64) -> String {
    crate::harness::figure::number(rate as f64).replace(' ', ",")
}

impl Side {
    fn ready(mut caller: Part, servers: Vec<u32>) -> anyhow::Result<Self> {
        ensure!(
            caller.receive::<bool>()?,
            "a caller has found nothing to ask"
        );
        Ok(Self { caller, servers })
    }

    fn order(&mut self, order: CallOrder) -> anyhow::Result<Spent> {
        self.caller.send(&serde_json::to_string(&order)?)?;
        self.caller.receive()
    }

    /// Has the caller make calls.
    fn spend(&mut self, rate: u64, seconds: u64) -> anyhow::Result<CostRun> {
        let pace = self.order(CallOrder {
            rate,
            seconds: 1,
            calls: false,
        })?;
        std::thread::sleep(SETTLES_IN);
        let before = self.cpu_ns();
        let spent = self.order(CallOrder {
            rate,
            seconds,
            calls: true,
        })?;
        std::thread::sleep(SETTLES_IN);
        let after = self.cpu_ns();
        ensure!(spent.refused == 0, "{spent:?}: calls far below a limit");
        Ok(CostRun {
            decisions: spent.decisions,
            reached: 100.0 * spent.decisions as f64 / (rate * seconds) as f64
                * (seconds as f64 / spent.seconds).min(1.0),
            caller_ns: after.0.saturating_sub(before.0 + pace.thread_ns * seconds),
            server_ns: after.1.saturating_sub(before.1),
        })
    }

    /// CPU of the caller, and of its servers together, since they started.
    fn cpu_ns(&self) -> (u64, u64) {
        let (caller, servers) = self.usage();
        (caller.cpu_ns, servers.cpu_ns)
    }

    /// What the caller, and its servers together, have used since they started.
    fn usage(&self) -> (ProcessUsage, ProcessUsage) {
        (
            ProcessUsage::of(&[self.caller.id()]),
            ProcessUsage::of(&self.servers),
        )
    }
}

/// What an agent and an aggregator use while nothing happens; each peer adds its own.
fn idle_of(
    ours: &Side,
    peers: &mut [BesidePeer],
    span: Duration,
) -> anyhow::Result<(ProcessUsage, ProcessUsage)> {
    let of_peers = |peers: &[BesidePeer]| -> Vec<ProcessUsage> {
        let sides = peers.iter().map(|peer| peer.side.as_ref());
        sides
            .map(|side| side.map_or(ProcessUsage::default(), |(side, _)| side.usage().1))
            .collect()
    };
    let (before, peers_before) = (ours.usage(), of_peers(peers));
    std::thread::sleep(span);
    let (after, peers_after) = (ours.usage(), of_peers(peers));
    ensure!(
        0 < after.1.cpu_ns,
        "this kernel says nothing of a process's CPU"
    );
    for (peer, (before, after)) in peers
        .iter_mut()
        .zip(peers_before.into_iter().zip(peers_after))
    {
        if peer.side.is_ok() {
            peer.idle.add(after.since(before), span);
        }
    }
    Ok((after.0.since(before.0), after.1.since(before.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_was_not_reached_has_no_figure() {
        let run = |reached| CostRun {
            decisions: 1_000,
            reached,
            caller_ns: 3_000_000,
            server_ns: 1_000_000,
        };
        let mut ours = Costs::default();
        ours.add(&run(100.0));
        assert_eq!(
            (ours.whole[0], ours.caller[0], ours.server[0]),
            (4.0, 3.0, 1.0)
        );
        let mut theirs = Costs::default();
        theirs.add(&run(60.0));
        let peer = |costs: &Costs, side| BesidePeer {
            kind: &PEERS[0],
            side,
            costs: vec![costs.clone(); RATES.len()],
            idle: Idle::default(),
        };
        let absent = || Err("redis-server is not installed".to_owned());
        let good = figure(2, &ours, &[peer(&theirs, absent())]);
        assert_eq!(good.is_met(), Some(true));
        assert!(
            good.remark()
                .is_some_and(|text| text.contains("no Redis beside it"))
        );
        assert_eq!(figure(2, &theirs, &[peer(&ours, absent())]).is_met(), None);
        assert!(ours.misses_none() && !theirs.misses_none());
    }
}
