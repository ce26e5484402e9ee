//! Hits of several pairs, all or none.
//!
//! Knows nothing of copies in use. What stays true: if the call is refused, none of its hits is recorded as let
//! through, and nothing is taken of the local rates under `blind`.

use std::sync::Arc;

use super::{ONE, Rate, Want};
use crate::answer::{Allowed, Cause, Denied};
use crate::clock::Reading;
use crate::left::Left;
use crate::refused::Refused;
use crate::resource::{Asking, NOT_OPEN, NOT_RATE, Policy};

impl Rate {
    /// Whether the resource is limited by copies, as far as the agent knows, so that hits of it are refused: see
    /// [`Agent::copies`](crate::Agent::copies).
    ///
    /// ```
    /// # use tollgate_agent::testing::TestAgent;
    /// # let kit = TestAgent::new();
    /// let reports = kit.agent().rate("reports");
    /// kit.limited_by_copies("reports");
    /// assert!(reports.is_limited_by_copies());
    /// ```
    pub fn is_limited_by_copies(&self) -> bool {
        self.resource.flags() & NOT_RATE != 0
    }

    /// [`Rate::peek`] for a call that needs more than this pair's hits. A refusal ends that call, and is recorded
    /// unless the call wanted 0 hits of this pair.
    fn look(&self, domain: &str, want: Want) -> Result<Allowed, Denied> {
        let domain = self.admit(domain);
        let fingerprint = self.resource.fingerprint(&domain);
        let reading = Reading::of(&self.shared.clock);
        let looked = self.ask(fingerprint, &domain, want, Asking::Look, &reading);
        if let (Err(denied), true) = (&looked, want.max != 0) {
            self.record_refused(&domain, want.max, denied);
        }
        looked.map(|granted| granted.allowed)
    }

    /// [`Rate::look`] for one hit.
    pub(crate) fn look_for_one(&self, domain: &str) -> Result<Allowed, Denied> {
        self.look(domain, ONE)
    }
}

/// Decides on one hit of each pair, and records all of them or none.
pub(crate) fn hit_all(pairs: &[(&Rate, &str)]) -> Result<Allowed, Denied> {
    let wishes = pairs.iter().map(|(rate, domain)| (*rate, *domain, ONE));
    together(wishes, u32::from(!pairs.is_empty()))
}

/// Decides on some hits of each pair, and records all of them or none. A pair with 0 hits is checked for one hit. A
/// pair that is listed several times wants the sum.
pub(crate) fn hit_all_n(hits: &[(&Rate, &str, u32)]) -> Result<Allowed, Refused> {
    for (at, (rate, domain, copies)) in hits.iter().enumerate() {
        let more = match rate.resource.most_of_any() {
            u64::MAX => 0,
            _ => wanted_of(rate, domain, hits.get(..at).unwrap_or_default()),
        };
        rate.within_most(domain, Want::all_of(copies.saturating_add(more)))?;
    }
    let all = hits.iter().map(|(_, _, copies)| *copies);
    let all = all.fold(0, u32::saturating_add);
    let wishes = hits
        .iter()
        .map(|(rate, domain, copies)| (*rate, *domain, Want::all_of(*copies)));
    Ok(together(wishes, all)?)
}

/// How many hits of a pair are wanted, under whatever names the caller gives for it.
fn wanted_of(rate: &Rate, domain: &str, hits: &[(&Rate, &str, u32)]) -> u32 {
    let admitted = rate.admit(domain);
    let is_pair = |other: &Rate, of: &str| {
        Arc::ptr_eq(&other.resource, &rate.resource)
            && (of == domain || *other.admit(of) == *admitted)
    };
    let same = hits.iter().filter(|(other, of, _)| is_pair(other, of));
    same.fold(0, |sum, (_, _, copies)| sum.saturating_add(*copies))
}

fn together<'a>(
    wishes: impl Iterator<Item = (&'a Rate, &'a str, Want)> + Clone,
    copies: u32,
) -> Result<Allowed, Denied> {
    let mut worst: Option<Denied> = None;
    let (mut blind, mut is_policed) = (false, false);
    for (rate, domain, want) in wishes.clone() {
        // Only looked at: a refused call takes nothing, for however short a time.
        match rate.look(domain, want) {
            Ok(allowed) => {
                blind |= allowed.blind();
                is_policed |= allowed.blind() && rate.resource.flags() & NOT_OPEN != 0;
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
    let hits = wishes.filter(|(_, _, want)| want.max != 0);
    if is_policed {
        take_all(hits.clone())?;
    }
    let mut nearest: Option<Left> = None;
    for (rate, domain, want) in hits {
        let domain = rate.admit(domain);
        let fingerprint = rate.resource.fingerprint(&domain);
        // Each pair was checked by the real clock, and is stamped by it; this may wake the flusher.
        rate.stamp(fingerprint, want.max);
        let now = rate.shared.clock.cached();
        let (unguarded, at) = (rate.is_blind(&domain, now), rate.shared.clock.read_wall());
        rate.record_hits(&domain, want, unguarded, at);
        let left = rate.left(fingerprint, &domain, want.max, at);
        // The answer reports the pair that has least left.
        let least = |left: &Left| left.remaining;
        nearest = nearest.into_iter().chain(left).min_by_key(least);
    }
    Ok(Allowed::new(copies, blind, Policy::default()).with_left(nearest))
}

/// Takes the hits of all pairs from their local rates under `blind`, or nothing. Hits that each fit need not fit
/// together, and other calls take hits in between.
#[cold]
fn take_all<'a>(hits: impl Iterator<Item = (&'a Rate, &'a str, Want)>) -> Result<(), Denied> {
    let mut taken = Vec::new();
    for (rate, domain, want) in hits {
        let domain = rate.admit(domain);
        let fingerprint = rate.resource.fingerprint(&domain);
        if !rate.is_blind(&domain, rate.shared.clock.cached()) {
            continue;
        }
        let (clock, copies) = (&rate.shared.clock, want.max);
        let taking = Asking::Take;
        match rate
            .resource
            .passes_blind(fingerprint, copies, taking, clock)
        {
            Ok(()) => taken.push((rate, fingerprint, copies)),
            Err(_) if rate.lets_all_through(rate.resource.flags()) => {}
            Err(wait) => {
                let denied = Denied::by_policy(Cause::Blind, wait);
                rate.record_refused(&domain, copies, &denied);
                for (rate, fingerprint, copies) in taken {
                    rate.resource.give_back_blind(fingerprint, copies);
                }
                return Err(denied);
            }
        }
    }
    Ok(())
}
