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
use crate::log::Scope;
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
        if 0 < granted {
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

/// All pairs of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct EffectRecords {
    scopes: BTreeMap<Scope, EffectRecord>,
}

impl EffectRecords {
    /// An entry of a pair was ruled under these limits. What came too late counts nowhere.
    pub fn entry(
        &mut self,
        scope: Scope,
        limits: &DomainLimits,
        at_us: u64,
        outcome: &EntryOutcome,
        unguarded: bool,
    ) {
        let record = self.scopes.entry(scope).or_default();
        record.limits(limits, false);
        record.entry(at_us, (outcome.granted, outcome.excess), unguarded);
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
        let record = self.scopes.entry(Scope::new(resource, None)).or_default();
        let limits = DomainLimits {
            hard: Some(limit),
            ..DomainLimits::default()
        };
        record.limits(&limits, false);
        record.entry(at_us, ruled, unguarded);
    }

    /// New limits of whatever is known: none where nothing limits it.
    pub fn new_limits(&mut self, limits_of: impl Fn(&Scope) -> Option<DomainLimits>) {
        for (scope, record) in &mut self.scopes {
            record.limits(&limits_of(scope).unwrap_or_default(), false);
        }
    }

    /// An operator changed what counts in a pair.
    pub fn starts_anew(&mut self, scope: &Scope) {
        if let Some(record) = self.scopes.get_mut(scope) {
            record.starts_anew();
        }
    }

    /// Every scope in which more was let through than is allowed.
    pub fn violations(&self) -> Vec<(Scope, EffectViolation)> {
        let all = self.scopes.iter().flat_map(|(scope, record)| {
            let found = record.violations().into_iter();
            found.map(|found| (scope.clone(), found))
        });
        all.collect()
    }

    /// How many scopes there are.
    pub fn len(&self) -> usize {
        self.scopes.len()
    }
}
