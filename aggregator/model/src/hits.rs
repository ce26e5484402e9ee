//! Granted hits by stamp, and how many of them a window still holds.
//!
//! ```text
//! window 1 s, hits at 0.0 0.0 0.4
//! at 1.0        3 in the window: a hit has left only when now > hit + window
//! at 1.000001   1 in the window
//! ```
//!
//! Knows nothing of tiers or limits. What stays true: stamps rise, and `upto` rises with them, so
//! that a count is one subtraction however many hits there are.

use std::collections::VecDeque;

/// Whether a hit stamped `at_us` has left a window of `span_us` at `now_us`.
///
/// A sum that cannot be written down is never exceeded: such a hit never leaves.
pub(crate) fn has_left(at_us: u64, span_us: u64, now_us: u64) -> bool {
    at_us.saturating_add(span_us) < now_us
}

/// All hits of one instant.
#[derive(Clone, Debug)]
struct Run {
    at_us: u64,
    /// Hits ever taken that are stamped up to and including this instant.
    upto: u128,
}

/// Granted hits, oldest stamp first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hits {
    runs: VecDeque<Run>,
    /// `upto` of the newest run that was forgotten.
    forgotten: u128,
}

impl Hits {
    /// Remembers `n` hits stamped `at_us`, which need not be the newest.
    pub fn take(&mut self, at_us: u64, n: u64) {
        let mut place = self.runs.len();
        while 0 < place && at_us < self.runs[place - 1].at_us {
            place -= 1;
        }
        let before = self.upto(place);
        if place == 0 || self.runs[place - 1].at_us != at_us {
            let run = Run {
                at_us,
                upto: before,
            };
            self.runs.insert(place, run);
            place += 1;
        }
        for run in self.runs.range_mut(place - 1..) {
            run.upto += u128::from(n);
        }
    }

    /// Takes one hit of the newest stamp out again.
    pub fn take_newest_out(&mut self) {
        let before = self.upto(self.runs.len().saturating_sub(1));
        if let Some(newest) = self.runs.back_mut() {
            newest.upto -= 1;
            if newest.upto == before {
                self.runs.pop_back();
            }
        }
    }

    /// How many hits a window of `span_us` holds at `now_us`.
    pub fn count(&self, span_us: u64, now_us: u64) -> u64 {
        let left = self
            .runs
            .partition_point(|run| has_left(run.at_us, span_us, now_us));
        let held = self.upto(self.runs.len()) - self.upto(left);
        u64::try_from(held).unwrap_or(u64::MAX)
    }

    /// Forgets what has left a window of `span_us` at `now_us`, for a caller who will ask for
    /// neither an earlier instant nor a longer window.
    pub fn forget(&mut self, span_us: u64, now_us: u64) {
        while let Some(run) = self.runs.front()
            && has_left(run.at_us, span_us, now_us)
        {
            self.forgotten = run.upto;
            self.runs.pop_front();
        }
    }

    /// The newest remembered stamp.
    pub fn newest(&self) -> Option<u64> {
        self.runs.back().map(|run| run.at_us)
    }

    /// Hits ever taken that come before the run at `place`.
    fn upto(&self, place: usize) -> u128 {
        match place {
            0 => self.forgotten,
            _ => self.runs[place - 1].upto,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_equal_a_plain_scan_of_plain_stamps_in_any_order_of_taking() {
        let mut hits = Hits::default();
        let mut plain = Vec::new();
        let mut seed = 7u64;
        for _ in 0..500 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (at, n) = ((seed >> 33) % 50, (seed >> 50) % 4);
            hits.take(at, n);
            plain.extend(std::iter::repeat_n(at, n as usize));
            let now = (seed >> 20) % 70;
            for span in [0, 1, 10, 49, u64::MAX] {
                let scan = plain.iter().filter(|at| !has_left(**at, span, now));
                assert_eq!(hits.count(span, now), scan.count() as u64);
            }
        }
    }

    #[test]
    fn forgetting_changes_no_count_that_may_still_be_asked() {
        let mut hits = Hits::default();
        for at in [5, 3, 9, 3, 20, 14] {
            hits.take(at, 2);
        }
        let before: Vec<u64> = (10..40).map(|now| hits.count(6, now)).collect();
        hits.forget(6, 10);
        assert_eq!(hits.runs.front().map(|run| run.at_us), Some(5));
        let after: Vec<u64> = (10..40).map(|now| hits.count(6, now)).collect();
        assert_eq!(before, after);
        hits.take(1, 8);
        assert_eq!(hits.count(6, 10), before[0], "it has left already");
    }
}
