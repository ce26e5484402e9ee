//! Estimates that were counted at another instant than their stamp, so that a settlement finds them.
//!
//! ```text
//! stamped 10.2, but the log took its record at 10.0: counted at 10.0, as no call is later than its record
//! settled, with the stamp 10.2: taken out at 10.0; so is one of an agent whose clock is wrong, and was corrected
//! ```
//!
//! Knows nothing of limits. What stays true: an estimate that was counted at its stamp takes no room here, and what can
//! no longer be settled is forgotten.

use std::collections::HashMap;

use tollgate_shared::time::{Span, Timestamp};

/// An agent settles no estimate that is older.
const SETTLED_WITHIN: Span = Span::from_secs(600);

/// How many are kept before old ones are looked for.
const KEPT: usize = 1 << 16;

/// The instants of such estimates, by pair and stamp.
#[derive(Debug, Default)]
pub struct MovedEstimates {
    instants: HashMap<(u32, Timestamp), Timestamp>,
    sweep_at: usize,
}

impl MovedEstimates {
    /// Notes that an estimate was counted at `now`.
    pub fn counted(&mut self, pair: u32, stamp: Timestamp, now: Timestamp) {
        if stamp == now {
            self.instants.remove(&(pair, stamp));
            return;
        }
        if self.sweep_at.max(KEPT) <= self.instants.len() {
            self.instants
                .retain(|_, at| now.since(*at) <= SETTLED_WITHIN);
            self.sweep_at = 2 * self.instants.len();
        }
        self.instants.insert((pair, stamp), now);
    }

    /// The instant at which an estimate was counted.
    pub fn instant_of(&self, pair: u32, stamp: Timestamp) -> Timestamp {
        let moved = self.instants.get(&(pair, stamp));
        moved.copied().unwrap_or(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_at_its_stamp_takes_no_room_and_old_ones_go() {
        let mut moved = MovedEstimates::default();
        let (stamp, now) = (Timestamp::from_millis(5_000), Timestamp::from_millis(10));
        moved.counted(1, stamp, stamp);
        assert!(moved.instants.is_empty());
        moved.counted(1, stamp, now);
        assert_eq!(moved.instant_of(1, stamp), now);
        assert_eq!(moved.instant_of(2, stamp), stamp, "another pair's");
        // Another one of the same stamp was counted there.
        moved.counted(1, stamp, stamp);
        assert_eq!(moved.instant_of(1, stamp), stamp);
        moved.counted(1, stamp, now);
        for number in 1..KEPT as u64 {
            let stamp = stamp.saturating_add(Span::from_micros(number));
            moved.counted(2, stamp, now);
        }
        assert_eq!(moved.instants.len(), KEPT);
        let later = now.saturating_add(SETTLED_WITHIN);
        moved.counted(
            3,
            Timestamp::MAX,
            later.saturating_add(Span::from_micros(1)),
        );
        assert_eq!(moved.instants.len(), 1);
    }
}
