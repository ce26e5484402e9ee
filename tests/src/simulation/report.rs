//! What a swarm came to: what is added up of its seeds, and whether anything is wrong with it.
//!
//! Knows nothing of how seeds are run, or told of. What stays true: what is added up does not depend on the order
//! in which seeds come in.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Run;
use super::coverage::{COMMON, Coverage, SELDOM, WANTED};
use super::faults::Fault;
use super::held::Returns;
use super::so_far::SoFarFault;
use super::swarm::Task;
use super::trace::Violation;

/// From so many new seeds on a swarm has to have met everything, but for what is seldom.
pub const SEEDS_THAT_MEET_ALL: u64 = 3_000;

/// From so many new seeds on it has to have met what nearly every seed meets.
pub const SEEDS_THAT_MEET_THE_COMMON: u64 = 100;

/// From so many seeds on it has to have met that, too: ten times as many as one meeting takes.
pub const SEEDS_THAT_MEET_THE_SELDOM: u64 = 40_000;

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
    /// The rates of faults that were asked for.
    pub rates: Vec<String>,
    /// All seeds that failed, in order.
    pub failed: Vec<Failed>,
    /// The builds that took part, the present one last.
    pub builds: Vec<String>,
    /// Why it ended without all of this written down where that was asked for.
    pub unwritten: Option<SoFarFault>,
}

impl Report {
    /// What should have been met and was not.
    pub fn missing(&self) -> Vec<String> {
        let never_met = self.never_met();
        let missing = never_met.filter(|(_, from)| self.is_held_to_what_is_required_from(*from));
        missing.map(|(what, _)| what).collect()
    }

    /// What was not met and need not have been by so few seeds, or by such ones; each with the seeds from which on it
    /// has to be.
    pub fn not_met_yet(&self) -> Vec<(String, u64)> {
        let never_met = self.never_met();
        never_met
            .filter(|(_, from)| !self.is_held_to_what_is_required_from(*from))
            .collect()
    }

    /// Whether nothing is required: there are few new seeds, or such ones that are never held to anything.
    pub fn is_held_to_nothing(&self) -> bool {
        !self.is_held_to_what_is_required_from(SEEDS_THAT_MEET_THE_COMMON)
    }

    /// How much can be met at all: counters and kinds of faults.
    pub const fn meetable() -> usize {
        WANTED.len() + Fault::KINDS.len()
    }

    fn is_held_to_what_is_required_from(&self, seeds: u64) -> bool {
        seeds <= self.seeds - self.kept && !self.only_kills && self.rates.is_empty()
    }

    /// Counters that stand at zero, and kinds of faults that were planned zero times; each with the seeds from which on
    /// that is a fault.
    fn never_met(&self) -> impl Iterator<Item = (String, u64)> {
        let planned = |kind: &&str| self.faults.get(kind).is_some_and(|times| 0 < *times);
        let kinds = Fault::KINDS
            .into_iter()
            .filter(move |kind| !planned(kind))
            .map(|kind| (format!("fault: {kind}"), SEEDS_THAT_MEET_ALL));
        let counters = self.cover.missing().into_iter().map(|what| {
            let from = match what {
                _ if SELDOM.contains(&what) => SEEDS_THAT_MEET_THE_SELDOM,
                _ if COMMON.contains(&what) => SEEDS_THAT_MEET_THE_COMMON,
                _ => SEEDS_THAT_MEET_ALL,
            };
            (what.to_owned(), from)
        });
        counters.chain(kinds)
    }

    /// Whether anybody was refused. A swarm in which nobody was proves nothing.
    pub fn proves_something(&self) -> bool {
        0 < self.refusals
    }

    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.missing().is_empty() && self.proves_something()
    }

    pub(super) fn add(&mut self, task: Task, run: Run, worked: Duration) {
        self.seeds += 1;
        self.kept += u64::from(task.plans.is_some());
        self.decisions += run.decisions;
        self.refusals += run.refusals;
        self.worked += worked;
        // Kept seeds would meet what plans are not drawn with any more.
        if task.plans.is_none() {
            for episode in &run.plan.episodes {
                *self.faults.entry(episode.fault.kind()).or_default() += 1;
            }
            self.cover.merge(&run.cover);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has met everything but one thing.
    fn without(what: &str, seeds: u64) -> Report {
        let mut cover = Coverage::default();
        let others = WANTED.into_iter().filter(|of| *of != what);
        others.for_each(|of| cover.see(of));
        let planned = Fault::KINDS.into_iter().filter(|of| *of != what);
        Report {
            seeds,
            refusals: 1,
            cover,
            faults: planned.map(|of| (of, 1)).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn what_was_never_met_or_planned_is_missing_where_there_were_seeds_enough() {
        let (all, seldom) = (SEEDS_THAT_MEET_ALL, SEEDS_THAT_MEET_THE_SELDOM);
        let common = SEEDS_THAT_MEET_THE_COMMON;
        for (what, told, from) in [
            ("clock of the log off", "fault: clock of the log off", all),
            ("hit excess", "hit excess", common),
            ("clock drifts", "clock drifts", common),
            ("limits rolled back", "limits rolled back", all),
            (SELDOM[0], SELDOM[0], seldom),
        ] {
            let large = without(what, from);
            assert_eq!(large.missing(), [told]);
            assert!(large.not_met_yet().is_empty() && !large.is_good());
            let small = without(what, from - 1);
            assert_eq!(small.not_met_yet(), [(told.to_owned(), from)]);
            assert!(small.missing().is_empty() && small.is_good());
        }
        // There is nothing that so few are held to.
        let least = without("hit excess", common - 1);
        assert!(least.is_held_to_nothing() && !without("hit excess", common).is_held_to_nothing());
        let nothing = Report {
            seeds: common - 1,
            ..Report::default()
        };
        assert_eq!(nothing.not_met_yet().len(), Report::meetable());
        assert!(nothing.missing().is_empty());
        assert!(without("none of them", seldom).is_good());
    }
}
