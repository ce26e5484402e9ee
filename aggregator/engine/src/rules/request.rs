//! A request: the largest grant that all limits leave room for, or nothing.
//!
//! ```text
//! hard 3; tier 1   2 per 1s, active 9s      tier 2   9 per 1s, active 6s
//! asks 5, min 4    the hard limit leaves room for 3: fewer than 4, so nothing at all has changed
//! asks 5, min 1    3 granted: two in tier 1, one in tier 2, which is entered; limited by hard
//! ```
//!
//! Hit by hit, each is checked against the hard limit, then the global one, then the tiers; all hits
//! of a request share one instant, so the three rooms can be taken at once. Knows nothing of lateness
//! and not what a global limit counts. What stays true: below the min, nothing has changed.

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::time::Timestamp;

use super::second;
use super::state::State;
use super::tiers::{self, Climbed};
use crate::limits::RateClass;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Hits wanted.
    pub copies: u64,
    /// Hits below which none is of use.
    pub min: u64,
}

/// Which kind of limit kept a grant below what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The domain's hits a second.
    Hard,
    /// All domains' hits a second.
    Global,
    /// The tiers.
    Tier,
}

/// What a request was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Hits granted; 0 if refused.
    pub hits: u64,
    /// Whether a granted hit moved into another tier.
    pub burst: bool,
    /// What refused the first hit that was not granted.
    pub limited_by: Option<LimitedBy>,
    /// One more hit is known to be granted at the same instant.
    pub room_left: bool,
}

/// Grants the largest number of hits up to `request.copies` that the limits and `global_room` leave
/// room for at `now`, or nothing if that is below `request.min`.
pub fn request(
    class: &RateClass,
    state: &mut State,
    now: Timestamp,
    request: Request,
    global_room: u64,
) -> Grant {
    let hard_room = second::room(class.hard, state, now);
    let wanted = request.copies.min(hard_room).min(global_room);
    // A first hit that is refused changes nothing anyway; only larger minimums need a look ahead.
    let climbed = match 1 < request.min && !planted(Bug::MinIgnored) {
        true => match tiers::room_for(class, state, now, wanted) {
            hits if hits < request.min => Climbed {
                hits,
                from: 0,
                to: 0,
                room_left: false,
            },
            hits => tiers::grant(class, state, now, hits),
        },
        false => tiers::grant(class, state, now, wanted),
    };
    let hits = climbed.hits;
    let limited_by = if hits == request.copies {
        None
    } else if hits == hard_room {
        Some(LimitedBy::Hard)
    } else if hits == global_room {
        Some(LimitedBy::Global)
    } else {
        Some(LimitedBy::Tier)
    };
    if hits < request.min && !planted(Bug::MinIgnored) {
        return Grant {
            hits: 0,
            burst: false,
            limited_by,
            room_left: false,
        };
    }
    Grant {
        hits,
        burst: climbed.to != climbed.from,
        limited_by,
        room_left: climbed.room_left && hits < hard_room && hits < global_room,
    }
}
