//! The handle by which a service takes copies.
//!
//! ```text
//! fingerprint, filter word, flags, hold table   taken: nothing else is read
//!                 └ exact list, groups, clock   refused
//! ```
//!
//! Knows nothing of networks. What stays true: no call waits unless its documentation says so, and no call takes a
//! lock that the network could hold.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_shared::time::Span;

use super::hold::Hold;
use crate::agent_inner::AgentInner;
use crate::answer::{Cause, Denied};
use crate::deny::Refusal;
use crate::feed_liveness;
use crate::holds::table::{Taken, WantedCopies};
use crate::refused::{Misuse, Refused};
use crate::resource::{Asking, GROUPS, IGNORED, OF_RATE, Policy, REFUSED, Resource, STRICT, WHOLE};
use crate::shared::Shared;
use crate::stats::Counters;

/// The flags that make a call look closer before it takes copies.
const ATTENTION: u32 = WHOLE | REFUSED | GROUPS | OF_RATE | STRICT;

/// A copy-limited resource. Cheap to clone; a service keeps one for each resource.
#[derive(Clone)]
pub struct Copies {
    pub(super) inner: Arc<Inner>,
}

/// State that handles and holds share.
pub(super) struct Inner {
    pub(super) resource: Arc<Resource>,
    pub(super) shared: Arc<Shared>,
    /// The agent works for as long as its handles and holds live.
    _agent: Arc<AgentInner>,
}

/// How many copies a call wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) max: u32,
    pub(super) min: u32,
}

impl Want {
    pub(super) const fn all_of(copies: u32) -> Self {
        Self {
            max: copies,
            min: copies,
        }
    }
}

/// What a call may take if no known limit refuses it.
#[derive(Clone, Copy, Debug)]
struct Leave {
    want: Want,
    /// The copies that the domain may have in this process.
    limit: Option<u64>,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies")
            .field("resource", &self.inner.resource.name)
            .finish_non_exhaustive()
    }
}

impl Copies {
    pub(crate) fn new(resource: Arc<Resource>, agent: Arc<AgentInner>) -> Self {
        let inner = Inner {
            resource,
            shared: Arc::clone(&agent.shared),
            _agent: agent,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(super) fn parts(&self) -> (&Arc<Resource>, &Arc<Shared>) {
        (&self.inner.resource, &self.inner.shared)
    }

    /// The resource's name.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// assert_eq!(reports.resource(), "reports");
    /// ```
    pub fn resource(&self) -> &str {
        &self.inner.resource.name
    }

    /// Whether the resource is strict, as far as the agent knows: its copies are used only once the aggregators have
    /// granted them. See [`Copies::reserve_confirmed`].
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let gpus = kit.agent().copies("gpus");
    /// assert!(!gpus.is_strict());
    /// kit.strict("gpus");
    /// assert!(gpus.is_strict());
    /// ```
    pub fn is_strict(&self) -> bool {
        self.inner.resource.flags() & STRICT != 0
    }

    /// Takes `copies` for `domain` now, unless this agent knows of a limit that is reached:
    ///
    /// - the aggregators announced that the domain, one of its groups, or the resource is full; or
    /// - this process alone would hold more copies for the domain than any domain may have. The agent
    ///   knows one such number for each resource: the limit of all domains, or, where some domains have
    ///   limits of their own, the greatest of them, and never more than the global limit. It asks for a
    ///   newer one when it refuses by it, at most every five seconds.
    ///
    /// Only the aggregators know how many copies a group, or all domains together, hold in the whole fleet. While the
    /// agent receives nothing about the resource's partition, the policy `blind` decides instead.
    ///
    /// The agent learns the limits of a resource in the background, after the first use of its name
    /// ([`Agent::ready`](crate::Agent::ready) waits for that). Until then it lets calls through, also on a strict
    /// resource; the aggregators count such copies apart from those that they granted before use.
    ///
    /// Costs two lookups in memory: takes no lock that a network could hold, makes no system call (except to
    /// wake the agent's thread while it rests, for which it does not wait), allocates nothing once the pair is known, and
    /// never waits. The aggregators count the copies a moment later, so they may turn out to have been too many: see
    /// [`Hold::confirmed`]. Dropping the hold, on any thread, gives them back. [`Copies::reserve_confirmed`] never
    /// takes too much, and costs a round trip through the log, some milliseconds.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.copies_limit("reports", 2);
    /// let reports = kit.agent().copies("reports");
    /// let hold = reports.reserve("acme", 2)?;
    /// assert!(reports.reserve("acme", 1).is_err());
    /// drop(hold);
    /// assert!(reports.reserve("acme", 1).is_ok());
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused::Denied`] while a limit is reached, or if the policy `blind` refuses; [`Refused::TooMany`] for more
    /// copies than any domain may ever have, as far as the agent knows; [`Refused::Misuse`] for 0 copies, and on a
    /// resource that is known to be strict or limited by rate.
    #[inline]
    pub fn reserve(&self, domain: &str, copies: u32) -> Result<Hold, Refused> {
        if copies == 0 {
            return Err(Misuse::NoCopies.into());
        }
        self.take_and_record(domain, Want::all_of(copies))
    }

    /// Takes as many copies as [`Copies::reserve`] would, at least the start of `copies`. A blind agent takes only
    /// the start. If a limit is reached and the start is 0, the call takes no copies instead of being refused.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let workers = kit.agent().copies("workers");
    /// let hold = workers.reserve_up_to("acme", 1..=8)?;
    /// println!("work on {} at once", hold.copies());
    /// # assert_eq!(hold.copies(), 8);
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Copies::reserve`]; and [`Misuse::MinAboveMax`].
    pub fn reserve_up_to(
        &self,
        domain: &str,
        copies: RangeInclusive<u32>,
    ) -> Result<Hold, Refused> {
        let (min, max) = copies.into_inner();
        if max < min {
            return Err(Misuse::MinAboveMax { min, max }.into());
        }
        if max == 0 {
            return Err(Misuse::NoCopies.into());
        }
        self.take_and_record(domain, Want { max, min })
    }

    /// Copies that this process holds for a domain.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let reports = kit.agent().copies("reports");
    /// let _hold = reports.reserve("acme", 3)?;
    /// assert_eq!(reports.held("acme"), 3);
    /// # Ok::<(), tollgate_agent::Refused>(())
    /// ```
    pub fn held(&self, domain: &str) -> u64 {
        let (resource, shared) = self.parts();
        let domain = shared.admit(domain);
        let fingerprint = resource.fingerprint(&domain);
        shared.hold_table.held(resource, fingerprint, &domain)
    }

    /// Whether [`Copies::reserve`] of one copy would succeed now. On a strict resource: whether
    /// [`Copies::reserve_confirmed`] would not be refused at once. Takes and records nothing, and uses nothing of the
    /// local rate under `blind`.
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// # kit.full("reports", "acme");
    /// let reports = kit.agent().copies("reports");
    /// assert!(reports.peek("acme").is_err());
    /// assert!(reports.peek("globex").is_ok());
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Copies::reserve`], except [`Misuse::Strict`].
    pub fn peek(&self, domain: &str) -> Result<(), Refused> {
        let (resource, shared) = self.parts();
        let domain = shared.admit(domain);
        if resource.flags() & STRICT == 0 {
            return self.would_take(&domain, Want::all_of(1));
        }
        // A call that waits for the aggregators' verdict only needs that no known limit refuses it.
        let known = self.look(resource.fingerprint(&domain), &domain);
        match known.filter(|_| !self.lets_all_through()) {
            Some(denied) => Err(denied.into()),
            None => Ok(()),
        }
    }

    /// Refuses a call that makes no sense, whatever is held: 0 copies, or a resource of another kind.
    pub(super) fn check(&self, copies: u32) -> Result<(), Misuse> {
        if copies == 0 {
            return Err(Misuse::NoCopies);
        }
        self.check_kind()
    }

    /// Whether `copies` could be taken beside `more` copies that the same call wants for the domain, all or none. A
    /// refusal ends that call, and is recorded.
    pub(super) fn look_beside(&self, domain: &str, more: u32, copies: u32) -> Result<(), Refused> {
        let domain = self.inner.shared.admit(domain);
        let looked = self.would_take(&domain, Want::all_of(copies.saturating_add(more)));
        match &looked {
            Err(Refused::Denied(denied)) => {
                if denied.code().is_none() {
                    self.doubt_limits();
                }
                self.record_refused(&domain, copies, denied);
            }
            Err(Refused::TooMany(_)) => {
                self.doubt_limits();
                self.record_too_many(&domain, copies);
            }
            Ok(()) | Err(_) => {}
        }
        looked
    }

    pub(super) fn doubt_limits(&self) {
        let (resource, shared) = self.parts();
        shared.resources.doubt_limits(resource);
    }

    /// Whether both handles are of one resource.
    pub(super) fn is_of_resource(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.resource, &other.inner.resource)
    }

    /// Whether [`Copies::take`] would succeed.
    fn would_take(&self, domain: &str, want: Want) -> Result<(), Refused> {
        let (resource, shared) = self.parts();
        let fingerprint = resource.fingerprint(domain);
        let leave = self.decide(fingerprint, domain, want, Asking::Look)?;
        let limit = leave
            .limit
            .and_then(|_| self.limit_beside_ended(domain, want));
        let leave = Leave { limit, ..leave };
        let wanted = self.wanted(fingerprint, domain, leave);
        let held = shared.hold_table.held(resource, fingerprint, domain);
        if wanted.fits_beside(held).is_some() || self.lets_all_through() {
            return Ok(());
        }
        Err(self.full(domain, want))
    }

    #[inline]
    fn take_and_record(&self, domain: &str, want: Want) -> Result<Hold, Refused> {
        if !self.inner.shared.is_itself(domain) {
            return self.take_and_record_renamed(domain, want);
        }
        self.take_and_record_admitted(domain, want)
    }

    #[inline]
    fn take_and_record_admitted(&self, domain: &str, want: Want) -> Result<Hold, Refused> {
        let taken = self.take(domain, want);
        match &taken {
            Err(Refused::Denied(denied)) => self.record_refused(domain, want.max, denied),
            Err(Refused::TooMany(_)) => self.record_too_many(domain, want.max),
            Ok(_) | Err(_) => return taken,
        }
        if want.min == 0 {
            return Ok(Hold::of_nothing(Arc::clone(&self.inner)));
        }
        taken
    }

    #[cold]
    fn take_and_record_renamed(&self, domain: &str, want: Want) -> Result<Hold, Refused> {
        self.take_and_record_admitted(&self.inner.shared.admit(domain), want)
    }

    /// Takes copies, and records no refusal.
    #[inline]
    pub(super) fn take(&self, domain: &str, want: Want) -> Result<Hold, Refused> {
        let (resource, shared) = self.parts();
        let fingerprint = resource.fingerprint(domain);
        if shared.view.maybe(fingerprint)
            || resource.flags() & ATTENTION != 0
            || resource.may_be_in_network(resource.flags(), domain)
            || shared.liveness.copies_state() != feed_liveness::ALL
        {
            return self.take_attentively(fingerprint, domain, want);
        }
        let limit = self.limit_of(domain, want);
        self.take_up_to(fingerprint, domain, Leave { want, limit })
    }

    #[inline]
    fn take_up_to(&self, fingerprint: u64, domain: &str, leave: Leave) -> Result<Hold, Refused> {
        let (resource, shared) = self.parts();
        let wanted = self.wanted(fingerprint, domain, leave);
        match shared.hold_table.take(resource, &wanted) {
            Taken::Copies(ticket, copies) => Ok(Hold::new(Arc::clone(&self.inner), ticket, copies)),
            Taken::Full if leave.limit.is_some() && self.lets_all_through() => {
                Counters::add(&shared.counters.kill_switch_grants, 1);
                let limit = None;
                self.take_up_to(fingerprint, domain, Leave { limit, ..leave })
            }
            Taken::Full => {
                let limit = self.limit_beside_ended(domain, leave.want);
                if leave.limit < limit {
                    return self.take_up_to(fingerprint, domain, Leave { limit, ..leave });
                }
                // No aggregator refused this, only the limit that the agent knows, and that may have been raised.
                shared.resources.doubt_limits(resource);
                Err(self.full(domain, leave.want))
            }
        }
    }

    #[inline]
    fn wanted<'a>(&self, fingerprint: u64, domain: &'a str, leave: Leave) -> WantedCopies<'a> {
        WantedCopies {
            fingerprint,
            domain,
            max: leave.want.max,
            min: leave.want.min,
            limit: leave.limit,
            at: self.inner.shared.clock.cached_wall(),
        }
    }

    #[inline(never)]
    fn take_attentively(
        &self,
        fingerprint: u64,
        domain: &str,
        want: Want,
    ) -> Result<Hold, Refused> {
        let leave = self.decide(fingerprint, domain, want, Asking::Take)?;
        self.take_up_to(fingerprint, domain, leave)
    }

    /// What a call may take, by the known limits and the policy `blind`. A call that only looks takes nothing of the
    /// local rate under `blind`, and is not counted as let through.
    fn decide(
        &self,
        fingerprint: u64,
        domain: &str,
        want: Want,
        asking: Asking,
    ) -> Result<Leave, Refused> {
        self.check_kind()?;
        if let Some(denied) = self.look(fingerprint, domain) {
            if !self.lets_all_through() {
                return Err(self.refused_by(domain, denied, want));
            }
            if asking == Asking::Take {
                Counters::add(&self.inner.shared.counters.kill_switch_grants, 1);
            }
        }
        if !self.is_blind() {
            let limit = self.limit_of(domain, want);
            return Ok(Leave { want, limit });
        }
        let least = Want {
            max: want.min.max(1).min(want.max),
            min: want.min,
        };
        self.pass_blind(fingerprint, least.max, asking)?;
        Ok(Leave {
            want: least,
            limit: None,
        })
    }

    /// Refuses calls of resources whose copies are taken in another way, or that have no copies.
    fn check_kind(&self) -> Result<(), Misuse> {
        match self.inner.resource.flags() {
            flags if flags & STRICT != 0 => Err(Misuse::Strict),
            flags if flags & OF_RATE != 0 => Err(Misuse::NotCopies),
            _ => Ok(()),
        }
    }

    /// Takes copies whatever the limits are, for a call that the policy `blind` let through.
    pub(super) fn take_anyhow(&self, fingerprint: u64, domain: &str, copies: u32) -> Option<Hold> {
        let leave = Leave {
            want: Want::all_of(copies),
            limit: None,
        };
        self.take_up_to(fingerprint, domain, leave).ok()
    }

    /// The known denial of a domain's use, or the refusal by known limits, if there is one.
    pub(super) fn look(&self, fingerprint: u64, domain: &str) -> Option<Denied> {
        let (resource, shared) = self.parts();
        let flags = resource.flags();
        let clock = || shared.clock.read();
        let mut refusal: Option<Refusal> =
            shared.view.refusal(resource, fingerprint, domain, clock);
        if refusal.is_none() && flags & GROUPS != 0 {
            refusal = resource
                .groups_of(domain)
                .iter()
                .find_map(|group| shared.view.group(resource, group, clock));
        }
        if refusal.is_none() && flags & WHOLE != 0 {
            refusal = shared.view.whole(resource, clock);
        }
        if let Some(refusal) = refusal {
            return Some(Denied::of_refusal(&refusal, Policy::NONE));
        }
        let by_limits = match flags & REFUSED {
            0 => resource.refusal_of_network(domain, || shared.clock.read_wall()),
            _ => Some((Cause::Unconfigured, Span::MAX)),
        };
        let (cause, remaining) = by_limits.filter(|_| !self.is_blind())?;
        shared.resources.doubt_limits(resource);
        Some(Denied::by_policy(cause, remaining))
    }

    /// Whether denials are ignored.
    pub(super) fn lets_all_through(&self) -> bool {
        let (resource, shared) = self.parts();
        let flags = resource.flags();
        // An agent that is closed can ask nobody for a grant.
        let is_over = shared.is_closed() && flags & STRICT == 0;
        flags & IGNORED != 0 || is_over || shared.kill_switch.load(Ordering::Relaxed)
    }

    pub(super) fn record_refused(&self, domain: &str, copies: u32, denied: &Denied) {
        let (resource, shared) = self.parts();
        shared.record_refused(resource.id, domain, copies, denied);
    }
}
