//! Statements of two partitions about one scope.
//!
//! ```text
//! acme denied until 18:00 by 7 @5000000, full by 3 @1050   the denial that lasts longer stays: full
//! open by 7 @5000001                                       acme is full still: its denial is lifted by 3 alone
//! ```
//!
//! One partition rules a pair's hits, another one may count its copies. So both have stated the scope when its resource
//! changes from limits on its rate to limits on its copies, or back. Knows nothing of why a scope is denied. What stays
//! true: log positions are compared within one partition only.

use tollgate_shared::log_position::LogPosition;

use super::list::{DenyList, ScopeChange, ScopeNotice, StatementOutcome, note_of};
use super::opened::OpenedScope;
use crate::clock::Mono;

/// The denial in the list that a statement is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeniedBefore {
    /// Whether it has the scope of the statement, not only the fingerprint.
    pub(super) same_scope: bool,
    pub(super) partition: u32,
    pub(super) position: LogPosition,
    pub(super) until: Mono,
    lease_until: Mono,
}

impl DenyList {
    /// The denial that is in the list under a fingerprint.
    pub(super) fn denied_before(
        &self,
        notice: &ScopeNotice<'_>,
        fingerprint: u64,
    ) -> Option<DeniedBefore> {
        let entry = self.view.exact.get(&fingerprint)?;
        Some(DeniedBefore {
            same_scope: entry.resource == notice.resource.id
                && entry.domain.is(notice.domain)
                && entry.is_group == notice.is_group,
            partition: entry.partition,
            position: entry.position,
            until: entry.until,
            lease_until: entry.lease.until(),
        })
    }

    /// Applies a statement about a scope that another partition denies: a denial replaces one that has ended or ends
    /// sooner, and nothing else has an effect on it.
    pub(super) fn take_beside(
        &mut self,
        notice: &ScopeNotice<'_>,
        fingerprint: u64,
        before: DeniedBefore,
        now: Mono,
    ) -> StatementOutcome {
        if self.is_older(notice, fingerprint) {
            return StatementOutcome::Outlasted;
        }
        let is_over = before.until <= now || before.lease_until <= now;
        match notice.change {
            ScopeChange::Denied(until, denial)
                if now < until && (is_over || before.until < until) =>
            {
                let replaced = OpenedScope {
                    partition: before.partition,
                    position: before.position,
                    ..note_of(notice)
                };
                self.opened.note(replaced, fingerprint);
                self.deny(notice, fingerprint, until, denial, true)
            }
            ScopeChange::Denied(..) | ScopeChange::Lifted => {
                self.note_unless_settled(notice, fingerprint);
                StatementOutcome::Outlasted
            }
        }
    }
}
