//! The pair (resource, *): a global limit in the stream reading, ruled from totals.
//!
//! ```text
//! global 3   2 copies in ms 0, 2 in ms 400: one of the latter is excess, and counts; denied until
//!            1.000001, when the two of ms 0 have left
//! ```
//!
//! Knows nothing of domains or their constraints. What stays true: as on any pair, granted copies and excess
//! both count, up to twice the limit, but unguarded excess counts nowhere; and the pair's time is the greatest
//! instant of its own copies. Here "late" means only that a copy is no longer in the current second: any other
//! copy counts under its own stamp.

use crate::hits::has_left;
use crate::instants::{FOR_EVER_US, first_instant};
use crate::limits::Window;
use crate::rules::SECOND_US;
use crate::stream::{Denial, SLOT_US, STAYS_US, STEPS_MAX, rest_us};
use crate::verdict::{Cause, End};
use crate::window::WindowState;

/// The result for the copies of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalCount {
    /// Copies for which the global limit had room.
    pub granted: u64,
    /// Copies above it.
    pub excess: u64,
    /// Copies that are no longer in the current second.
    pub late: u64,
}

/// All domains of one resource together.
#[derive(Clone, Debug, Default)]
pub struct WholeResource {
    second: WindowState,
    /// The step of the limits at its last ruling, and the global limits by the steps since then that changed them.
    step: u64,
    missed: Vec<(u64, Option<u64>)>,
    time_us: u64,
    denied: Option<Denial>,
    /// As for a pair: see [`crate::StreamPair`].
    rests_us: Option<u64>,
}

impl WholeResource {
    /// A resource without copies, begun at a step of the limits.
    pub(crate) fn begun_at(step: u64) -> Self {
        Self {
            step,
            ..Self::default()
        }
    }

    /// Brings it under a step of the limits, as [`crate::StreamPair`] comes under one.
    pub(crate) fn come_to(&mut self, step: u64) {
        let oldest = step.saturating_sub(STEPS_MAX);
        if self.step < oldest {
            let as_one = self.missed.partition_point(|(of, _)| *of <= oldest);
            self.missed.drain(..as_one.saturating_sub(1));
        }
        for (_, limit) in std::mem::take(&mut self.missed) {
            // State of a limit that a version removes is forgotten.
            self.second = match limit {
                Some(limit) => self.second.carried_to(second(limit)),
                None => WindowState::default(),
            };
        }
        self.step = step;
    }

    /// Counts `n` copies at `at_us`. [`Self::rule_denial`] rules the denial after a total's last copies.
    pub fn hits(&mut self, limit: u64, at_us: u64, n: u64, unguarded: bool) -> TotalCount {
        self.time_us = self.time_us.max(at_us);
        let now_us = self.time_us;
        if has_left(at_us, SECOND_US, now_us) {
            return TotalCount {
                late: n,
                ..TotalCount::default()
            };
        }
        let window = second(limit);
        let granted = n.min(self.second.room(window, at_us, now_us));
        self.second.take(window, at_us, now_us, granted);
        let excess = n - granted;
        if !unguarded {
            let debt = self.second.debt(window, at_us, now_us, excess);
            self.second.take(window, at_us, now_us, debt);
        }
        TotalCount {
            granted,
            excess,
            late: 0,
        }
    }

    /// How many copies count at the pair's time.
    pub fn count(&self, limit: u64) -> u64 {
        self.second.count(second(limit), self.time_us)
    }

    /// Rules the denial at the pair's time.
    pub fn rule_denial(&mut self, limit: u64) {
        self.denied = self.denial_at(limit, self.time_us);
        let until_us = self.matters_until_us();
        self.rests_us =
            until_us.and_then(|until_us| rest_us(until_us.saturating_sub(self.time_us)));
    }

    /// Whether everything that it remembered at its last total was over at a slot's begin.
    pub fn rested_by(&self, slot: u64) -> bool {
        self.rests_us
            .is_some_and(|rests_us| (self.time_us + rests_us) / SLOT_US < slot)
    }

    /// Applies a new version, by which it is ruled at once.
    pub fn new_limit(&mut self, at_us: u64, limit: Option<u64>) {
        self.new_version(self.step, at_us, limit);
        self.come_to(self.step);
    }

    /// Applies a step of the limits whose record has the instant `at_us`: a denial that is still in force is ruled
    /// again; no denial is started.
    pub(crate) fn new_version(&mut self, step: u64, at_us: u64, limit: Option<u64>) {
        if self.missed.last().is_none_or(|(_, last)| *last != limit) {
            self.missed.push((step, limit));
        }
        let now_us = self.time_us.max(at_us);
        let ends_after = |us| self.denied.is_some_and(|denial| denial.end.is_after(us));
        let (is_ruled, in_force) = (ends_after(at_us), ends_after(now_us));
        if is_ruled {
            self.come_to(step);
        }
        if in_force {
            self.rests_us = None;
        }
        self.denied = match limit {
            Some(limit) if in_force => self.denial_at(limit, now_us),
            _ => None,
        };
    }

    /// The pair's time, in microseconds.
    pub fn time_us(&self) -> u64 {
        self.time_us
    }

    /// The denial at its last ruling.
    pub fn denied(&self) -> Option<Denial> {
        self.denied
    }

    /// The instant after which the pair may be evicted. `None` means never.
    pub fn stays_until_us(&self) -> Option<u64> {
        let stays_us = self.time_us.saturating_add(STAYS_US);
        self.matters_until_us()
            .map(|until_us| until_us.max(stays_us))
    }

    fn matters_until_us(&self) -> Option<u64> {
        let denied_us = match self.denied.map(|denial| denial.end) {
            Some(End::Never) => return None,
            Some(End::At(end_us)) => end_us,
            None => 0,
        };
        let newest_us = self.second.newest_us().unwrap_or(0);
        Some(newest_us.saturating_add(SECOND_US).max(denied_us))
    }

    fn denial_at(&self, limit: u64, now_us: u64) -> Option<Denial> {
        let is_open = |at_us| self.second.count(second(limit), at_us) < limit;
        if is_open(now_us) {
            return None;
        }
        let end_us = first_instant(now_us, FOR_EVER_US - 1, is_open);
        Some(Denial {
            end: end_us.map_or(End::Never, End::At),
            cause: Cause::Global,
        })
    }
}

/// The window of one second of all domains.
const fn second(limit: u64) -> Window {
    Window {
        limit,
        window_us: SECOND_US,
    }
}
