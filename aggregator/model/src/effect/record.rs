//! Remembers of a log what the check of its limits needs at the end: every pair's entries, in the pair's own time,
//! and the excess within each closing.
//!
//! ```text
//! windows 10 per 1 s     entries of 1 at 0.0, 0.1 … 0.9        10 granted: closed
//!                        3 more at 0.91, 0.92, 1.0              3 of excess in this closing
//!                        at 1.4                                 granted: it was open again
//! ```
//!
//! The excess within a closing came within one denial delay, because an agent that has received the denial lets no
//! more through. So the bound needs no clock except the pair's. Knows nothing of rules. What stays true: an entry
//! is checked under the constraints in force when it was ruled.

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
    /// Excess of guarded calls since the pair was last open, and the greatest such excess so far.
    closing: u64,
    closing_max: u64,
}

impl EffectRecord {
    /// Sets the limits from now on.
    pub fn limits(&mut self, limits: &DomainLimits, starts_anew: bool) {
        let last = self.in_force.last();
        if !starts_anew && last.is_some_and(|last| last.limits == *limits) {
            return;
        }
        // Entries at this very instant under the new limits are left out, which is lenient.
        let from_us = match self.calls.is_empty() {
            true => 0,
            false => self.time_us.saturating_add(1),
        };
        // Limits that began at this instant end before any entry.
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

    /// Notes that earlier counts are gone, or may count differently.
    pub fn starts_anew(&mut self) {
        if let Some(last) = self.in_force.last() {
            let limits = last.limits.clone();
            self.limits(&limits, true);
        }
    }

    /// Notes copies that were ruled.
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

    /// Whether a stamp lies in the current periods of all the pair's quotas. A quota does not limit a stamp of an
    /// earlier period, so its grant does not show that the pair is open.
    fn is_of_its_periods(&self, at_us: u64) -> bool {
        let last = self.in_force.last();
        let mut quotas = last.iter().flat_map(|last| &last.limits.quotas);
        quotas.all(|quota| {
            let period = |at_us| quota.zone.period(quota.unit, at_us);
            period(at_us) == period(self.time_us)
        })
    }

    /// Notes that copies let through under a stamp cost nothing after all.
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

/// The greatest number of entries of a partition that are remembered, at some 40 bytes each. Later
/// entries are counted, not checked.
const ENTRIES_MAX: u64 = 1_000_000;

/// All pairs of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectRecords {
    scopes: BTreeMap<ScopeName, EffectRecord>,
    /// Records of scopes that were evicted from the partition's table, so that their counts are lost.
    left: Vec<(ScopeName, EffectRecord)>,
    entries: u64,
    unjudged: u64,
}

impl EffectRecords {
    /// Notes an entry of a pair that was ruled under these limits. Copies that were too late count nowhere.
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

    /// Notes a settlement that took back copies let through under a stamp.
    pub fn taken_back(&mut self, scope: &ScopeName, made_us: u64, copies: u64) {
        if let Some(record) = self.scopes.get_mut(scope) {
            record.taken_back(made_us, copies);
        }
    }

    /// Notes copies of a total that were ruled.
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

    /// Sets new limits for all known scopes; `limits_of` returns `None` for a scope without limits.
    pub fn new_limits(&mut self, limits_of: impl Fn(&ScopeName) -> Option<DomainLimits>) {
        for (scope, record) in &mut self.scopes {
            record.limits(&limits_of(scope).unwrap_or_default(), false);
        }
    }

    /// Sets new limits for one scope, if it is known.
    pub fn new_limits_of(&mut self, scope: &ScopeName, limits: &DomainLimits) {
        if let Some(record) = self.scopes.get_mut(scope) {
            record.limits(limits, false);
        }
    }

    /// Notes that an operator changed the counts of a pair.
    pub fn starts_anew(&mut self, scope: &ScopeName) {
        if let Some(record) = self.scopes.get_mut(scope) {
            record.starts_anew();
        }
    }

    /// Notes that a scope enters the partition's table, for the first time or again.
    ///
    /// At the cap the table evicts a pair whose windows are over by the log's time, which may be ahead of the
    /// pair's own time. By the rule of the cap, earlier copies of such a pair count nowhere afterwards.
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

    /// Counts one more entry, and returns whether too many are remembered.
    fn is_full(&mut self) -> bool {
        let is_full = self.entries == ENTRIES_MAX;
        let count = match is_full {
            true => &mut self.unjudged,
            false => &mut self.entries,
        };
        *count += 1;
        is_full
    }

    /// The number of entries that are remembered, and of those that are not.
    pub fn entries(&self) -> (u64, u64) {
        (self.entries, self.unjudged)
    }

    /// The number of scopes.
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
            // There was no such estimate, and the settlement cannot take back more than was counted.
            records.taken_back(&scope, 500, 3);
            records.taken_back(&scope, 0, 3);
        }
        for n in 10..16 {
            records.entry(scope.clone(), &limits, n * 1_000, &granted, false);
        }
        records.violations().len()
    }

    #[test]
    fn refunded_copies_were_not_let_through() {
        assert_eq!((found(false), found(true)), (1, 0));
    }

    #[test]
    fn an_evicted_pair_that_returns_keeps_its_earlier_bound() {
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
        // Ten in each of three parts of a second; the pair may be evicted before the
        // second part, and before the third.
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
        // Excess before the eviction stays excess, and so does excess after it.
        assert_eq!((found([false, true], 3), found([true, false], 3)), (1, 1));
        assert_eq!(found([true; 2], 3), 0);
    }

    #[test]
    fn grants_in_an_earlier_period_do_not_show_room_in_a_quota() {
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
