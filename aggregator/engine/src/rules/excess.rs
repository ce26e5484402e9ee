//! Excess counts: copies that were let through without room use room all the same, up to a debt.
//!
//! ```text
//! 5 in 1s, 30 in 10s    20 at once: 5 are granted, 15 are excess
//!                       of these 5 count in the second (ten do then), all 15 in the ten seconds
//!                       5 were counted by every constraint: these and the granted ones reach global
//! ```
//!
//! Each constraint by itself counts a copy as long as fewer than twice its limit count in it (the bucket:
//! as long as its level stays above its debt); other copies are tallied and forgiven. So a window that
//! took too much stays closed until it has less than its limit again. Knows nothing of unguarded hits: the
//! caller decides whether excess counts. What stays true: nothing is granted here, and no tier is entered.

use tollgate_shared::time::{Span, Timestamp};

use super::quota::QuotaState;
use super::state::State;
use super::tiers;
use super::window::CountsStamps as _;
use tollgate_limits::RateClass;
use tollgate_limits::rate::has_left;

/// Excess stamped longer than this before the pair's time is no debt in a bucket.
const BUCKET_LATE: Span = Span::from_secs(1);

/// Counts `copies` of excess stamped `at` at the pair's time `now`, to which the state has advanced.
/// Returns how many of them every constraint counted.
pub fn count(
    class: &RateClass,
    state: &mut State,
    (at, now): (Timestamp, Timestamp),
    copies: u64,
    estimated: bool,
) -> u64 {
    let mut by_all = copies;
    for (window, stamps) in class.sliding().zip(state.windows.iter_mut()) {
        by_all = by_all.min(window.take_excess(stamps, (at, now), copies));
    }
    for (quota, counted) in class.quotas.iter().zip(state.quotas.iter_mut()) {
        let takes = match now <= at || QuotaState::holds(quota, at, now) {
            true => copies.min(counted.debt_room(quota)),
            false => 0,
        };
        counted.take(at, takes, estimated);
        by_all = by_all.min(takes);
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
        let takes = match has_left(BUCKET_LATE, at, now) {
            true => 0,
            false => copies.min(level.debt_room(bucket)),
        };
        level.take(bucket, at, takes, estimated);
        by_all = by_all.min(takes);
    }
    match class.tiers {
        Some(_) => by_all.min(tiers::count_excess(class, state, (at, now), copies)),
        None => by_all,
    }
}
