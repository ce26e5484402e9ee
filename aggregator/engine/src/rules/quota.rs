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
//! [`ESTIMATES_KEPT`], so that a settlement finds them; of a pair with very many, to 0.6 s. Knows nothing of the
//! calendar's arithmetic. What stays true: a count belongs to one unit in one zone, and to the period that contains the
//! pair's time.

use tollgate_shared::time::{Span, Timestamp};

use super::calendar::{Period, period};
use super::pool::Renew;
use super::stamps::Stamps;
use tollgate_limits::{Calendar, Quota};

/// How long quotas and buckets remember the copies of an estimate.
pub const ESTIMATES_KEPT: Span = Span::from_secs(600);

/// The most stamps under which estimates of one pair are kept: 32 KiB. Beyond it all are rounded down to steps.
const ESTIMATES_MAX: usize = 4_096;

/// A step, of which [`ESTIMATES_KEPT`] contains a quarter as many as there may be stamps.
const ESTIMATES_STEP: Span = Span::from_micros(600_000);

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

/// The step in which an estimate was made.
fn step_of(made: Timestamp) -> Timestamp {
    let made_us = made.as_micros();
    Timestamp::from_micros(made_us - made_us % ESTIMATES_STEP.as_micros())
}

/// Remembers the copies of an estimate.
pub(super) fn take_estimate(estimates: &mut Stamps, at: Timestamp, copies: u64) {
    estimates.take(at, copies);
    // A stamp takes a byte at least.
    if ESTIMATES_MAX < estimates.run_bytes() && ESTIMATES_MAX < estimates.runs().count() {
        estimates.move_stamps(step_of);
    }
}

/// The places of an estimate: its stamp, and its step, if that is another one.
fn places_of(made: Timestamp) -> impl Iterator<Item = Timestamp> {
    let step = Some(step_of(made)).filter(|step| *step != made);
    std::iter::once(made).chain(step)
}

/// The copies of estimates that are kept in the places of one that was made at an instant; 0 if it is too old at `now`.
pub(super) fn estimates_at(estimates: &Stamps, made: Timestamp, now: Timestamp) -> u64 {
    match made.saturating_add(ESTIMATES_KEPT) < now {
        true => 0,
        false => places_of(made).map(|at| estimates.hits_at(at)).sum(),
    }
}

/// Takes copies out of the estimates that are kept in the places of one, and says how many.
pub(super) fn take_out_estimate(estimates: &mut Stamps, made: Timestamp, copies: u64) -> u64 {
    places_of(made).fold(0, |taken, at| {
        taken + estimates.take_out(at, copies - taken)
    })
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
        // Each was made up to a step after its stamp.
        estimates.forget(ESTIMATES_KEPT.saturating_add(ESTIMATES_STEP), now);
    }
}
