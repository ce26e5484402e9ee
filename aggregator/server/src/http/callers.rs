//! How many amendments one caller may ask for: twenty a second.
//!
//! Each amendment stays in the log for ever and touches every partition. A caller is an address; of IPv6 its
//! first 64 bits, which one host can change no more than an IPv4 address. Knows nothing of acts. What stays
//! true: the memory for callers is bounded.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota};

/// Amendments per second, and the burst.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// With more callers than this, those that have their full rate again are forgotten.
const REMEMBERED: usize = 1_024;

/// The callers of recent amendments.
pub(super) struct Callers {
    asked: DefaultKeyedRateLimiter<u128>,
    clock: DefaultClock,
}

impl Default for Callers {
    fn default() -> Self {
        Self {
            asked: DefaultKeyedRateLimiter::keyed(Quota::per_second(PER_SECOND)),
            clock: DefaultClock::default(),
        }
    }
}

impl Callers {
    /// Counts an amendment that a caller asks for.
    ///
    /// # Errors
    ///
    /// How long to wait, if it is one too many.
    pub fn asks(&self, caller: IpAddr) -> Result<(), Duration> {
        if REMEMBERED < self.asked.len() {
            self.asked.retain_recent();
        }
        let asked = self.asked.check_key(&key(caller));
        asked.map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }
}

fn key(caller: IpAddr) -> u128 {
    match caller.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_twenty_requests_and_others_go_on() {
        let callers = Callers::default();
        let [one, other, same]: [IpAddr; 3] = ["2001:db8::1", "10.0.0.2", "2001:db8::2"]
            .map(|text| text.parse().expect("an address"));
        // This takes far less than a second, in which twenty more would be granted.
        let granted = (0..1_000).filter(|_| callers.asks(one).is_ok()).count();
        assert!((20..=60).contains(&granted), "{granted}");
        let wait = callers.asks(same).expect_err("of one host");
        assert!(
            Duration::ZERO < wait && wait <= Duration::from_secs(1),
            "{wait:?}"
        );
        assert_eq!(callers.asks(other), Ok(()));
        let mapped = "::ffff:10.0.0.2".parse().expect("an address");
        assert_eq!(key(mapped), key(other));
    }
}
