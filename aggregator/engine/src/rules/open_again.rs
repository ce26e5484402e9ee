//! Open again: the first instant at which one more hit would be granted if no hits came until then.
//!
//! ```text
//! tier 1   1 per 1s, active 10s            tier 2   1 per 3s, active 3s, cooldown 6s
//! hits     0.0 in tier 1, 0.1 in tier 2, which is active in [0.1, 3.1): both are full
//! cut 0.1  tier 2 offers 3.100001 and, being active, hides tier 1: not before the next cut
//! cut 3.1  tier 2 cools down: not offered; tier 1 offers 1.000001: open again at 3.1
//! ```
//!
//! Windows only empty, quotas only end and a bucket only fills, so the first cut is the instant at which
//! the last of them is open. Between two ends of active or cooldown periods tiers stay as they are, so
//! only the beginnings of such stretches need a check. Knows nothing of requests. What stays true: the
//! answer equals that of calling [`super::request::room`] and [`super::tiers`] at every instant in turn; a
//! test checks this.

use tollgate_shared::time::Timestamp;

use super::state::{State, TierState};
use super::tiers::{self, Phase};
use super::window::CountsStamps as _;
use super::window::leaves;
use tollgate_limits::{RateClass, Tier};

/// When a pair or a limit is open for one more hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is open now.
    Now,
    /// At this instant and not before.
    At(Timestamp),
    /// Never, unless the limits change.
    Never,
}

/// The offer of a tier that never has room.
const NEVER: Timestamp = Timestamp::MAX;

/// When one more copy of the domain would be granted.
pub fn open_again(class: &RateClass, state: &State, now: Timestamp) -> Until {
    open_again_from(class, state, now, now)
}

/// When one more copy of the domain would be granted, but not before `others`, the instant at which the
/// limits beside its own constraints are open.
pub fn open_again_from(
    class: &RateClass,
    state: &State,
    now: Timestamp,
    others: Timestamp,
) -> Until {
    let from = others_open(class, state, now).max(others);
    if from == now && tiers::have_room(class, state, now) {
        return Until::Now;
    }
    if class.tiers.is_none() {
        return match from {
            NEVER => Until::Never,
            from => Until::At(from),
        };
    }
    let mut cut = from;
    while cut < NEVER {
        let next = next_end(class, state, cut);
        let opens = cut.max(offer(class, state, now, cut));
        if opens < next {
            return Until::At(opens);
        }
        cut = next;
    }
    Until::Never
}

/// The first instant from `now` on at which everything but the tiers has room.
fn others_open(class: &RateClass, state: &State, now: Timestamp) -> Timestamp {
    let mut from = now;
    for (window, stamps) in class.sliding().zip(state.windows.iter()) {
        from = from.max(window.opens(stamps, now));
    }
    for (quota, counted) in class.quotas.iter().zip(state.quotas.iter()) {
        from = from.max(counted.opens(quota, now));
    }
    for (bucket, level) in class.bucket.iter().zip(state.bucket.iter()) {
        from = from.max(level.opens(bucket, now));
    }
    from
}

/// The first end of an active or cooldown period after `cut`.
fn next_end(class: &RateClass, state: &State, cut: Timestamp) -> Timestamp {
    let ends = class
        .tiers()
        .iter()
        .zip(state.tiers.iter())
        .flat_map(|(tier, state)| {
            state.entered.into_iter().flat_map(|entered| {
                let active_end = entered.saturating_add(tier.active);
                [active_end, active_end.saturating_add(tier.cooldown)]
            })
        });
    ends.filter(|end| cut < *end).min().unwrap_or(NEVER)
}

/// The best offer of the tiers that a climb could reach with the phases of `cut`.
fn offer(class: &RateClass, state: &State, now: Timestamp, cut: Timestamp) -> Timestamp {
    let mut best = NEVER;
    for (tier, state) in class.tiers().iter().zip(state.tiers.iter()).rev() {
        match state.phase(tier, cut) {
            Phase::Active => return best.min(has_room_at(tier, state, now)),
            Phase::Inactive => best = best.min(has_room_at(tier, state, now)),
            Phase::Cooling if tier.skippable => {}
            // No tier above it can be reached past it.
            Phase::Cooling => best = NEVER,
        }
    }
    best
}

/// The first instant at which the tier's window has room.
fn has_room_at(tier: &Tier, state: &TierState, now: Timestamp) -> Timestamp {
    if tier.limit == 0 {
        return NEVER;
    }
    match state.window.nth_newest(tier.limit) {
        Some(at) => leaves(at, tier.window),
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::picture::class;
    use crate::rules::request::{Request, request};

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn an_active_tier_hides_what_lies_below_it() {
        let class = class("1/1s active 10s | 1/3s active 3s cooldown 6s");
        let mut state = State::of(&class);
        for now in [0, 100_000] {
            let one = Request { copies: 1, min: 1 };
            request(&class, &mut state, at(now), one, u64::MAX, false);
        }
        let until = open_again(&class, &state, at(100_000));
        assert_eq!(until, Until::At(at(3_100_000)));
    }

    #[test]
    fn a_prison_without_a_way_out_is_never_open_while_it_is_active() {
        let class = class("0/1s active 5s");
        let state = State::of(&class);
        assert_eq!(open_again(&class, &state, at(0)), Until::Never);
    }

    #[test]
    fn a_hard_limit_of_zero_never_opens() {
        let class = class("hard 0 | 5/1s");
        let state = State::of(&class);
        assert_eq!(open_again(&class, &state, at(0)), Until::Never);
    }
}
