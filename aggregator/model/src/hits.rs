//! Copies that count in one window, by stamp.
//!
//! ```text
//! window 1 s, copies at 0.0 0.0 0.4
//! at 1.0        3 in the window: a copy has left only when now > stamp + window
//! at 1.000001   1 in the window
//! ```
//!
//! Knows nothing of limits, tiers or debt. What stays true: stamps rise, and `upto` rises with them, so that a
//! count is one subtraction for any number of copies.

use std::collections::VecDeque;

/// Whether a copy stamped `at_us` has left a window of `span_us` at `now_us`.
///
/// Sums that overflow are never exceeded: such a copy never leaves.
pub(crate) fn has_left(at_us: u64, span_us: u64, now_us: u64) -> bool {
    at_us.saturating_add(span_us) < now_us
}

/// All copies of one instant.
#[derive(Clone, Debug)]
struct HitRun {
    at_us: u64,
    /// All copies stamped up to and including this instant that were ever taken and not taken out again.
    upto: u128,
}

/// Copies that count, oldest stamp first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hits {
    runs: VecDeque<HitRun>,
    /// `upto` of the newest run that was removed.
    forgotten: u128,
}

impl Hits {
    /// Adds `n` copies stamped `at_us`, which need not be the newest.
    pub fn take(&mut self, at_us: u64, n: u64) {
        if n == 0 {
            return;
        }
        let mut place = self.runs.len();
        while 0 < place && at_us < self.runs[place - 1].at_us {
            place -= 1;
        }
        let before = self.upto(place);
        if place == 0 || self.runs[place - 1].at_us != at_us {
            let run = HitRun {
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

    /// Takes `n` copies stamped `at_us` out again, or all of them if there are fewer.
    pub fn take_out(&mut self, at_us: u64, n: u64) {
        let n = n.min(self.count_at(at_us));
        let Some(place) = self.runs.iter().position(|run| run.at_us == at_us) else {
            return;
        };
        for run in self.runs.range_mut(place..) {
            run.upto -= u128::from(n);
        }
        if self.upto(place + 1) == self.upto(place) {
            self.runs.remove(place);
        }
    }

    /// Takes out the `n` copies with the newest stamps, or all copies if there are fewer.
    pub fn take_newest_out(&mut self, mut n: u64) {
        while 0 < n
            && let Some(newest_us) = self.newest()
        {
            let out = n.min(self.count_at(newest_us));
            self.take_out(newest_us, out);
            n -= out;
        }
    }

    /// How many copies a window of `span_us` holds at `now_us`.
    pub fn count(&self, span_us: u64, now_us: u64) -> u64 {
        let left = self
            .runs
            .partition_point(|run| has_left(run.at_us, span_us, now_us));
        let held = self.upto(self.runs.len()) - self.upto(left);
        u64::try_from(held).unwrap_or(u64::MAX)
    }

    /// How many copies are stamped `at_us`.
    pub fn count_at(&self, at_us: u64) -> u64 {
        let place = self.runs.iter().position(|run| run.at_us == at_us);
        let held = place.map_or(0, |place| self.upto(place + 1) - self.upto(place));
        u64::try_from(held).unwrap_or(u64::MAX)
    }

    /// Removes copies that have left a window of `span_us` at `now_us`. The caller must not ask for an earlier
    /// instant or a longer window afterwards.
    pub fn forget(&mut self, span_us: u64, now_us: u64) {
        while let Some(run) = self.runs.front()
            && has_left(run.at_us, span_us, now_us)
        {
            self.forgotten = run.upto;
            self.runs.pop_front();
        }
    }

    /// The same copies under stamps rounded down to multiples of `step_us`.
    pub fn rounded(&self, step_us: u64) -> Self {
        let mut rounded = Self::default();
        for run in &self.runs {
            rounded.take(run.at_us / step_us * step_us, self.count_at(run.at_us));
        }
        rounded
    }

    /// The newest remembered stamp.
    pub fn newest(&self) -> Option<u64> {
        self.runs.back().map(|run| run.at_us)
    }

    /// The number of copies ever taken before the run at index `place`.
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
    fn counts_equal_a_plain_scan_of_plain_stamps() {
        let mut hits = Hits::default();
        let mut plain = Vec::new();
        let mut seed = 7u64;
        for _ in 0..500 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (at, n) = ((seed >> 33) % 50, (seed >> 50) % 4);
            match (seed >> 58) % 4 {
                0 => {
                    hits.take_out(at, n);
                    for _ in 0..n {
                        if let Some(place) = plain.iter().position(|stamp| *stamp == at) {
                            plain.remove(place);
                        }
                    }
                }
                1 => {
                    hits.take_newest_out(n);
                    plain.sort_unstable();
                    plain.truncate(plain.len().saturating_sub(n as usize));
                }
                _ => {
                    hits.take(at, n);
                    plain.extend(std::iter::repeat_n(at, n as usize));
                }
            }
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
