//! Calls while no watermarks arrive, and the policy `blind` for them.

use super::{Granted, Rate, Want};
use crate::answer::{Allowed, Cause, Denied};
use crate::clock::Mono;
use crate::resource::Asking;

impl Rate {
    /// Asks the policy `blind`.
    pub(super) fn ask_policy(
        &self,
        fingerprint: u64,
        want: Want,
        asking: Asking,
    ) -> Result<Granted, Denied> {
        let (resource, least) = (&self.resource, want.least());
        match resource.passes_blind(fingerprint, least, asking, &self.shared.clock) {
            Ok(()) => Ok(Granted {
                allowed: Allowed::new(least, true, resource.policy()),
                unguarded: true,
            }),
            Err(wait) => self.unless_killed(resource.flags(), want, || {
                Denied::by_policy(Cause::Blind, wait)
            }),
        }
    }

    /// Whether there is no current watermark of the pair's partition.
    pub(super) fn is_blind(&self, domain: &str, now: Mono) -> bool {
        let liveness = &self.shared.liveness;
        liveness.is_blind(&self.resource.name, domain, now)
    }
}
