//! Calls for more copies at once than any domain may have: waiting does not help them.
//!
//! What stays true: such a call is refused as that whether the domain has room or not, and only by a limit that the
//! agent knows.

use tollgate_shared::time::Span;

use super::handle::{Copies, Want};
use crate::answer::{Cause, Denied};
use crate::refused::{Refused, TooMany};

impl Copies {
    /// The refusal because of what this process itself holds, or of what no domain may ever hold.
    pub(super) fn full(&self, want: Want) -> Refused {
        let limit = self.inner.resource.copies_limit().unwrap_or_default();
        self.refused_by(Denied::of_own_holds(limit), want)
    }

    /// The refusal of a call that a denial refuses, but for a call that could not pass without the denial, either. A
    /// limit that grants nothing at all is a denial, which says so.
    pub(super) fn refused_by(&self, denied: Denied, want: Want) -> Refused {
        let limit = self.inner.resource.copies_limit().unwrap_or_default();
        if denied.cause() == Cause::Full && limit != 0 && limit < u64::from(want.min) {
            return TooMany::new(limit).into();
        }
        denied.into()
    }

    /// The same for a call that ends with it, and is recorded.
    pub(super) fn refuse(&self, domain: &str, want: Want, denied: Denied) -> Refused {
        let refused = self.refused_by(denied, want);
        match &refused {
            Refused::Denied(denied) => self.record_refused(domain, want.max, denied),
            _ => {
                self.doubt_limits();
                self.record_too_many(domain, want.max);
            }
        }
        refused
    }

    /// Records a call for more copies than any domain may have.
    pub(super) fn record_too_many(&self, domain: &str, copies: u32) {
        let denied = Denied::by_policy(Cause::TooMany, Span::MAX);
        self.record_refused(domain, copies, &denied);
    }
}
