//! Limits versions: steps of the limits, and rows that set limits of single pairs, which an operator names.
//!
//! ```text
//! step     acme is denied: ruled again      globex is not: it follows at its next entry, or after many steps
//! row      acme, 5 a second                 acme comes under it at once; globex: nothing, whether or not it is denied
//! ```
//!
//! Knows nothing of patterns and networks, whose rows are steps. What stays true: pairs that rows do not name have the
//! same limits before and after them.

use super::input::{ModelPosition, RecordOutcome, ScopeChange};
use super::{PartitionModel, ends_differ, totals};
use crate::limits::{DomainLimits, Limits};
use crate::scope::ScopeName;

impl PartitionModel {
    /// Applies versions that are steps of the limits, as of the record of a limits activation.
    pub(super) fn new_limits(
        &mut self,
        offset: u64,
        at_us: u64,
        versions: &[(u64, Limits)],
    ) -> RecordOutcome {
        let before = self.table.denials_in_force(at_us);
        for (version, limits) in versions {
            if self.version.is_none_or(|known| known < *version) {
                self.version = Some(*version);
                self.over_us = self.over_us.max(at_us);
                self.limits = limits.clone();
                self.step += 1;
                self.table.new_limits(self.step, at_us, limits);
                if let Some(effect) = &mut self.effect {
                    effect.new_limits(|scope| totals::limits_of(limits, scope));
                }
            }
        }
        let mut outcome = RecordOutcome::default();
        let position = ModelPosition { offset, entry: 0 };
        for (scope, denial) in before {
            let denied = self.table.denied(&scope);
            if ends_differ(Some(denial), denied) {
                outcome.changes.push(ScopeChange {
                    scope,
                    position,
                    denied,
                });
            }
        }
        outcome
    }

    /// Applies a version of rows that name pairs.
    pub(super) fn new_rows(
        &mut self,
        (offset, at_us): (u64, u64),
        version: u64,
        limits: &Limits,
        pairs: &[(String, String)],
    ) -> RecordOutcome {
        if self.step == 0 {
            return self.new_limits(offset, at_us, &[(version, limits.clone())]);
        }
        let mut outcome = RecordOutcome::default();
        if self.version.is_some_and(|known| version <= known) {
            return outcome;
        }
        self.version = Some(version);
        self.limits = limits.clone();
        let position = ModelPosition { offset, entry: 0 };
        let (mut ordered, mut stays_differ) = (pairs.to_vec(), false);
        ordered.sort();
        for (resource, domain) in ordered {
            let of_resource = self.limits.of(&resource);
            let limits = of_resource.map_or_else(DomainLimits::default, |of| of.of(&domain));
            let scope = ScopeName::new(&resource, Some(&domain));
            if let Some(effect) = &mut self.effect {
                effect.new_limits_of(&scope, &limits);
            }
            let Some(pair) = self.table.pair_mut(&resource, &domain) else {
                continue;
            };
            let now_us = pair.time_us().unwrap_or(0).max(at_us);
            let before = pair.denied().filter(|denial| denial.end.is_after(now_us));
            let stayed_us = pair.stays_until_us();
            pair.new_row(self.step, at_us, &limits);
            stays_differ |= pair.stays_until_us() != stayed_us;
            let denied = pair.denied();
            if ends_differ(before, denied) {
                outcome.changes.push(ScopeChange {
                    scope,
                    position,
                    denied,
                });
            }
        }
        if stays_differ {
            self.table.look_again();
        }
        outcome
    }
}
