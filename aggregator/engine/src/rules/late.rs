//! Late hits: stamped before the pair's time, which never runs backwards.
//!
//! ```text
//! tier 1   3 per 1s, active 20s
//! hit at 0.9       tier 1 is entered at 0.9, which is the pair's time
//! hit at 0.5       older than the entry of the current tier: only tallied
//! hit at 1.5       granted; the pair's time is 1.5
//! two at 1.2       late; at 1.5 tier 1 has room for one: it counts under 1.2, the other is excess
//! hit at 2.200001  0.9 has left, 1.2 twice and 1.5 are there: excess
//! ```
//!
//! A late hit needs room in every constraint, judged at the pair's time, and counts under its own stamp
//! where that is still in the window. A quota whose period began after the stamp is not checked and does
//! not count it. Of the tiers only the current one is checked: a late hit never climbs and never enters a
//! tier. Knows nothing of records. What stays true: a hit that is too late for the tiers counts in no
//! constraint.

use tollgate_shared::time::Timestamp;

use super::quota::QuotaState;
use super::request::{LimitedBy, Room, number};
use super::state::State;
use super::tiers;
use super::window::CountsStamps as _;
use tollgate_limits::RateClass;

/// The ruling on late hits that were not too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateGrant {
    /// Hits granted.
    pub hits: u64,
    /// The constraint that had no room for the first hit that was not granted.
    pub limited_by: Option<LimitedBy>,
}

/// How many of the hits stamped `at`, before the pair's time `now`, are granted. `None` means that it is
/// too late to rule on them, and that they are only tallied. The state has advanced to `now`.
pub fn late(
    class: &RateClass,
    state: &mut State,
    (at, now): (Timestamp, Timestamp),
    copies: u64,
    estimated: bool,
) -> Option<LateGrant> {
    let tier = match class.tiers {
        None => None,
        Some(_) => {
            let index = tiers::current(class, state, now).checked_sub(1)?;
            if at < state.tiers[index].entered? {
                return None;
            }
            Some(index)
        }
    };
    let room = room(class, state, (at, now), tier);
    let hits = copies.min(room.copies);
    let limited_by = room.by.filter(|_| hits < copies);
    if 0 < hits {
        take(class, state, (at, now), tier, (hits, estimated));
    }
    Some(LateGrant { hits, limited_by })
}

fn room(
    class: &RateClass,
    state: &State,
    (at, now): (Timestamp, Timestamp),
    tier: Option<usize>,
) -> Room {
    let mut room = Room::UNLIMITED;
    let hard = usize::from(class.hard.is_some());
    for (index, (window, stamps)) in class.sliding().zip(state.windows.iter()).enumerate() {
        let by = match index.checked_sub(hard) {
            None => LimitedBy::Hard,
            Some(index) => LimitedBy::Window(number(index)),
        };
        room = room.and(by, window.late_room(stamps, at, now));
    }
    for (index, (quota, counted)) in class.quotas.iter().zip(state.quotas.iter()).enumerate() {
        if QuotaState::holds(quota, at, now) {
            room = room.and(LimitedBy::Quota(number(index)), counted.room(quota, now));
        }
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter()) {
        room = room.and(LimitedBy::Bucket, level.room(bucket, now));
    }
    if let Some(index) = tier {
        let window = class.tiers()[index].sliding();
        let of_tier = window.late_room(&state.tiers[index].window, at, now);
        room = room.and(LimitedBy::Tier, of_tier);
    }
    room
}

fn take(
    class: &RateClass,
    state: &mut State,
    (at, now): (Timestamp, Timestamp),
    tier: Option<usize>,
    (hits, estimated): (u64, bool),
) {
    for (window, stamps) in class.sliding().zip(state.windows.iter_mut()) {
        window.take(stamps, (at, now), hits);
    }
    if let Some(index) = tier {
        let window = class.tiers()[index].sliding();
        window.take(&mut state.tiers[index].window, (at, now), hits);
    }
    for (quota, counted) in class.quotas.iter().zip(state.quotas.iter_mut()) {
        if QuotaState::holds(quota, at, now) {
            counted.take(at, hits, estimated);
        }
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
        level.take(bucket, at, hits, estimated);
    }
}
