//! New limits: what a pair's state keeps.
//!
//! ```text
//! before   tier 1   2 per 1s, active 10s      tier 2   9 per 5s, active 1m
//! after    tier 1   3 per 1s, active 10s      tier 2   9 per 6s, active 1m
//! tier 1 keeps its state, since only its limit changed; tier 2 starts inactive and empty, but its
//! hits of the last second still count under the hard limit
//! ```
//!
//! A tier keeps its state only if window, active, cooldown and skippable of it and of every tier
//! below it are unchanged. Knows nothing of versions. What stays true: hits are never trimmed to a
//! lowered limit, and granted hits of the last second survive.

use tollgate_shared::time::Timestamp;

use super::second::SECOND;
use super::state::State;
use crate::limits::{RateClass, Tier};

/// Brings a state from one class of limits under another. `time` is the pair's time.
pub fn carry_over(old: &RateClass, new: &RateClass, state: &mut State, time: Timestamp) {
    let kept = old.tiers().iter().zip(new.tiers());
    let kept = kept
        .take_while(|(old, new)| have_one_shape(old, new))
        .count();
    keep(kept, new.tiers().len(), state, time);
}

/// Empties all tiers, for a pair whose limits are not known to have kept any shape.
pub fn start_anew(new: &RateClass, state: &mut State, time: Timestamp) {
    keep(0, new.tiers().len(), state, time);
}

/// Whether tiers differ in nothing but the limit.
fn have_one_shape(old: &Tier, new: &Tier) -> bool {
    Tier { limit: 0, ..*old } == Tier { limit: 0, ..*new }
}

fn keep(kept: usize, tiers: usize, state: &mut State, time: Timestamp) {
    let mut loose: Vec<(Timestamp, u64)> = state
        .tiers()
        .iter()
        .skip(kept)
        .flat_map(|tier| tier.window.runs())
        .filter(|(at, _)| time <= at.saturating_add(SECOND))
        .collect();
    if !loose.is_empty() {
        loose.extend(state.loose.runs());
        loose.sort_unstable();
        state.loose.clear();
        for (at, hits) in loose {
            state.loose.take(at, hits);
        }
    }
    state.truncate(kept);
    state.extend(tiers);
}
