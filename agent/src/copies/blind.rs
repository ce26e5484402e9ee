//! Copies while no watermarks arrive, and the policy `blind` for them.

use super::handle::Copies;
use crate::answer::{Cause, Denied};
use crate::resource::{Asking, LIMITS_UNKNOWN, NOT_OPEN};

impl Copies {
    /// Whether copies are let through without the aggregators: the agent has received nothing about the resource's
    /// partition for two seconds, or does not yet know the resource's limits.
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
        self.inner.resource.flags() & LIMITS_UNKNOWN != 0 || self.is_blind()
    }

    /// Whether the policy `blind` lets copies through.
    pub(super) fn pass_blind(
        &self,
        fingerprint: u64,
        copies: u32,
        asking: Asking,
    ) -> Result<(), Denied> {
        let (resource, shared) = self.parts();
        if resource.flags() & NOT_OPEN == 0 {
            return Ok(());
        }
        match resource.passes_blind(fingerprint, copies, asking, &shared.clock) {
            Err(wait) if !self.lets_all_through() => Err(Denied::by_policy(Cause::Blind, wait)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn is_blind(&self) -> bool {
        let (resource, shared) = self.parts();
        shared
            .liveness
            .is_blind_of_copies(&resource.name, shared.clock.read())
    }
}
