//! One sliding window: its count, its room for more copies, and how late copies count.
//!
//! ```text
//! 3 per 1 s    5 copies at 0.0: room for 3; as debt it counts up to twice its limit, so all 5
//! at 0.9       5 count: no room, but one more copy would still count as debt
//! at 1.000001  all have left
//! ```
//!
//! The hard limit is a window of a second; each tier and each global limit has a window. Above a
//! limit of 4,096 stamps are rounded down. Knows nothing of other constraints. What stays true: it
//! removes only copies that have left.

use crate::hits::{Hits, has_left};
use crate::limits::Window;

/// The limit above which stamps are rounded.
const EXACT_MAX: u64 = 4_096;

/// What counts in one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowState {
    hits: Hits,
}

impl WindowState {
    /// The same copies, for use under the new window `window`.
    pub fn carried_to(&self, window: Window) -> Self {
        Self {
            hits: self.hits.rounded(step_us(window)),
        }
    }

    /// How many copies count at `now_us`.
    pub fn count(&self, window: Window, now_us: u64) -> u64 {
        self.hits.count(window.window_us, now_us)
    }

    /// How many more copies stamped `at_us` there is room for.
    pub fn room(&self, window: Window, at_us: u64, now_us: u64) -> u64 {
        self.below(window.limit, window, at_us, now_us)
    }

    /// How many of `n` excess copies stamped `at_us` count as debt: copies count while the count is below twice the
    /// limit. A copy whose stamp has left counts nowhere.
    pub fn debt(&self, window: Window, at_us: u64, now_us: u64, n: u64) -> u64 {
        if has_left(stamp_us(window, at_us), window.window_us, now_us) {
            return 0;
        }
        n.min(self.below(window.limit.saturating_mul(2), window, at_us, now_us))
    }

    /// Counts `n` copies stamped `at_us`.
    pub fn take(&mut self, window: Window, at_us: u64, now_us: u64, n: u64) {
        self.hits.forget(window.window_us, now_us);
        let stamp_us = stamp_us(window, at_us);
        if !has_left(stamp_us, window.window_us, now_us) {
            self.hits.take(stamp_us, n);
        }
    }

    /// How many copies stamped `at_us` count at `now_us`.
    pub fn count_at(&self, window: Window, at_us: u64, now_us: u64) -> u64 {
        let stamp_us = stamp_us(window, at_us);
        match has_left(stamp_us, window.window_us, now_us) {
            true => 0,
            false => self.hits.count_at(stamp_us),
        }
    }

    /// Takes `n` copies stamped `at_us` out again.
    pub fn take_out(&mut self, window: Window, at_us: u64, n: u64) {
        self.hits.take_out(stamp_us(window, at_us), n);
    }

    /// Takes the newest `n` copies that still count out again.
    pub fn take_newest_out(&mut self, window: Window, now_us: u64, n: u64) {
        self.hits.forget(window.window_us, now_us);
        self.hits.take_newest_out(n);
    }

    /// Removes copies above the limit, newest first.
    pub fn forgive(&mut self, window: Window, now_us: u64) {
        let above = self.count(window, now_us).saturating_sub(window.limit);
        self.take_newest_out(window, now_us, above);
    }

    /// Removes copies that have left at `now_us`. Engine time never runs backwards within a
    /// pair, so they cannot count again.
    pub fn forget(&mut self, window: Window, now_us: u64) {
        self.hits.forget(window.window_us, now_us);
    }

    /// The last instant at which a copy counts in the window.
    pub fn last_us(&self, window: Window) -> u64 {
        let newest_us = self.hits.newest();
        newest_us.map_or(0, |at_us| at_us.saturating_add(window.window_us))
    }

    /// The newest stamp.
    pub fn newest_us(&self) -> Option<u64> {
        self.hits.newest()
    }

    /// Decides copy by copy: a copy whose stamp has left does not change the count, so a window with
    /// any room takes all such copies.
    fn below(&self, bound: u64, window: Window, at_us: u64, now_us: u64) -> u64 {
        match bound.saturating_sub(self.count(window, now_us)) {
            0 => 0,
            _ if has_left(stamp_us(window, at_us), window.window_us, now_us) => u64::MAX,
            room => room,
        }
    }
}

/// The multiple to which stamps are rounded down, in microseconds.
fn step_us(window: Window) -> u64 {
    match EXACT_MAX < window.limit {
        true => window.window_us.div_ceil(EXACT_MAX).max(1),
        false => 1,
    }
}

fn stamp_us(window: Window, at_us: u64) -> u64 {
    let step_us = step_us(window);
    at_us / step_us * step_us
}
