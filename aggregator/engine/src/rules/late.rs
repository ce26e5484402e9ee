//! Late hits: stamped before the pair's time, which never runs backwards.
//!
//! ```text
//! tier 1   3 per 1s, active 20s
//! hit at 0.9       tier 1 is entered at 0.9, which is the pair's time
//! hit at 0.5       older than the entry of the current tier: only counted
//! hit at 1.5       granted; the pair's time is 1.5
//! two at 1.2       late; at 1.5 tier 1 has room for one: it counts under 1.2, the other is excess
//! hit at 2.200001  0.9 and 1.2 have left: granted
//! ```
//!
//! A late hit needs room in the current tier and under the hard limit, both judged at the pair's
//! time, and counts in both under its own stamp. One whose stamp has left a window already takes no
//! room there. It never climbs and never enters a tier. Knows nothing of records. What stays true:
//! with fewer granted than the min, nothing has changed.

use tollgate_shared::time::{Span, Timestamp};

use super::request::Request;
use super::second::{self, SECOND};
use super::state::{State, kept};
use super::tiers;
use crate::limits::RateClass;

/// How many of the hits stamped `at`, before the pair's time `now`, are granted; none: it is too
/// late to say, they are only counted.
pub fn late(
    class: &RateClass,
    state: &mut State,
    now: Timestamp,
    at: Timestamp,
    request: Request,
) -> Option<u64> {
    let index = tiers::current(class, state, now).checked_sub(1)?;
    let tier = &class.tiers()[index];
    if at < state.tiers()[index].entered? {
        return None;
    }
    let hard_room = second::room(class.hard, state, now);
    let tier_room = state.tiers()[index].room(tier, now);
    let granted = request
        .copies
        .min(takes(tier_room, tier.window, at, now))
        .min(takes(hard_room, SECOND, at, now));
    if granted == 0 || granted < request.min {
        return Some(0);
    }
    if !has_left(kept(tier), at, now) {
        state.tiers_mut()[index].window.take(at, granted);
    }
    Some(granted)
}

/// How many hits stamped `at` a window with this room takes: if they have left it already, each
/// leaves the room as it was.
fn takes(room: u64, span: Span, at: Timestamp, now: Timestamp) -> u64 {
    match room {
        0 => 0,
        _ if has_left(span, at, now) => u64::MAX,
        _ => room,
    }
}

fn has_left(span: Span, at: Timestamp, now: Timestamp) -> bool {
    at.saturating_add(span) < now
}
