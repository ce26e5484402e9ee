//! What is left after a call, if notices state it: of its pair, and of all pairs under the global limit.
//!
//! Information only: nothing here refuses a call, and unknown values are left out.

use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Timestamp;

use super::Rate;
use crate::deny::Taking;
use crate::left::Left;
use crate::resource::{IGNORED, NEAR_WHOLE};
use crate::shared::Shared;

impl Rate {
    /// What is left after a call that lets this many copies through, if its pair is near its limit, or all pairs are
    /// near the global limit: the lesser of both.
    pub(super) fn left(
        &self,
        fingerprint: u64,
        domain: &str,
        copies: u32,
        at: Timestamp,
    ) -> Option<Left> {
        let Shared { view, clock, .. } = &*self.shared;
        let resource = &self.resource;
        if resource.flags() & IGNORED != 0 {
            // The limit refuses nobody, so there is nothing to report of it.
            return None;
        }
        let now = clock.cached();
        let taking = Taking { copies, at, now };
        let own = match view.maybe(fingerprint) {
            true => view.left(resource, fingerprint, domain, taking),
            false => None,
        };
        if resource.flags() & NEAR_WHOLE == 0 {
            return own;
        }
        let whole = view.left(resource, resource.fingerprint(EVERYBODY), EVERYBODY, taking);
        if whole.is_none() {
            // If a notice arrives at this moment, calls miss it until the next notice.
            resource.set_flag(NEAR_WHOLE, false);
        }
        match (own, whole) {
            (Some(own), Some(whole)) if whole.remaining < own.remaining => Some(whole),
            (own, whole) => own.or(whole),
        }
    }
}
