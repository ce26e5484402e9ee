//! Calls that the known limits refuse by themselves, without a denial: of what they grant nothing, of banned networks,
//! and for more at once than they can ever grant.
//!
//! Knows nothing of windows. What stays true: a call is refused here only if it could also have been denied.
//! While there is no current watermark of the pair's partition, or denials are ignored, such calls pass like all
//! others.

use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Span;

use super::{Rate, Want};
use crate::answer::{Cause, Denied};
use crate::refused::TooMany;
use crate::resource::{OF_RATE, REFUSED};
use crate::shared::Shared;

impl Rate {
    /// What a call wants, reduced to what its limits can ever grant at once.
    #[inline]
    pub(super) fn within_most(&self, domain: &str, want: Want) -> Result<Want, TooMany> {
        if u64::from(want.max) <= self.resource.most_of_any() {
            return Ok(want);
        }
        self.within_most_attentively(&self.admit(domain), want)
    }

    /// The refusal of a call that the known limits never let in: of a resource, a domain or a network to which they grant
    /// nothing, or of a network that an operator has banned.
    pub(super) fn refused_by_limits(&self, domain: &str, flags: u32) -> Option<Denied> {
        if flags & REFUSED != 0 || self.resource.is_closed(domain) {
            let cause = match flags & OF_RATE {
                0 => Cause::Unconfigured,
                _ => Cause::Inaccessible,
            };
            return Some(Denied::by_policy(cause, Span::MAX));
        }
        let now = || self.shared.clock.read_wall();
        let (cause, remaining) = self.resource.refusal_of_network(domain, now)?;
        Some(Denied::by_policy(cause, remaining).with_policy(self.resource.policy()))
    }

    #[cold]
    fn within_most_attentively(&self, domain: &str, want: Want) -> Result<Want, TooMany> {
        let Shared { clock, mosts, .. } = &*self.shared;
        let most = mosts.of(&self.resource, domain, clock.cached());
        let is_within = u64::from(want.max) <= most;
        // If the limits grant nothing, the denial is more useful: it states that it does not end.
        let grants_nothing = most == 0 || self.resource.is_closed(domain);
        if is_within || grants_nothing || self.lets_all_through(self.resource.flags()) {
            return Ok(want);
        }
        if !self.is_guarded(domain) {
            return Ok(want);
        }
        if u64::from(want.min) <= most {
            let max = u32::try_from(most).unwrap_or(u32::MAX);
            return Ok(Want { max, ..want });
        }
        // No denial states this refusal, so no lift would end it when other limits grant more.
        self.shared.resources.doubt_limits(&self.resource);
        let denied = Denied::by_policy(Cause::TooMany, Span::MAX);
        self.record_refused(domain, want.max, &denied);
        Err(TooMany::new(most))
    }

    /// Whether there is a current watermark of a pair's partition.
    fn is_guarded(&self, domain: &str) -> bool {
        let Shared {
            liveness, clock, ..
        } = &*self.shared;
        let partitions = liveness.partitions();
        if partitions == 0 {
            return false;
        }
        let partition = partition_of_pair(&self.resource.name, domain, partitions);
        let guards = liveness.guard.guards();
        guards.is_guarded(partition as usize, clock.read())
    }
}
