//! How long a denied call waits before it tries again.
//!
//! ```text
//! denied for 400 ms    wait 400 to 500 ms, and 5 ms ± 25 %
//! denied for 300 ms    wait 300 to 375 ms, and 10 ms ± 25 %
//! ```
//!
//! Calls that wait for one domain know the same end, and would all try at that instant: so each chooses a random
//! instant within a quarter of the wait. Knows no clock.

use rand::Rng as _;
use tollgate_shared::time::Span;

use crate::answer::{Cause, Denied};

/// The first step after a denial's end: about as long as a denial takes to reach an agent.
const FIRST: Span = Span::from_millis(5);

/// The longest step.
const LONGEST: Span = Span::from_secs(1);

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The least wait.
    pub(crate) at_least: Span,
    /// The wait that was chosen.
    pub(crate) chosen: Span,
}

/// The growing steps of one waiting call.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: Span,
}

impl Backoff {
    pub(crate) const fn new() -> Self {
        Self { step: FIRST }
    }

    /// How long to wait after this refusal; `None` if waiting cannot help.
    pub(crate) fn next(&mut self, denied: &Denied) -> Option<Wait> {
        let at_least = match (denied.remaining(), denied.cause()) {
            // It is unknown when a watermark arrives again, or copies are given back.
            (Span::MAX, Cause::Blind | Cause::Full) => Span::ZERO,
            (Span::MAX, _) => return None,
            (remaining, _) => remaining,
        };
        let mut random = rand::rng();
        let micros = at_least.as_micros();
        let late = random.random_range(0..=micros / 4);
        let step = self.step.as_micros();
        let more = random.random_range(step - step / 4..=step + step / 4);
        self.step = Span::from_micros(step.saturating_mul(2)).min(LONGEST);
        Some(Wait {
            at_least,
            chosen: Span::from_micros(micros.saturating_add(late).saturating_add(more)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_calls_resume_after_the_end_and_not_all_at_once() {
        let denied = Denied::by_policy(Cause::Tier(1), Span::from_millis(400));
        let waits: Vec<Wait> = (0..100)
            .filter_map(|_| Backoff::new().next(&denied))
            .collect();
        assert_eq!(waits.len(), 100);
        for wait in &waits {
            assert_eq!(wait.at_least, Span::from_millis(400));
            assert!(
                Span::from_micros(403_750) <= wait.chosen
                    && wait.chosen <= Span::from_micros(506_250)
            );
        }
        let distinct: std::collections::BTreeSet<u64> =
            waits.iter().map(|wait| wait.chosen.as_micros()).collect();
        assert!(50 < distinct.len());
    }

    #[test]
    fn steps_grow_to_a_longest_one() {
        let denied = Denied::by_policy(Cause::Blind, Span::MAX);
        let mut backoff = Backoff::new();
        let waits: Vec<u64> = (0..12)
            .filter_map(|_| backoff.next(&denied))
            .map(|wait| wait.chosen.as_micros())
            .collect();
        assert!(waits[0] <= 6_250 && waits[3] <= 50_000);
        assert!((750_000..=1_250_000).contains(&waits[11]));
    }

    #[test]
    fn a_call_does_not_wait_for_a_denial_without_end() {
        assert_eq!(
            Backoff::new().next(&Denied::by_policy(Cause::Unconfigured, Span::MAX)),
            None
        );
    }
}
