//! The answers to calls while the agent is blind: the local fallback rate, by `governor`.
//!
//! ```text
//! take 1    taken                 takes 1, or returns how long until one may be taken
//! look 1    the same answer       takes nothing
//! give back 1                     as if it had not been taken: a call for several pairs was refused
//! ```
//!
//! Knows nothing of why the agent is blind. What stays true: it remembers a bounded number of domains; with more
//! domains it still limits those that call often. No call of an agent that is not blind reads this table.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock as GovernorClock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use moka::sync::Cache;
use tollgate_shared::time::Span;
use tollgate_shared::wire::public::BlindPolicy;

use crate::clock::Mono;

/// The most domains that one resource's fallback remembers. At some 200 bytes each they may take 13 MB.
const DOMAINS_MAX: u64 = 65_536;

/// A domain that has not called for this long is forgotten, however long the window is; `moka` accepts no more than a
/// thousand years.
const IDLE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The longest window that `governor` gets. It counts in nanoseconds, of which a word holds 584 years, and adds them
/// up unchecked.
const WINDOW_MAX: Span = Span::from_secs(100 * 366 * 86_400);

/// A fallback rate for each domain of one resource.
pub(crate) struct Local {
    limiter: RateLimiter<BlindRequest, BlindDomains, Hand, NoOpMiddleware<Nanos>>,
    domains: BlindDomains,
    hand: Hand,
    /// How much of its domain's time one copy takes.
    each: Nanos,
}

/// A domain whose rate is checked, and whether the check takes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct BlindRequest {
    fingerprint: u64,
    taking: bool,
}

/// For each domain, the instant at which its rate is available again. `governor` can neither look without taking nor
/// give back; but it leaves storing this instant to its caller, which can do both. `moka` stores it, with a bound: at
/// the bound it evicts domains that call rarely, so that a domain that calls often is limited whatever other domains
/// do. An evicted domain starts again with its full rate.
#[derive(Clone)]
struct BlindDomains(Cache<u64, Arc<InMemoryState>>);

impl BlindDomains {
    /// The domains of a rate that is fully available again after `window`.
    fn new(window: Duration, domains_max: u64) -> Self {
        let cache = Cache::builder()
            .max_capacity(domains_max)
            .time_to_idle(window.min(IDLE_MAX));
        Self(cache.build())
    }

    fn measure<T, E>(
        state: &InMemoryState,
        measure: impl Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    ) -> Result<T, E> {
        state.measure_and_replace(&NotKeyed::NonKey, measure)
    }

    /// Gives a domain back what it had taken: its rate is available that much earlier.
    fn give_back(&self, fingerprint: u64, time: Nanos) {
        let earlier = |used_up: Option<Nanos>| {
            let used_up = used_up.ok_or(())?.as_u64();
            Ok(((), Nanos::new(used_up.saturating_sub(time.as_u64()))))
        };
        // A domain that was forgotten has its full rate.
        if let Some(state) = self.0.get(&fingerprint) {
            let _: Result<(), ()> = Self::measure(&state, earlier);
        }
    }
}

impl StateStore for BlindDomains {
    type Key = BlindRequest;

    fn measure_and_replace<T, F, E>(&self, request: &BlindRequest, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if request.taking {
            let state = self.0.get_with(request.fingerprint, Arc::default);
            return Self::measure(&state, measure);
        }
        let used_up = Cell::new(None);
        let look = |found| {
            used_up.set(found);
            Err(())
        };
        if let Some(state) = self.0.get(&request.fingerprint) {
            let _: Result<(), ()> = Self::measure(&state, look);
        }
        measure(used_up.get()).map(|(answer, _)| answer)
    }
}

/// The clock that `governor` reads: the time that the agent has already read from its own clock.
#[derive(Clone, Debug, Default)]
struct Hand(Arc<std::sync::atomic::AtomicU64>);

impl GovernorClock for Hand {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(Duration::from_micros(
            self.0.load(std::sync::atomic::Ordering::Relaxed),
        ))
    }
}

impl Local {
    /// The fallback of a policy, if it has one.
    pub(crate) fn of_policy(policy: BlindPolicy) -> Option<Self> {
        let BlindPolicy::Local { limit, window } = policy else {
            return None;
        };
        Self::with_room(limit, window, DOMAINS_MAX)
    }

    fn with_room(limit: u64, window: Span, domains_max: u64) -> Option<Self> {
        let burst = NonZeroU32::new(u32::try_from(limit).unwrap_or(u32::MAX))?;
        let each = window
            .min(WINDOW_MAX)
            .to_std()
            .checked_div(burst.get())
            .filter(|each| !each.is_zero())?;
        let quota = Quota::with_period(each)?.allow_burst(burst);
        let hand = Hand::default();
        let domains = BlindDomains::new(window.min(WINDOW_MAX).to_std(), domains_max);
        Some(Self {
            limiter: RateLimiter::new(quota, domains.clone(), hand.clone()),
            domains,
            hand,
            each: Nanos::from(each),
        })
    }

    /// Takes `copies` for a domain, or returns how long until they may be taken.
    pub(crate) fn take(&self, fingerprint: u64, copies: u32, now: Mono) -> Result<(), Span> {
        let request = BlindRequest {
            fingerprint,
            taking: true,
        };
        self.ask(request, copies, now)
    }

    /// What [`Local::take`] would return.
    pub(crate) fn look(&self, fingerprint: u64, copies: u32, now: Mono) -> Result<(), Span> {
        let request = BlindRequest {
            fingerprint,
            taking: false,
        };
        self.ask(request, copies, now)
    }

    /// Gives back what was taken for a domain and not used.
    pub(crate) fn give_back(&self, fingerprint: u64, copies: u32) {
        let time = self.each.as_u64().saturating_mul(u64::from(copies));
        self.domains.give_back(fingerprint, Nanos::new(time));
    }

    fn ask(&self, request: BlindRequest, copies: u32, now: Mono) -> Result<(), Span> {
        self.hand
            .0
            .fetch_max(now.0, std::sync::atomic::Ordering::Relaxed);
        let Some(copies) = NonZeroU32::new(copies) else {
            return Ok(());
        };
        match self.limiter.check_key_n(&request, copies) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => {
                let wait = not_until
                    .earliest_possible()
                    .duration_since(self.hand.now());
                Err(Span::from_std(wait.into()))
            }
            // More at once than the rate ever allows.
            Err(_) => Err(Span::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_fallback_lets_its_rate_through_for_each_domain() {
        let policy = BlindPolicy::Local {
            limit: 2,
            window: Span::from_secs(1),
        };
        let local = Local::of_policy(policy).expect("a local policy");
        let at = |millis: u64| Mono(5_000_000 + 1_000 * millis);
        assert_eq!(local.take(1, 1, at(0)), Ok(()));
        assert_eq!(local.take(1, 1, at(0)), Ok(()));
        let wait = local.take(1, 1, at(0)).expect_err("the rate is used up");
        assert_eq!(wait, Span::from_millis(500));
        assert_eq!(local.take(2, 1, at(0)), Ok(()));
        assert_eq!(local.take(1, 1, at(500)), Ok(()));
        assert_eq!(local.take(1, 3, at(9_000)), Err(Span::MAX));
    }

    #[test]
    fn a_peek_takes_no_copies_and_returned_copies_are_available() {
        let policy = BlindPolicy::Local {
            limit: 2,
            window: Span::from_secs(1),
        };
        let local = Local::of_policy(policy).expect("a local policy");
        let now = Mono(5_000_000);
        for _ in 0..5 {
            assert_eq!(local.look(1, 2, now), Ok(()));
        }
        assert_eq!(local.take(1, 2, now), Ok(()));
        assert_eq!(local.look(1, 1, now), Err(Span::from_millis(500)));
        local.give_back(1, 1);
        assert_eq!(local.look(1, 2, now), Err(Span::from_millis(500)));
        assert_eq!(local.take(1, 1, now), Ok(()));
        // Giving back never yields more than the rate, whenever it happens.
        let later = now.plus(Span::from_secs(9));
        local.give_back(1, 2);
        local.give_back(7, 2);
        assert_eq!(local.look(1, 3, later), Err(Span::MAX));
        assert_eq!(local.take(1, 2, later), Ok(()));
        assert!(local.take(1, 1, later).is_err());
    }

    #[test]
    fn a_full_table_still_limits_frequent_domains() {
        let local = Local::with_room(2, Span::from_secs(60), 64).expect("a rate");
        let now = Mono(5_000_000);
        let mut passed = 0;
        for other in 0..5_000 {
            passed += u32::from(local.take(7, 1, now).is_ok());
            let _ = local.take(1_000 + other, 1, now);
            local.domains.0.run_pending_tasks();
        }
        assert_eq!(passed, 2);
        assert!(local.domains.0.entry_count() <= 64);
    }

    #[test]
    fn a_window_without_end_is_a_long_one() {
        let policy = BlindPolicy::Local {
            limit: 1,
            window: Span::MAX,
        };
        let local = Local::of_policy(policy).expect("a local policy");
        assert_eq!(local.take(1, 1, Mono(5_000_000)), Ok(()));
        assert_eq!(local.take(1, 1, Mono(5_000_000)), Err(WINDOW_MAX));
    }

    #[test]
    fn other_policies_have_no_fallback() {
        assert!(Local::of_policy(BlindPolicy::Open).is_none());
        assert!(
            Local::of_policy(BlindPolicy::Local {
                limit: 0,
                window: Span::from_secs(1)
            })
            .is_none()
        );
    }
}
