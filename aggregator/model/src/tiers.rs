//! Burst tiers of one pair: the current tier, the climb of a copy, and when a climb would succeed.
//!
//! ```text
//! tier 1   2 per 1s, active 10s            tier 2   4 per 1s, active 2s, cooldown 6s
//! hits     0.0 0.1        tier 1 is entered and takes both
//! hit      0.2            tier 1 is full: tier 2 is entered and takes it
//! hit      2.3            tier 2 cools down since 2.2, tier 1 is current and its window is empty
//! ```
//!
//! Knows nothing of other constraints. What stays true: asking whether a copy would be granted changes nothing, and
//! only a granted copy enters a tier.

use crate::limits::{Tier, Window};
use crate::window::WindowState;

/// The phase of a tier at some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inactive,
    Active,
    Cooling,
}

/// How one copy would be granted.
pub(crate) struct Climb {
    /// The tier that takes it, counted from 1.
    pub taker: usize,
    /// The tiers that are entered on the way, counted from 1.
    pub entered: Vec<usize>,
}

/// The tiers' state. Always used with the tiers of its last `new` or `carried_to`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TiersState {
    /// The instant of the last entry of each tier.
    entered_us: Vec<Option<u64>>,
    windows: Vec<WindowState>,
}

impl TiersState {
    /// All tiers inactive and empty.
    pub fn new(tiers: &[Tier]) -> Self {
        Self {
            entered_us: vec![None; tiers.len()],
            windows: vec![WindowState::default(); tiers.len()],
        }
    }

    /// The state of the leading tiers whose shape is unchanged; all others inactive and empty.
    pub fn carried_to(&self, old: &[Tier], new: &[Tier]) -> Self {
        let both = old.iter().zip(new);
        let kept = both.take_while(|(old, new)| old.has_shape_of(new)).count();
        let mut carried = Self::new(new);
        for (i, tier) in new.iter().enumerate().take(kept) {
            carried.entered_us[i] = self.entered_us[i];
            carried.windows[i] = self.windows[i].carried_to(window(tier));
        }
        carried
    }

    /// The climb of one copy from the current tier, or `None` if it is refused.
    pub fn climb(&self, tiers: &[Tier], now_us: u64) -> Option<Climb> {
        let current = self.current(tiers, now_us);
        let mut entered = Vec::new();
        // The fake tier zero never has room, so a climb from it begins at tier 1.
        for tier in current.max(1)..=tiers.len() {
            match self.phase(tiers, tier, now_us) {
                Phase::Active => {}
                Phase::Inactive => entered.push(tier),
                Phase::Cooling if tiers[tier - 1].skippable => continue,
                Phase::Cooling => return None,
            }
            if 0 < self.room(tiers, tier, now_us, now_us) {
                return Some(Climb {
                    taker: tier,
                    entered,
                });
            }
        }
        None
    }

    /// Enters the tiers on the way of a climb.
    pub fn enter(&mut self, climb: &Climb, now_us: u64) {
        for tier in &climb.entered {
            self.entered_us[tier - 1] = Some(now_us);
        }
    }

    /// The active tier with the greatest index, counted from 1; 0 if no tier is active.
    pub fn current(&self, tiers: &[Tier], now_us: u64) -> usize {
        (1..=tiers.len())
            .rev()
            .find(|tier| self.phase(tiers, *tier, now_us) == Phase::Active)
            .unwrap_or(0)
    }

    /// The instant of the last entry of `tier`; `None` for tier zero.
    pub fn entered(&self, tier: usize) -> Option<u64> {
        self.entered_us[tier.checked_sub(1)?]
    }

    /// Copies in the window of `tier`; 0 for the fake tier zero.
    pub fn count(&self, tiers: &[Tier], tier: usize, now_us: u64) -> u64 {
        match tier {
            0 => 0,
            _ => self.windows[tier - 1].count(window(&tiers[tier - 1]), now_us),
        }
    }

    /// How many more copies stamped `at_us` a tier has room for.
    pub fn room(&self, tiers: &[Tier], tier: usize, at_us: u64, now_us: u64) -> u64 {
        self.windows[tier - 1].room(window(&tiers[tier - 1]), at_us, now_us)
    }

    /// How many of `n` excess copies count as debt in a tier; 0 for tier zero.
    pub fn debt(&self, tiers: &[Tier], tier: usize, at_us: u64, now_us: u64, n: u64) -> u64 {
        match tier {
            0 => 0,
            _ => self.windows[tier - 1].debt(window(&tiers[tier - 1]), at_us, now_us, n),
        }
    }

    /// Counts `n` copies in a tier; tier zero counts nothing.
    pub fn take(&mut self, tiers: &[Tier], tier: usize, at_us: u64, now_us: u64, n: u64) {
        if 0 < tier {
            self.windows[tier - 1].take(window(&tiers[tier - 1]), at_us, now_us, n);
        }
    }

    /// How many copies stamped `at_us` count in all tiers together.
    pub fn count_at(&self, tiers: &[Tier], at_us: u64, now_us: u64) -> u64 {
        let of = self.windows.iter().zip(tiers);
        of.map(|(state, tier)| state.count_at(window(tier), at_us, now_us))
            .fold(0, u64::saturating_add)
    }

    /// Takes out `n` copies stamped `at_us`, from the highest tier down.
    pub fn take_out(&mut self, tiers: &[Tier], at_us: u64, now_us: u64, mut n: u64) {
        for (state, tier) in self.windows.iter_mut().zip(tiers).rev() {
            let out = n.min(state.count_at(window(tier), at_us, now_us));
            state.take_out(window(tier), at_us, out);
            n -= out;
        }
    }

    /// Takes the newest `n` copies out: of one instant a higher tier's before a lower one's.
    pub fn take_newest_out(&mut self, tiers: &[Tier], now_us: u64, n: u64) {
        self.forget(tiers, now_us);
        for _ in 0..n {
            // Of equal stamps the last one, which is the highest tier's.
            let held = (0..self.windows.len()).filter(|i| self.windows[*i].newest_us().is_some());
            let Some(newest) = held.max_by_key(|i| self.windows[*i].newest_us()) else {
                return;
            };
            self.windows[newest].take_newest_out(window(&tiers[newest]), now_us, 1);
        }
    }

    /// Removes copies above each tier's limit.
    pub fn forgive(&mut self, tiers: &[Tier], now_us: u64) {
        for (state, tier) in self.windows.iter_mut().zip(tiers) {
            state.forgive(window(tier), now_us);
        }
    }

    /// Removes copies that have left at `now_us`.
    pub fn forget(&mut self, tiers: &[Tier], now_us: u64) {
        for (state, tier) in self.windows.iter_mut().zip(tiers) {
            state.forget(window(tier), now_us);
        }
    }

    /// The instants at which an active time or a cooldown ends.
    pub fn turns_us(&self, tiers: &[Tier]) -> Vec<u64> {
        let mut turns_us = Vec::new();
        for (tier, entered_us) in tiers.iter().zip(&self.entered_us) {
            if let Some(entered_us) = entered_us {
                let active_end_us = entered_us.saturating_add(tier.active_us);
                turns_us.push(active_end_us);
                turns_us.push(active_end_us.saturating_add(tier.cooldown_us));
            }
        }
        turns_us
    }

    /// The last instant at which a window, active time or cooldown still matters.
    pub fn last_us(&self, tiers: &[Tier]) -> u64 {
        let of = self.windows.iter().zip(tiers);
        let windows_us = of.map(|(state, tier)| state.last_us(window(tier)));
        windows_us.chain(self.turns_us(tiers)).max().unwrap_or(0)
    }

    fn phase(&self, tiers: &[Tier], tier: usize, now_us: u64) -> Phase {
        let Some(entered_us) = self.entered(tier) else {
            return Phase::Inactive;
        };
        let active_end_us = entered_us.saturating_add(tiers[tier - 1].active_us);
        let cooldown_us = tiers[tier - 1].cooldown_us;
        if now_us < active_end_us {
            Phase::Active
        } else if now_us < active_end_us.saturating_add(cooldown_us) {
            Phase::Cooling
        } else {
            Phase::Inactive
        }
    }
}

/// The window of a tier.
fn window(tier: &Tier) -> Window {
    Window {
        limit: tier.limit,
        window_us: tier.window_us,
    }
}
