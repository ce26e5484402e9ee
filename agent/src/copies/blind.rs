//! Copies while the aggregators are not heard, and what the blind policy says of them.

use super::handle::{Copies, Inner};
use crate::answer::{Cause, Denied};
use crate::resource::{Asking, NOT_OPEN, UNHEARD};

impl Copies {
    /// Whether copies are let through without the aggregators' word: nothing about the resource's partition was
    /// received for two seconds, or not yet what is in force for the resource.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// assert!(!reports.blind());
    /// kit.go_blind();
    /// assert!(reports.blind());
    /// ```
    pub fn blind(&self) -> bool {
        self.inner.resource.flags() & UNHEARD != 0 || self.is_blind()
    }

    /// Whether the blind policy lets copies through.
    pub(super) fn pass_blind(
        &self,
        fingerprint: u64,
        copies: u32,
        asking: Asking,
    ) -> Result<(), Denied> {
        let Inner { resource, shared } = &*self.inner;
        if resource.flags() & NOT_OPEN == 0 {
            return Ok(());
        }
        match resource.passes_blind(fingerprint, copies, asking, &shared.clock) {
            Err(wait) if !self.lets_all_through() => Err(Denied::by_policy(Cause::Blind, wait)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn is_blind(&self) -> bool {
        let Inner { resource, shared } = &*self.inner;
        shared
            .sight
            .is_blind_of_copies(&resource.name, shared.clock.cached())
    }
}
