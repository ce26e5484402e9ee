//! Many seeds, one after the other: what they met, what they found, how fast that went.
//!
//! Knows nothing of terminals: who runs a swarm is told of each seed. What stays true: seeds that failed
//! once and are kept run first; a swarm that is large enough fails where something was never met.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::coverage::Coverage;
use super::held::Returns;
use super::kept::Kept;
use super::plan::Plan;
use super::{Run, run};

/// From so many seeds on a swarm has to have met everything.
pub const SEEDS_THAT_MEET_ALL: u64 = 3_000;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The first seed.
    pub first: u64,
    /// How many; none: as long as there is time.
    pub seeds: Option<u64>,
    /// How long at most.
    pub time: Option<Duration>,
    /// Whether to go on until one fails.
    pub until_failure: bool,
    /// Seeds to run first.
    pub kept: Vec<Kept>,
    /// All about agents that die while they hold copies: until so many have.
    pub kills: Option<u64>,
    /// Whether to go on after one that fails.
    pub go_on: bool,
    /// Whether topics are made anew.
    pub anew: bool,
}

/// What it came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Calls decided.
    pub decisions: u64,
    /// Calls refused under denials.
    pub refusals: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Of that, what the one core was at work on it: others may want the machine too.
    pub worked: Duration,
    /// What was met.
    pub cover: Coverage,
    /// Faults that were tried.
    pub faults: u64,
    /// Agents that died while they held copies; and the longest time until those were back, where nothing
    /// else was wrong.
    pub returns: Returns,
    /// Whether it was all about kills.
    pub only_kills: bool,
    /// The first run that failed.
    pub failure: Option<Run>,
    /// All seeds that failed.
    pub failed: Vec<u64>,
}

impl Report {
    /// What should have been met and was not.
    pub fn missing(&self) -> Vec<&'static str> {
        if self.seeds < SEEDS_THAT_MEET_ALL || self.only_kills {
            return Vec::new();
        }
        self.cover.missing()
    }

    /// Whether nothing is wrong. A swarm in which nobody was refused proves nothing.
    pub fn is_good(&self) -> bool {
        self.failure.is_none() && self.missing().is_empty() && 0 < self.refusals
    }
}

/// Runs seeds until one fails or the order is carried out; `after` is told of how far it is.
pub fn swarm(order: &Order, mut after: impl FnMut(&Report)) -> Report {
    let (started, worked) = (Instant::now(), worked());
    let mut report = Report {
        only_kills: order.kills.is_some(),
        ..Report::default()
    };
    let kept = order.kept.iter().map(|kept| (kept.seed, Some(kept.plans)));
    for (seed, plans) in kept.chain((order.first..).map(|seed| (seed, None))) {
        let enough = order
            .seeds
            .is_some_and(|seeds| seeds + order.kept.len() as u64 <= report.seeds);
        let late = order.time.is_some_and(|time| time <= started.elapsed());
        let killed = order
            .kills
            .is_some_and(|kills| kills <= report.returns.kills);
        if late || killed || enough && !order.until_failure {
            break;
        }
        let plan = match order.kills {
            Some(_) => Plan::draw_kills(seed),
            None => plans
                .and_then(|plans| Plan::draw_as(plans, seed))
                .unwrap_or_else(|| Plan::draw(seed)),
        };
        let plan = match order.anew {
            true => plan.with_topic_anew(),
            false => plan,
        };
        let run = run(plan, false);
        report.seeds += 1;
        report.decisions += run.decisions;
        report.refusals += run.refusals;
        report.faults += run.plan.episodes.len() as u64;
        report.cover.merge(&run.cover);
        report.returns.kills += run.returns.kills;
        if order.kills.is_some() && run.plan.only_kills() {
            let longest_us = &mut report.returns.longest_us;
            *longest_us = run.returns.longest_us.max(*longest_us);
        }
        report.elapsed = started.elapsed();
        report.worked = self::worked().saturating_sub(worked);
        if run.violation.is_some() {
            report.failed.push(seed);
            report.failure.get_or_insert(run);
            if !order.go_on {
                break;
            }
        }
        after(&report);
    }
    report
}

/// What this thread has had of a core so far.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
