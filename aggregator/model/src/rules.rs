//! Section 3.1 for one domain on one resource: tiers, windows, the hard limit.
//!
//! ```text
//! tier 1   2 per 1s, active 10s            tier 2   4 per 1s, active 2s, cooldown 6s
//! hits     0.0 0.1        tier 1 is entered and takes both
//! hit      0.2            tier 1 is full: tier 2 is entered and takes it
//! hit      2.3            tier 2 cools down since 2.2, tier 1 is current and its window is empty
//! ```
//!
//! Knows nothing of global limits, logs or late hits. What stays true: asking whether a hit would
//! be granted changes nothing, a refused hit changes nothing, and [`PairState::open_again`] asks
//! that very question, so that it cannot disagree with the rule.

use crate::hits::{Hits, has_left};
use crate::limits::DomainLimits;

/// What hard and global limits count over: the last second, in microseconds.
pub(crate) const SECOND_US: u64 = 1_000_000;

/// The instant that stands for "for ever": sums that cannot be written down end here, so nothing
/// that is said to happen at it ever does.
pub(crate) const FOR_EVER_US: u64 = u64::MAX;

/// When something is open for one more hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It is open.
    Now,
    /// At this instant and not before, in microseconds since the epoch.
    At(u64),
    /// Not as long as nobody changes its limits.
    Never,
}

/// When a denial ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// At this instant, in microseconds since the epoch: at it, the scope is open.
    At(u64),
    /// Not as long as nobody changes its limits.
    Never,
}

impl End {
    /// Whether a denial with this end is still in force at `now_us`.
    pub fn is_after(self, now_us: u64) -> bool {
        End::At(now_us) < self
    }
}

/// What closes a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The domain's hits a second.
    Hard,
    /// All domains' hits a second.
    Global,
    /// The tiers; the number is the current tier's, 0 with none.
    Tier(usize),
    /// An operator.
    Banned,
}

/// Where a tier is at some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Inactive,
    Active,
    Cooling,
}

/// How one hit would be granted.
struct Climb {
    /// The tier that takes it, counted from 1.
    taker: usize,
    /// The tiers that are entered on the way, counted from 1.
    entered: Vec<usize>,
}

/// What one request got.
pub(crate) struct Granted {
    pub hits: u64,
    /// A granted hit moved into another tier.
    pub burst: bool,
    /// What refused the first hit that was not granted.
    pub stopped_by: Option<Cause>,
}

/// The state of one pair. Always used with the limits that it was last shaped for.
#[derive(Clone, Debug)]
pub(crate) struct PairState {
    /// For each tier the instant at which it was entered last.
    entered_us: Vec<Option<u64>>,
    /// For each tier the hits that it granted.
    windows: Vec<Hits>,
    /// All granted hits, for the hard limit.
    second: Hits,
}

impl PairState {
    /// All tiers inactive and empty.
    pub fn new(limits: &DomainLimits) -> Self {
        Self {
            entered_us: vec![None; limits.tiers.len()],
            windows: vec![Hits::default(); limits.tiers.len()],
            second: Hits::default(),
        }
    }

    /// The largest n ≤ `copies` that the domain's limits grant at `now_us` and that also fits into
    /// `global_room`; nothing at all happens if that is below `min`.
    pub fn request(
        &mut self,
        limits: &DomainLimits,
        now_us: u64,
        copies: u64,
        min: u64,
        global_room: Option<u64>,
    ) -> Granted {
        // A first hit that is refused has changed nothing anyway, so only larger minimums need a
        // state to go back to.
        let before = (1 < min).then(|| self.clone());
        let mut granted = Granted {
            hits: 0,
            burst: false,
            stopped_by: None,
        };
        while granted.hits < copies {
            let hard_room = self.hard_room(limits, now_us);
            let global_room = global_room.map_or(u64::MAX, |room| room - granted.hits);
            if hard_room == 0 {
                granted.stopped_by = Some(Cause::Hard);
                break;
            }
            if global_room == 0 {
                granted.stopped_by = Some(Cause::Global);
                break;
            }
            let current = self.current(limits, now_us);
            let Some(climb) = self.climb(limits, now_us) else {
                granted.stopped_by = Some(Cause::Tier(current));
                break;
            };
            for tier in climb.entered {
                self.entered_us[tier - 1] = Some(now_us);
            }
            // The taker is current now, so it takes the next hit as well, for as long as it has
            // room and no other limit says no. Counting them at once spares a climb for each.
            let rest = copies - granted.hits;
            let room = self.tier_room(limits, climb.taker, now_us);
            let hits = rest.min(room).min(hard_room).min(global_room);
            self.take(climb.taker, now_us, hits);
            granted.hits += hits;
            granted.burst |= climb.taker != current;
        }
        if granted.hits < min {
            if let Some(before) = before {
                *self = before;
            }
            granted.hits = 0;
            granted.burst = false;
        }
        granted
    }

    /// Late hits: `n` hits stamped `at_us`, judged at `now_us`, by the current tier and the hard
    /// limit alone (section 3.3). `None` if they are only counted.
    pub fn late_request(
        &mut self,
        limits: &DomainLimits,
        now_us: u64,
        at_us: u64,
        n: u64,
        min: u64,
    ) -> Option<u64> {
        let current = self.current(limits, now_us);
        let entered_us = self.entered(current)?;
        if at_us < entered_us {
            return None;
        }
        // Hit by hit: a hit whose stamp has left a window leaves its room as it was, so that a
        // window with any room at all then takes every hit.
        let window_us = limits.tiers[current - 1].window_us;
        let takes = |room: u64, span_us| match room {
            0 => 0,
            _ if has_left(at_us, span_us, now_us) => u64::MAX,
            _ => room,
        };
        let tier_takes = takes(self.tier_room(limits, current, now_us), window_us);
        let hard_takes = takes(self.hard_room(limits, now_us), SECOND_US);
        let granted = n.min(tier_takes).min(hard_takes);
        if granted == 0 || granted < min {
            return Some(0);
        }
        self.take(current, at_us, granted);
        Some(granted)
    }

    /// Keeps the state of the leading tiers whose shape is unchanged; all others start inactive
    /// and empty. Granted hits of the last second survive (section 3.3, "New limits").
    pub fn reshape(&mut self, old: &DomainLimits, new: &DomainLimits) {
        let both = old.tiers.iter().zip(&new.tiers);
        let kept = both.take_while(|(old, new)| old.has_shape_of(new)).count();
        self.entered_us.truncate(kept);
        self.entered_us.resize(new.tiers.len(), None);
        self.windows.truncate(kept);
        self.windows.resize(new.tiers.len(), Hits::default());
    }

    /// When one more hit would be granted if nobody did anything until then.
    ///
    /// Between two instants at which an active time or a cooldown ends, tiers stay as they are and
    /// windows only empty. So over such a stretch the answer goes from no to yes at most once: if
    /// it is no at the stretch's last instant it is no all along, and otherwise halving finds the
    /// first instant at which it is yes.
    pub fn open_again(&self, limits: &DomainLimits, now_us: u64) -> Until {
        if self.would_grant(limits, now_us) {
            return Until::Now;
        }
        let mut starts_us = vec![now_us];
        for (tier, entered_us) in limits.tiers.iter().zip(&self.entered_us) {
            if let Some(entered_us) = entered_us {
                let active_end_us = entered_us.saturating_add(tier.active_us);
                starts_us.push(active_end_us);
                starts_us.push(active_end_us.saturating_add(tier.cooldown_us));
            }
        }
        starts_us.retain(|start_us| now_us <= *start_us && *start_us < FOR_EVER_US);
        starts_us.sort_unstable();
        for (i, start_us) in starts_us.iter().enumerate() {
            let next_us = *starts_us.get(i + 1).unwrap_or(&FOR_EVER_US);
            let last_us = (*start_us).max(next_us - 1);
            let would = |at_us| self.would_grant(limits, at_us);
            if let Some(at_us) = first_instant(*start_us, last_us, would) {
                return Until::At(at_us);
            }
        }
        Until::Never
    }

    /// What closes the pair at `now_us`; `None` if it is open.
    pub fn closed_by(&self, limits: &DomainLimits, now_us: u64) -> Option<Cause> {
        if self.hard_room(limits, now_us) == 0 {
            return Some(Cause::Hard);
        }
        match self.climb(limits, now_us) {
            Some(_) => None,
            None => Some(Cause::Tier(self.current(limits, now_us))),
        }
    }

    /// The active tier with the greatest index, counted from 1; 0 with none.
    pub fn current(&self, limits: &DomainLimits, now_us: u64) -> usize {
        (1..=limits.tiers.len())
            .rev()
            .find(|tier| self.phase(limits, *tier, now_us) == Phase::Active)
            .unwrap_or(0)
    }

    /// Hits in the window of `tier`; none in the fake tier zero.
    pub fn tier_hits(&self, limits: &DomainLimits, tier: usize, now_us: u64) -> u64 {
        match tier {
            0 => 0,
            _ => self.windows[tier - 1].count(limits.tiers[tier - 1].window_us, now_us),
        }
    }

    /// Granted hits of the last second.
    pub fn last_second(&self, now_us: u64) -> u64 {
        self.second.count(SECOND_US, now_us)
    }

    /// Forgets hits that have left every window they belong to at `now_us`. What has left stays
    /// out, since engine time never runs backwards within a pair and a tier whose window changes
    /// starts empty.
    pub fn forget(&mut self, limits: &DomainLimits, now_us: u64) {
        for (window, tier) in self.windows.iter_mut().zip(&limits.tiers) {
            window.forget(tier.window_us, now_us);
        }
        self.second.forget(SECOND_US, now_us);
    }

    /// The last instant at which a window, active time or cooldown of this state still matters.
    pub fn last_matter_us(&self, limits: &DomainLimits) -> u64 {
        let mut last_us = 0;
        for (i, tier) in limits.tiers.iter().enumerate() {
            if let Some(newest_us) = self.windows[i].newest() {
                last_us = last_us.max(newest_us.saturating_add(tier.window_us));
            }
            if let Some(entered_us) = self.entered_us[i] {
                let active_end_us = entered_us.saturating_add(tier.active_us);
                last_us = last_us.max(active_end_us.saturating_add(tier.cooldown_us));
            }
        }
        let second_us = self.second.newest().map(|at| at.saturating_add(SECOND_US));
        last_us.max(second_us.unwrap_or(0))
    }

    /// Takes the newest `n` granted hits out of everything that still counts them at `now_us`: of one
    /// instant those in a window first, a higher tier's before a lower one's.
    pub fn refund(&mut self, limits: &DomainLimits, now_us: u64, mut n: u64) {
        while 0 < n {
            let windows = self.windows.iter().zip(&limits.tiers);
            let in_windows = windows.filter_map(|(hits, tier)| {
                hits.newest()
                    .filter(|at_us| !has_left(*at_us, tier.window_us, now_us))
            });
            let in_second = self.second.newest();
            let in_second = in_second.filter(|at_us| !has_left(*at_us, SECOND_US, now_us));
            let Some(at_us) = in_windows.max().max(in_second) else {
                return;
            };
            let holder = (0..self.windows.len()).rev().find(|tier| {
                self.windows[*tier].newest() == Some(at_us)
                    && !has_left(at_us, limits.tiers[*tier].window_us, now_us)
            });
            if let Some(tier) = holder {
                self.windows[tier].take_newest_out();
            }
            if in_second == Some(at_us) {
                self.second.take_newest_out();
            }
            n -= 1;
        }
    }

    fn would_grant(&self, limits: &DomainLimits, at_us: u64) -> bool {
        self.closed_by(limits, at_us).is_none()
    }

    /// The climb of one hit from the current tier, or `None` if it is refused.
    fn climb(&self, limits: &DomainLimits, now_us: u64) -> Option<Climb> {
        let current = self.current(limits, now_us);
        let mut entered = Vec::new();
        // The fake tier zero never has room, so a climb from it begins at tier 1.
        for tier in current.max(1)..=limits.tiers.len() {
            match self.phase(limits, tier, now_us) {
                Phase::Active => {}
                Phase::Inactive => entered.push(tier),
                Phase::Cooling if limits.tiers[tier - 1].skippable => continue,
                Phase::Cooling => return None,
            }
            if 0 < self.tier_room(limits, tier, now_us) {
                return Some(Climb {
                    taker: tier,
                    entered,
                });
            }
        }
        None
    }

    fn phase(&self, limits: &DomainLimits, tier: usize, now_us: u64) -> Phase {
        let Some(entered_us) = self.entered(tier) else {
            return Phase::Inactive;
        };
        let active_end_us = entered_us.saturating_add(limits.tiers[tier - 1].active_us);
        let cooldown_us = limits.tiers[tier - 1].cooldown_us;
        if now_us < active_end_us {
            Phase::Active
        } else if now_us < active_end_us.saturating_add(cooldown_us) {
            Phase::Cooling
        } else {
            Phase::Inactive
        }
    }

    /// When `tier` was entered last; tier zero never is.
    fn entered(&self, tier: usize) -> Option<u64> {
        self.entered_us[tier.checked_sub(1)?]
    }

    fn tier_room(&self, limits: &DomainLimits, tier: usize, now_us: u64) -> u64 {
        let limit = limits.tiers[tier - 1].limit;
        limit.saturating_sub(self.tier_hits(limits, tier, now_us))
    }

    fn hard_room(&self, limits: &DomainLimits, now_us: u64) -> u64 {
        match limits.hard {
            Some(hard) => hard.saturating_sub(self.last_second(now_us)),
            None => u64::MAX,
        }
    }

    fn take(&mut self, tier: usize, at_us: u64, n: u64) {
        self.windows[tier - 1].take(at_us, n);
        self.second.take(at_us, n);
    }
}

/// The first instant of `start_us..=last_us` at which `is_open`, which must not turn from yes to no
/// within it.
pub(crate) fn first_instant(
    start_us: u64,
    last_us: u64,
    is_open: impl Fn(u64) -> bool,
) -> Option<u64> {
    if !is_open(last_us) {
        return None;
    }
    let (mut low_us, mut high_us) = (start_us, last_us);
    // `is_open(high_us)` holds all along, and nothing before `low_us` is open.
    while low_us < high_us {
        let middle_us = low_us + (high_us - low_us) / 2;
        if is_open(middle_us) {
            high_us = middle_us;
        } else {
            low_us = middle_us + 1;
        }
    }
    Some(high_us)
}
