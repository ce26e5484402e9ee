//! Calls for more copies at once than their domain may ever have: waiting does not help them.
//!
//! What stays true: such a call is refused as that whether the domain has room or not, and only by a limit that the
//! agent knows.

use tollgate_shared::time::Span;

use super::handle::{Copies, Want};
use crate::answer::{Cause, Denied};
use crate::refused::{Refused, TooMany};

impl Copies {
    /// The copies that a domain may have, if known: 0 if the limits close it; for a call that wants more than the least
    /// limit that a denial has stated in the last ten minutes, the domain's own limit, if one has; or the greatest limit
    /// of any domain.
    #[inline]
    pub(super) fn limit_of(&self, domain: &str, want: Want) -> Option<u64> {
        let (resource, shared) = self.parts();
        if resource.is_closed(domain) {
            return Some(0);
        }
        let of_any = resource.copies_limit();
        if u64::from(want.max) <= resource.most_of_any() {
            return of_any;
        }
        let own = shared.mosts.of(resource, domain, shared.clock.cached());
        if own == u64::MAX {
            return of_any;
        }
        // It may have been raised since, of which nobody tells the agent unless it asks.
        shared.resources.doubt_limits(resource);
        of_any.into_iter().chain([own]).min()
    }

    /// The same with the copies of holds that have ended: their holders have not dropped them, but nobody counts them any
    /// more.
    #[cold]
    pub(super) fn limit_beside_ended(&self, domain: &str, want: Want) -> Option<u64> {
        let (resource, shared) = self.parts();
        let limit = self.limit_of(domain, want)?;
        Some(limit.saturating_add(shared.revoked.ended_of(resource.id, domain)))
    }

    /// The refusal because of what this process itself holds, or of what the domain may never hold.
    pub(super) fn full(&self, domain: &str, want: Want) -> Refused {
        let limit = self.limit_of(domain, want).unwrap_or_default();
        self.refused_by(domain, Denied::of_own_holds(limit), want)
    }

    /// The refusal of a call that a denial refuses, but for a call that could not pass without the denial, either. A
    /// limit that grants nothing at all is a denial, which says so.
    pub(super) fn refused_by(&self, domain: &str, denied: Denied, want: Want) -> Refused {
        let limit = self.limit_of(domain, want).unwrap_or_default();
        if denied.cause() == Cause::Full && limit != 0 && limit < u64::from(want.min) {
            return TooMany::new(limit).into();
        }
        denied.into()
    }

    /// The same for a call that ends with it, and is recorded.
    pub(super) fn refuse(&self, domain: &str, want: Want, denied: Denied) -> Refused {
        let refused = self.refused_by(domain, denied, want);
        match &refused {
            Refused::Denied(denied) => self.record_refused(domain, want.max, denied),
            _ => {
                self.doubt_limits();
                self.record_too_many(domain, want.max);
            }
        }
        refused
    }

    /// Records a call for more copies than its domain may ever have.
    pub(super) fn record_too_many(&self, domain: &str, copies: u32) {
        let denied = Denied::by_policy(Cause::TooMany, Span::MAX);
        self.record_refused(domain, copies, &denied);
    }
}
