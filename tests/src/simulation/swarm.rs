//! Many seeds, on several cores: what they met, what they found, how fast that went.
//!
//! Each worker takes the next seed, runs it alone, and adds what it came to. Knows nothing of terminals: who
//! runs a swarm is told of each seed. What stays true: seeds that failed once and are kept run first; a swarm
//! that is large enough fails where something was never met; what is added up does not depend on how many
//! workers there are.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::coverage::Coverage;
use super::held::Returns;
use super::kept::Kept;
use super::plan::Plan;
use super::so_far::{self, SoFar, SoFarFault};
use super::{Run, run};

/// From so many seeds on a swarm has to have met everything.
pub const SEEDS_THAT_MEET_ALL: u64 = 3_000;

/// How often what a swarm came to so far is written down.
const WRITTEN_EVERY: Duration = Duration::from_secs(10);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// The first seed.
    pub first: u64,
    /// How many at least; none: as long as there is time.
    pub seeds: Option<u64>,
    /// How many decisions at least.
    pub decisions: Option<u64>,
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
    /// How many run at once.
    pub workers: NonZeroUsize,
    /// Where it stands how far it came, for a swarm that is left and gone on with.
    pub state: Option<PathBuf>,
}

impl Order {
    /// So many seeds from one on, and nothing else.
    pub fn of(first: u64, seeds: Option<u64>) -> Self {
        Self {
            first,
            seeds,
            decisions: None,
            time: None,
            until_failure: false,
            kept: Vec::new(),
            kills: None,
            go_on: false,
            anew: false,
            workers: NonZeroUsize::MIN,
            state: None,
        }
    }

    /// Whether that much is all that was asked for.
    fn is_carried_out(&self, seeds: u64, report: &Report) -> bool {
        if let Some(kills) = self.kills {
            return kills <= report.returns.kills;
        }
        let asked = self.seeds.is_some() || self.decisions.is_some();
        let seeds_max = self.seeds.map(|wanted| wanted + self.kept.len() as u64);
        asked
            && !self.until_failure
            && seeds_max.is_none_or(|wanted| wanted <= seeds)
            && self
                .decisions
                .is_none_or(|wanted| wanted <= report.decisions)
    }

    fn plan(&self, task: Task) -> Plan {
        let plan = match self.kills {
            Some(_) => Plan::draw_kills(task.seed),
            None => task
                .plans
                .and_then(|plans| Plan::draw_as(plans, task.seed))
                .unwrap_or_else(|| Plan::draw(task.seed)),
        };
        match self.anew {
            true => plan.with_topic_anew(),
            false => plan,
        }
    }
}

/// A seed to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// The seed.
    pub seed: u64,
    /// In which way its plan was drawn, if not in the present one.
    pub plans: Option<u32>,
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
    /// What cores were at work on it: others may want the machine too.
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
        self.failed.is_empty() && self.missing().is_empty() && 0 < self.refusals
    }

    fn add(&mut self, order: &Order, run: Run, worked: Duration) {
        self.seeds += 1;
        self.decisions += run.decisions;
        self.refusals += run.refusals;
        self.faults += run.plan.episodes.len() as u64;
        self.worked += worked;
        self.cover.merge(&run.cover);
        self.returns.kills += run.returns.kills;
        if order.kills.is_some() && run.plan.only_kills() {
            let longest_us = &mut self.returns.longest_us;
            *longest_us = run.returns.longest_us.max(*longest_us);
        }
        if run.violation.is_some() {
            self.failed.push(run.plan.seed);
            self.failed.sort_unstable();
            self.failure.get_or_insert(run);
        }
    }
}

/// What the workers share.
struct Common<'a> {
    order: &'a Order,
    report: Report,
    before: Duration,
    started: Instant,
    written: Instant,
    /// To be run before all others.
    first: VecDeque<Task>,
    next: u64,
    under_way: BTreeSet<Task>,
    stopped: bool,
}

impl Common<'_> {
    fn take(&mut self) -> Option<Task> {
        let order = self.order;
        let late = order
            .time
            .is_some_and(|time| time <= self.started.elapsed());
        let failed = !self.report.failed.is_empty() && !order.go_on;
        let seeds = self.report.seeds + self.under_way.len() as u64;
        self.stopped |= late || failed;
        if self.stopped || order.is_carried_out(seeds, &self.report) {
            return None;
        }
        let task = self.first.pop_front().unwrap_or_else(|| {
            self.next += 1;
            let seed = self.next - 1;
            Task { seed, plans: None }
        });
        self.under_way.insert(task);
        Some(task)
    }

    fn give(&mut self, task: Task, run: Run, worked: Duration) -> Result<(), SoFarFault> {
        self.under_way.remove(&task);
        self.report.add(self.order, run, worked);
        self.report.elapsed = self.before + self.started.elapsed();
        if WRITTEN_EVERY <= self.written.elapsed() {
            self.written = Instant::now();
            self.write()?;
        }
        Ok(())
    }

    /// What is under way is run again by whoever goes on.
    fn write(&self) -> Result<(), SoFarFault> {
        let Some(path) = &self.order.state else {
            return Ok(());
        };
        let left = self.under_way.iter().chain(&self.first).copied().collect();
        so_far::write(path, self.order, &self.report, self.next, left)
    }
}

/// Runs seeds until one fails or the order is carried out; `after` is told of how far it is.
///
/// # Errors
///
/// Where what stands about an earlier part is not of this order, or cannot be read or written.
pub fn swarm(order: &Order, after: impl FnMut(&Report) + Send) -> Result<Report, SoFarFault> {
    let now = Instant::now();
    let mut common = Common {
        order,
        report: Report {
            only_kills: order.kills.is_some(),
            ..Report::default()
        },
        before: Duration::ZERO,
        started: now,
        written: now,
        first: order
            .kept
            .iter()
            .map(|kept| Task {
                seed: kept.seed,
                plans: Some(kept.plans),
            })
            .collect(),
        next: order.first,
        under_way: BTreeSet::new(),
        stopped: false,
    };
    if let Some(path) = &order.state
        && let Some(found) = so_far::read(path, order)?
    {
        let SoFar { report, next, left } = found;
        (common.before, common.report) = (report.elapsed, report);
        (common.next, common.first) = (next, left.into());
    }
    let common = Mutex::new((common, after));
    let workers: Result<(), SoFarFault> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..order.workers.get())
            .map(|_| scope.spawn(|| work(order, &common)))
            .collect();
        let mut all = work(order, &common);
        for other in others {
            // What panics there, panics here.
            let ended = other
                .join()
                .unwrap_or_else(|why| std::panic::resume_unwind(why));
            all = all.and(ended);
        }
        all
    });
    let (common, _) = common.into_inner().unwrap_or_else(PoisonError::into_inner);
    workers?;
    common.write()?;
    Ok(common.report)
}

/// One worker: seed after seed.
fn work<A: FnMut(&Report)>(
    order: &Order,
    common: &Mutex<(Common<'_>, A)>,
) -> Result<(), SoFarFault> {
    loop {
        let Some(task) = lock(common).0.take() else {
            return Ok(());
        };
        let before = worked();
        let run = run(order.plan(task), false);
        let worked = worked().saturating_sub(before);
        let (common, after) = &mut *lock(common);
        let written = common.give(task, run, worked);
        after(&common.report);
        if written.is_err() {
            common.stopped = true;
            return written;
        }
    }
}

fn lock<T>(common: &Mutex<T>) -> MutexGuard<'_, T> {
    // Another worker has panicked: the swarm is about to end by that.
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this thread has had of a core so far.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
