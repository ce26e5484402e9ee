//! The peer: `governor`, in process, with its usual keyed store (DashMap, SipHash) and clock, and a
//! quota that refuses no call.

use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::Calls;

pub(super) struct Governor(DefaultKeyedRateLimiter<String>);

impl Governor {
    /// A peer that already knows every domain.
    pub fn knowing(calls: &Calls) -> Self {
        let limiter = RateLimiter::keyed(Quota::per_second(NonZeroU32::MAX));
        for name in &calls.names {
            let _ = limiter.check_key(name);
        }
        Self(limiter)
    }

    /// A call with the key at hand.
    #[inline]
    pub fn ready(&self, name: &String) {
        let _ = std::hint::black_box(self.0.check_key(name));
    }

    /// A call with a `&str`, of which the key is built.
    #[inline]
    pub fn built(&self, name: &str) {
        let _ = std::hint::black_box(self.0.check_key(&name.to_owned()));
    }
}
