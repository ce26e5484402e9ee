//! What candidates would have done beside the limits in force, by partition and resource: since the candidate
//! appeared, or since this process took over the partition.
//!
//! ```text
//! api.search   limits: 1,000 hits let through, 12 calls refused
//!              candidate: would have refused 40 of the 1,000; began to deny 3 domains, acme last
//! ```
//!
//! Knows nothing of how a candidate rules. What stays true: the counts are shown only on request; a candidate that
//! changes is counted from zero; the numbers of resources and denials that are remembered are bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tollgate_api::candidates::{CandidateDenialView, CandidateFigures, CandidateView};
use tollgate_engine::engine::{CandidateClosed, CandidateCounts, Counts, ResourceCounts};
use tollgate_limits::{Limits, RateResource};
use tollgate_shared::log_position::Code;
use tollgate_shared::time::Timestamp;

/// Resources whose candidates are counted, per partition.
const RESOURCES_MAX: usize = 10_000;

/// Denials that are shown of each candidate: the newest.
const SHOWN_MAX: usize = 20;

/// The counts of one resource since its candidate last changed.
#[derive(Debug)]
struct Compared {
    /// The version that was compared last. While it stays the same, so do limits and candidate.
    limits: Arc<Limits>,
    /// When the log took the first and the last record.
    span: (Timestamp, Timestamp),
    counts: Counts,
    closed: VecDeque<CandidateClosed>,
}

/// All candidates of one partition.
#[derive(Debug, Default)]
pub struct Candidates {
    /// When the log took the first record that this process ruled.
    since: Option<Timestamp>,
    compared: BTreeMap<Box<str>, Compared>,
}

/// What candidates would have done since the process began, by resource: for metrics, which never go back.
#[derive(Debug, Default)]
pub(super) struct Ever(BTreeMap<Box<str>, CandidateCounts>);

/// What one record's rulings hold about resources that have candidates.
#[derive(Debug, Default)]
pub struct RuledBeside {
    /// The counts of their entries.
    pub counts: Vec<ResourceCounts>,
    /// Pairs that candidates would have begun to deny.
    pub closed: Vec<CandidateClosed>,
}

impl Candidates {
    /// Counting has begun at this record, at the latest.
    pub fn begin(&mut self, appended: Timestamp) {
        self.since.get_or_insert(appended);
    }

    /// Since when everything is counted; `None`: nothing has been ruled yet.
    pub const fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// Counts a record's rulings; the log took the record at `appended`.
    pub fn note(&mut self, appended: Timestamp, limits: &Arc<Limits>, ruled: RuledBeside) {
        for ResourceCounts { resource, counts } in ruled.counts {
            let Some(compared) = self.of(&resource, limits, appended) else {
                continue;
            };
            compared.span.1 = compared.span.1.max(appended);
            add(&mut compared.counts, &counts);
        }
        for closed in ruled.closed {
            if let Some(compared) = self.compared.get_mut(&*closed.resource) {
                compared.closed.push_front(closed);
                compared.closed.truncate(SHOWN_MAX);
            }
        }
    }

    fn of(
        &mut self,
        resource: &str,
        limits: &Arc<Limits>,
        appended: Timestamp,
    ) -> Option<&mut Compared> {
        let empty = || Compared {
            limits: Arc::clone(limits),
            span: (appended, appended),
            counts: Counts::default(),
            closed: VecDeque::new(),
        };
        if !self.compared.contains_key(resource) {
            if RESOURCES_MAX <= self.compared.len() {
                return None;
            }
            self.compared.insert(resource.into(), empty());
        }
        let compared = self.compared.get_mut(resource)?;
        if !Arc::ptr_eq(&compared.limits, limits) {
            let same = is_same(compared.limits.rate(resource), limits.rate(resource));
            compared.limits = Arc::clone(limits);
            if !same {
                *compared = empty();
            }
        }
        Some(compared)
    }

    /// The comparisons of the candidates of a limits version.
    pub fn view(&self, partition: u32, limits: &Limits) -> Vec<CandidateView> {
        let same = |name: &str, compared: &Compared| {
            std::ptr::eq(&*compared.limits, limits)
                || is_same(compared.limits.rate(name), limits.rate(name))
        };
        let compared = self.compared.iter();
        compared
            .filter(|(name, _)| has_candidate(limits, name))
            .filter(|(name, compared)| same(name, compared))
            .map(|(name, compared)| view_of(partition, name, compared))
            .collect()
    }
}

impl Ever {
    /// Counts a record's rulings.
    pub fn note(&mut self, ruled: &RuledBeside) {
        for ResourceCounts { resource, counts } in &ruled.counts {
            self.add_to(resource, &counts.candidate);
        }
    }

    /// Adds the counts of another partition.
    pub fn add(&mut self, other: &Self) {
        for (resource, counts) in &other.0 {
            self.add_to(resource, counts);
        }
    }

    fn add_to(&mut self, resource: &str, counts: &CandidateCounts) {
        if self.0.contains_key(resource) || self.0.len() < RESOURCES_MAX {
            add_candidate(self.0.entry(resource.into()).or_default(), counts);
        }
    }

    /// The counts of all resources.
    pub fn all(&self) -> Vec<(Box<str>, CandidateCounts)> {
        let all = self.0.iter();
        all.map(|(name, counts)| (name.clone(), *counts)).collect()
    }
}

/// The resources that have a candidate.
pub(super) fn with_candidate(limits: &Limits) -> Vec<Box<str>> {
    let rates = limits.rates().filter(|rate| rate.candidate().is_some());
    rates.map(|rate| rate.name().into()).collect()
}

fn has_candidate(limits: &Limits, resource: &str) -> bool {
    let rate = limits.rate(resource);
    rate.is_some_and(|rate| rate.candidate().is_some())
}

/// Whether two versions limit a resource alike, and have the same candidate for it.
fn is_same(before: Option<&RateResource>, after: Option<&RateResource>) -> bool {
    let stated = |rate: &RateResource| (rate.stated().clone(), rate.candidate().cloned());
    before.map(stated) == after.map(stated)
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.granted += counts.granted;
    sum.excess += counts.excess;
    sum.late += counts.late;
    sum.refused_calls += counts.refused_calls;
    add_candidate(&mut sum.candidate, &counts.candidate);
}

fn add_candidate(sum: &mut CandidateCounts, counts: &CandidateCounts) {
    sum.granted += counts.granted;
    sum.excess += counts.excess;
    sum.late += counts.late;
    sum.newly += counts.newly;
    sum.no_longer += counts.no_longer;
    sum.closed += counts.closed;
    sum.at_cap += counts.at_cap;
}

fn view_of(partition: u32, resource: &str, compared: &Compared) -> CandidateView {
    let Compared {
        span,
        counts,
        closed,
        ..
    } = compared;
    let candidate = counts.candidate;
    let newest = closed.iter().map(|closed| {
        let code = Code {
            partition,
            position: closed.position,
        };
        CandidateDenialView {
            domain: (*closed.domain).into(),
            at_us: closed.at.as_micros(),
            end_us: (closed.end < Timestamp::MAX).then_some(closed.end.as_micros()),
            code: code.to_string(),
        }
    });
    CandidateView {
        resource: resource.into(),
        partition,
        from_us: span.0.as_micros(),
        to_us: span.1.as_micros(),
        figures: CandidateFigures {
            let_through: counts.granted + counts.excess + counts.late,
            excess: counts.excess,
            refused_calls: counts.refused_calls,
            candidate_granted: candidate.granted,
            candidate_refused: candidate.excess,
            candidate_late: candidate.late,
            newly_refused: candidate.newly,
            no_longer_refused: candidate.no_longer,
            candidate_denials: candidate.closed,
            candidate_at_cap: candidate.at_cap,
        },
        newest: newest.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(candidate: &str) -> Arc<Limits> {
        let text = format!(
            "version = 1\nrules = 2\n[rate.a]\nrate = \"9/s\"\n{candidate}\n[rate.b]\nrate = \"1/s\""
        );
        Arc::new(Limits::parse(&text).expect("good limits"))
    }

    fn ruled(granted: u64, newly: u64) -> RuledBeside {
        let candidate = CandidateCounts {
            newly,
            ..CandidateCounts::default()
        };
        let counts = Counts {
            granted,
            candidate,
            ..Counts::default()
        };
        RuledBeside {
            counts: vec![ResourceCounts {
                resource: "a".into(),
                counts,
            }],
            closed: Vec::new(),
        }
    }

    #[test]
    fn candidate_counts_restart_with_another_candidate() {
        let (one, same, other) = (
            limits("candidate = { rate = \"2/s\" }"),
            limits("candidate = { rate = \"2/s\" }"),
            limits("candidate = { rate = \"3/s\" }"),
        );
        let at = Timestamp::from_millis(7_000);
        let mut candidates = Candidates::default();
        let seen = |candidates: &Candidates, limits: &Limits| {
            let views = candidates.view(0, limits);
            let view = views
                .iter()
                .map(|view| (view.figures.let_through, view.figures.newly_refused));
            view.collect::<Vec<_>>()
        };
        assert_eq!(seen(&candidates, &one), []);
        candidates.note(at, &one, ruled(5, 1));
        candidates.note(at, &same, ruled(5, 1));
        assert_eq!(seen(&candidates, &one), [(10, 2)]);
        assert_eq!(seen(&candidates, &other), []);
        candidates.note(at, &other, ruled(5, 1));
        assert_eq!(seen(&candidates, &other), [(5, 1)]);
        assert_eq!(seen(&candidates, &limits("")), []);
    }
}
