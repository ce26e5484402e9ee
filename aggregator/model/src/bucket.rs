//! The token bucket, in whole units of one copy ÷ P.
//!
//! ```text
//! 3 copies each 7 s, burst 1, debt 1   P = 7,000,000 (in lowest terms): each microsecond brings 3 units
//! at 0.0         level 1: a copy is taken, level 0
//! at 2.333333    6,999,999 units: a copy needs 7,000,000
//! at 2.333334    7,000,002 units: open
//! ```
//!
//! Remembers for ten minutes the stamps under which it counted estimates, for settlements, unless it was full
//! since. Knows nothing of other constraints. What stays true: −debt ≤ level ≤ burst.

use std::collections::BTreeMap;

use crate::limits::Bucket;

/// How long copies counted under a stamp can be taken back, in microseconds.
const SETTLED_US: u64 = 600_000_000;

/// Of so many stamps with estimates each is remembered; of more, only its step.
const ESTIMATES_MAX: usize = 4_096;

/// The length of a step, in microseconds.
const ESTIMATES_STEP_US: u64 = 600_000;

const fn step_of(at_us: u64) -> u64 {
    at_us / ESTIMATES_STEP_US * ESTIMATES_STEP_US
}

/// Remembers copies of an estimate by its stamp.
pub(crate) fn remember(by_stamp: &mut BTreeMap<u64, u64>, at_us: u64, n: u64) {
    *by_stamp.entry(at_us).or_default() += n;
    let counting = || by_stamp.values().filter(|n| 0 < **n).count();
    if ESTIMATES_MAX < by_stamp.len() && ESTIMATES_MAX < counting() {
        let mut by_step = BTreeMap::new();
        for (at_us, n) in std::mem::take(by_stamp) {
            *by_step.entry(step_of(at_us)).or_default() += n;
        }
        *by_stamp = by_step;
    }
}

/// The stamps under which an estimate may be remembered: its own first.
fn remembered_under(at_us: u64) -> impl Iterator<Item = u64> {
    let step_us = step_of(at_us);
    std::iter::once(at_us).chain((step_us != at_us).then_some(step_us))
}

/// Forgets so many copies of an estimate.
pub(crate) fn forget_of(by_stamp: &mut BTreeMap<u64, u64>, at_us: u64, mut n: u64) {
    for at_us in remembered_under(at_us) {
        if let Some(counted) = by_stamp.get_mut(&at_us) {
            let less = n.min(*counted);
            *counted -= less;
            n -= less;
        }
    }
}

/// Forgets copies whose estimates, made up to a step after their stamp, are too old to be settled.
pub(crate) fn forget_settled(by_stamp: &mut BTreeMap<u64, u64>, now_us: u64) {
    let kept_us = SETTLED_US + ESTIMATES_STEP_US;
    by_stamp.retain(|at_us, n| 0 < *n && now_us.saturating_sub(*at_us) <= kept_us);
}

/// How many copies of an estimate may still come back at `now_us`.
pub(crate) fn settled_at(by_stamp: &BTreeMap<u64, u64>, made_us: u64, now_us: u64) -> u64 {
    if SETTLED_US < now_us.saturating_sub(made_us) {
        return 0;
    }
    let counted = remembered_under(made_us).filter_map(|at_us| by_stamp.get(&at_us));
    counted.sum()
}

/// Excess stamped longer than this before the pair's time is no debt, in microseconds.
const DEBT_LATE_US: u64 = 1_000_000;

/// The state of one bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketState {
    /// The level at `at_us`.
    units: i128,
    at_us: u64,
    /// Counted copies, by stamp, since the bucket was last full.
    by_stamp: BTreeMap<u64, u64>,
}

/// Keeps so many of the copies under stamps, the oldest.
pub(crate) fn keep_oldest(by_stamp: &mut BTreeMap<u64, u64>, mut kept: u64) {
    for counted in by_stamp.values_mut() {
        *counted = (*counted).min(kept);
        kept -= *counted;
    }
}

impl BucketState {
    /// A full bucket.
    pub fn full(bucket: Bucket, at_us: u64) -> Self {
        Self {
            units: full_units(bucket),
            at_us,
            by_stamp: BTreeMap::new(),
        }
    }

    /// Keeps the used part at `now_us`, rounded up to units of the new bucket.
    pub fn carried_to(&self, old: Bucket, new: Bucket, now_us: u64) -> Self {
        let used = full_units(old) - self.level(old, now_us);
        let (old_p, new_p) = (rate(old).1, rate(new).1);
        let used = (used * new_p + old_p - 1).div_euclid(old_p);
        let mut carried = Self {
            units: (full_units(new) - used).max(floor_units(new)),
            at_us: now_us,
            by_stamp: self.by_stamp.clone(),
        };
        carried.forget(new, now_us);
        carried
    }

    /// The level at `now_us`, which is not before the last change.
    pub fn level(&self, bucket: Bucket, now_us: u64) -> i128 {
        let elapsed_us = i128::from(now_us.saturating_sub(self.at_us));
        (self.units + elapsed_us * rate(bucket).0).min(full_units(bucket))
    }

    /// How many copies there is room for.
    pub fn room(&self, bucket: Bucket, now_us: u64) -> u64 {
        copies(self.level(bucket, now_us), bucket)
    }

    /// How many of `n` excess copies stamped `at_us` count as debt: as long as the level stays
    /// at or above −debt.
    pub fn debt(&self, bucket: Bucket, at_us: u64, now_us: u64, n: u64) -> u64 {
        if DEBT_LATE_US < now_us.saturating_sub(at_us) {
            return 0;
        }
        let above = self.level(bucket, now_us) - floor_units(bucket);
        n.min(copies(above, bucket))
    }

    /// Counts `n` copies stamped `at_us`, taken at `now_us`. Estimated copies may be taken back under that stamp.
    pub fn take(&mut self, bucket: Bucket, at_us: u64, now_us: u64, n: u64, estimated: bool) {
        self.forget(bucket, now_us);
        if 0 < n {
            self.units -= i128::from(n) * rate(bucket).1;
            if estimated {
                remember(&mut self.by_stamp, at_us, n);
            }
        }
    }

    /// How many copies counted under a stamp may still come back.
    pub fn count_at(&self, at_us: u64, now_us: u64) -> u64 {
        settled_at(&self.by_stamp, at_us, now_us)
    }

    /// Gives back `n` copies that were counted under a stamp.
    pub fn take_out(&mut self, bucket: Bucket, at_us: u64, now_us: u64, n: u64) {
        forget_of(&mut self.by_stamp, at_us, n);
        self.give(bucket, now_us, n);
    }

    /// Raises the level by `n` copies for an operator. Then no more copies of estimates can be taken back than it lacks:
    /// the newest are forgotten first.
    pub fn refund(&mut self, bucket: Bucket, now_us: u64, n: u64) {
        self.give(bucket, now_us, n);
        let missing = full_units(bucket) - self.units;
        keep_oldest(
            &mut self.by_stamp,
            copies(missing + rate(bucket).1 - 1, bucket),
        );
    }

    /// Raises the level by `n` copies.
    pub fn give(&mut self, bucket: Bucket, now_us: u64, n: u64) {
        self.forget(bucket, now_us);
        self.units = (self.units + i128::from(n) * rate(bucket).1).min(full_units(bucket));
        self.forget(bucket, now_us);
    }

    /// Sets a level below zero to zero.
    pub fn forgive(&mut self, bucket: Bucket, now_us: u64) {
        self.forget(bucket, now_us);
        self.units = self.units.max(0);
    }

    /// Advances the level to `now_us`, and forgets stamps that are too old to be settled.
    pub fn forget(&mut self, bucket: Bucket, now_us: u64) {
        self.units = self.level(bucket, now_us);
        self.at_us = now_us;
        if self.units == full_units(bucket) {
            self.by_stamp.clear();
        }
        forget_settled(&mut self.by_stamp, now_us);
    }

    /// Whether the bucket is full at `now_us`.
    pub fn is_full(&self, bucket: Bucket, now_us: u64) -> bool {
        self.level(bucket, now_us) == full_units(bucket)
    }
}

/// The rate in lowest terms: units added in each microsecond, and units of one copy.
pub(crate) fn rate(bucket: Bucket) -> (i128, i128) {
    let (mut a, mut b) = (bucket.tokens, bucket.period_us);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let divisor = a.max(1);
    let (tokens, period) = (bucket.tokens / divisor, bucket.period_us / divisor);
    (i128::from(tokens), i128::from(period))
}

fn full_units(bucket: Bucket) -> i128 {
    i128::from(bucket.burst) * rate(bucket).1
}

fn floor_units(bucket: Bucket) -> i128 {
    -i128::from(bucket.debt) * rate(bucket).1
}

/// Whole copies in a number of units.
fn copies(units: i128, bucket: Bucket) -> u64 {
    let whole = units.max(0) / rate(bucket).1.max(1);
    u64::try_from(whole).unwrap_or(u64::MAX)
}
