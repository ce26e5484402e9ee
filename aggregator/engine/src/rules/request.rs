//! A request: the largest grant for which all constraints have room, or nothing.
//!
//! ```text
//! hard 3; tier 1   2 per 1s, active 9s      tier 2   9 per 1s, active 6s
//! asks 5, min 4    the hard limit has room for 3: fewer than 4, so nothing at all has changed
//! asks 5, min 1    3 granted: two in tier 1, one in tier 2, which is entered; limited by hard
//! ```
//!
//! Each copy needs room in the hard limit, the global one, every window, every quota, the bucket and the
//! tiers, checked in this order. All copies of a request share one instant, so each constraint is asked
//! once for all of them. Knows nothing of lateness and of what counts against a global limit. What stays
//! true: a grant below the min has changed nothing.

use std::borrow::Cow;

use tollgate_shared::time::Timestamp;

use super::state::State;
use super::tiers::{self, Climbed};
use super::window::CountsStamps as _;
use tollgate_limits::RateClass;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Copies wanted.
    pub copies: u64,
    /// Fewer copies than this are of no use.
    pub min: u64,
}

/// The constraint that kept a grant below the copies asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitedBy {
    /// The domain's copies a second.
    Hard,
    /// All domains' copies a second.
    Global,
    /// A sliding window, counted from 0.
    Window(u8),
    /// A quota, counted from 0.
    Quota(u8),
    /// The token bucket.
    Bucket,
    /// The tiers.
    Tier,
}

impl LimitedBy {
    /// Its name, as in vectors and views: `hard`, `window:0`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Hard => "hard".into(),
            Self::Global => "global".into(),
            Self::Window(index) => format!("window:{index}").into(),
            Self::Quota(index) => format!("quota:{index}").into(),
            Self::Bucket => "bucket".into(),
            Self::Tier => "tier".into(),
        }
    }
}

/// The least room of several constraints, and the first of them that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Copies.
    pub copies: u64,
    /// `None`: nothing limits.
    pub by: Option<LimitedBy>,
}

impl Room {
    /// Nothing limits.
    pub const UNLIMITED: Self = Self {
        copies: u64::MAX,
        by: None,
    };

    /// Adds one more constraint. Among equal rooms the first one is kept.
    #[inline]
    pub fn and(self, by: LimitedBy, copies: u64) -> Self {
        if copies < self.copies {
            let by = Some(by);
            return Self { copies, by };
        }
        self
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Copies granted; 0 if refused.
    pub hits: u64,
    /// Whether a granted copy moved into another tier.
    pub burst: bool,
    /// The constraint that refused the first copy that was not granted.
    pub limited_by: Option<LimitedBy>,
    /// Whether one more copy is known to be granted at the same instant.
    pub room_left: bool,
}

/// The room of every constraint but the tiers at `now`.
#[inline]
pub fn room(class: &RateClass, state: &State, now: Timestamp, global_room: u64) -> Room {
    let mut room = Room::UNLIMITED;
    let hard = usize::from(class.hard.is_some());
    for (index, (window, stamps)) in class.sliding().zip(state.windows.iter()).enumerate() {
        let by = match index.checked_sub(hard) {
            None => LimitedBy::Hard,
            Some(index) => {
                if index == 0 {
                    room = room.and(LimitedBy::Global, global_room);
                }
                LimitedBy::Window(number(index))
            }
        };
        room = room.and(by, window.room(stamps, now));
    }
    if class.windows.is_empty() {
        room = room.and(LimitedBy::Global, global_room);
    }
    for (index, (quota, counted)) in class.quotas.iter().zip(state.quotas.iter()).enumerate() {
        room = room.and(LimitedBy::Quota(number(index)), counted.room(quota, now));
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter()) {
        room = room.and(LimitedBy::Bucket, level.room(bucket, now));
    }
    room
}

/// A constraint's index as in statements: documents have far fewer than 256.
pub(crate) fn number(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

/// Grants the largest number of copies up to `request.copies` for which the constraints and `global_room`
/// have room at `now`, or nothing if that is below `request.min`. The state has advanced to `now`.
/// `estimated`: a settlement may follow.
#[inline]
pub fn request(
    class: &RateClass,
    state: &mut State,
    now: Timestamp,
    request: Request,
    global_room: u64,
    estimated: bool,
) -> Grant {
    let room = room(class, state, now, global_room);
    let wanted = request.copies.min(room.copies);
    // If the first copy is refused, nothing changes anyway; only a larger minimum needs a check before.
    let climbed = match 1 < request.min {
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
    } else if hits == room.copies {
        room.by
    } else {
        Some(LimitedBy::Tier)
    };
    if hits < request.min {
        return Grant {
            hits: 0,
            burst: false,
            limited_by,
            room_left: false,
        };
    }
    take(class, state, now, hits, estimated);
    Grant {
        hits,
        burst: climbed.to != climbed.from,
        limited_by,
        room_left: climbed.room_left && hits < room.copies,
    }
}

/// Counts granted copies in every constraint but the tiers.
#[inline]
fn take(class: &RateClass, state: &mut State, now: Timestamp, copies: u64, estimated: bool) {
    if copies == 0 {
        return;
    }
    for (window, stamps) in class.sliding().zip(state.windows.iter_mut()) {
        stamps.take(window.rounded(now), copies);
    }
    for quota in state.quotas.iter_mut() {
        quota.take(now, copies, estimated);
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter_mut()) {
        level.take(bucket, now, copies, estimated);
    }
}
