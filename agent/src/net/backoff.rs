//! How long to wait before the next attempt to connect.
//!
//! ```text
//! attempts that fail   50 ms, 100 ms, … 12.8 s, 15 s, 15 s      each shortened at random by up to a half
//! ```
//!
//! So the first attempts are quick, an outage lasts at most about twice as long for an agent, and a thousand agents
//! that lost one aggregator do not return at the same moment. Knows nothing of sockets.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(15);

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
        self.next = (pause * 2).min(LONGEST);
        pause.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_reset_after_a_success() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..11).map(|_| backoff.pause(0.0).as_millis()).collect();
        let expected = [
            50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 15_000, 15_000,
        ];
        assert_eq!(pauses, expected);
        backoff.worked();
        assert_eq!(backoff.pause(0.0), FIRST);
    }

    #[test]
    fn chance_shortens_a_pause_by_no_more_than_a_half() {
        let mut backoff = Backoff { next: LONGEST };
        assert_eq!(backoff.pause(1.0), LONGEST / 2);
        assert_eq!(backoff.pause(0.5), LONGEST.mul_f64(0.75));
    }
}
