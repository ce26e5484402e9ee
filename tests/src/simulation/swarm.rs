//! Many seeds, on several cores: what they met, what they found, how fast that went.
//!
//! Each worker takes the next seed, runs it alone, and adds what it came to. Knows nothing of terminals: who
//! runs a swarm is told of each seed. What stays true: seeds that failed once and are kept run first; a swarm
//! that is large enough fails where something was never met; what is added up does not depend on how many
//! workers there are; a seed that panics is one that fails, and ends no other.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::built;
use super::kept::{Kept, PLANS};
use super::plan::{KILLS_WAY, Plan};
use super::rates::Rate;
pub use super::report::{Failed, Report, SEEDS_THAT_MEET_ALL};
use super::so_far::{self, SoFar, SoFarFault};
use super::{Run, run};

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
    /// Rates of faults, in place of those that are drawn.
    pub rates: Vec<Rate>,
    /// In which way plans are drawn, if not in the present one.
    pub way: Option<u32>,
    /// How many run at once.
    pub workers: NonZeroUsize,
    /// Where it stands how far it came, for a swarm that is left and gone on with.
    pub state: Option<PathBuf>,
    /// Set by whoever wants no more seeds begun.
    pub stop: Arc<AtomicBool>,
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
            rates: Vec::new(),
            way: None,
            workers: NonZeroUsize::MIN,
            state: None,
            stop: Arc::default(),
        }
    }

    /// Whether that much is all that was asked for.
    fn is_carried_out(&self, seeds: u64, report: &Report) -> bool {
        if let Some(kills) = self.kills {
            return kills <= report.returns.kills;
        }
        let asked = self.seeds.is_some() || self.decisions.is_some();
        let kept = self.kept.len() as u64;
        let seeds_max = self.seeds.map(|wanted| wanted.saturating_add(kept));
        asked
            && !self.until_failure
            && seeds_max.is_none_or(|wanted| wanted <= seeds)
            && self
                .decisions
                .is_none_or(|wanted| wanted <= report.decisions)
    }

    /// The rates, each as it is asked for.
    pub fn rates_told(&self) -> Vec<String> {
        self.rates.iter().map(ToString::to_string).collect()
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
        let plan = match self.anew {
            true => plan.with_topic_anew(),
            false => plan,
        };
        plan.with_rates(&self.rates)
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
        self.stopped |= late || failed || order.stop.load(Ordering::Relaxed);
        if self.stopped || order.is_carried_out(seeds, &self.report) {
            return None;
        }
        let Some(task) = self.first.pop_front().or_else(|| self.new_task()) else {
            self.stopped = true;
            return None;
        };
        self.under_way.insert(task);
        Some(task)
    }

    /// The next new seed; none: there are no more numbers.
    fn new_task(&mut self) -> Option<Task> {
        self.new_since.get_or_insert_with(Instant::now);
        let seed = self.next;
        self.next = seed.checked_add(1)?;
        Some(Task { seed, plans: None })
    }

    fn give(&mut self, task: Task, run: Run, worked: Duration) {
        self.under_way.remove(&task);
        self.report.add(task, run, worked);
        self.report.elapsed = self.before + self.started.elapsed();
        if WRITTEN_EVERY <= self.written.elapsed() {
            self.written = Instant::now();
            self.write_or_stop();
        }
    }

    /// What was found is told although it cannot be written down, and nothing more is looked for.
    fn write_or_stop(&mut self) {
        if let Err(fault) = self.write() {
            self.stopped = true;
            self.report.unwritten.get_or_insert(fault);
        }
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
/// Where what stands about an earlier part is not of this order, or cannot be read or written: found before the
/// first seed is run. What cannot be written later is in the report.
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
            rates: order.rates_told(),
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
    if order.state.is_some() {
        common.write().map_err(SoFarFault::of_the_first_write)?;
    }
    let common = Mutex::new((common, after));
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..order.workers.get())
            .map(|_| scope.spawn(|| work(order, run, &common)))
            .collect();
        work(order, run, &common);
        for other in others {
            // What panics there is not the shipped code, and panics here.
            other
                .join()
                .unwrap_or_else(|why| std::panic::resume_unwind(why));
        }
    });
    let (mut common, _) = common.into_inner().unwrap_or_else(PoisonError::into_inner);
    common.write_or_stop();
    Ok(common.report)
}

/// One worker: seed after seed.
fn work<A: FnMut(&Report)>(
    order: &Order,
    run: &impl Fn(Plan) -> Run,
    common: &Mutex<(Common<'_>, A)>,
) {
    loop {
        let Some(task) = lock(common).0.take() else {
            return;
        };
        let before = worked();
        let run = run(order.plan(task));
        let worked = worked().saturating_sub(before);
        let (common, after) = &mut *lock(common);
        common.give(task, run, worked);
        after(&common.report);
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
    #[test]
    fn a_state_that_cannot_be_written_is_found_before_the_first_seed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("nowhere").join("state.json");
        let order = Order {
            state: Some(path.clone()),
            ..Order::of(PLANTED, Some(1))
        };
        let never = |plan: Plan| -> Run { panic!("seed {} is run", plan.seed) };
        let fault = swarm_of(&order, &never, |_| {}).expect_err("there is no such directory");
        assert!(matches!(fault, SoFarFault::Create { .. }), "{fault:?}");
        let expected = format!("{}: cannot be written: No such file", path.display());
        assert!(fault.to_string().starts_with(&expected), "{fault}");
    }

    #[test]
    fn what_was_found_is_told_although_it_cannot_be_written_down() {
        let dir = tempfile::tempdir().expect("a directory");
        let gone = dir.path().join("gone");
        std::fs::create_dir(&gone).expect("it is made");
        let order = Order {
            state: Some(gone.join("state.json")),
            ..Order::of(PLANTED, Some(1))
        };
        let removed = |plan: Plan| {
            std::fs::remove_dir_all(&gone).expect("it is removed");
            planted(plan)
        };
        let report = swarm_of(&order, &removed, |_| {}).expect("it was written at first");
        assert_eq!(report.failed.len(), 1);
        let fault = report.unwritten.expect("it cannot be written any more");
        assert!(matches!(fault, SoFarFault::Write { .. }), "{fault:?}");
    }

    #[test]
    fn where_there_are_no_more_numbers_a_swarm_ends() {
        let order = Order::of(u64::MAX, Some(u64::MAX));
        let never = |plan: Plan| -> Run { panic!("seed {} is run", plan.seed) };
        let report = swarm_of(&order, &never, |_| {}).expect("nothing is written");
        assert_eq!(report.seeds, 0);
    }
}
