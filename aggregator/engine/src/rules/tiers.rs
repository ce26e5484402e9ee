//! Burst tiers: their phases, which one is current, and how far a request climbs.
//!
//! ```text
//! tier 1   2 per 1s, active 10s            tier 2   4 per 1s, active 2s, cooldown 6s
//! hits     0.0 0.1        tier 1 is entered and grants both
//! hit      0.2            tier 1 is full: tier 2 is entered, and is active in [0.2, 2.2)
//! hit      2.3            tier 2 cools down in [2.2, 8.2); tier 1 is current, its window is empty
//! hits     2.4 2.5        the first fills tier 1, the second is refused: the climb ends at tier 2
//! ```
//!
//! Charon, section 2.1, as the design's 3.1 reads it. Knows nothing of hard or global limits. What
//! stays true: the climb is planned first and carried out only as far as hits were granted, so that
//! a refused hit enters no tier.

use tollgate_shared::time::Timestamp;

use super::state::{State, TierState};
use crate::limits::{RateClass, Tier};

/// Where a tier is at some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not entered, or its cooldown has passed.
    Inactive,
    /// Entered, in `[e, e + active)`.
    Active,
    /// In `[e + active, e + active + cooldown)`.
    Cooling,
}

impl Phase {
    /// Whether the tier can be entered.
    pub fn is_inactive(self) -> bool {
        self == Self::Inactive
    }
}

impl TierState {
    /// The tier's phase at `now`.
    pub fn phase(&self, tier: &Tier, now: Timestamp) -> Phase {
        let Some(entered) = self.entered else {
            return Phase::Inactive;
        };
        let active_end = entered.saturating_add(tier.active);
        if now < active_end {
            return Phase::Active;
        }
        let cooldown_end = active_end.saturating_add(tier.cooldown);
        if now < cooldown_end {
            return Phase::Cooling;
        }
        Phase::Inactive
    }

    /// How many more hits the tier's window takes at `now`.
    pub fn room(&self, tier: &Tier, now: Timestamp) -> u64 {
        tier.limit
            .saturating_sub(self.window.held(tier.window, now))
    }
}

/// The current tier: the active one with the greatest number. Counted from 1; 0: none is active.
pub fn current(class: &RateClass, state: &State, now: Timestamp) -> usize {
    let tiers = class.tiers.iter().zip(state.tiers());
    tiers
        .enumerate()
        .rev()
        .find(|(_, (tier, state))| state.phase(tier, now) == Phase::Active)
        .map_or(0, |(index, _)| index + 1)
}

/// Whether one more hit would be granted by the tiers at `now`.
pub fn have_room(class: &RateClass, state: &State, now: Timestamp) -> bool {
    climb(class, state, now, current(class, state, now), 1, |_, _| {}) == 1
}

/// How many of `hits` hits the tiers grant at `now`. Changes nothing.
pub fn room_for(class: &RateClass, state: &State, now: Timestamp, hits: u64) -> u64 {
    let current = current(class, state, now);
    climb(class, state, now, current, hits, |_, _| {})
}

/// Lets the tiers grant `hits` hits at `now`, for which [`room_for`] said that there is room. Gives
/// the number of the tier that granted the last of them.
pub fn grant(class: &RateClass, state: &mut State, now: Timestamp, hits: u64) -> usize {
    let from = current(class, state, now);
    let mut top = from;
    climb(class, state, now, from, hits, |number, _| top = number);
    // A tier that was reached below the top is entered, whether it had room or was passed through.
    let mut left = hits;
    let tiers = class.tiers.iter().zip(state.tiers_mut());
    let path = tiers
        .skip(from.max(1) - 1)
        .take(top.saturating_sub(from.max(1)) + 1);
    for (tier, state) in path {
        match state.phase(tier, now) {
            Phase::Inactive => state.entered = Some(now),
            Phase::Active => {}
            Phase::Cooling => continue,
        }
        let taken = state.room(tier, now).min(left);
        state.window.take(now, taken);
        left -= taken;
    }
    top
}

/// Climbs from the current tier with up to `hits` hits, tells `taken` which tier takes how many, and
/// gives their sum.
fn climb(
    class: &RateClass,
    state: &State,
    now: Timestamp,
    current: usize,
    hits: u64,
    mut taken: impl FnMut(usize, u64),
) -> u64 {
    let mut left = hits;
    // The fake tier zero never has room, so a climb from it begins at tier 1.
    for number in current.max(1)..=class.tiers.len() {
        if left == 0 {
            break;
        }
        let (tier, state) = (&class.tiers[number - 1], &state.tiers()[number - 1]);
        match state.phase(tier, now) {
            Phase::Cooling if tier.skippable => continue,
            Phase::Cooling => break,
            Phase::Inactive | Phase::Active => {}
        }
        let takes = state.room(tier, now).min(left);
        if 0 < takes {
            taken(number, takes);
            left -= takes;
        }
    }
    hits - left
}
