//! Many seeds, on several cores: what they met, what they found, how fast that went.
//!
//! Each worker takes the next seed, runs it alone, and adds what it came to. Knows nothing of terminals: who
//! runs a swarm is told of each seed. What stays true: seeds that failed once and are kept run first; a swarm
//! that is large enough fails where something was never met; what is added up does not depend on how many
//! workers there are; a seed that panics is one that fails, and ends no other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::built;
use super::coverage::Coverage;
use super::held::Returns;
use super::kept::{Kept, PLANS};
use super::plan::{KILLS_WAY, Plan};
use super::so_far::{self, SoFar, SoFarFault};
use super::trace::Violation;
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
    /// How long new seeds are begun: those that are to be run first are run, however long they take.
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
    /// In which way plans are drawn, if not in the present one.
    pub way: Option<u32>,
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
            way: None,
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

    /// In which way plans are drawn, but for seeds that are kept.
    pub fn way(&self) -> u32 {
        match self.kills {
            Some(_) => KILLS_WAY,
            None => self.way.unwrap_or(PLANS),
        }
    }

    fn plan(&self, task: Task) -> Plan {
        self.plan_of(task.plans.unwrap_or(self.way()), task.seed)
    }

    /// What a seed stands for in this order.
    pub fn plan_of(&self, way: u32, seed: u64) -> Plan {
        let plan = Plan::draw_as(way, seed).unwrap_or_else(|| Plan::draw(seed));
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
    /// In which way its plan was drawn, where it is kept; none: as the order says.
    pub plans: Option<u32>,
}

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The seed.
    pub seed: u64,
    /// In which way its plan was drawn.
    pub way: u32,
    /// How it failed.
    pub violation: Violation,
}

/// What it came to.
#[derive(Debug, Default)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Those of them that are kept.
    pub kept: u64,
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
    /// Faults that were planned, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Agents that died while they held copies; and the longest time until those were back, where nothing
    /// else was wrong.
    pub returns: Returns,
    /// Whether it was all about kills.
    pub only_kills: bool,
    /// All seeds that failed, in order.
    pub failed: Vec<Failed>,
    /// The builds that took part, the present one last.
    pub builds: Vec<String>,
}

impl Report {
    /// What should have been met and was not.
    pub fn missing(&self) -> Vec<&'static str> {
        if self.seeds < SEEDS_THAT_MEET_ALL || self.only_kills {
            return Vec::new();
        }
        self.cover.missing()
    }

    /// Whether anybody was refused. A swarm in which nobody was proves nothing.
    pub fn proves_something(&self) -> bool {
        0 < self.refusals
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.missing().is_empty() && self.proves_something()
    }

    fn add(&mut self, task: Task, run: Run, worked: Duration) {
        self.seeds += 1;
        self.kept += u64::from(task.plans.is_some());
        self.decisions += run.decisions;
        self.refusals += run.refusals;
        for episode in &run.plan.episodes {
            *self.faults.entry(episode.fault.kind()).or_default() += 1;
        }
        self.worked += worked;
        self.cover.merge(&run.cover);
        self.returns.kills += run.returns.kills;
        if self.only_kills && run.plan.only_deaths() {
            let longest_us = &mut self.returns.longest_us;
            *longest_us = run.returns.longest_us.max(*longest_us);
        }
        if let Some(violation) = run.violation {
            let (seed, way) = (run.plan.seed, run.plan.way);
            let failed = Failed {
                seed,
                way,
                violation,
            };
            self.failed.push(failed);
            self.failed.sort_by_key(|failed| (failed.seed, failed.way));
        }
    }
}

/// What the workers share.
struct Common<'a> {
    order: &'a Order,
    report: Report,
    before: Duration,
    started: Instant,
    /// When the first new seed was begun.
    new_since: Option<Instant>,
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
        let late = match (order.time, self.new_since) {
            (Some(time), Some(since)) => time <= since.elapsed(),
            _ => false,
        };
        let failed = !self.report.failed.is_empty() && !order.go_on;
        let seeds = self.report.seeds + self.under_way.len() as u64;
        self.stopped |= late || failed;
        if self.stopped || order.is_carried_out(seeds, &self.report) {
            return None;
        }
        let task = self.first.pop_front().unwrap_or_else(|| {
            self.new_since.get_or_insert_with(Instant::now);
            self.next += 1;
            let seed = self.next - 1;
            Task { seed, plans: None }
        });
        self.under_way.insert(task);
        Some(task)
    }

    fn give(&mut self, task: Task, run: Run, worked: Duration) -> Result<(), SoFarFault> {
        self.under_way.remove(&task);
        self.report.add(task, run, worked);
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
    swarm_of(order, &|plan| run(plan, false), after)
}

/// The same by whatever runs a plan.
fn swarm_of(
    order: &Order,
    run: &(impl Fn(Plan) -> Run + Sync),
    after: impl FnMut(&Report) + Send,
) -> Result<Report, SoFarFault> {
    let now = Instant::now();
    let mut common = Common {
        order,
        report: Report {
            only_kills: order.kills.is_some(),
            builds: vec![built::this().to_owned()],
            ..Report::default()
        },
        before: Duration::ZERO,
        started: now,
        new_since: None,
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
            .map(|_| scope.spawn(|| work(order, run, &common)))
            .collect();
        let mut all = work(order, run, &common);
        for other in others {
            // What panics there is not the shipped code, and panics here.
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
    run: &impl Fn(Plan) -> Run,
    common: &Mutex<(Common<'_>, A)>,
) -> Result<(), SoFarFault> {
    loop {
        let Some(task) = lock(common).0.take() else {
            return Ok(());
        };
        let before = worked();
        let run = run(order.plan(task));
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

#[cfg(test)]
mod tests {
    use super::super::faults::{Episode, Fault};
    use super::super::plan::CALM_US;
    use super::super::trace::{NO_LAW, PANICKED};
    use super::*;

    /// The second of some seeds that are short.
    const PLANTED: u64 = 3;

    /// One seed is told of a document that there is not, which panics.
    fn planted(mut plan: Plan) -> Run {
        if plan.seed == PLANTED {
            plan.episodes.push(Episode {
                from_us: 500_000,
                to_us: 500_000,
                fault: Fault::Push { document: 1_000 },
            });
        }
        run(plan, false)
    }

    #[test]
    fn a_seed_that_panics_is_named_and_ends_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let order = Order {
            go_on: true,
            workers: NonZeroUsize::new(2).expect("two"),
            state: Some(dir.path().join("state.json")),
            ..Order::of(PLANTED - 1, Some(4))
        };
        let report = swarm_of(&order, &planted, |_| {}).expect("it is written");
        assert_eq!(report.seeds, 4);
        let [failed] = &report.failed[..] else {
            panic!("one fails: {:?}", report.failed);
        };
        assert_eq!((failed.seed, failed.way), (PLANTED, PLANS));
        assert_eq!(failed.violation.law, NO_LAW);
        assert_eq!(failed.violation.check, PANICKED);
        let told = failed.violation.to_string();
        assert!(
            told.starts_with("the program panicked: index out of bounds"),
            "{told}"
        );
        assert!(!report.is_good());
        // What stands in the file names it, too, and how it failed.
        let gone_on = swarm_of(&order, &planted, |_| {}).expect("it is read");
        assert_eq!(gone_on.failed, report.failed);
    }

    #[test]
    fn kept_seeds_are_run_however_little_time_there_is() {
        let kept = |plans, seed| Kept {
            plans,
            seed,
            story: String::new(),
        };
        let order = Order {
            time: Some(Duration::ZERO),
            kept: vec![kept(3, PLANTED), kept(PLANS, PLANTED)],
            ..Order::of(PLANTED - 1, None)
        };
        let drawn = Mutex::new(Vec::new());
        let noted = |plan: Plan| {
            lock(&drawn).push((plan.way, plan.seed));
            let (length_us, episodes) = (CALM_US, Vec::new());
            let plan = Plan {
                length_us,
                episodes,
                ..plan
            };
            run(plan, false)
        };
        let report = swarm_of(&order, &noted, |_| {}).expect("nothing is written");
        assert_eq!((report.seeds, report.kept), (3, 2));
        let expected = [(3, PLANTED), (PLANS, PLANTED), (PLANS, PLANTED - 1)];
        assert_eq!(*lock(&drawn), expected);
    }
}
