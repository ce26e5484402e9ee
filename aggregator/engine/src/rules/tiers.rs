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
//! Charon, section 2.1, as the design's 3.1 reads it. Knows nothing of hard or global limits. What stays
//! true: a tier that is passed on the way up is entered only once a hit is granted above it, so that a
//! refused hit enters no tier.

use tollgate_shared::time::Timestamp;

use super::state::{State, TierState};
use super::window::CountsStamps as _;
use tollgate_limits::{RateClass, Tier};

/// The phase of a tier at some instant.
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

    /// How many more hits the tier's window has room for at `now`.
    pub fn room(&self, tier: &Tier, now: Timestamp) -> u64 {
        tier.limit
            .saturating_sub(self.window.held(tier.window, now))
    }
}

/// The current tier: the active one with the greatest number, counted from 1; 0 if none is active.
pub fn current(class: &RateClass, state: &State, now: Timestamp) -> usize {
    let tiers = class.tiers().iter().zip(state.tiers.iter());
    tiers
        .enumerate()
        .rev()
        .find(|(_, (tier, state))| state.phase(tier, now) == Phase::Active)
        .map_or(0, |(index, _)| index + 1)
}

/// The number of the tier that counts the next hit, if the tier has room: the current one, or the first that a hit would
/// enter; 0 if a hit can enter no tier.
pub fn current_or_next(class: &RateClass, state: &State, now: Timestamp) -> usize {
    for number in current(class, state, now).max(1)..=class.tiers().len() {
        let (tier, state) = (&class.tiers()[number - 1], &state.tiers[number - 1]);
        match state.phase(tier, now) {
            Phase::Cooling if tier.skippable => continue,
            Phase::Cooling => break,
            Phase::Inactive | Phase::Active => return number,
        }
    }
    0
}

/// Counts excess hits stamped `at` in the current tier at `now`, as long as fewer than twice its limit
/// count, and returns how many. 0 if no tier is current, or if the hits have left its window.
pub fn count_excess(
    class: &RateClass,
    state: &mut State,
    (at, now): (Timestamp, Timestamp),
    hits: u64,
) -> u64 {
    let Some(index) = current(class, state, now).checked_sub(1) else {
        return 0;
    };
    let (window, state) = (class.tiers()[index].sliding(), &mut state.tiers[index]);
    window.take_excess(&mut state.window, (at, now), hits)
}

/// Result of a climb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Climbed {
    /// Hits granted.
    pub hits: u64,
    /// The tier that was current before; 0: none.
    pub from: usize,
    /// The tier that granted the last hit; `from` if no hit was granted.
    pub to: usize,
    /// Whether that tier has room for more.
    pub room_left: bool,
}

/// Whether the tiers would grant one more hit at `now`. Without stated tiers there is always room.
pub fn have_room(class: &RateClass, state: &State, now: Timestamp) -> bool {
    room_for(class, state, now, 1) == 1
}

/// How many of `hits` hits the tiers would grant at `now`.
pub fn room_for(class: &RateClass, state: &State, now: Timestamp, hits: u64) -> u64 {
    if class.tiers.is_none() {
        return hits;
    }
    let mut left = hits;
    // The fake tier zero never has room, so a climb from it begins at tier 1.
    for number in current(class, state, now).max(1)..=class.tiers().len() {
        let (tier, state) = (&class.tiers()[number - 1], &state.tiers[number - 1]);
        match state.phase(tier, now) {
            Phase::Cooling if tier.skippable => continue,
            Phase::Cooling => break,
            Phase::Inactive | Phase::Active => {}
        }
        left -= state.room(tier, now).min(left);
        if left == 0 {
            break;
        }
    }
    hits - left
}

/// Lets the tiers grant at `now` as many of `hits` hits as they have room for.
pub fn grant(class: &RateClass, state: &mut State, now: Timestamp, hits: u64) -> Climbed {
    if class.tiers.is_none() {
        return Climbed {
            hits,
            from: 0,
            to: 0,
            room_left: true,
        };
    }
    let from = current(class, state, now);
    let (mut left, mut to, mut room_left) = (hits, from, false);
    // The first tier on the way that may still have to be entered.
    let mut unsettled = from.max(1);
    for number in from.max(1)..=class.tiers().len() {
        if left == 0 {
            break;
        }
        let (tier, state_of) = (&class.tiers()[number - 1], &mut state.tiers[number - 1]);
        match state_of.phase(tier, now) {
            Phase::Cooling if tier.skippable => continue,
            Phase::Cooling => break,
            Phase::Inactive | Phase::Active => {}
        }
        let room = state_of.room(tier, now);
        let takes = room.min(left);
        room_left = takes < room;
        if 0 < takes {
            state_of.window.take(tier.sliding().rounded(now), takes);
            left -= takes;
            to = number;
            // The full tiers below are entered only now that a hit is granted here.
            enter(class, state, now, unsettled, number);
            unsettled = number + 1;
        }
    }
    Climbed {
        hits: hits - left,
        from,
        to,
        room_left,
    }
}

/// Enters the inactive ones of the tiers `first..=last`.
fn enter(class: &RateClass, state: &mut State, now: Timestamp, first: usize, last: usize) {
    let tiers = class.tiers().iter().zip(state.tiers.iter_mut());
    for (tier, state) in tiers.take(last).skip(first - 1) {
        if state.phase(tier, now).is_inactive() {
            state.entered = Some(now);
        }
    }
}
