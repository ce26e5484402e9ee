//! The results of a backtest, for programs.
//!
//! Instants are microseconds since the Unix epoch. `granted` and `refused` count calls and add up
//! to `calls`; a call that was granted a part of its copies counts as granted; `hits` count copies.
//! Lists are cut to a length; the numbers beside them are not. What stays true: fields are only
//! ever added.

use serde::Serialize;

use super::inputs::Inputs;
use super::pairs::Pairs;
use super::replay::PlayedFile;
use super::suggest::Suggestion;
use super::tally::{Causes, PairTally, Timeline, USE_STEPS};

/// The whole report.
#[derive(Debug, Serialize)]
pub struct BacktestReport {
    schema: &'static str,
    /// What was read.
    pub inputs: Inputs,
    /// The result of each limits file.
    pub results: Vec<ResultReport>,
    /// The least limits that refuse at most the requested share.
    pub suggestions: Vec<Suggestion>,
}

/// The result of one limits file.
#[derive(Debug, Serialize)]
pub struct ResultReport {
    /// The file.
    pub limits: String,
    /// Calls.
    pub calls: u64,
    /// Calls granted.
    pub granted: u64,
    /// Calls refused.
    pub refused: u64,
    /// The share of calls that were refused.
    pub refused_share: f64,
    /// Calls refused here that were let through when they were recorded.
    pub excess: u64,
    /// Calls on resources without limits on rates; they are granted.
    pub unlimited: u64,
    /// Hits that calls asked for.
    pub hits: u64,
    /// Hits granted.
    pub hits_granted: u64,
    /// Hits refused.
    pub hits_refused: u64,
    /// Domains that called.
    pub domains: u64,
    /// Domains with refused calls.
    pub domains_refused: u64,
    /// Pairs that have calls.
    pub pairs: u64,
    /// Pairs with refused calls.
    pub pairs_refused: u64,
    /// By resource, ascending by name.
    pub resources: Vec<ResourceReport>,
    /// The pairs with the most refused calls.
    pub worst: Vec<PairReport>,
    /// The pairs that were refused first.
    pub first_refusals: Vec<PairReport>,
    /// The pairs with the longest stretches of refused calls.
    pub longest_refusals: Vec<PairReport>,
    /// The comparison with the first limits file; absent for that one.
    pub compared: Option<LimitsComparison>,
    /// Hits over time.
    pub timeline: TimelineReport,
}

/// The result of one resource.
#[derive(Debug, Serialize)]
pub struct ResourceReport {
    /// Its name.
    pub resource: String,
    /// Calls.
    pub calls: u64,
    /// Calls granted.
    pub granted: u64,
    /// Calls refused.
    pub refused: u64,
    /// Calls refused here that were let through when they were recorded.
    pub excess: u64,
    /// Domains that called.
    pub domains: u64,
    /// Domains with refused calls.
    pub domains_refused: u64,
    /// Refused calls by cause.
    pub refused_by: Causes,
    /// How full limits were after a call, over all calls; `None` without limits.
    pub use_by_call: Option<Percentiles>,
    /// The fullest that a domain's limits were, over all domains; `None` without limits.
    pub use_by_domain: Option<Percentiles>,
}

/// Percentiles of how full a limit was; 1 is full.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half are at most this full.
    pub p50: f64,
    /// Nine in ten are.
    pub p90: f64,
    /// 99 in a hundred are.
    pub p99: f64,
    /// 999 in a thousand are.
    pub p999: f64,
    /// All are.
    pub max: f64,
}

/// The result of one pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairReport {
    /// Its resource.
    pub resource: String,
    /// Its domain.
    pub domain: String,
    /// Calls.
    pub calls: u64,
    /// Calls granted.
    pub granted: u64,
    /// Calls refused.
    pub refused: u64,
    /// Calls refused here that were let through when they were recorded.
    pub excess: u64,
    /// The first refused call.
    pub first_refused_us: Option<u64>,
    /// The first call of the longest stretch of refused calls, in which no call was granted, nor would have been: it
    /// ends at a granted call, and at a pause that outlasts the denial. Under a limit of several domains, what others
    /// take within a second is no pause.
    pub longest_refusal_from_us: Option<u64>,
    /// The time from that stretch's first call to its last.
    pub longest_refusal_us: Option<u64>,
    /// How many calls that stretch has.
    pub longest_refusal_calls: u64,
}

/// The pairs whose result differs from that under the first limits file.
#[derive(Debug, Serialize)]
pub struct LimitsComparison {
    /// The first limits file.
    pub with: String,
    /// Pairs that are refused here, but not there.
    pub newly_refused: PairsChange,
    /// Pairs that are refused there, but not here.
    pub no_longer_refused: PairsChange,
}

/// The pairs on one side of the difference.
#[derive(Debug, Serialize)]
pub struct PairsChange {
    /// How many there are.
    pub pairs: u64,
    /// Calls refused on them, by the file that refuses them.
    pub refused: u64,
    /// The pairs with the most such calls.
    pub shown: Vec<PairReport>,
}

/// Hits over time.
#[derive(Debug, Serialize)]
pub struct TimelineReport {
    /// Where the first stretch begins.
    pub from_us: u64,
    /// How long each stretch is.
    pub stretch_us: u64,
    /// Hits asked for in each.
    pub hits: Vec<u64>,
    /// Hits granted in each.
    pub granted: Vec<u64>,
    /// Hits refused in each.
    pub refused: Vec<u64>,
}

impl BacktestReport {
    /// The report of a recording that was played against limits files.
    pub fn new(inputs: Inputs, results: Vec<ResultReport>, suggestions: Vec<Suggestion>) -> Self {
        Self {
            schema: "tollgate.backtest/1",
            inputs,
            results,
            suggestions,
        }
    }
}

impl ResultReport {
    /// The result of a limits file for a recording, with lists of at most `listed` pairs; compared
    /// with the first file's result if this is another file.
    pub fn new(
        limits: &str,
        played: &PlayedFile,
        first: Option<(&str, &PlayedFile)>,
        pairs: &Pairs,
        listed: usize,
    ) -> Self {
        let sum = |of: fn(&PairTally) -> u64| played.pairs.iter().map(of).sum::<u64>();
        let (calls, granted) = (sum(|of| of.asked.calls), sum(|of| of.granted.calls));
        let (hits, hits_granted) = (sum(|of| of.asked.hits), sum(|of| of.granted.hits));
        let lists = Lists {
            pairs,
            played,
            listed,
        };
        let refused_pairs = played.pairs.iter().filter(|of| 0 < of.refused()).count();
        Self {
            limits: limits.to_owned(),
            calls,
            granted,
            refused: calls - granted,
            refused_share: share(calls - granted, calls),
            excess: sum(|of| of.excess),
            unlimited: played.unlimited,
            hits,
            hits_granted,
            hits_refused: hits - hits_granted,
            domains: pairs.domains_len() as u64,
            domains_refused: domains_refused(pairs, played),
            pairs: pairs.all().len() as u64,
            pairs_refused: refused_pairs as u64,
            resources: resources(pairs, played),
            worst: lists.by(|_, of| (u64::MAX - of.refused(), of.first_refused.as_micros())),
            first_refusals: lists.by(|_, of| (of.first_refused.as_micros(), 0)),
            longest_refusals: lists.by(|_, of| {
                let longest = of.longest;
                (
                    u64::MAX - longest.span().as_micros(),
                    u64::MAX - longest.calls,
                )
            }),
            compared: first.map(|(with, first)| LimitsComparison {
                with: with.to_owned(),
                newly_refused: change(pairs, played, first, listed),
                no_longer_refused: change(pairs, first, played, listed),
            }),
            timeline: TimelineReport::new(&played.timeline),
        }
    }
}

/// Lists of refused pairs.
struct Lists<'a> {
    pairs: &'a Pairs,
    played: &'a PlayedFile,
    listed: usize,
}

impl Lists<'_> {
    /// The refused pairs with the least keys; equal keys keep the order of appearance.
    fn by(&self, key: impl Fn(u32, &PairTally) -> (u64, u64)) -> Vec<PairReport> {
        let refused = self.played.pairs.iter().enumerate();
        let refused = refused.filter(|(_, of)| 0 < of.refused());
        let keyed = refused.map(|(number, of)| (key(number as u32, of), number as u32));
        let mut keyed: Vec<_> = keyed.collect();
        keyed.sort_unstable();
        keyed.truncate(self.listed);
        let report = |(_, number): &(_, u32)| {
            PairReport::new(self.pairs, *number, &self.played.pairs[*number as usize])
        };
        keyed.iter().map(report).collect()
    }
}

/// The pairs that `here` refuses and `there` does not.
fn change(pairs: &Pairs, here: &PlayedFile, there: &PlayedFile, listed: usize) -> PairsChange {
    let only_here = |number: u32, of: &PairTally| {
        0 < of.refused() && there.pairs[number as usize].refused() == 0
    };
    let numbers = here.pairs.iter().enumerate();
    let mut numbers: Vec<(u64, u32)> = numbers
        .filter(|(number, of)| only_here(*number as u32, of))
        .map(|(number, of)| (u64::MAX - of.refused(), number as u32))
        .collect();
    numbers.sort_unstable();
    let report =
        |(_, number): &(u64, u32)| PairReport::new(pairs, *number, &here.pairs[*number as usize]);
    PairsChange {
        pairs: numbers.len() as u64,
        refused: numbers.iter().map(|(rank, _)| u64::MAX - rank).sum(),
        shown: numbers.iter().take(listed).map(report).collect(),
    }
}

fn domains_refused(pairs: &Pairs, played: &PlayedFile) -> u64 {
    let mut refused = vec![false; pairs.domains_len()];
    for (pair, of) in pairs.all().iter().zip(&played.pairs) {
        refused[pair.domain as usize] |= 0 < of.refused();
    }
    refused.iter().filter(|refused| **refused).count() as u64
}

fn resources(pairs: &Pairs, played: &PlayedFile) -> Vec<ResourceReport> {
    let blank = |(name, tally): (&str, &super::tally::ResourceTally)| ResourceReport {
        resource: name.to_owned(),
        calls: 0,
        granted: 0,
        refused: 0,
        excess: 0,
        domains: 0,
        domains_refused: 0,
        refused_by: tally.causes,
        use_by_call: Percentiles::of(&tally.used),
        use_by_domain: None,
    };
    let named = pairs.resources().zip(&played.resources);
    let mut reports: Vec<ResourceReport> = named.map(blank).collect();
    let mut used = vec![vec![0u64; USE_STEPS + 1]; reports.len()];
    for (pair, of) in pairs.all().iter().zip(&played.pairs) {
        let report = &mut reports[pair.resource as usize];
        report.calls += of.asked.calls;
        report.granted += of.granted.calls;
        report.refused += of.refused();
        report.excess += of.excess;
        report.domains += 1;
        report.domains_refused += u64::from(0 < of.refused());
        used[pair.resource as usize][usize::from(of.used_max)] += 1;
    }
    for (report, used) in reports.iter_mut().zip(&used) {
        if report.use_by_call.is_some() {
            report.use_by_domain = Percentiles::of(used);
        }
    }
    reports.sort_by(|a, b| a.resource.cmp(&b.resource));
    reports
}

impl Percentiles {
    /// The percentiles of counts by step; `None` if all are zero.
    fn of(steps: &[u64]) -> Option<Self> {
        let total: u64 = steps.iter().sum();
        let at = |permille: u64| {
            // The least step that at least this many are at or below.
            let wanted = (u128::from(total) * u128::from(permille)).div_ceil(1_000);
            let mut passed = 0u128;
            let step = steps.iter().position(|count| {
                passed += u128::from(*count);
                wanted <= passed && 0 < passed
            });
            step.unwrap_or(USE_STEPS) as f64 / USE_STEPS as f64
        };
        (0 < total).then(|| Self {
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            max: at(1_000),
        })
    }
}

impl PairReport {
    fn new(pairs: &Pairs, number: u32, of: &PairTally) -> Self {
        let (resource, domain) = pairs.names(number);
        let refused = 0 < of.refused();
        let of_refused = |micros: u64| refused.then_some(micros);
        Self {
            resource: resource.to_owned(),
            domain: domain.to_owned(),
            calls: of.asked.calls,
            granted: of.granted.calls,
            refused: of.refused(),
            excess: of.excess,
            first_refused_us: of_refused(of.first_refused.as_micros()),
            longest_refusal_from_us: of_refused(of.longest.from.as_micros()),
            longest_refusal_us: of_refused(of.longest.span().as_micros()),
            longest_refusal_calls: of.longest.calls,
        }
    }
}

impl TimelineReport {
    fn new(timeline: &Timeline) -> Self {
        let of = |of: fn(&(u64, u64)) -> u64| timeline.stretches.iter().map(of).collect();
        Self {
            from_us: timeline.from.as_micros(),
            stretch_us: timeline.width.as_micros(),
            hits: of(|(asked, _)| *asked),
            granted: of(|(_, granted)| *granted),
            refused: of(|(asked, granted)| asked - granted),
        }
    }
}

/// A part of a whole; 0 if the whole is 0.
fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_step_that_so_many_are_at_or_below() {
        let mut steps = vec![0; USE_STEPS + 1];
        (steps[100], steps[500], steps[1_000]) = (90, 9, 1);
        let of = Percentiles::of(&steps).expect("some");
        assert_eq!((of.p50, of.p90, of.p99), (0.1, 0.1, 0.5));
        assert_eq!((of.p999, of.max), (1.0, 1.0));
        assert_eq!(Percentiles::of(&[0, 0]), None);
    }
}
