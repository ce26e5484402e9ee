//! A quota: the number of copies that count in the calendar period that holds the pair's time.
//!
//! ```text
//! 3 a day    5 copies on Monday: 3 granted, 2 of excess, which count; closed until Tuesday
//! Tuesday    begins at 0: yesterday's excess is not owed today
//! a copy of Monday that arrives on Tuesday is neither limited nor counted
//! ```
//!
//! Remembers for ten minutes the stamps under which it counted estimates, for settlements. Knows nothing of other
//! constraints. What stays true: the count is of one period, and periods only follow each other.

use std::collections::BTreeMap;

use crate::bucket::{forget_of, forget_settled, keep_oldest, remember, settled_at};
use crate::instants::{FOR_EVER_US, first_instant};
use crate::limits::Quota;

/// The state of one quota.
#[derive(Clone, Debug)]
pub(crate) struct QuotaState {
    period: i64,
    /// The first instant of the next period.
    ends_us: u64,
    count: u64,
    by_stamp: BTreeMap<u64, u64>,
}

impl QuotaState {
    /// A quota with nothing counted in the period that holds `now_us`.
    pub fn new(quota: &Quota, now_us: u64) -> Self {
        let period = quota.zone.period(quota.unit, now_us);
        let is_later = |at_us| period < quota.zone.period(quota.unit, at_us);
        let ends_us = first_instant(now_us, FOR_EVER_US - 1, is_later);
        Self {
            period,
            ends_us: ends_us.unwrap_or(FOR_EVER_US),
            count: 0,
            by_stamp: BTreeMap::new(),
        }
    }

    /// The same count under a new version, whose zone table may differ.
    pub fn carried_to(&self, quota: &Quota, now_us: u64) -> Self {
        Self {
            count: self.count,
            by_stamp: self.by_stamp.clone(),
            ..Self::new(quota, now_us)
        }
    }

    /// Advances to a later instant, which may lie in another period.
    pub fn advance(&mut self, quota: &Quota, now_us: u64) {
        if self.ends_us <= now_us {
            *self = Self::new(quota, now_us);
        }
        forget_settled(&mut self.by_stamp, now_us);
    }

    /// How many copies count at `now_us`, which is not before the last change.
    pub fn count(&self, now_us: u64) -> u64 {
        match now_us < self.ends_us {
            true => self.count,
            false => 0,
        }
    }

    /// The number of further copies stamped `at_us` that have room. A stamp of an earlier period is not limited.
    pub fn room(&self, quota: &Quota, at_us: u64, now_us: u64) -> u64 {
        match self.is_of_this_period(quota, at_us, now_us) {
            true => quota.limit.saturating_sub(self.count(now_us)),
            false => u64::MAX,
        }
    }

    /// How many of `n` excess copies stamped `at_us` count as debt. A stamp of an earlier period
    /// counts nothing.
    pub fn debt(&self, quota: &Quota, at_us: u64, now_us: u64, n: u64) -> u64 {
        match self.is_of_this_period(quota, at_us, now_us) {
            true => n.min(quota.limit.saturating_mul(2).saturating_sub(self.count)),
            false => 0,
        }
    }

    /// Counts `n` copies stamped `at_us`. Estimated copies may be taken back under that stamp.
    pub fn take(&mut self, quota: &Quota, at_us: u64, now_us: u64, n: u64, estimated: bool) {
        if 0 < n && self.is_of_this_period(quota, at_us, now_us) {
            self.count = self.count.saturating_add(n);
            if estimated {
                remember(&mut self.by_stamp, at_us, n);
            }
        }
    }

    /// How many copies counted under a stamp of this period may still come back.
    pub fn count_at(&self, quota: &Quota, at_us: u64, now_us: u64) -> u64 {
        match self.is_of_this_period(quota, at_us, now_us) {
            true => settled_at(&self.by_stamp, at_us, now_us).min(self.count),
            false => 0,
        }
    }

    /// Gives back `n` copies that were counted under a stamp.
    pub fn take_out(&mut self, at_us: u64, n: u64) {
        forget_of(&mut self.by_stamp, at_us, n);
        self.give(n);
    }

    /// Lowers the count by `n` copies for an operator. Then estimates that count no more cannot be taken back: the newest
    /// are forgotten first.
    pub fn refund(&mut self, n: u64) {
        self.give(n);
        keep_oldest(&mut self.by_stamp, self.count);
    }

    /// Lowers the count by `n` copies.
    pub fn give(&mut self, n: u64) {
        self.count = self.count.saturating_sub(n);
    }

    /// Lowers the count to the limit.
    pub fn forgive(&mut self, quota: &Quota) {
        self.count = self.count.min(quota.limit);
    }

    /// The first instant of the next period.
    pub fn ends_us(&self) -> u64 {
        self.ends_us
    }

    fn is_of_this_period(&self, quota: &Quota, at_us: u64, now_us: u64) -> bool {
        let now = match now_us < self.ends_us {
            true => self.period,
            false => quota.zone.period(quota.unit, now_us),
        };
        now <= quota.zone.period(quota.unit, at_us)
    }
}
