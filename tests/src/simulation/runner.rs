//! Runs many seeds on several cores: a line of JSON for each, and their sum.
//!
//! ```text
//! {"seed":118,"ok":true,"decisions":16021,"refusals":411,...,"hash":"9f0e…","faults":{"Cut":2},"met":{"hit excess":90}}
//! {"seed":119,"ok":false,"law":4,"at_us":3200000,"check":"the replay goes on","what":"…","decisions":80,...}
//! ```
//!
//! Each worker takes the next plan, runs it alone, and hands its line over. Knows nothing of where lines go. What
//! stays true: a line is a function of its plan, and contains no times of this machine; the sum does not depend on
//! the number of workers; a plan that panics fails, and ends no other; kept plans run first, however little time
//! there is; a situation is required only of as many seeds as it takes to occur.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::coverage::{COMMON, Coverage, SELDOM};
use super::plan::Plan;
use super::trace::Violation;
use super::{Run, run};

/// From this number of new seeds on each situation must have occurred, except seldom ones.
const SEEDS_THAT_MEET_ALL: u64 = 3_000;

/// From this number of new seeds on the common situations must have occurred.
const SEEDS_THAT_MEET_THE_COMMON: u64 = 100;

/// From this number of new seeds on seldom situations must have occurred too: ten times as
/// many as one occurrence takes.
const SEEDS_THAT_MEET_THE_SELDOM: u64 = 40_000;

/// The order for a run.
#[derive(Clone, Debug)]
pub struct Order {
    /// Plans to run first.
    pub kept: Vec<Plan>,
    /// The first new seed.
    pub from: u64,
    /// The greatest number of new seeds.
    pub seeds: u64,
    /// How long new seeds are started.
    pub time: Option<Duration>,
    /// The number of plans that run at once.
    pub workers: NonZeroUsize,
    /// Whether plans are about agents that die while they hold copies.
    pub kills: bool,
}

impl Order {
    /// An order of a range of seeds, and nothing else.
    pub fn of(from: u64, seeds: u64) -> Self {
        Self {
            kept: Vec::new(),
            from,
            seeds,
            time: None,
            workers: NonZeroUsize::MIN,
            kills: false,
        }
    }

    /// The plan of a seed in this order.
    pub fn draw(&self, seed: u64) -> Plan {
        match self.kills {
            true => Plan::draw_kills(seed),
            false => Plan::draw(seed),
        }
    }
}

/// The result of one seed.
#[derive(Clone, Debug, Serialize)]
pub struct SeedLine {
    /// The seed.
    pub seed: u64,
    /// Why its plan is kept; empty for a new seed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub story: String,
    /// Whether no law was violated.
    pub ok: bool,
    /// The violation.
    #[serde(flatten)]
    pub violation: Option<Violation>,
    /// Calls decided.
    pub decisions: u64,
    /// Calls refused because of denials.
    pub refusals: u64,
    /// Agents that died while they held copies.
    pub died_holding: u64,
    /// The longest time until those copies were free again, if nothing else went wrong.
    pub back_within_us: u64,
    /// A hash of all events.
    pub hash: String,
    /// Faults that were planned, by kind.
    pub faults: BTreeMap<String, u64>,
    /// The coverage.
    pub met: Coverage,
}

impl SeedLine {
    fn of(run: Run) -> Self {
        let mut faults = BTreeMap::new();
        for episode in &run.plan.episodes {
            *faults.entry(episode.fault.kind()).or_default() += 1;
        }
        let returns = run.returns;
        Self {
            seed: run.plan.seed,
            ok: run.violation.is_none(),
            violation: run.violation,
            decisions: run.decisions,
            refusals: run.refusals,
            died_holding: returns.kills,
            back_within_us: match run.plan.only_deaths() {
                true => returns.longest_us,
                false => 0,
            },
            hash: format!("{:016x}", run.hash),
            faults,
            met: run.cover,
            story: run.plan.story,
        }
    }

    /// As JSON, with the end of the line.
    pub fn json(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// The sum of all seeds.
#[derive(Debug, Default)]
pub struct SeedSum {
    /// Seeds that were run.
    pub seeds: u64,
    /// Those of them with kept plans.
    pub kept: u64,
    /// Calls decided.
    pub decisions: u64,
    /// Calls refused because of denials.
    pub refusals: u64,
    /// Agents that died while they held copies.
    pub died_holding: u64,
    /// The longest time until those copies were free again.
    pub back_within_us: u64,
    /// Whether plans were about such agents, so that little else occurred.
    pub kills: bool,
    /// Faults that were planned for new seeds.
    pub faults: u64,
    /// The coverage of new seeds.
    pub met: Coverage,
    /// All failures, by seed.
    pub failed: Vec<(u64, Violation)>,
}

impl SeedSum {
    fn add(&mut self, line: &SeedLine) {
        self.seeds += 1;
        self.decisions += line.decisions;
        self.refusals += line.refusals;
        self.died_holding += line.died_holding;
        self.back_within_us = self.back_within_us.max(line.back_within_us);
        if let Some(violation) = &line.violation {
            self.failed.push((line.seed, violation.clone()));
            self.failed.sort_by_key(|(seed, _)| *seed);
        }
        // Kept plans may cover situations that are not drawn any more.
        if !line.story.is_empty() {
            self.kept += 1;
            return;
        }
        self.met.merge(&line.met);
        self.faults += line.faults.values().sum::<u64>();
    }

    /// Situations that this many new seeds should have covered and have not.
    pub fn never_met(&self) -> Vec<&'static str> {
        let new = self.seeds - self.kept;
        let is_required = |what: &str| match what {
            _ if self.kills => false,
            _ if SELDOM.contains(&what) => SEEDS_THAT_MEET_THE_SELDOM <= new,
            _ if COMMON.contains(&what) => SEEDS_THAT_MEET_THE_COMMON <= new,
            _ => SEEDS_THAT_MEET_ALL <= new,
        };
        let mut missing = self.met.missing();
        missing.retain(|what| is_required(what));
        missing
    }

    /// Whether nothing failed. A sum without refusals proves nothing, and is not good.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.never_met().is_empty() && 0 < self.refusals
    }
}

/// For people.
impl fmt::Display for SeedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seeds ({} of them kept), {} decisions, {} refused, {} faults, {} died holding copies",
            self.seeds, self.kept, self.decisions, self.refusals, self.faults, self.died_holding
        )?;
        if self.kills {
            writeln!(f, "copies were back within {} us", self.back_within_us)?;
        }
        if self.refusals == 0 {
            writeln!(f, "FAILED: nobody was refused, which proves nothing")?;
        }
        for what in self.never_met() {
            writeln!(f, "FAILED: never met: {what}")?;
        }
        for (seed, violation) in &self.failed {
            writeln!(f, "FAILED: seed {seed}: {violation}")?;
        }
        match self.failed.len() {
            0 => writeln!(f, "no violations"),
            failed => writeln!(
                f,
                "{failed} violations; see one with --from SEED --trace, of a kept plan with --plan FILE --trace"
            ),
        }
    }
}

/// State that the workers share.
struct Common<'a, E> {
    order: &'a Order,
    kept: std::slice::Iter<'a, Plan>,
    next: u64,
    /// When the first new seed was started.
    new_since: Option<Instant>,
    sum: SeedSum,
    each: E,
    ended: io::Result<()>,
}

impl<E: FnMut(&SeedLine) -> io::Result<()>> Common<'_, E> {
    fn take(&mut self) -> Option<Plan> {
        if self.ended.is_err() {
            return None;
        }
        if let Some(kept) = self.kept.next() {
            return Some(kept.clone());
        }
        let since = self.new_since.get_or_insert_with(Instant::now);
        let is_late = self.order.time.is_some_and(|time| time <= since.elapsed());
        let (seed, from) = (self.next, self.order.from);
        if is_late || self.order.seeds <= seed - from {
            return None;
        }
        self.next = seed.checked_add(1)?;
        Some(self.order.draw(seed))
    }

    fn give(&mut self, run: Run) {
        let line = SeedLine::of(run);
        self.sum.add(&line);
        if self.ended.is_ok() {
            self.ended = (self.each)(&line);
        }
    }
}

/// Runs an order, and hands over each line when its seed is done.
///
/// # Errors
///
/// The first error of `each`, after which no seed is started.
pub fn run_all(
    order: &Order,
    each: impl FnMut(&SeedLine) -> io::Result<()> + Send,
) -> io::Result<SeedSum> {
    let kills = order.kills;
    let common = Mutex::new(Common {
        order,
        kept: order.kept.iter(),
        next: order.from,
        new_since: None,
        sum: SeedSum {
            kills,
            ..SeedSum::default()
        },
        each,
        ended: Ok(()),
    });
    let work = || {
        loop {
            let Some(plan) = lock(&common).take() else {
                return;
            };
            let run = run(plan, false);
            lock(&common).give(run);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..order.workers.get() {
            scope.spawn(work);
        }
    });
    let common = common.into_inner().unwrap_or_else(PoisonError::into_inner);
    common.ended.map(|()| common.sum)
}

fn lock<T>(common: &Mutex<T>) -> MutexGuard<'_, T> {
    // If another worker has panicked, the scope panics too.
    common.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::coverage::all as all_states;
    use super::super::faults::Fault;
    use super::super::trace::{NO_LAW, PANICKED};
    use super::*;

    /// A seed with a short run.
    const PANICS: u64 = 3;

    #[test]
    fn a_panicking_seed_is_reported_and_others_run_on() {
        let mut panics = Plan::draw(PANICS);
        // No such document exists.
        panics.add(500_000, 500_000, Fault::Push { document: 1_000 });
        let lines = |workers| {
            let order = Order {
                kept: vec![panics.clone()],
                workers: NonZeroUsize::new(workers).expect("some"),
                ..Order::of(PANICS + 1, 3)
            };
            let mut lines = Vec::new();
            let each = |line: &SeedLine| {
                lines.push(line.json());
                Ok(())
            };
            let sum = run_all(&order, each).expect("nothing is written");
            assert_eq!(sum.seeds, 4);
            let [(seed, violation)] = &sum.failed[..] else {
                panic!("one fails: {:?}", sum.failed);
            };
            assert_eq!((*seed, violation.law), (PANICS, NO_LAW));
            assert_eq!(violation.check, PANICKED);
            let expected = "FAILED: seed 3: the program panicked: index out of bounds";
            assert!(
                sum.to_string().contains(expected) && !sum.is_good(),
                "{sum}"
            );
            lines.sort();
            lines
        };
        let one = lines(1);
        // A line does not depend on how many plans run at once.
        assert_eq!(one, lines(2));
        let read = |line: &String| serde_json::from_str(line).expect("JSON");
        let read: Vec<serde_json::Value> = one.iter().map(read).collect();
        let failed = read.iter().filter(|line| line["ok"] == false);
        let failed: Vec<_> = failed.collect();
        assert_eq!(failed.len(), 1);
        assert_eq!(
            (&failed[0]["seed"], &failed[0]["law"]),
            (&3.into(), &0.into())
        );
        assert_eq!(failed[0]["check"], PANICKED);
    }

    #[test]
    fn kept_plans_always_run_and_a_closed_output_ends_the_run() {
        let short = |seed| Plan {
            length_us: super::super::plan::CALM_US,
            episodes: Vec::new(),
            story: "why".to_owned(),
            ..Plan::draw(seed)
        };
        let order = Order {
            time: Some(Duration::ZERO),
            kept: vec![short(8), short(9)],
            ..Order::of(1, 100)
        };
        let sum = run_all(&order, |_| Ok(())).expect("nothing is written");
        assert_eq!((sum.seeds, sum.kept), (2, 2));
        assert!(sum.faults == 0 && sum.met.missing().len() == all_states().count());
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let mut lines = 0;
        let each = |_: &SeedLine| {
            lines += 1;
            Err(full())
        };
        let fault = run_all(&order, each).expect_err("nothing can be written");
        assert_eq!((fault.kind(), lines), (full().kind(), 1));
    }

    #[test]
    fn a_run_ends_after_the_last_seed() {
        let sum = run_all(&Order::of(u64::MAX, u64::MAX), |_| Ok(()));
        assert_eq!(sum.expect("nothing is written").seeds, 0);
    }

    /// A sum with everything covered except one situation.
    fn without(what: &str, seeds: u64) -> SeedSum {
        let mut met = Coverage::default();
        let others = all_states().filter(|of| *of != what);
        others.for_each(|of| met.see(of));
        SeedSum {
            seeds,
            refusals: 1,
            met,
            ..SeedSum::default()
        }
    }

    #[test]
    fn an_unreached_situation_fails_a_long_run() {
        let (all, seldom) = (SEEDS_THAT_MEET_ALL, SEEDS_THAT_MEET_THE_SELDOM);
        for (what, from) in [
            ("hit excess", SEEDS_THAT_MEET_THE_COMMON),
            ("limits rolled back", all),
            (SELDOM[0], seldom),
        ] {
            let large = without(what, from);
            assert_eq!(large.never_met(), [what]);
            assert!(!large.is_good() && large.to_string().contains(what));
            assert!(without(what, from - 1).is_good());
        }
        assert!(without("none of them", seldom).is_good());
        let kept = SeedSum {
            kept: 1,
            ..without("hit excess", SEEDS_THAT_MEET_THE_COMMON)
        };
        assert!(kept.is_good(), "kept plans are not new seeds");
        let nobody = SeedSum {
            refusals: 0,
            ..without("", 1)
        };
        assert!(!nobody.is_good() && nobody.to_string().contains("nobody was refused"));
    }
}
