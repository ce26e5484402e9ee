//! The pair (resource, *): a global limit in the stream reading, ruled from totals.
//!
//! ```text
//! global 3   2 granted hits in ms 0, 2 in ms 400: one of the latter is excess; denied until
//!            1.000001, when the two of ms 0 have left
//! ```
//!
//! Knows nothing of domains or tiers. What stays true: as on any pair, what is granted occupies the
//! window, what is excess does not, and time is the greatest instant of its own hits. "Late there
//! means only that the hit has left its second": any other hit counts under its own stamp.

use crate::hits::{Hits, has_left};
use crate::rules::{Cause, End, FOR_EVER_US, SECOND_US, first_instant};
use crate::stream::{Denial, STAYS_US};

/// What became of hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub granted: u64,
    pub excess: u64,
    pub late: u64,
}

/// All domains of one resource together.
#[derive(Clone, Debug, Default)]
pub(super) struct WholeResource {
    second: Hits,
    time_us: u64,
    denied: Option<Denial>,
}

impl WholeResource {
    /// `n` hits at `at_us`. The denial is ruled by [`Self::rule_denial`] after a total's last hits.
    pub fn hits(&mut self, limit: u64, at_us: u64, n: u64) -> Count {
        self.time_us = self.time_us.max(at_us);
        if has_left(at_us, SECOND_US, self.time_us) {
            return Count {
                late: n,
                ..Count::default()
            };
        }
        self.second.forget(SECOND_US, self.time_us);
        let last_second = self.second.count(SECOND_US, self.time_us);
        let granted = n.min(limit.saturating_sub(last_second));
        if 0 < granted {
            self.second.take(at_us, granted);
        }
        Count {
            granted,
            excess: n - granted,
            late: 0,
        }
    }

    /// Rules the denial at the pair's time.
    pub fn rule_denial(&mut self, limit: u64) {
        self.denied = self.denial_at(limit, self.time_us);
    }

    /// A new version whose record stands at `at_us`: a denial that is still in force is ruled
    /// again; none is started.
    pub fn new_limit(&mut self, at_us: u64, limit: Option<u64>) {
        let now_us = self.time_us.max(at_us);
        let in_force = self
            .denied
            .is_some_and(|denial| denial.end.is_after(now_us));
        self.denied = match limit {
            Some(limit) if in_force => self.denial_at(limit, now_us),
            _ => None,
        };
    }

    /// The pair's time, in microseconds.
    pub fn time_us(&self) -> u64 {
        self.time_us
    }

    /// The denial as it was ruled last.
    pub fn denied(&self) -> Option<Denial> {
        self.denied
    }

    /// The instant after which the pair may leave. None: never.
    pub fn stays_until_us(&self) -> Option<u64> {
        let denied_us = match self.denied.map(|denial| denial.end) {
            Some(End::Never) => return None,
            Some(End::At(end_us)) => end_us,
            None => 0,
        };
        let newest_us = self.second.newest().unwrap_or(0);
        let stays_us = self.time_us.saturating_add(STAYS_US);
        Some(
            stays_us
                .max(newest_us.saturating_add(SECOND_US))
                .max(denied_us),
        )
    }

    fn denial_at(&self, limit: u64, now_us: u64) -> Option<Denial> {
        let is_open = |at_us| self.second.count(SECOND_US, at_us) < limit;
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
