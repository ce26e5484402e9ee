//! One hit of each of several pairs, all or none.
//!
//! Knows nothing of copies. What stays true: of a call that is refused nothing is recorded as let through,
//! and nothing is taken of local blind rates.

use super::{ONE, Rate};
use crate::answer::{Allowed, Cause, Denied, Left};
use crate::resource::{Asking, NOT_OPEN};

/// Asks for one hit of each pair, and records all of them or none.
pub(crate) fn hit_all(pairs: &[(&Rate, &str)]) -> Result<Allowed, Denied> {
    let mut worst: Option<Denied> = None;
    let (mut blind, mut is_policed) = (false, false);
    for (rate, domain) in pairs {
        // Only looked at: of a call that is refused nothing is taken, for however short a time.
        match rate.look(domain) {
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
    if is_policed {
        take_all(pairs)?;
    }
    let mut nearest: Option<Left> = None;
    for (rate, domain) in pairs {
        let domain = rate.admit(domain);
        let clock = &rate.shared.clock;
        // Each was asked by the real clock, and is stamped by it.
        let (unguarded, at) = (rate.is_blind(&domain), clock.read_wall());
        rate.record_hits(&domain, ONE, unguarded, at);
        let left = rate.left(rate.resource.fingerprint(&domain), &domain, 1, at);
        // Of several the one that has least is told of.
        let least = |left: &Left| left.remaining;
        nearest = nearest.into_iter().chain(left).min_by_key(least);
    }
    let copies = u32::from(!pairs.is_empty());
    let policy = crate::resource::Policy::default();
    Ok(Allowed::new(copies, blind, policy).with_left(nearest))
}

/// Takes one hit of each pair of the local blind rates, or nothing of any: what was to be had by itself
/// need not be to be had together, and others take in between.
#[cold]
fn take_all(pairs: &[(&Rate, &str)]) -> Result<(), Denied> {
    let mut taken = Vec::with_capacity(pairs.len());
    for (rate, domain) in pairs {
        let domain = rate.admit(domain);
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
