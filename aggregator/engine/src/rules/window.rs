//! Sliding windows: a number of copies in any span of their length. The hard limit is a window of one second.
//!
//! ```text
//! 3 in 1s    one copy each at 0.000, 0.001, 0.002    granted; full until 1.000001
//!            one at 0.003, let through all the same  excess, but it counts: full until 1.001001
//!            five more at 0.004                      two count, so that six do; three are only tallied
//! 5000 in 10s                                        stamps are rounded down to multiples of 2,442 us
//! ```
//!
//! A copy at h counts while not now > h + window. Excess counts as long as fewer than twice the limit count. Above
//! [`tollgate_limits::EXACT_MAX`] stamps are rounded down, so that no window remembers more instants than that;
//! rounding down lets a copy leave early, never late. Knows nothing of the pair's other limits. What stays true:
//! queries change nothing.

use tollgate_shared::time::{Span, Timestamp};

use super::stamps::Stamps;
use tollgate_limits::Window;
use tollgate_limits::rate::has_left;

/// The smallest step of time: a copy has left a window one step after stamp + window.
const STEP: Span = Span::from_micros(1);

/// How a window counts the stamps of a pair.
pub trait CountsStamps {
    /// Rounds the stamps of a window that had a smaller limit before.
    fn round(&self, stamps: &mut Stamps);

    /// How many more late copies stamped `at` are granted at `now`. If `at` has left the window, the copies use no
    /// room: then any number is granted if there is room at all.
    fn late_room(&self, stamps: &Stamps, at: Timestamp, now: Timestamp) -> u64;

    /// Counts granted copies stamped `at`, unless `at` has left the window at `now`.
    fn take(&self, stamps: &mut Stamps, at_and_now: (Timestamp, Timestamp), copies: u64);

    /// Counts as many copies of excess stamped `at` as debt allows; returns how many.
    fn take_excess(
        &self,
        stamps: &mut Stamps,
        at_and_now: (Timestamp, Timestamp),
        copies: u64,
    ) -> u64;

    /// Reduces debt to the limit at `now`: removes the newest copies.
    fn forgive(&self, stamps: &mut Stamps, now: Timestamp);

    /// How many more copies are granted at `now`.
    fn room(&self, stamps: &Stamps, now: Timestamp) -> u64;

    /// How many more copies count as excess at `now`.
    fn debt_room(&self, stamps: &Stamps, now: Timestamp) -> u64;

    /// The first instant from `now` on at which there is room; [`Timestamp::MAX`]: never.
    fn opens(&self, stamps: &Stamps, now: Timestamp) -> Timestamp;
}

impl CountsStamps for Window {
    fn round(&self, stamps: &mut Stamps) {
        if !self.is_exact() {
            stamps.move_stamps(|at| self.rounded(at));
        }
    }

    fn late_room(&self, stamps: &Stamps, at: Timestamp, now: Timestamp) -> u64 {
        match self.room(stamps, now) {
            0 => 0,
            _ if self.has_left(at, now) => u64::MAX,
            room => room,
        }
    }

    #[inline]
    fn take(&self, stamps: &mut Stamps, (at, now): (Timestamp, Timestamp), copies: u64) {
        let stamp = self.rounded(at);
        if !has_left(self.window, stamp, now) {
            stamps.take(stamp, copies);
        }
    }

    fn take_excess(
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

    fn forgive(&self, stamps: &mut Stamps, now: Timestamp) {
        let over = stamps.held(self.window, now).saturating_sub(self.limit);
        stamps.take_out_newest(over);
    }

    #[inline]
    fn room(&self, stamps: &Stamps, now: Timestamp) -> u64 {
        self.limit.saturating_sub(stamps.held(self.window, now))
    }

    #[inline]
    fn debt_room(&self, stamps: &Stamps, now: Timestamp) -> u64 {
        let most = self.limit.saturating_mul(2);
        most.saturating_sub(stamps.held(self.window, now))
    }

    fn opens(&self, stamps: &Stamps, now: Timestamp) -> Timestamp {
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
