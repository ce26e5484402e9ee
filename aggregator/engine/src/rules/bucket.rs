//! The token bucket: a burst at once, and then a rate.
//!
//! ```text
//! 2 a second, burst 5, debt 5    five at 0.0         granted: the level is 0
//!                                ten more at 0.0     five count as debt: -5; five are only tallied
//!                                at 2.999999         one unit short of level 1: closed
//!                                at 3.0              open: level 1 is enough for one
//! ```
//!
//! Full when a pair is first used; level(now) = min(burst, level + rate x elapsed). Exact: with N copies
//! in P microseconds, reduced by their greatest common divisor, the level counts in units of 1/P; a
//! microsecond adds N units and a copy takes P. Knows nothing of the pair's other limits. What stays
//! true: -debt <= level <= burst, and no product overflows, since (burst + debt) x P < 2^62.

use tollgate_shared::time::{Span, Timestamp};

use super::pool::Renew;
use super::quota::{forget_estimates, take_estimate};
use super::stamps::Stamps;
use tollgate_limits::Bucket;

/// The state of a bucket.
#[derive(Clone, Debug, Default)]
pub struct BucketState {
    /// The level at `at`, in units of 1/P.
    pub level: i64,
    /// The instant of that level: the pair's time.
    pub at: Timestamp,
    /// Copies of estimates since the bucket was full.
    pub estimates: Stamps,
}

impl Renew for BucketState {
    fn renew(&mut self) {
        self.level = 0;
        self.at = Timestamp::ZERO;
        self.estimates.clear();
    }
}

impl BucketState {
    /// Makes it full.
    pub fn begin(&mut self, bucket: &Bucket) {
        self.renew();
        self.level = bucket.full();
    }

    /// The level at `now`, which is not before its own instant.
    #[inline]
    pub fn level_at(&self, bucket: &Bucket, now: Timestamp) -> i64 {
        let full = bucket.full();
        let risen = i128::from(now.since(self.at).as_micros()) * i128::from(bucket.tokens);
        let level = i128::from(self.level).saturating_add(risen);
        // Not above full, so it fits into an i64.
        level.min(i128::from(full)) as i64
    }

    /// Advances to `now`. Estimates from before it was full are forgotten: they cannot be refunded any
    /// more.
    #[inline]
    pub fn advance(&mut self, bucket: &Bucket, now: Timestamp) {
        self.level = self.level_at(bucket, now);
        self.at = now;
        if bucket.full() <= self.level {
            self.estimates.clear();
        }
        forget_estimates(&mut self.estimates, now);
    }

    /// How many more copies are granted at `now`.
    #[inline]
    pub fn room(&self, bucket: &Bucket, now: Timestamp) -> u64 {
        whole_copies(self.level_at(bucket, now), bucket)
    }

    /// How many more copies count as excess, at its own instant.
    #[inline]
    pub fn debt_room(&self, bucket: &Bucket) -> u64 {
        whole_copies(self.level.saturating_sub(bucket.floor()), bucket)
    }

    /// Takes copies stamped `at`: no more than there is room for.
    #[inline]
    pub fn take(&mut self, bucket: &Bucket, at: Timestamp, copies: u64, estimated: bool) {
        self.level = self
            .level
            .saturating_sub(bucket.units(copies))
            .max(bucket.floor());
        if estimated {
            take_estimate(&mut self.estimates, at, copies);
        }
    }

    /// Refunds copies.
    pub fn give_back(&mut self, bucket: &Bucket, copies: u64) {
        let level = self.level.saturating_add(bucket.units(copies));
        self.level = level.min(bucket.full());
    }

    /// How many copies it lacks, rounded up, at its own instant.
    pub fn missing(&self, bucket: &Bucket) -> u64 {
        let missing = bucket.full().saturating_sub(self.level);
        whole_copies(missing.saturating_add(bucket.copy_units() - 1), bucket)
    }

    /// The first instant from `now` on at which there is room; [`Timestamp::MAX`]: never.
    pub fn opens(&self, bucket: &Bucket, now: Timestamp) -> Timestamp {
        if bucket.burst == 0 {
            return Timestamp::MAX;
        }
        let level = self.level_at(bucket, now);
        match bucket.rises_in(level, bucket.copy_units()) {
            Some(span) => now.saturating_add(span),
            None => Timestamp::MAX,
        }
    }

    /// The first instant from `now` on at which it holds `copies` copies; [`Timestamp::MAX`]: never.
    pub fn rises_to(&self, bucket: &Bucket, now: Timestamp, copies: u64) -> Timestamp {
        if bucket.burst < copies {
            return Timestamp::MAX;
        }
        let level = self.level_at(bucket, now);
        let span = bucket.rises_in(level, bucket.units(copies));
        span.map_or(Timestamp::MAX, |span| now.saturating_add(span))
    }

    /// When it is full if no copy is taken.
    pub fn full_at(&self, bucket: &Bucket) -> Timestamp {
        let span = bucket.rises_in(self.level, bucket.full());
        self.at.saturating_add(span.unwrap_or(Span::MAX))
    }
}

fn whole_copies(level: i64, bucket: &Bucket) -> u64 {
    u64::try_from(level / bucket.copy_units()).unwrap_or(0)
}
