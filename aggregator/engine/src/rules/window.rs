//! Sliding windows: so many copies in any span of their length. The hard limit is one of a second.
//!
//! ```text
//! 3 in 1s    one copy each at 0.000, 0.001, 0.002    granted; full until 1.000001
//!            one at 0.003, let through all the same  excess, and it counts: full until 1.001001
//!            five more at 0.004                      two count, so that six do; three are only tallied
//! 5000 in 10s                                        stamps are rounded down to multiples of 2,442 us
//! ```
//!
//! A copy at h counts while not now > h + window. Excess counts as long as fewer than twice the limit
//! do. Above [`EXACT_MAX`] stamps are rounded down, so that no window remembers more instants than
//! that; rounding down lets a copy leave early, never late. Knows nothing of what else a pair is
//! limited by. What stays true: asking changes nothing.

use tollgate_shared::time::{Span, Timestamp};

use super::stamps::Stamps;
use crate::limits::{RateClass, Tier, Window};

/// What hard and global limits count over.
pub const SECOND: Span = Span::from_secs(1);

/// The greatest limit whose stamps are kept as they are.
pub const EXACT_MAX: u64 = 4_096;

/// The smallest step of time: a copy has left a window one step after stamp + window.
const STEP: Span = Span::from_micros(1);

impl RateClass {
    /// The hard limit, if there is one, and then the windows, in the order in which they are asked.
    #[inline]
    pub fn sliding(&self) -> impl Iterator<Item = Window> + '_ {
        let hard = self.hard.map(Window::of_second);
        hard.into_iter().chain(self.windows.iter().copied())
    }

    /// How many [`RateClass::sliding`] gives.
    #[inline]
    pub fn sliding_len(&self) -> usize {
        usize::from(self.hard.is_some()) + self.windows.len()
    }
}

impl Tier {
    /// The tier's window.
    #[inline]
    pub fn sliding(&self) -> Window {
        Window {
            limit: self.limit,
            window: self.window,
        }
    }
}

impl Window {
    /// A global limit: all domains' copies of a second.
    pub fn of_second(limit: u64) -> Self {
        Self {
            limit,
            window: SECOND,
        }
    }

    /// The stamp under which a copy counts.
    #[inline]
    pub fn rounded(&self, at: Timestamp) -> Timestamp {
        match self.is_exact() {
            true => at,
            false => {
                let step_us = self.window.as_micros().div_ceil(EXACT_MAX).max(1);
                Timestamp::from_micros(at.as_micros() - at.as_micros() % step_us)
            }
        }
    }

    /// Rounds the stamps of a window that had a smaller limit before.
    pub fn round(&self, stamps: &mut Stamps) {
        if !self.is_exact() {
            stamps.move_stamps(|at| self.rounded(at));
        }
    }

    /// Whether stamps are kept as they are.
    #[inline]
    pub fn is_exact(&self) -> bool {
        self.limit <= EXACT_MAX
    }

    /// Whether a copy stamped `at` has left at `now`, by the stamp under which it counts.
    #[inline]
    pub fn has_left(&self, at: Timestamp, now: Timestamp) -> bool {
        has_left(self.window, self.rounded(at), now)
    }

    /// How many more late copies stamped `at` are granted at `now`. Those that have left leave the room
    /// as it was, so if there is any each of them has it.
    pub fn late_room(&self, stamps: &Stamps, at: Timestamp, now: Timestamp) -> u64 {
        match self.room(stamps, now) {
            0 => 0,
            _ if self.has_left(at, now) => u64::MAX,
            room => room,
        }
    }

    /// Counts granted copies stamped `at`, unless that has left at `now`.
    #[inline]
    pub fn take(&self, stamps: &mut Stamps, (at, now): (Timestamp, Timestamp), copies: u64) {
        let stamp = self.rounded(at);
        if !has_left(self.window, stamp, now) {
            stamps.take(stamp, copies);
        }
    }

    /// Counts as many copies of excess stamped `at` as debt allows; how many.
    pub fn take_excess(
        &self,
        stamps: &mut Stamps,
        (at, now): (Timestamp, Timestamp),
        copies: u64,
    ) -> u64 {
        if self.has_left(at, now) {
            return 0;
        }
        let takes = copies.min(self.debt_room(stamps, now));
        stamps.take(self.rounded(at), takes);
        takes
    }

    /// Takes debt back to the limit at `now`: the newest copies go.
    pub fn forgive(&self, stamps: &mut Stamps, now: Timestamp) {
        let over = stamps.held(self.window, now).saturating_sub(self.limit);
        stamps.take_out_newest(over);
    }

    /// How many more copies are granted at `now`.
    #[inline]
    pub fn room(&self, stamps: &Stamps, now: Timestamp) -> u64 {
        self.limit.saturating_sub(stamps.held(self.window, now))
    }

    /// How many more copies count as excess at `now`.
    #[inline]
    pub fn debt_room(&self, stamps: &Stamps, now: Timestamp) -> u64 {
        let most = self.limit.saturating_mul(2);
        most.saturating_sub(stamps.held(self.window, now))
    }

    /// The first instant from `now` on at which there is room; [`Timestamp::MAX`]: never.
    pub fn opens(&self, stamps: &Stamps, now: Timestamp) -> Timestamp {
        if self.limit == 0 {
            return Timestamp::MAX;
        }
        match stamps.nth_newest(self.limit) {
            Some(at) => leaves(at, self.window).max(now),
            None => now,
        }
    }
}

/// The first instant at which a copy has left a window.
pub fn leaves(at: Timestamp, span: Span) -> Timestamp {
    at.saturating_add(span).saturating_add(STEP)
}

/// Whether a copy stamped `at` has left a window of `span` at `now`.
#[inline]
pub fn has_left(span: Span, at: Timestamp, now: Timestamp) -> bool {
    at.saturating_add(span) < now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stamps_of_large_limits_are_rounded_down() {
        let of = |limit| Window {
            limit,
            window: Span::from_secs(10),
        };
        let at = Timestamp::from_micros(1_700_000_000_000_001);
        assert_eq!(of(4_096).rounded(at), at);
        let rounded = of(4_097).rounded(at);
        assert_eq!(rounded.as_micros() % 2_442, 0);
        assert!(at.since(rounded) < Span::from_micros(2_442));
    }
}
