//! The handle by which a service asks: may this domain use this resource now?
//!
//! ```text
//! fingerprint, filter word, cached clock, ring         let through: nothing else is touched
//!                 └ exact list, real clock, ring       refused
//! ```
//!
//! Knows nothing of networks. What stays true: no call waits, allocates for a known thread, or takes a
//! lock that the network could hold up.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_shared::time::Span;

use crate::answer::{Allowed, Cause, Denied, HitError};
use crate::copies::Misuse;
use crate::recorder::{Event, Happened};
use crate::resource::{Asking, IGNORED, NOT_OPEN, OF_RATE, REFUSED, Resource, WHOLE};
use crate::shared::Shared;
use crate::sight;
use crate::stats::Counters;
use crate::waiting::Backoff;

/// A rate-limited resource. Cheap to clone; one for each resource is kept in a service's state.
#[derive(Clone, Debug)]
pub struct Rate {
    resource: Arc<Resource>,
    shared: Arc<Shared>,
}

/// How many copies a call wants: at least one, and the most is not below the least.
#[derive(Clone, Copy, Debug)]
struct Want {
    max: u32,
    /// The least that is of use.
    min: u32,
}

const ONE: Want = Want { max: 1, min: 1 };

impl Want {
    /// What a blind agent grants: the least, but something.
    fn least(self) -> u32 {
        self.min.max(1)
    }
}

/// What a call looks into before it is let through.
const ATTENTION: u32 = WHOLE | REFUSED | NOT_OPEN;

impl Rate {
    pub(crate) fn new(resource: Arc<Resource>, shared: Arc<Shared>) -> Self {
        Self { resource, shared }
    }

    /// The resource's name.
    pub fn resource(&self) -> &str {
        &self.resource.name
    }

    /// May one hit by `domain` proceed now?
    ///
    /// One lookup in memory: takes no lock that a network could hold, makes no system call, allocates
    /// nothing after the thread's first call, and never waits. What is let through is recorded and
    /// sent in the background; so is what is refused, in sums.
    ///
    /// # Errors
    ///
    /// [`Denied`] while a denial of the aggregators is in force, or where the resource's blind policy
    /// says so; [`Denied::retry_after`] says for how long.
    #[inline]
    pub fn hit(&self, domain: &str) -> Result<Allowed, Denied> {
        self.ask_and_record(domain, ONE)
    }

    /// May `copies` hits by `domain` proceed now, all of them?
    ///
    /// Costs what [`Rate::hit`] does.
    ///
    /// # Errors
    ///
    /// [`HitError::Denied`] as [`Rate::hit`]; [`HitError::Misuse`] for no copies, which is recorded
    /// nowhere.
    pub fn hit_n(&self, domain: &str, copies: u32) -> Result<Allowed, HitError> {
        if copies == 0 {
            return Err(Misuse::NoCopies.into());
        }
        let want = Want {
            max: copies,
            min: copies,
        };
        Ok(self.ask_and_record(domain, want)?)
    }

    /// May as many hits by `domain` as possible proceed now, at least the start of `copies`?
    ///
    /// An agent knows whether a domain is denied, not how many hits it has left: it grants all, or
    /// while nobody is heard the least, and the aggregators deny from then on. With a start of 0 a
    /// denied domain is granted 0 instead of being refused.
    ///
    /// # Errors
    ///
    /// [`HitError::Denied`] as [`Rate::hit`]; [`HitError::Misuse`] for a range that is empty, or has
    /// nothing but 0 in it, which is recorded nowhere.
    pub fn hit_up_to(
        &self,
        domain: &str,
        copies: RangeInclusive<u32>,
    ) -> Result<Allowed, HitError> {
        let is_empty = copies.is_empty();
        let (min, max) = copies.into_inner();
        if is_empty {
            return Err(Misuse::MinAboveMax { min, max }.into());
        }
        if max == 0 {
            return Err(Misuse::NoCopies.into());
        }
        Ok(self.ask_and_record(domain, Want { max, min })?)
    }

    /// What [`Rate::hit`] would say now. Records nothing, and takes nothing of a local blind rate.
    ///
    /// # Errors
    ///
    /// As [`Rate::hit`].
    pub fn peek(&self, domain: &str) -> Result<Allowed, Denied> {
        let domain = self.shared.admit(domain);
        self.ask(
            self.resource.fingerprint(&domain),
            &domain,
            ONE,
            Asking::Look,
        )
    }

    /// Records hits that have happened, whatever they would have been told: for a cost that is known
    /// only afterwards. Ask with [`Rate::peek`] or [`Rate::hit`] before. No copies are recorded as none.
    pub fn record(&self, domain: &str, copies: u32) {
        if copies != 0 {
            self.record_hits(
                &self.shared.admit(domain),
                Want {
                    max: copies,
                    min: 1,
                },
            );
        }
    }

    /// Waits until one hit by `domain` may proceed, at most `max_wait`, and makes it.
    ///
    /// Tries when the denial in force ends, up to a quarter of the wait later, so that those who wait
    /// for one domain do not come at once; then again and again, ever more slowly. A denial that ends
    /// after `max_wait` is answered at once. Needs no runtime of any kind.
    ///
    /// # Errors
    ///
    /// The last [`Denied`].
    pub async fn until_ready(&self, domain: &str, max_wait: Duration) -> Result<Allowed, Denied> {
        let domain = self.shared.admit(domain);
        let fingerprint = self.resource.fingerprint(&domain);
        let clock = &self.shared.clock;
        let until = clock.read().plus(Span::from_std(max_wait));
        let mut backoff = Backoff::new();
        loop {
            let denied = match self.ask(fingerprint, &domain, ONE, Asking::Take) {
                Ok(allowed) => {
                    self.record_hits(&domain, ONE);
                    return Ok(allowed);
                }
                Err(denied) => denied,
            };
            let left = until.since(clock.read());
            let wait = backoff.next(&denied);
            if wait.is_none_or(|wait| left < wait.at_least)
                || left == Span::ZERO
                || self.shared.has_ended()
            {
                self.record_refused(&domain, 1, &denied);
                return Err(denied);
            }
            if let Some(wait) = wait {
                // By hand a sleep may end early, in which case it goes on.
                let wake = clock.read().plus(wait.chosen.min(left));
                while clock.read() < wake && !self.shared.has_ended() {
                    self.shared.timer.sleep(wake.since(clock.read())).await;
                }
            }
        }
    }

    #[inline]
    fn ask_and_record(&self, domain: &str, want: Want) -> Result<Allowed, Denied> {
        if self.shared.is_itself(domain) {
            self.ask_and_record_admitted(domain, want)
        } else {
            self.ask_and_record_renamed(domain, want)
        }
    }

    #[cold]
    fn ask_and_record_renamed(&self, domain: &str, want: Want) -> Result<Allowed, Denied> {
        self.ask_and_record_admitted(&self.shared.admit(domain), want)
    }

    #[inline]
    fn ask_and_record_admitted(&self, domain: &str, want: Want) -> Result<Allowed, Denied> {
        let fingerprint = self.resource.fingerprint(domain);
        // Almost every call ends here: nobody denied the pair or the resource. What a blind agent lets
        // through costs the same, unless only some partitions are heard.
        let sight = self.shared.sight.state();
        let is_denied = self.shared.view.maybe(fingerprint);
        if is_denied || self.resource.flags() & ATTENTION != 0 || sight == sight::SOME {
            return self.ask_and_record_attentively(fingerprint, domain, want);
        }
        let blind = sight != sight::ALL;
        let copies = if blind { want.least() } else { want.max };
        self.record_hits(
            domain,
            Want {
                max: copies,
                min: want.min,
            },
        );
        Ok(Allowed::new(copies, blind, self.resource.policy()))
    }

    #[inline(never)]
    fn ask_and_record_attentively(
        &self,
        fingerprint: u64,
        domain: &str,
        want: Want,
    ) -> Result<Allowed, Denied> {
        match self.ask(fingerprint, domain, want, Asking::Take) {
            Ok(allowed) => {
                self.record_hits(
                    domain,
                    Want {
                        max: allowed.copies(),
                        min: want.min,
                    },
                );
                Ok(allowed)
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

    /// [`Rate::peek`] for a call that wants more than this hit, and that a refusal of it ends: that is
    /// recorded.
    pub(crate) fn look(&self, domain: &str) -> Result<Allowed, Denied> {
        let domain = self.shared.admit(domain);
        let fingerprint = self.resource.fingerprint(&domain);
        let looked = self.ask(fingerprint, &domain, ONE, Asking::Look);
        if let Err(denied) = &looked {
            self.record_refused(&domain, 1, denied);
        }
        looked
    }

    /// Asks, and records nothing.
    fn ask(
        &self,
        fingerprint: u64,
        domain: &str,
        want: Want,
        asking: Asking,
    ) -> Result<Allowed, Denied> {
        let shared = &*self.shared;
        let flags = self.resource.flags();
        let policy = self.resource.policy();
        let clock = || shared.clock.read();
        // The filter is not asked again: whoever comes here was not surely let through by it, or is
        // in no hurry.
        let mut refusal = shared
            .view
            .refusal(&self.resource, fingerprint, domain, clock);
        if flags & WHOLE != 0
            && let Some(whole) = shared.view.whole(&self.resource, clock)
        {
            // Of two denials the one that lasts longer says when to come again.
            refusal = match refusal {
                Some(pair) if whole.remaining < pair.remaining => Some(pair),
                _ => Some(whole),
            };
        }
        if let Some(refusal) = refusal {
            return self.unless_killed(flags, want, || Denied::of_refusal(&refusal));
        }
        if self.is_blind(domain) {
            let least = want.least();
            let granted = self
                .resource
                .passes_blind(fingerprint, least, asking, &shared.clock);
            return match granted {
                Ok(()) => Ok(Allowed::new(least, true, policy)),
                Err(wait) => {
                    self.unless_killed(flags, want, || Denied::by_policy(Cause::Blind, wait))
                }
            };
        }
        if flags & REFUSED != 0 {
            // No denial tells of it, so none would be lifted where other limits open it.
            shared.resources.doubt_limits(&self.resource);
            return self.unless_killed(flags, want, || {
                let cause = match flags & OF_RATE {
                    0 => Cause::Unconfigured,
                    _ => Cause::Inaccessible,
                };
                Denied::by_policy(cause, Span::MAX)
            });
        }
        Ok(Allowed::new(want.max, false, policy))
    }

    fn is_blind(&self, domain: &str) -> bool {
        let shared = &*self.shared;
        shared
            .sight
            .is_blind(&self.resource.name, domain, shared.clock.cached())
    }

    /// Whether denials are grants.
    fn lets_all_through(&self, flags: u32) -> bool {
        flags & IGNORED != 0 || self.shared.kill_switch.load(Ordering::Relaxed)
    }

    /// Refuses, unless denials are grants.
    fn unless_killed(
        &self,
        flags: u32,
        want: Want,
        denied: impl FnOnce() -> Denied,
    ) -> Result<Allowed, Denied> {
        if !self.lets_all_through(flags) {
            return Err(denied());
        }
        Counters::add(&self.shared.counters.kill_switch_grants, 1);
        Ok(Allowed::new(want.max, false, self.resource.policy()))
    }

    #[inline]
    fn record_hits(&self, domain: &str, want: Want) {
        let event = Event {
            resource: self.resource.id,
            domain,
            at: self.shared.clock.cached_wall(),
            // One by one is how hits without a minimum are ruled, so a minimum of one says nothing.
            happened: Happened::Hit {
                copies: want.max,
                min: (1 < want.min).then_some(want.min),
                unguarded: false,
            },
        };
        self.shared.recorder.record(&event);
    }

    fn record_refused(&self, domain: &str, copies: u32, denied: &Denied) {
        let event = Event {
            resource: self.resource.id,
            domain,
            at: self.shared.clock.cached_wall(),
            happened: Happened::Refused {
                copies,
                cause: denied.cause(),
                place: denied.code().map(|code| code.place),
            },
        };
        self.shared.recorder.record(&event);
    }
}

/// Asks for one hit of each pair, and records all of them or none.
pub(crate) fn hit_all(pairs: &[(&Rate, &str)]) -> Result<Allowed, Denied> {
    let mut worst: Option<Denied> = None;
    let (mut blind, mut guarded) = (false, false);
    for (rate, domain) in pairs {
        // Only looked at: of a call that is refused nothing is taken, for however short a time.
        match rate.look(domain) {
            Ok(allowed) => {
                blind |= allowed.blind();
                guarded |= allowed.blind() && rate.resource.flags() & NOT_OPEN != 0;
            }
            Err(denied) => {
                let longest = worst.is_none_or(|worst| worst.remaining() < denied.remaining());
                worst = if longest { Some(denied) } else { worst };
            }
        }
    }
    if let Some(denied) = worst {
        return Err(denied);
    }
    if guarded {
        take_all(pairs)?;
    }
    for (rate, domain) in pairs {
        rate.record_hits(&rate.shared.admit(domain), ONE);
    }
    let copies = u32::from(!pairs.is_empty());
    Ok(Allowed::new(
        copies,
        blind,
        crate::resource::Policy::default(),
    ))
}

/// Takes one hit of each pair of the local blind rates, or nothing of any: what was to be had by itself
/// need not be to be had together, and others take in between.
#[cold]
fn take_all(pairs: &[(&Rate, &str)]) -> Result<(), Denied> {
    let mut taken = Vec::with_capacity(pairs.len());
    for (rate, domain) in pairs {
        let domain = rate.shared.admit(domain);
        let fingerprint = rate.resource.fingerprint(&domain);
        if !rate.is_blind(&domain) {
            continue;
        }
        let clock = &rate.shared.clock;
        let taking = Asking::Take;
        match rate.resource.passes_blind(fingerprint, 1, taking, clock) {
            Ok(()) => taken.push((rate, fingerprint)),
            Err(_) if rate.lets_all_through(rate.resource.flags()) => {}
            Err(wait) => {
                let denied = Denied::by_policy(Cause::Blind, wait);
                rate.record_refused(&domain, 1, &denied);
                for (rate, fingerprint) in taken {
                    rate.resource.give_back_blind(fingerprint, 1);
                }
                return Err(denied);
            }
        }
    }
    Ok(())
}
