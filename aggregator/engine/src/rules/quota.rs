//! Quotas: a number of copies in a calendar period. Nothing slides.
//!
//! ```text
//! 3 a day in UTC    three on Monday                    granted; full until Tuesday 00:00
//!                   five more on Monday                three count, so that six do; two are only tallied
//!                   one on Tuesday                     granted: excess is not carried over
//!                   one stamped Monday, on Tuesday     is not checked and does not count
//! ```
//!
//! One count, however long the period. Copies of an estimate are also kept by their stamp for
//! [`ESTIMATES_KEPT`], so that a settlement finds them. Knows nothing of the calendar's arithmetic. What
//! stays true: a count belongs to one unit in one zone, and to the period that contains the pair's time.

use tollgate_shared::time::{Span, Timestamp};

use super::calendar::{Period, period};
use super::pool::Renew;
use super::stamps::Stamps;
use tollgate_limits::{Calendar, Quota};

/// How long quotas and buckets remember the copies of an estimate.
pub const ESTIMATES_KEPT: Span = Span::from_secs(600);

/// The most bytes of one pair's estimates: some 4,000 estimates in ten minutes. Beyond it the oldest are
/// forgotten: their settlements refund nothing.
const ESTIMATES_BYTES_MAX: usize = 16 * 1_024;

/// The state of one quota.
#[derive(Clone, Debug, Default)]
pub struct QuotaState {
    /// The unit and zone that are counted: see [`kind_of`].
    pub kind: u32,
    /// The end of the period that contains the pair's time; the Unix epoch before the first one.
    pub ends: Timestamp,
    /// Copies that count in the period.
    pub count: u64,
    /// Copies of estimates that count in it.
    pub estimates: Stamps,
}

impl Renew for QuotaState {
    fn renew(&mut self) {
        (self.kind, self.count) = (0, 0);
        self.ends = Timestamp::ZERO;
        self.estimates.clear();
    }
}

/// A number for a unit in a zone, by which a count is found under new limits. Zones are identified by
/// their names: under new tables of one zone the count goes on.
pub fn kind_of(quota: &Quota) -> u32 {
    let unit = match quota.unit {
        Calendar::Day => 1u8,
        Calendar::Week => 2,
        Calendar::Month => 3,
        Calendar::Year => 4,
    };
    // FNV-1a: a fixed function, since snapshots contain the number.
    let bytes = std::iter::once(unit).chain(quota.zone.name().bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

impl QuotaState {
    /// Sets it to a count of nothing.
    pub fn begin(&mut self, quota: &Quota) {
        self.renew();
        self.kind = kind_of(quota);
    }

    /// Advances to the period that contains `now`, and forgets old estimates.
    #[inline]
    pub fn advance(&mut self, quota: &Quota, now: Timestamp) {
        if self.ends <= now {
            self.ends = period(quota.unit, &quota.zone, now).ends;
            self.count = 0;
            self.estimates.clear();
        }
        forget_estimates(&mut self.estimates, now);
    }

    /// Copies that count at `now`, which may be in a later period.
    #[inline]
    pub fn counted(&self, now: Timestamp) -> u64 {
        if now < self.ends { self.count } else { 0 }
    }

    /// Whether a late copy stamped `at` belongs to the period that contains `now`.
    pub fn holds(quota: &Quota, at: Timestamp, now: Timestamp) -> bool {
        let Period { begins, .. } = period(quota.unit, &quota.zone, now);
        begins <= at
    }

    /// How many more copies are granted at `now`.
    #[inline]
    pub fn room(&self, quota: &Quota, now: Timestamp) -> u64 {
        quota.limit.saturating_sub(self.counted(now))
    }

    /// How many more copies count as excess.
    #[inline]
    pub fn debt_room(&self, quota: &Quota) -> u64 {
        quota.limit.saturating_mul(2).saturating_sub(self.count)
    }

    /// Counts copies stamped `at`.
    #[inline]
    pub fn take(&mut self, at: Timestamp, copies: u64, estimated: bool) {
        self.count = self.count.saturating_add(copies);
        if estimated {
            take_estimate(&mut self.estimates, at, copies);
        }
    }

    /// The first instant from `now` on at which there is room; [`Timestamp::MAX`]: never.
    pub fn opens(&self, quota: &Quota, now: Timestamp) -> Timestamp {
        match self.room(quota, now) {
            _ if quota.limit == 0 => Timestamp::MAX,
            0 => self.ends,
            _ => now,
        }
    }
}

/// Remembers the copies of an estimate.
pub(super) fn take_estimate(estimates: &mut Stamps, at: Timestamp, copies: u64) {
    estimates.take(at, copies);
    while ESTIMATES_BYTES_MAX < estimates.run_bytes() {
        estimates.forget_oldest();
    }
}

/// Forgets the newest estimates beyond so many copies: a settlement must not refund what an operator has refunded.
pub(super) fn keep_estimates(estimates: &mut Stamps, at_most: u64) {
    let refunded = estimates.hits().saturating_sub(at_most);
    estimates.take_out_newest(refunded);
}

/// Forgets estimates that are too old to be settled.
#[inline]
pub(super) fn forget_estimates(estimates: &mut Stamps, now: Timestamp) {
    if !estimates.is_empty() {
        estimates.forget(ESTIMATES_KEPT, now);
    }
}
