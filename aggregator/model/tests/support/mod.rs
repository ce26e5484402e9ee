//! What the model's tests share: short ways to write limits, and a second model without any wit.
//!
//! [`Plain`] keeps every stamp for ever, one a hit, grants hit by hit on a copy of itself, and
//! finds the opening instant by trying every instant at which anything can change. Knows nothing
//! of the model's insides. What stays true: nothing here is shared with `src/`.

#![allow(dead_code, reason = "each test file uses the part that it needs")]

pub mod log;

use proptest::prelude::*;
use tollgate_model::{DomainLimits, End, Tier};

/// One second in microseconds.
pub const SECOND: u64 = 1_000_000;
/// One millisecond in microseconds.
pub const MS: u64 = 1_000;

/// A tier that is not skippable.
pub fn tier(limit: u64, window_us: u64, active_us: u64, cooldown_us: u64) -> Tier {
    Tier {
        limit,
        window_us,
        active_us,
        cooldown_us,
        skippable: false,
    }
}

/// The same, skippable.
pub fn skippable(limit: u64, window_us: u64, active_us: u64, cooldown_us: u64) -> Tier {
    Tier {
        skippable: true,
        ..tier(limit, window_us, active_us, cooldown_us)
    }
}

/// Limits of these tiers and no hard limit.
pub fn limits(tiers: &[Tier]) -> DomainLimits {
    DomainLimits {
        tiers: tiers.to_vec(),
        hard: None,
    }
}

/// Limits of these tiers and a hard limit.
pub fn limits_hard(tiers: &[Tier], hard: u64) -> DomainLimits {
    DomainLimits {
        tiers: tiers.to_vec(),
        hard: Some(hard),
    }
}

/// Normalised limits over spans of some microseconds, in which everything happens at once.
pub fn any_limits(span_us: u64, hard: bool) -> impl Strategy<Value = DomainLimits> {
    let tier = (
        0u64..5,
        1..=span_us,
        1u64..4,
        0..=2 * span_us,
        any::<bool>(),
    );
    let tier = tier.prop_map(|(limit, window_us, windows, cooldown_us, skippable)| Tier {
        limit,
        window_us,
        active_us: window_us * windows,
        cooldown_us,
        skippable,
    });
    let hard = if hard {
        prop::option::of(0u64..9).boxed()
    } else {
        Just(None).boxed()
    };
    (prop::collection::vec(tier, 0..4), hard).prop_map(|(tiers, hard)| DomainLimits { tiers, hard })
}

/// One pair, as plain as it can be written.
#[derive(Clone, Debug)]
pub struct Plain {
    limits: DomainLimits,
    entered: Vec<Option<u64>>,
    stamps: Vec<Vec<u64>>,
    all: Vec<u64>,
    pub time: u64,
    pub denied: Option<End>,
}

impl Plain {
    pub fn new(limits: &DomainLimits) -> Self {
        Self {
            limits: limits.clone(),
            entered: vec![None; limits.tiers.len()],
            stamps: vec![Vec::new(); limits.tiers.len()],
            all: Vec::new(),
            time: 0,
            denied: None,
        }
    }

    /// (granted, excess, late)
    pub fn entry(&mut self, at: u64, n: u64, min: u64) -> (u64, u64, u64) {
        let late = at < self.time;
        self.time = self.time.max(at);
        let mut next = self.clone();
        let mut granted = 0;
        let (mut excess, mut only_counted) = (0, 0);
        for _ in 0..n {
            let answer = if late {
                next.late_hit(at)
            } else {
                Some(next.hit(at))
            };
            match answer {
                Some(true) => granted += 1,
                Some(false) => excess += 1,
                None => only_counted += 1,
            }
        }
        if granted < min {
            excess += granted;
            granted = 0;
        } else {
            *self = next;
        }
        self.denied = self.opens(self.time);
        (granted, excess, only_counted)
    }

    pub fn new_limits(&mut self, at: u64, limits: &DomainLimits) -> Option<End> {
        let mut kept = 0;
        for (old, new) in self.limits.tiers.iter().zip(&limits.tiers) {
            let same = old.window_us == new.window_us
                && old.active_us == new.active_us
                && old.cooldown_us == new.cooldown_us
                && old.skippable == new.skippable;
            if !same {
                break;
            }
            kept += 1;
        }
        for i in 0..limits.tiers.len() {
            if self.entered.len() <= i {
                self.entered.push(None);
                self.stamps.push(Vec::new());
            }
            if kept <= i {
                self.entered[i] = None;
                self.stamps[i].clear();
            }
        }
        self.entered.truncate(limits.tiers.len());
        self.stamps.truncate(limits.tiers.len());
        self.limits = limits.clone();
        let now = self.time.max(at);
        self.denied = match self.denied {
            Some(End::At(end)) if end <= now => None,
            None => None,
            Some(_) => self.opens(now),
        };
        self.denied
    }

    pub fn current(&self, now: u64) -> usize {
        let mut current = 0;
        for (i, tier) in self.limits.tiers.iter().enumerate() {
            if let Some(entered) = self.entered[i]
                && now < entered + tier.active_us
            {
                current = i + 1;
            }
        }
        current
    }

    pub fn in_window(&self, tier: usize, now: u64) -> u64 {
        let window = self.limits.tiers[tier - 1].window_us;
        let held = self.stamps[tier - 1]
            .iter()
            .filter(|at| now <= **at + window);
        held.count() as u64
    }

    pub fn last_second(&self, now: u64) -> u64 {
        self.all.iter().filter(|at| now <= **at + SECOND).count() as u64
    }

    /// One hit that is not late; whether it was granted.
    fn hit(&mut self, now: u64) -> bool {
        if let Some(hard) = self.limits.hard
            && hard <= self.last_second(now)
        {
            return false;
        }
        let before = self.entered.clone();
        let current = self.current(now);
        for i in 1..=self.limits.tiers.len() {
            if i < current {
                continue;
            }
            let tier = self.limits.tiers[i - 1];
            if i != current {
                let ready = self.entered[i - 1]
                    .is_none_or(|entered| entered + tier.active_us + tier.cooldown_us <= now);
                if ready {
                    self.entered[i - 1] = Some(now);
                } else if tier.skippable {
                    continue;
                } else {
                    break;
                }
            }
            if self.in_window(i, now) < tier.limit {
                self.stamps[i - 1].push(now);
                self.all.push(now);
                return true;
            }
        }
        self.entered = before;
        false
    }

    /// One late hit; none if it is only counted.
    fn late_hit(&mut self, at: u64) -> Option<bool> {
        let current = self.current(self.time);
        if current == 0 || at < self.entered[current - 1].unwrap() {
            return None;
        }
        let full = self.limits.tiers[current - 1].limit <= self.in_window(current, self.time);
        let hard = self.limits.hard;
        if full || hard.is_some_and(|hard| hard <= self.last_second(self.time)) {
            return Some(false);
        }
        self.stamps[current - 1].push(at);
        self.all.push(at);
        Some(true)
    }

    /// The last instant at which the pair may not leave yet.
    pub fn stays_until(&self) -> u64 {
        let mut last = self.time + 600 * SECOND;
        for (i, tier) in self.limits.tiers.iter().enumerate() {
            for at in &self.stamps[i] {
                last = last.max(at + tier.window_us);
            }
            if let Some(entered) = self.entered[i] {
                last = last.max(entered + tier.active_us + tier.cooldown_us);
            }
        }
        for at in &self.all {
            last = last.max(at + SECOND);
        }
        match self.denied {
            Some(End::At(end)) => last.max(end),
            Some(End::Never) => u64::MAX,
            None => last,
        }
    }

    /// When it is not open, the first candidate instant at which a hit would be granted.
    pub fn opens(&self, now: u64) -> Option<End> {
        let mut candidates = vec![now];
        for (i, tier) in self.limits.tiers.iter().enumerate() {
            if let Some(entered) = self.entered[i] {
                candidates.push(entered + tier.active_us);
                candidates.push(entered + tier.active_us + tier.cooldown_us);
            }
            candidates.extend(self.stamps[i].iter().map(|at| at + tier.window_us + 1));
        }
        candidates.extend(self.all.iter().map(|at| at + SECOND + 1));
        candidates.retain(|at| now <= *at);
        candidates.sort_unstable();
        candidates.dedup();
        match candidates.into_iter().find(|at| self.clone().hit(*at)) {
            Some(at) if at == now => None,
            Some(at) => Some(End::At(at)),
            None => Some(End::Never),
        }
    }
}
