//! Totals: the hits that hits records add to globally limited resources, each applied at most once.
//!
//! Knows nothing of the hits records behind the totals. What stays true: a total is applied only if its record
//! is after that of the last applied total of its resource and source partition.

use super::input::{ModelPosition, RecordOutcome, ScopeChange, Total, TotalRuling};
use super::whole::WholeResource;
use super::{APPEND_UNIT_US, PartitionModel, ends_differ};
use crate::limits::{DomainLimits, Limits};
use crate::scope::ScopeName;

impl PartitionModel {
    pub(super) fn totals(&mut self, offset: u64, totals: &[Total<'_>]) -> RecordOutcome {
        let mut outcome = RecordOutcome::default();
        for (i, total) in totals.iter().enumerate() {
            let position = ModelPosition {
                offset,
                entry: u32::try_from(i).unwrap_or(u32::MAX),
            };
            let ruling = self.total(position, total, &mut outcome);
            outcome.totals.push(ruling);
        }
        outcome
    }

    fn total(
        &mut self,
        position: ModelPosition,
        total: &Total<'_>,
        outcome: &mut RecordOutcome,
    ) -> TotalRuling {
        // Noted whatever the limits here are. Otherwise a repeated total would count once a limit comes back.
        let whose = (total.resource.to_owned(), total.source_partition);
        let last = self.last_totals.get(&whose).copied();
        if last.is_some_and(|last| total.source_offset <= last) {
            self.counters.totals_out_of_order += 1;
            return TotalRuling::OutOfOrder;
        }
        self.last_totals.insert(whose, total.source_offset);
        let limits = self.limits.of(total.resource);
        let Some(limit) = limits.and_then(|limits| limits.global) else {
            return TotalRuling::Unlimited;
        };
        let (mut granted, mut excess, mut late) = (0, 0, 0);
        if total.parts.is_empty() {
            return TotalRuling::Ruled {
                granted,
                excess,
                late,
            };
        }
        let is_new = self.table.whole(total.resource).is_none();
        if is_new && let Some(effect) = &mut self.effect {
            effect.enters(&ScopeName::new(total.resource, None));
        }
        let mut fresh = WholeResource::begun_at(self.step);
        let whole = self.table.whole_mut(total.resource).unwrap_or(&mut fresh);
        whole.come_to(self.step);
        let before = whole.denied();
        for part in &total.parts {
            let at_us = part.ms.saturating_mul(APPEND_UNIT_US);
            let count = whole.hits(limit, at_us, part.copies, part.unguarded);
            if let Some(effect) = &mut self.effect {
                let ruled = (count.granted, count.excess);
                effect.total(total.resource, limit, at_us, ruled, part.unguarded);
            }
            granted += count.granted;
            excess += count.excess;
            late += count.late;
        }
        whole.rule_denial(limit);
        let before = before.filter(|denial| denial.end.is_after(whole.time_us()));
        if ends_differ(before, whole.denied()) {
            outcome.changes.push(ScopeChange {
                scope: ScopeName::new(total.resource, None),
                position,
                denied: whole.denied(),
            });
        }
        if is_new {
            self.table.add_whole(total.resource, fresh);
        }
        self.table
            .leave_if_rested(&ScopeName::new(total.resource, None));
        TotalRuling::Ruled {
            granted,
            excess,
            late,
        }
    }
}

/// The limits of a scope: a global limit is a limit of one second.
pub(super) fn limits_of(limits: &Limits, scope: &ScopeName) -> Option<DomainLimits> {
    let resource = limits.of(&scope.resource)?;
    match &scope.domain {
        Some(domain) => Some(resource.of(domain)),
        None => resource.global.map(|limit| DomainLimits {
            hard: Some(limit),
            ..DomainLimits::default()
        }),
    }
}
