//! How long to wait before the next attempt to connect.
//!
//! ```text
//! attempts that fail   50 ms, 75 ms, 112.5 ms, … 14.6 s, 15 s, 15 s      each shortened at random by up to a half
//! ```
//!
//! So the first attempts are quick, an outage lasts at most twice as long for an agent (each pause is half as long as
//! all before it together, or as long if chance shortened those), and a thousand agents that lost one aggregator do not
//! return at the same moment. The engine counts on both: it gives agents that hold copies twice the length of an outage
//! to return, and more than the longest pause. Knows nothing of sockets.

use std::time::Duration;

use tollgate_shared::wire::heartbeat::RECONNECT_PAUSE_MAX;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = RECONNECT_PAUSE_MAX.to_std();

/// The pauses of one connection.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The connection worked: the next attempt is a first one.
    pub(super) fn worked(&mut self) {
        self.next = FIRST;
    }

    /// The pause before the next attempt; `chance` is drawn from 0 to 1.
    pub(super) fn pause(&mut self, chance: f64) -> Duration {
        let pause = self.next;
        self.next = (pause * 3 / 2).min(LONGEST);
        pause.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_and_reset_after_a_success() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..17).map(|_| backoff.pause(0.0).as_millis()).collect();
        let expected = [
            50, 75, 112, 168, 253, 379, 569, 854, 1_281, 1_922, 2_883, 4_324, 6_487, 9_730, 14_596,
            15_000, 15_000,
        ];
        assert_eq!(pauses, expected);
        backoff.worked();
        assert_eq!(backoff.pause(0.0), FIRST);
    }

    #[test]
    fn an_outage_lasts_at_most_twice_as_long_for_an_agent() {
        // The worst chance shortens all pauses but the one in which the outage ends.
        let mut backoff = Backoff::new();
        let mut outage = Duration::ZERO;
        for _ in 0..40 {
            let last = Backoff { ..backoff }.pause(0.0);
            assert!(last <= outage + FIRST, "{last:?} after {outage:?}");
            outage += backoff.pause(1.0);
        }
    }

    #[test]
    fn chance_shortens_a_pause_by_no_more_than_a_half() {
        let mut backoff = Backoff { next: LONGEST };
        assert_eq!(backoff.pause(1.0), LONGEST / 2);
        assert_eq!(backoff.pause(0.5), LONGEST.mul_f64(0.75));
    }
}
