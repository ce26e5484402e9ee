//! What calls get while nobody is heard: the local fallback rate, by `governor`.
//!
//! Knows nothing of why the agent is blind. What stays true: it remembers a bounded number of domains,
//! and lets those beyond through; the table is on no path that a sighted agent takes.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as GovernorClock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tollgate_shared::time::Span;
use tollgate_shared::wire::public::BlindPolicy;

use crate::clock::Mono;

/// Domains that one resource's fallback remembers. At 100 bytes each it may take some megabytes.
const DOMAINS_MAX: usize = 65_536;

/// A fallback rate for each domain of one resource.
pub(crate) struct Local {
    limiter: RateLimiter<u64, DashMapStateStore<u64>, Hand, NoOpMiddleware<Nanos>>,
    hand: Hand,
}

/// `governor` asks its clock for the time; the agent has the time at hand already, and its own.
#[derive(Clone, Debug, Default)]
struct Hand(std::sync::Arc<std::sync::atomic::AtomicU64>);

impl GovernorClock for Hand {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(Duration::from_micros(
            self.0.load(std::sync::atomic::Ordering::Relaxed),
        ))
    }
}

impl Local {
    /// The fallback that a policy asks for, if it does.
    pub(crate) fn of_policy(policy: BlindPolicy) -> Option<Self> {
        let BlindPolicy::Local { limit, window } = policy else {
            return None;
        };
        let burst = NonZeroU32::new(u32::try_from(limit).unwrap_or(u32::MAX))?;
        let each = window
            .to_std()
            .checked_div(burst.get())
            .filter(|each| !each.is_zero())?;
        let quota = Quota::with_period(each)?.allow_burst(burst);
        let hand = Hand::default();
        Some(Self {
            limiter: RateLimiter::new(quota, DashMapStateStore::default(), hand.clone()),
            hand,
        })
    }

    /// Takes `copies` for a domain, or says how long until they may be had.
    pub(crate) fn take(&self, fingerprint: u64, copies: u32, now: Mono) -> Result<(), Span> {
        self.hand
            .0
            .fetch_max(now.0, std::sync::atomic::Ordering::Relaxed);
        if DOMAINS_MAX <= self.limiter.len() {
            self.limiter.retain_recent();
            if DOMAINS_MAX <= self.limiter.len() {
                return Ok(());
            }
        }
        let Some(copies) = NonZeroU32::new(copies) else {
            return Ok(());
        };
        match self.limiter.check_key_n(&fingerprint, copies) {
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
