//! The handle by which a service asks: may this domain use this resource now?
//!
//! ```text
//! fingerprint, filter word, cached clock, buffer       let through: nothing else is read
//!                 └ closed domains and networks, buffer    refused, by a limit of 0 or a banned network
//!                 └ exact list, real clock, buffer     refused
//!                 └ exact list, notices, buffer        let through, near its limit
//! ```
//!
//! Knows nothing of networks. What stays true: no call waits, allocates once its thread is known, or takes a lock
//! that the network could hold.

mod blind;
mod estimate;
mod left;
#[cfg(test)]
mod rest_tests;
mod together;
mod until;
mod within;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_shared::time::{Span, Timestamp};

use crate::admitted::Admitted;
use crate::agent_inner::AgentInner;
use crate::answer::{Allowed, Cause, Denied};
use crate::clock::Reading;
use crate::deny::Refusal;
use crate::feed_liveness;
use crate::recorder::{Happened, RecorderEvent};
use crate::refused::{Misuse, Refused};
use crate::resource::{
    ADDRESSES, Asking, IGNORED, LIMITS_UNKNOWN, NEAR_WHOLE, NOT_OPEN, NOT_RATE, Policy, REFUSED,
    Resource, WHOLE,
};
use crate::shared::Shared;
use crate::stats::Counters;

pub use estimate::{Estimate, SettleError, Settled};
pub(crate) use together::{hit_all, hit_all_n};

/// A rate-limited resource. Cheap to clone; a service keeps one for each resource.
#[derive(Clone, Debug)]
pub struct Rate {
    resource: Arc<Resource>,
    shared: Arc<Shared>,
    /// The agent works for as long as its handles live.
    _agent: Arc<AgentInner>,
}

/// How many copies a call wants: at least one, and the maximum is not below the minimum.
#[derive(Clone, Copy, Debug)]
struct Want {
    max: u32,
    /// The least number that is useful.
    min: u32,
}

const ONE: Want = Want { max: 1, min: 1 };

/// A call that is let through, and what to record of it.
#[derive(Clone, Copy, Debug)]
struct Granted {
    allowed: Allowed,
    /// The call is already known to be unguarded: see [`Happened::Hit`].
    unguarded: bool,
}

impl Want {
    const fn all_of(copies: u32) -> Self {
        Self {
            max: copies,
            min: copies,
        }
    }

    /// What a blind agent grants: the minimum, but at least one.
    fn least(self) -> u32 {
        self.min.max(1)
    }
}

/// The flags that make a call look closer before it is let through.
const ATTENTION: u32 = WHOLE | REFUSED | NOT_OPEN | NOT_RATE | NEAR_WHOLE;

impl Rate {
    pub(crate) fn new(resource: Arc<Resource>, agent: Arc<AgentInner>) -> Self {
        Self {
            resource,
            shared: Arc::clone(&agent.shared),
            _agent: agent,
        }
    }

    /// The resource's name.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// assert_eq!(search.resource(), "api.search");
    /// ```
    pub fn resource(&self) -> &str {
        &self.resource.name
    }

    /// May one hit by `domain` proceed now?
    ///
    /// One lookup in memory: takes no lock that a network could hold, makes no system call but the one below, allocates
    /// nothing after the thread's first call, and never waits. Calls that are let through are recorded and sent in the
    /// background; so are refused calls, as sums.
    ///
    /// With fewer than 16 calls a millisecond the agent's thread rests between its visits. A call then reads the clock,
    /// some 0.1 µs; and one that must not wait for the next visit, or that is the first after 20 ms, wakes the thread: one
    /// system call, which does not wait either.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.deny("api.search", "globex", Duration::from_secs(3));
    /// let search = kit.agent().rate("api.search");
    /// assert!(search.hit("acme").is_ok());
    /// let denied = search.hit("globex").unwrap_err();
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(3)));
    /// ```
    ///
    /// # Errors
    ///
    /// [`Denied`] while a denial of the aggregators is in force, if the limits grant the domain nothing, or if the
    /// resource's policy `blind` refuses; [`Denied::retry_after`] says for how long.
    #[inline]
    pub fn hit(&self, domain: &str) -> Result<Allowed, Denied> {
        self.ask_and_record(domain, ONE)
    }

    /// May `copies` hits by `domain` proceed now, all of them?
    ///
    /// Costs what [`Rate::hit`] does, and one more lookup if some domain of the resource is known to be granted at
    /// most fewer copies at once than this call wants.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_agent::{Refused, testing::TestAgent};
    /// # let kit = TestAgent::new();
    /// # let search = kit.agent().rate("api.search");
    /// match search.hit_n("acme", 20) {
    ///     Ok(_allowed) => println!("go on"),
    ///     Err(Refused::TooMany(too_many)) => println!("at most {} at once", too_many.most()),
    ///     Err(error) => println!("not now: {error}"),
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::Denied`] as [`Rate::hit`]. [`Refused::TooMany`] for more copies than the limits can ever grant at
    /// once: those of the resource, or those of the domain if a denial in the last ten minutes stated them; recorded
    /// as refused. [`Refused::Misuse`] for 0 copies; not recorded.
    pub fn hit_n(&self, domain: &str, copies: u32) -> Result<Allowed, Refused> {
        if copies == 0 {
            return Err(Misuse::NoCopies.into());
        }
        let want = self.within_most(domain, Want::all_of(copies))?;
        Ok(self.ask_and_record(domain, want)?)
    }

    /// May as many hits by `domain` as possible proceed now, at least the start of `copies`?
    ///
    /// An agent knows whether a domain is denied, not how many hits it has left. So it grants all of them (a blind
    /// agent only the minimum), and the aggregators deny from then on. It never grants more than the limits can ever
    /// grant at once. If the start is 0, a denied domain is granted 0 instead of being refused.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let mails = kit.agent().rate("mails");
    /// // As many of 50 as may be, and none at all is no error.
    /// let granted = mails.hit_up_to("acme", 0..=50)?;
    /// println!("{} are sent now", granted.copies());
    /// # assert_eq!(granted.copies(), 50);
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::Denied`] as [`Rate::hit`]; [`Refused::TooMany`] as [`Rate::hit_n`], for the start of the range;
    /// [`Refused::Misuse`] for a range that is empty or only contains 0; not recorded.
    pub fn hit_up_to(&self, domain: &str, copies: RangeInclusive<u32>) -> Result<Allowed, Refused> {
        let is_empty = copies.is_empty();
        let (min, max) = copies.into_inner();
        if is_empty {
            return Err(Misuse::MinAboveMax { min, max }.into());
        }
        if max == 0 {
            return Err(Misuse::NoCopies.into());
        }
        let want = self.within_most(domain, Want { max, min })?;
        Ok(self.ask_and_record(domain, want)?)
    }

    /// What [`Rate::hit`] would return now. Records nothing, and takes nothing of the local rate under `blind`.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let search = kit.agent().rate("api.search");
    /// if search.peek("acme").is_ok() {
    ///     // Worth the trouble of preparing the call.
    /// }
    /// # assert!(kit.recorded().is_empty());
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Rate::hit`].
    pub fn peek(&self, domain: &str) -> Result<Allowed, Denied> {
        let domain = self.admit(domain);
        self.ask(
            self.resource.fingerprint(&domain),
            &domain,
            ONE,
            Asking::Look,
            &Reading::of(&self.shared.clock),
        )
        .map(|granted| granted.allowed)
    }

    /// Records a cost that is known only afterwards. It has been spent, so it counts, even if a call would be
    /// refused. Ask with [`Rate::peek`] or [`Rate::hit`] before; if a cost is known roughly before and exactly
    /// afterwards, see [`Rate::hit_estimated`]. A cost of 0 is not recorded.
    ///
    /// Costs what [`Rate::hit`] does.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # let tokens = kit.agent().rate("llm.tokens");
    /// tokens.record("acme", 1_250);
    /// ```
    pub fn record(&self, domain: &str, copies: u32) {
        if copies != 0 {
            let happened = Happened::Charge { copies };
            let domain = self.admit(domain);
            let fingerprint = self.resource.fingerprint(&domain);
            let at = self.stamp(fingerprint, copies);
            self.record_happened(&domain, happened, at);
            // A pair near its limit has that much less left.
            let _ = self.left(fingerprint, &domain, copies, at);
        }
    }

    #[inline]
    fn ask_and_record(&self, domain: &str, want: Want) -> Result<Allowed, Denied> {
        let flags = self.resource.flags();
        if flags & ADDRESSES == 0 && self.shared.is_itself(domain) {
            self.ask_and_record_admitted(domain, want, flags)
        } else {
            self.ask_and_record_renamed(domain, want, flags)
        }
    }

    #[cold]
    fn ask_and_record_renamed(
        &self,
        domain: &str,
        want: Want,
        flags: u32,
    ) -> Result<Allowed, Denied> {
        self.ask_and_record_admitted(&self.admit(domain), want, flags)
    }

    /// The name under which a caller's domain is limited.
    fn admit<'d>(&self, domain: &'d str) -> Admitted<'d> {
        match self.resource.flags() & ADDRESSES {
            0 => self.shared.admit(domain),
            _ => {
                let addresses = self.resource.addresses();
                self.shared.admit_address(addresses, domain)
            }
        }
    }

    #[inline]
    fn ask_and_record_admitted(
        &self,
        domain: &str,
        want: Want,
        flags: u32,
    ) -> Result<Allowed, Denied> {
        let fingerprint = self.resource.fingerprint(domain);
        // Almost every call ends here: neither the pair nor the resource is denied, and the pair is not near its
        // limit. What a blind agent lets through costs the same, unless only some partitions have a current
        // watermark.
        let liveness = self.shared.liveness.state();
        let is_known = self.shared.view.maybe(fingerprint);
        let is_watched = flags & ATTENTION != 0 || self.resource.may_be_refused(flags, domain);
        if is_known || is_watched || liveness == feed_liveness::SOME {
            return self.ask_and_record_attentively(fingerprint, domain, want);
        }
        let blind = liveness != feed_liveness::ALL;
        let copies = if blind { want.least() } else { want.max };
        let want = Want {
            max: copies,
            min: want.min,
        };
        self.record_hits(domain, want, blind, self.stamp(fingerprint, copies));
        let blind = blind || flags & LIMITS_UNKNOWN != 0;
        Ok(Allowed::new(copies, blind, self.resource.policy()))
    }

    #[inline(never)]
    fn ask_and_record_attentively(
        &self,
        fingerprint: u64,
        domain: &str,
        want: Want,
    ) -> Result<Allowed, Denied> {
        let reading = Reading::of(&self.shared.clock);
        let refusal = self.refusal_of_pair(fingerprint, domain, &reading);
        let flags = self.resource.flags();
        // Almost every refused call ends here: its pair is denied, and nothing else matters.
        if let Some(refusal) = &refusal
            && flags & (NOT_RATE | WHOLE) == 0
            && want.min != 0
            && !self.lets_all_through(flags)
        {
            let denied = Denied::of_refusal(refusal, self.resource.policy());
            self.record_refused(domain, want.max, &denied);
            return Err(denied);
        }
        match self.ask_beside(refusal, fingerprint, domain, want, Asking::Take, &reading) {
            Ok(granted) => {
                let want = Want {
                    max: granted.allowed.copies(),
                    min: want.min,
                };
                let at = reading.stamp(|| self.stamp(fingerprint, want.max));
                self.record_hits(domain, want, granted.unguarded, at);
                Ok(granted.allowed)
            }
            Err(denied) => {
                self.record_refused(domain, want.max, &denied);
                if want.min == 0 {
                    Ok(Allowed::new(0, false, self.resource.policy()))
                } else {
                    Err(denied)
                }
            }
        }
    }

    /// Decides, and records nothing.
    fn ask(
        &self,
        fingerprint: u64,
        domain: &str,
        want: Want,
        asking: Asking,
        reading: &Reading<'_>,
    ) -> Result<Granted, Denied> {
        let refusal = self.refusal_of_pair(fingerprint, domain, reading);
        self.ask_beside(refusal, fingerprint, domain, want, asking, reading)
    }

    /// The denial of the pair that is in force.
    #[inline]
    fn refusal_of_pair(
        &self,
        fingerprint: u64,
        domain: &str,
        reading: &Reading<'_>,
    ) -> Option<Refusal> {
        // The filter is not asked again: either it did not clear this call, or the call is in no hurry.
        let view = &self.shared.view;
        view.refusal(&self.resource, fingerprint, domain, || reading.now())
    }

    /// Decides beside what is known of a denial of the pair, and records nothing.
    fn ask_beside(
        &self,
        mut refusal: Option<Refusal>,
        fingerprint: u64,
        domain: &str,
        want: Want,
        asking: Asking,
        reading: &Reading<'_>,
    ) -> Result<Granted, Denied> {
        let shared = &*self.shared;
        let flags = self.resource.flags();
        let policy = self.resource.policy();
        // A denial of copies does not apply to a hit.
        if flags & NOT_RATE != 0 {
            let not_rate = || Denied::by_policy(Cause::NotRate, Span::MAX);
            return self.unless_killed(flags, want, not_rate);
        }
        if flags & WHOLE != 0
            && let Some(whole) = shared.view.whole(&self.resource, || reading.now())
        {
            // Of two denials, the one that lasts longest determines when to try again.
            refusal = match refusal {
                Some(pair) if whole.remaining < pair.remaining => Some(pair),
                _ => Some(whole),
            };
        }
        if let Some(refusal) = refusal {
            let denied = || Denied::of_refusal(&refusal, policy);
            return self.unless_killed(flags, want, denied);
        }
        if self.is_blind(domain, reading.latest()) {
            return self.ask_policy(fingerprint, want, asking);
        }
        if let Some(denied) = self.refused_by_limits(domain, flags) {
            // No denial states this refusal, so no lift would end it when other limits let the domain in.
            shared.resources.doubt_limits(&self.resource);
            return self.unless_killed(flags, want, || denied);
        }
        let (copies, at) = match asking {
            Asking::Take => (
                want.max,
                reading.stamp(|| self.stamp(fingerprint, want.max)),
            ),
            Asking::Look => (0, Timestamp::ZERO),
        };
        let left = self.left(fingerprint, domain, copies, at);
        Ok(Granted {
            // Calls that pass before the limits are known count all the same: that takes only one round trip.
            allowed: Allowed::new(want.max, flags & LIMITS_UNKNOWN != 0, policy).with_left(left),
            unguarded: false,
        })
    }

    /// Whether denials are ignored.
    fn lets_all_through(&self, flags: u32) -> bool {
        let shared = &self.shared;
        flags & IGNORED != 0 || shared.kill_switch.load(Ordering::Relaxed) || shared.is_closed()
    }

    /// Refuses, unless denials are ignored.
    fn unless_killed(
        &self,
        flags: u32,
        want: Want,
        denied: impl FnOnce() -> Denied,
    ) -> Result<Granted, Denied> {
        if !self.lets_all_through(flags) {
            return Err(denied());
        }
        Counters::add(&self.shared.counters.kill_switch_grants, 1);
        let blind = self.shared.has_ended();
        Ok(Granted {
            // Limits that are not enforced are not reported.
            allowed: Allowed::new(want.max, blind, Policy::default()),
            unguarded: true,
        })
    }

    /// The stamp of a call that is let through.
    #[inline]
    fn stamp(&self, fingerprint: u64, copies: u32) -> Timestamp {
        self.shared.stamp(&self.resource, fingerprint, copies)
    }

    #[inline]
    fn record_hits(&self, domain: &str, want: Want, unguarded: bool, at: Timestamp) {
        let happened = Happened::Hit {
            copies: want.max,
            min: (want.min < want.max).then_some(want.least()),
            unguarded,
        };
        self.record_happened(domain, happened, at);
    }

    #[inline]
    fn record_happened(&self, domain: &str, happened: Happened, at: Timestamp) {
        self.shared.recorder.record(&RecorderEvent {
            resource: self.resource.id,
            domain,
            at,
            happened,
        });
    }

    fn record_refused(&self, domain: &str, copies: u32, denied: &Denied) {
        self.shared
            .record_refused(self.resource.id, domain, copies, denied);
    }
}
