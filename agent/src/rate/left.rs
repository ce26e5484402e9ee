//! What is left after a call, where notices say so: of its pair, and of all pairs under the global limit.
//!
//! Information: nothing here refuses anybody, and what is not known is left out.

use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Timestamp;

use super::Rate;
use crate::deny::Taking;
use crate::left::Left;
use crate::resource::{IGNORED, NEAR_WHOLE};
use crate::shared::Shared;

impl Rate {
    /// What is left after a call that lets so many copies through, if its pair is near its limit, or all pairs are
    /// near the global one: the lesser of both.
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
            // Nobody is refused by it, so nothing of it is left to be told of.
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
            // A notice that comes at this moment is missed by calls until the next one.
            resource.set_flag(NEAR_WHOLE, false);
        }
        match (own, whole) {
            (Some(own), Some(whole)) if whole.remaining < own.remaining => Some(whole),
            (own, whole) => own.or(whole),
        }
    }
}
