//! What a pair has left: how many more copies would be granted at once, and when there are more.
//!
//! ```text
//! 5 in 1s, 8 in 10s     copies at 0.0 0.1 0.2
//!                       2 are left in the second; there are more at 1.000001, when 0.0 leaves it
//! ```
//!
//! Information for callers, never a reason to refuse. Knows nothing of who asks. What stays true: exactly
//! so many copies would be granted now.

use tollgate_shared::time::{Span, Timestamp};

use super::request::{self, LimitedBy};
use super::state::State;
use super::window::{CountsStamps as _, leaves};
use super::{Stamps, tiers};
use tollgate_limits::RateClass;

/// What a pair has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Copies that would be granted at once.
    pub copies: u64,
    /// The constraint with no more room.
    pub by: LimitedBy,
    /// The limit of that constraint: of a bucket its burst, of tiers that of the current one.
    pub limit: u64,
    /// When that constraint has more room, if no hit comes; [`Timestamp::MAX`]: never.
    pub more_at: Timestamp,
}

/// The state of a pair near its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// What is left.
    pub left: Left,
    /// When it is no longer near, if no hit comes; [`Timestamp::MAX`]: never.
    pub until: Timestamp,
}

/// The room at or below which a pair is near its limit, which is `percent` of its least limit. `None` if
/// nothing limits the pair, or if that is less than one copy: then it is never near. Such a pair would be near only
/// while it has no room, and then its denial states more than a notice could.
#[inline]
pub fn near_from(class: &RateClass, percent: u8) -> Option<u64> {
    let windows = class.sliding().map(|window| window.limit);
    let quotas = class.quotas.iter().map(|quota| quota.limit);
    let bucket = class.bucket.iter().map(|bucket| bucket.burst);
    let tiers = class.tiers().iter().map(|tier| tier.limit);
    let least = windows.chain(quotas).chain(bucket).chain(tiers).min()?;
    // Limits are below 2³².
    let from = least.saturating_mul(u64::from(percent)) / 100;
    (from != 0).then_some(from)
}

/// Whether a pair is near its limit at `now`, which it is from this room on. Called after each entry if notices are
/// wanted.
#[inline]
pub fn is_near(class: &RateClass, state: &State, now: Timestamp, from: u64) -> bool {
    let room = request::room(class, state, now, u64::MAX);
    room.copies <= from || tiers::room_for(class, state, now, room.copies) <= from
}

/// What is left at `now` and how long the pair stays near its limit, if it is near.
pub fn near(class: &RateClass, state: &State, now: Timestamp, percent: u8) -> Option<Near> {
    let from = near_from(class, percent)?;
    let left = left(class, state, now).filter(|left| left.copies <= from)?;
    let until = no_longer_near(class, state, now, from);
    Some(Near { left, until })
}

/// When every constraint has more room than `from`, if no hit comes. Of the tiers only the current one, or the next if
/// none is current, is considered, since nobody can know when others are entered.
fn no_longer_near(class: &RateClass, state: &State, now: Timestamp, from: u64) -> Timestamp {
    let rises = |limit: u64, window: Span, stamps: &Stamps| match limit.checked_sub(from) {
        None | Some(0) => Timestamp::MAX,
        Some(held) => match stamps.nth_newest(held) {
            // With `held` copies in the window the room is `from`: one copy too many.
            Some(at) => leaves(at, window).max(now),
            None => now,
        },
    };
    let windows = class.sliding().zip(state.windows.iter());
    let windows = windows.map(|(window, stamps)| rises(window.limit, window.window, stamps));
    let quotas = class.quotas.iter().zip(state.quotas.iter());
    let quotas = quotas.map(|(quota, counted)| match counted.room(quota, now) <= from {
        true => counted.ends,
        false => now,
    });
    let bucket = class.bucket.iter().zip(state.bucket.iter());
    let bucket = bucket.map(|(bucket, level)| level.rises_to(bucket, now, from.saturating_add(1)));
    let current = tiers::current_or_next(class, state, now).checked_sub(1);
    let tier = current.and_then(|index| class.tiers().get(index).zip(state.tiers.get(index)));
    let tier = tier.map(|(tier, state)| rises(tier.limit, tier.window, &state.window));
    let all = windows.chain(quotas).chain(bucket).chain(tier);
    all.fold(now, Timestamp::max)
}

/// What is left at `now`; `None` if nothing limits the pair.
pub fn left(class: &RateClass, state: &State, now: Timestamp) -> Option<Left> {
    let room = request::room(class, state, now, u64::MAX);
    let of_tiers = match class.tiers {
        Some(_) => tiers::room_for(class, state, now, room.copies),
        None => room.copies,
    };
    let by = match room.by {
        Some(by) if room.copies <= of_tiers => by,
        _ if class.tiers.is_some() => LimitedBy::Tier,
        _ => return None,
    };
    let (limit, more_at) = more(class, state, now, by);
    Some(Left {
        copies: of_tiers,
        by,
        limit,
        more_at,
    })
}

/// The limit of a constraint, and when it has more room than now.
fn more(class: &RateClass, state: &State, now: Timestamp, by: LimitedBy) -> (u64, Timestamp) {
    let none = (0, Timestamp::MAX);
    let hard = usize::from(class.hard.is_some());
    match by {
        LimitedBy::Hard => of_window(class, state, now, 0),
        LimitedBy::Window(index) => of_window(class, state, now, usize::from(index) + hard),
        LimitedBy::Quota(index) => {
            let index = usize::from(index);
            let quota = class.quotas.get(index).zip(state.quotas.get(index));
            quota.map_or(none, |(quota, counted)| (quota.limit, counted.ends))
        }
        LimitedBy::Bucket => {
            let bucket = class.bucket.as_ref().zip(state.bucket.first());
            bucket.map_or(none, |(bucket, level)| {
                let next = level.room(bucket, now).saturating_add(1);
                (bucket.burst, level.rises_to(bucket, now, next))
            })
        }
        LimitedBy::Tier => {
            let index = tiers::current_or_next(class, state, now).checked_sub(1);
            let tier = index.and_then(|index| class.tiers().get(index));
            let window = index.and_then(|index| state.tiers.get(index));
            tier.zip(window).map_or(none, |(tier, state)| {
                (tier.limit, first_leaves(&state.window, tier.window, now))
            })
        }
        LimitedBy::Global => none,
    }
}

fn of_window(class: &RateClass, state: &State, now: Timestamp, index: usize) -> (u64, Timestamp) {
    let window = class.sliding().zip(state.windows.iter()).nth(index);
    window.map_or((0, Timestamp::MAX), |(window, stamps)| {
        let more_at = match window.debt_room(stamps, now) <= window.limit {
            // At the limit or in debt: no more room before it is open.
            true => window.opens(stamps, now),
            false => first_leaves(stamps, window.window, now),
        };
        (window.limit, more_at)
    })
}

/// When the oldest copy that counts leaves.
fn first_leaves(stamps: &Stamps, span: Span, now: Timestamp) -> Timestamp {
    let oldest = stamps.nth_newest(stamps.held(span, now));
    oldest.map_or(Timestamp::MAX, |at| leaves(at, span))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::picture::class;
    use crate::rules::request::{Request, request};

    #[test]
    fn exactly_the_reported_remainder_is_granted() {
        let at = Timestamp::from_micros;
        let limits = [
            (
                "window 5/1s | window 8/10s",
                LimitedBy::Window(0),
                1_000_001,
            ),
            ("bucket 1/1s burst 5 debt 5", LimitedBy::Bucket, 1_000_000),
            (
                "quota 5/day | window 9/1s",
                LimitedBy::Quota(0),
                86_400_000_000,
            ),
            ("5/1s active 9s", LimitedBy::Tier, 1_000_001),
            ("hard 5 | window 9/1s", LimitedBy::Hard, 1_000_001),
        ];
        for (text, by, more_us) in limits {
            let class = class(text);
            let mut state = State::of(&class);
            state.forget(&class, at(0));
            for now_us in [0, 1, 2] {
                state.forget(&class, at(now_us));
                let one = Request { copies: 1, min: 1 };
                request(&class, &mut state, at(now_us), one, u64::MAX, false);
            }
            let left = left(&class, &state, at(2)).expect("it is limited");
            assert_eq!((left.copies, left.by, left.limit), (2, by, 5), "{text}");
            assert_eq!(left.more_at.as_micros(), more_us, "{text}");
            let all = Request { copies: 9, min: 0 };
            let grant = request(&class, &mut state, at(2), all, u64::MAX, false);
            assert_eq!(grant.hits, left.copies, "{text}");
        }
        assert_eq!(left(&RateClass::default(), &State::new(), at(2)), None);
    }

    #[test]
    fn without_a_current_tier_the_limit_is_that_of_the_next_one() {
        let at = Timestamp::from_millis;
        // Both tiers are entered at 0; after a second tier 1 can be entered again, and tier 2 cools down.
        let class = class("2/1s active 1s | 3/1s active 1s cooldown 9s");
        let mut state = State::of(&class);
        state.forget(&class, at(0));
        let left_at = |state: &State, ms| left(&class, state, at(ms)).expect("it is limited");
        assert_eq!(
            (left_at(&state, 0).copies, left_at(&state, 0).limit),
            (5, 2)
        );
        let all = Request { copies: 5, min: 1 };
        request(&class, &mut state, at(0), all, u64::MAX, false);
        for ms in [1_500, 3_000] {
            assert_eq!(tiers::current(&class, &state, at(ms)), 0, "{ms} ms");
            let left = left_at(&state, ms);
            assert_eq!((left.by, left.limit), (LimitedBy::Tier, 2), "{ms} ms");
        }
        let near = near(&class, &state, at(1_500), 100).expect("2 of 2 are left");
        assert_eq!((near.left.copies, near.until), (2, Timestamp::MAX));
    }

    #[test]
    fn a_pair_is_near_until_its_remainder_exceeds_the_bound() {
        let at = Timestamp::from_micros;
        // 20 % of 10 are 2, so a pair of which 8 are used is near; at the instant `until` 3 are left.
        let limits = [
            ("window 10/1s | window 99/10s", 1_000_001),
            ("hard 10 | window 99/10s", 1_000_001),
            ("bucket 1/1s burst 10 debt 9", 1_000_000),
            ("quota 10/day | window 99/1s", 86_400_000_000),
            ("10/1s active 9s", 1_000_001),
        ];
        for (text, until_us) in limits {
            let class = class(text);
            let mut state = State::of(&class);
            state.forget(&class, at(0));
            let mut use_one = |now_us: u64, copies: u64| {
                state.forget(&class, at(now_us));
                let request_of = Request { copies, min: 1 };
                request(&class, &mut state, at(now_us), request_of, u64::MAX, false);
                assert_eq!(
                    is_near(&class, &state, at(now_us), 2),
                    near(&class, &state, at(now_us), 20).is_some(),
                    "{text}"
                );
                near(&class, &state, at(now_us), 20)
            };
            assert_eq!(use_one(0, 1).or(use_one(5, 6)), None, "{text}");
            let found = use_one(9, 1).expect("it is near");
            assert_eq!(found.left.copies, 2, "{text}");
            assert_eq!(found.until.as_micros(), until_us, "{text}");
        }
        let class = class("window 10/1s");
        let mut state = State::of(&class);
        state.forget(&class, at(0));
        let all = Request { copies: 10, min: 1 };
        request(&class, &mut state, at(0), all, u64::MAX, false);
        assert_eq!(near(&class, &state, at(0), 0), None, "never told");
        let always = near(&class, &state, at(0), 100).expect("near");
        assert_eq!(always.until, Timestamp::MAX);
        assert_eq!(near_from(&RateClass::default(), 20), None);
    }

    #[test]
    fn a_pair_without_room_is_not_near_a_limit_below_five() {
        let at = Timestamp::from_micros;
        for (limit, from) in [
            (1, None),
            (4, None),
            (5, Some(1)),
            (9, Some(1)),
            (10, Some(2)),
        ] {
            let class = class(&format!("window {limit}/1s"));
            assert_eq!(near_from(&class, 20), from, "{limit}");
            let mut state = State::of(&class);
            state.forget(&class, at(0));
            let all = Request {
                copies: limit,
                min: 1,
            };
            request(&class, &mut state, at(0), all, u64::MAX, false);
            let is = from.is_some_and(|from| is_near(&class, &state, at(0), from));
            assert_eq!(is, from.is_some(), "{limit}");
            assert_eq!(near(&class, &state, at(0), 20).is_some(), from.is_some());
        }
    }
}
