//! What is remembered of one pair: when each tier was entered, and which hits it granted.
//!
//! ```text
//! tier 1   2 per 10s, active 20s      tier 2   5 per 0.1s, active 1s
//! hits     0.0 0.1 in tier 1, 0.2 in tier 2
//! at 0.9   tier 2's window has lost its hit, but the last second still counts it: kept
//! at 1.3   kept no more; tier 2 is inactive, so when it was entered is forgotten as well
//! ```
//!
//! Every granted hit is remembered once, under the tier that granted it, for as long as that tier's
//! window or the last second may ask for it. Knows nothing of requests. What stays true: after
//! [`State::forget`] nothing is left that could change any answer at that instant or later, so equal
//! histories leave equal states.

use tollgate_shared::time::{Span, Timestamp};

use super::second::SECOND;
use super::stamps::Stamps;
use crate::limits::{RateClass, Tier};

/// What is remembered of one tier.
#[derive(Clone, Debug, Default)]
pub struct TierState {
    /// When it was entered last; none: it is inactive, or its cooldown has passed.
    pub entered: Option<Timestamp>,
    /// The hits that it granted.
    pub window: Stamps,
}

/// What is remembered of one pair. Always used with the limits that it was shaped for.
#[derive(Clone, Debug, Default)]
pub struct State {
    tiers: Vec<TierState>,
    /// How many of `tiers` there are. The others are empty and keep their memory, because one state
    /// is filled with pair after pair.
    len: usize,
    /// Hits of the last second that tiers granted whose state did not survive new limits.
    pub loose: Stamps,
}

/// How long a tier's hits are kept: its window, and the last second.
pub(crate) fn kept(tier: &Tier) -> Span {
    tier.window.max(SECOND)
}

impl State {
    /// A state without tiers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of a pair that nothing is known of.
    pub fn of(class: &RateClass) -> Self {
        let mut state = Self::new();
        state.reset(class.tiers().len());
        state
    }

    /// Makes this the state of a pair with `tiers` tiers of which nothing is known.
    pub fn reset(&mut self, tiers: usize) {
        self.truncate(0);
        self.extend(tiers);
        self.loose.clear();
    }

    /// The tiers, lowest first.
    pub fn tiers(&self) -> &[TierState] {
        &self.tiers[..self.len]
    }

    /// The tiers, lowest first.
    pub fn tiers_mut(&mut self) -> &mut [TierState] {
        &mut self.tiers[..self.len]
    }

    /// Empties all tiers from `keep` on and leaves them out.
    pub fn truncate(&mut self, keep: usize) {
        for tier in self.tiers[..self.len].iter_mut().skip(keep) {
            tier.entered = None;
            tier.window.clear();
        }
        self.len = self.len.min(keep);
    }

    /// Puts empty tiers on top until there are `tiers`.
    pub fn extend(&mut self, tiers: usize) {
        if self.tiers.len() < tiers {
            self.tiers.resize_with(tiers, TierState::default);
        }
        self.len = self.len.max(tiers);
    }

    /// Forgets what can change no answer at `now` or later.
    pub fn forget(&mut self, class: &RateClass, now: Timestamp) {
        for (state, tier) in self.tiers_mut().iter_mut().zip(class.tiers()) {
            if state.phase(tier, now).is_inactive() {
                state.entered = None;
            }
            state.window.forget(kept(tier), now);
            if tier.window < SECOND {
                state.window.mark(tier.window, now);
            } else if class.hard.is_some() && SECOND < tier.window {
                state.window.mark(SECOND, now);
            }
        }
        self.loose.forget(SECOND, now);
    }

    /// The last instant at which a window, active time or cooldown of this state still matters;
    /// none: nothing matters.
    pub fn matters_until(&self, class: &RateClass) -> Option<Timestamp> {
        let of_tier = |(state, tier): (&TierState, &Tier)| {
            let window = state
                .window
                .newest()
                .map(|at| at.saturating_add(kept(tier)));
            let phases = state
                .entered
                .map(|at| at.saturating_add(tier.active).saturating_add(tier.cooldown));
            window.max(phases)
        };
        let tiers = self.tiers().iter().zip(class.tiers()).filter_map(of_tier);
        let loose = self.loose.newest().map(|at| at.saturating_add(SECOND));
        tiers.max().max(loose)
    }
}
