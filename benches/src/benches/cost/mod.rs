//! The cost of a decision: CPU microseconds of all processes together, at everyday rates and at none.
//!
//! ```text
//! ours     a process that calls its agent, and an aggregator with a journal and 16 partitions
//! Redis    a process that runs a script (INCR, and EXPIRE at the first) over a connection, and redis-server
//! cost     CPU of both processes while calls are made − what the pace alone takes the caller, ÷ decisions
//! ```
//!
//! One thread makes calls when they are due, each on a random domain; a late call at once. The CPU time that a
//! thread takes to wait for the next call is not part of the cost; it is measured separately, just before, without
//! calls. CPU time is what the scheduler counts, in nanoseconds, of every thread of a process. Rounds of all sides
//! and rates alternate. If an offered rate is not reached, there is no figure for it.
//!
//! Idle is the same over some seconds without calls.

mod caller;

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::child::Part;
use crate::harness::figure::{Figure, Target};
use crate::harness::owner::process_cpu_ns;

use crate::harness::redis::{Redis, StartError};
use caller::{CallOrder, Spent};
pub use caller::{child_agent, child_redis};

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

/// From this percentage on an offered rate counts as reached.
const REACHED: f64 = 98.0;

/// A caller and the process that it asks.
struct Side {
    caller: Part,
    server: u32,
}

/// Runs the benchmark.
///
/// # Errors
///
/// If agent and aggregator do not work together.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let aggregator = Aggregator::start(LIMITS, PARTITIONS)?;
    let caller = Part::start("cost-agent", std::slice::from_ref(&aggregator.agents))?;
    let mut ours = Side::ready(caller, aggregator.id())?;
    let (redis, why_none) = match Redis::start() {
        Ok(redis) => (Some(redis), None),
        Err(StartError::Absent { reason }) => (None, Some(reason)),
        Err(StartError::Failed(error)) => return Err(error).context("starting Redis"),
    };
    let mut theirs = match &redis {
        Some(redis) => {
            let caller = Part::start("cost-redis", &[redis.address().to_owned()])?;
            Some(Side::ready(caller, redis.id())?)
        }
        None => None,
    };
    let seconds = if session.is_full() { 10 } else { 2 };
    let mut costs = vec![(Costs::default(), Costs::default()); RATES.len()];
    let mut idle: (Vec<f64>, Vec<f64>) = Default::default();
    for round in 1..=ROUNDS {
        session.step(&format!("round {round} of {ROUNDS}"));
        for ((rate, _), (of_ours, of_theirs)) in RATES.iter().zip(&mut costs) {
            of_ours.add(&ours.spend(*rate, seconds)?);
            if let Some(theirs) = &mut theirs {
                of_theirs.add(&theirs.spend(*rate, seconds)?);
            }
        }
        let (agent, aggregator) = ours.idle(Duration::from_secs(2 * seconds))?;
        idle.0.push(agent);
        idle.1.push(aggregator);
    }
    for ((rate, target), (of_ours, of_theirs)) in RATES.iter().zip(&costs) {
        session.add(figure(
            *rate,
            *target,
            of_ours,
            of_theirs,
            why_none.as_deref(),
        ));
    }
    let shares = [
        ("an idle agent", &idle.0, IDLE_AGENT),
        (
            "an idle aggregator, 16 partitions",
            &idle.1,
            IDLE_AGGREGATOR,
        ),
    ];
    for (name, rounds, most) in shares {
        if let Some(figure) = Figure::of_rounds(name, "% of a core", rounds) {
            session.add(figure.target(Target::AtMost(most)));
        }
    }
    Ok(())
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
        !self.reached.is_empty() && self.reached.iter().all(|percent| REACHED <= *percent)
    }
}

fn figure(rate: u64, target: f64, ours: &Costs, theirs: &Costs, why_none: Option<&str>) -> Figure {
    let name = format!("a decision at {}/s", thousands(rate));
    let unit = "us of CPU";
    if !ours.is_reached() {
        return Figure::absent(name, unit, "the rate was not reached")
            .target(Target::AtMost(target));
    }
    let Some(figure) = Figure::of_rounds(&*name, unit, &ours.whole) else {
        return Figure::absent(name, unit, "no round");
    };
    let median =
        |rounds: &[f64]| crate::harness::stats::Spread::of(rounds).map_or(0.0, |of| of.median);
    let beside = match (why_none, theirs.is_reached()) {
        (Some(why), _) => format!("no Redis beside it: {why}"),
        (None, false) => "Redis: one connection does not reach the rate".to_owned(),
        (None, true) => format!(
            "Redis: caller {:.1}, server {:.1}",
            median(&theirs.caller),
            median(&theirs.server)
        ),
    };
    let note = format!(
        "{DOMAINS} domains by chance under 100/s; agent {:.1}, aggregator {:.1}; {beside}",
        median(&ours.caller),
        median(&ours.server)
    );
    let peers: &[f64] = match theirs.is_reached() {
        true => &theirs.whole,
        false => &[],
    };
    let figure = figure.target(Target::AtMost(target)).note(note);
    figure.peer("Redis, a script in line", peers)
}

fn thousands(rate: u64) -> String {
    crate::harness::figure::number(rate as f64).replace(' ', ",")
}

impl Side {
    fn ready(mut caller: Part, server: u32) -> anyhow::Result<Self> {
        ensure!(caller.hear::<bool>()?, "a caller has heard of nobody");
        Ok(Self { caller, server })
    }

    fn order(&mut self, order: CallOrder) -> anyhow::Result<Spent> {
        self.caller.tell(&serde_json::to_string(&order)?)?;
        self.caller.hear()
    }

    /// Has the caller make calls.
    fn spend(&mut self, rate: u64, seconds: u64) -> anyhow::Result<CostRun> {
        let pace = self.order(CallOrder {
            rate,
            seconds: 1,
            calls: false,
        })?;
        std::thread::sleep(SETTLES_IN);
        let before = (
            process_cpu_ns(self.caller.id()),
            process_cpu_ns(self.server),
        );
        let spent = self.order(CallOrder {
            rate,
            seconds,
            calls: true,
        })?;
        std::thread::sleep(SETTLES_IN);
        let after = (
            process_cpu_ns(self.caller.id()),
            process_cpu_ns(self.server),
        );
        ensure!(spent.refused == 0, "{spent:?}: calls far below a limit");
        Ok(CostRun {
            decisions: spent.decisions,
            reached: 100.0 * spent.decisions as f64 / (rate * seconds) as f64
                * (seconds as f64 / spent.seconds).min(1.0),
            caller_ns: (after.0 - before.0).saturating_sub(pace.thread_ns * seconds),
            server_ns: after.1 - before.1,
        })
    }

    /// The share of a core that both processes take while nothing happens, in percent.
    fn idle(&self, span: Duration) -> anyhow::Result<(f64, f64)> {
        std::thread::sleep(Duration::from_secs(1));
        let before = (
            process_cpu_ns(self.caller.id()),
            process_cpu_ns(self.server),
        );
        std::thread::sleep(span);
        let after = (
            process_cpu_ns(self.caller.id()),
            process_cpu_ns(self.server),
        );
        let percent = |ns: u64| 100.0 * ns as f64 / 1e9 / span.as_secs_f64();
        ensure!(0 < after.1, "this kernel says nothing of a process's CPU");
        Ok((percent(after.0 - before.0), percent(after.1 - before.1)))
    }
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
        let good = figure(30_000, 8.0, &ours, &theirs, None);
        assert_eq!(good.is_met(), Some(true));
        assert!(
            good.remark()
                .is_some_and(|text| text.contains("does not reach"))
        );
        assert_eq!(figure(30_000, 8.0, &theirs, &ours, None).is_met(), None);
    }
}
