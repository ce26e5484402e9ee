//! What is remembered of a log so that its limits can be judged at the end: every pair's entries, in the
//! pair's own time, and how much came in each closing.
//!
//! ```text
//! windows 10 per 1 s     entries of 1 at 0.0, 0.1 … 0.9        10 granted: closed
//!                        3 more at 0.91, 0.92, 1.0              3 of excess in this closing
//!                        at 1.4                                 granted: it had been open again
//! ```
//!
//! What came in a closing is what one denial delay brought: nobody who had heard of it let more through.
//! So the bound needs no clock but the pair's. Knows nothing of rules. What stays true: an entry is
//! judged under the constraints that were in force when it was ruled.

use std::collections::BTreeMap;

use super::{EffectParams, EffectViolation, InForce, OfferedCall, effect_violations};
use crate::limits::DomainLimits;
use crate::scope::ScopeName;
use crate::stream::EntryOutcome;

/// One pair, or a whole resource.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectRecord {
    in_force: Vec<InForce>,
    calls: Vec<OfferedCall>,
    time_us: u64,
    /// Excess of guarded calls since the pair was open last, and the most of it that there was.
    closing: u64,
    closing_max: u64,
}

impl EffectRecord {
    /// What limits it from now on.
    pub fn limits(&mut self, limits: &DomainLimits, starts_anew: bool) {
        let last = self.in_force.last();
        if !starts_anew && last.is_some_and(|last| last.limits == *limits) {
            return;
        }
        // What comes at this very instant under the new limits is left out, which is lenient.
        let from_us = match self.calls.is_empty() {
            true => 0,
            false => self.time_us.saturating_add(1),
        };
        // What was begun at this instant is over before anything came.
        if last.is_some_and(|last| last.from_us == from_us)
            && let Some(last) = self.in_force.last_mut()
        {
            last.limits = limits.clone();
            last.starts_anew = true;
            return;
        }
        self.in_force.push(InForce {
            from_us,
            limits: limits.clone(),
            starts_anew,
        });
    }

    /// Nothing that counted counts any more, or it may count otherwise.
    pub fn starts_anew(&mut self) {
        if let Some(last) = self.in_force.last() {
            let limits = last.limits.clone();
            self.limits(&limits, true);
        }
    }

    /// Copies were ruled.
    pub fn entry(&mut self, at_us: u64, (granted, excess): (u64, u64), unguarded: bool) {
        self.time_us = self.time_us.max(at_us);
        if 0 < granted && self.is_of_its_periods(at_us) {
            self.closing = 0;
        }
        if !unguarded {
            self.closing = self.closing.saturating_add(excess);
            self.closing_max = self.closing_max.max(self.closing);
        }
        self.calls.push(OfferedCall {
            at_us: self.time_us,
            copies: granted.saturating_add(excess),
            is_let_through: true,
            is_unguarded: unguarded,
            late_us: self.time_us - at_us,
        });
    }

    /// Whether a stamp lies in the pair's periods of all quotas. One of an earlier period is not asked about there: that
    /// it is granted does not say that the pair is open.
    fn is_of_its_periods(&self, at_us: u64) -> bool {
        let last = self.in_force.last();
        let mut quotas = last.iter().flat_map(|last| &last.limits.quotas);
        quotas.all(|quota| {
            let period = |at_us| quota.zone.period(quota.unit, at_us);
            period(at_us) == period(self.time_us)
        })
    }

    /// Copies that were let through under a stamp cost nothing after all.
    fn taken_back(&mut self, made_us: u64, mut copies: u64) {
        let since = self.calls.partition_point(|call| call.at_us < made_us);
        for call in self.calls.iter_mut().skip(since) {
            if call.at_us - call.late_us == made_us {
                let out = copies.min(call.copies);
                call.copies -= out;
                copies -= out;
            }
        }
    }

    /// The spans in which more was let through than is allowed.
    fn violations(&self) -> Vec<EffectViolation> {
        let params = EffectParams {
            delay_us: 0,
            agents: 1,
            call_max: self.closing_max,
        };
        effect_violations(&self.in_force, &self.calls, params)
    }
}

/// How many entries of a partition are remembered, of some 40 bytes each. Later ones are not judged, and counted.
const ENTRIES_MAX: u64 = 1_000_000;

/// All pairs of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectRecords {
    scopes: BTreeMap<ScopeName, EffectRecord>,
    /// Of scopes that left the partition's table, and so forgot what counted.
    left: Vec<(ScopeName, EffectRecord)>,
    entries: u64,
    unjudged: u64,
}

impl EffectRecords {
    /// An entry of a pair was ruled under these limits. What came too late counts nowhere.
    pub fn entry(
        &mut self,
        scope: ScopeName,
        limits: &DomainLimits,
        at_us: u64,
        outcome: &EntryOutcome,
        unguarded: bool,
    ) {
        if self.is_full() {
            return;
        }
        let record = self.scopes.entry(scope).or_default();
        record.limits(limits, false);
        record.entry(at_us, (outcome.granted, outcome.excess), unguarded);
    }

    /// A settlement took copies back that had been let through under a stamp.
    pub fn taken_back(&mut self, scope: &ScopeName, made_us: u64, copies: u64) {
        if let Some(record) = self.scopes.get_mut(scope) {
            record.taken_back(made_us, copies);
        }
    }

    /// Copies of a total were ruled.
    pub fn total(
        &mut self,
        resource: &str,
        limit: u64,
        at_us: u64,
        ruled: (u64, u64),
        unguarded: bool,
    ) {
        if self.is_full() {
            return;
        }
        let record = self
            .scopes
            .entry(ScopeName::new(resource, None))
            .or_default();
        let limits = DomainLimits {
            hard: Some(limit),
            ..DomainLimits::default()
        };
        record.limits(&limits, false);
        record.entry(at_us, ruled, unguarded);
    }

    /// New limits of whatever is known: none where nothing limits it.
    pub fn new_limits(&mut self, limits_of: impl Fn(&ScopeName) -> Option<DomainLimits>) {
        for (scope, record) in &mut self.scopes {
            record.limits(&limits_of(scope).unwrap_or_default(), false);
        }
    }

    /// An operator changed what counts in a pair.
    pub fn starts_anew(&mut self, scope: &ScopeName) {
        if let Some(record) = self.scopes.get_mut(scope) {
            record.starts_anew();
        }
    }

    /// A scope stands in the partition's table for the first time, or again.
    ///
    /// At the cap a pair leaves whose windows are over by the log's time, and that may be ahead of the pair's own:
    /// what it let through before counts nowhere then, as the cap's rule says.
    pub fn enters(&mut self, scope: &ScopeName) {
        if let Some(record) = self.scopes.remove(scope) {
            self.left.push((scope.clone(), record));
        }
    }

    /// Every scope in which more was let through than is allowed.
    pub fn violations(&self) -> Vec<(ScopeName, EffectViolation)> {
        let left = self.left.iter().map(|(scope, record)| (scope, record));
        let all = self.scopes.iter().chain(left).flat_map(|(scope, record)| {
            let found = record.violations().into_iter();
            found.map(|found| (scope.clone(), found))
        });
        all.collect()
    }

    /// One more is to be remembered: whether too many are.
    fn is_full(&mut self) -> bool {
        let is_full = self.entries == ENTRIES_MAX;
        let count = match is_full {
            true => &mut self.unjudged,
            false => &mut self.entries,
        };
        *count += 1;
        is_full
    }

    /// How many entries are remembered, and how many are not.
    pub fn entries(&self) -> (u64, u64) {
        (self.entries, self.unjudged)
    }

    /// How many scopes there are.
    pub fn len(&self) -> usize {
        self.scopes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{Calendar, Zone};
    use crate::limits::{Quota, Window};

    fn found(taken_back: bool) -> usize {
        let limits = DomainLimits {
            windows: vec![Window {
                limit: 10,
                window_us: 1_000_000,
            }],
            ..DomainLimits::default()
        };
        let (mut records, scope) = (EffectRecords::default(), ScopeName::new("r", Some("d")));
        let granted = EntryOutcome {
            granted: 1,
            ..EntryOutcome::default()
        };
        for n in 0..10 {
            records.entry(scope.clone(), &limits, n * 1_000, &granted, false);
        }
        if taken_back {
            for n in 0..6 {
                records.taken_back(&scope, n * 1_000, 1);
            }
            // Nobody made this one, and it cannot give more than it was.
            records.taken_back(&scope, 500, 3);
            records.taken_back(&scope, 0, 3);
        }
        for n in 10..16 {
            records.entry(scope.clone(), &limits, n * 1_000, &granted, false);
        }
        records.violations().len()
    }

    #[test]
    fn what_a_settlement_took_back_was_not_let_through() {
        assert_eq!((found(false), found(true)), (1, 0));
    }

    #[test]
    fn who_left_and_came_again_is_judged_from_then_on_and_for_what_was_before() {
        let limits = DomainLimits {
            windows: vec![Window {
                limit: 10,
                window_us: 1_000_000,
            }],
            ..DomainLimits::default()
        };
        let scope = ScopeName::new("r", Some("d"));
        let granted = EntryOutcome {
            granted: 1,
            ..EntryOutcome::default()
        };
        // Ten in each of three parts of a second; it may leave before the second, and before the third.
        let found = |leaves: [bool; 2], parts: u64| {
            let mut records = EffectRecords::default();
            for part in 0..parts {
                if part == 0 || leaves[part as usize - 1] {
                    records.enters(&scope);
                }
                for n in 0..10 {
                    let at_us = part * 100_000 + n * 1_000;
                    records.entry(scope.clone(), &limits, at_us, &granted, false);
                }
            }
            records.violations().len()
        };
        assert_eq!((found([false; 2], 2), found([true; 2], 2)), (1, 0));
        // What was too much before it left stays too much, and what is afterwards is.
        assert_eq!((found([false, true], 3), found([true, false], 3)), (1, 1));
        assert_eq!(found([true; 2], 3), 0);
    }

    #[test]
    fn what_is_granted_in_an_earlier_period_does_not_say_that_a_quota_has_room() {
        const DAY_US: u64 = 86_400_000_000;
        let limits = DomainLimits {
            quotas: vec![Quota {
                limit: 10,
                unit: Calendar::Day,
                zone: Zone::fixed(0),
            }],
            ..DomainLimits::default()
        };
        let found = |late_us| {
            let (mut records, scope) = (EffectRecords::default(), ScopeName::new("r", Some("d")));
            let mut entry = |at_us, granted, excess| {
                let outcome = EntryOutcome {
                    granted,
                    excess,
                    ..EntryOutcome::default()
                };
                records.entry(scope.clone(), &limits, at_us, &outcome, false);
            };
            (10..20).for_each(|n| entry(DAY_US + n, 1, 0));
            (20..25).for_each(|n| entry(DAY_US + n, 0, 1));
            entry(DAY_US + 24 - late_us, 1, 0);
            (25..30).for_each(|n| entry(DAY_US + n, 0, 1));
            records.violations().len()
        };
        assert_eq!((found(25), found(1)), (0, 1));
    }

    #[test]
    fn entries_beyond_the_bound_are_counted_and_not_judged() {
        let mut records = EffectRecords {
            entries: ENTRIES_MAX - 1,
            ..EffectRecords::default()
        };
        for _ in 0..3 {
            let scope = ScopeName::new("r", Some("d"));
            let outcome = EntryOutcome::default();
            records.entry(scope, &DomainLimits::default(), 1, &outcome, false);
        }
        assert_eq!(records.entries(), (ENTRIES_MAX, 2));
    }
}
