//! A second, deliberately naive model: every stamp is kept for ever, one for each copy; copies are taken one by one
//! on a copy of the state; the opening instant is found by trying every instant at which anything can change.
//!
//! Knows nothing of the model's internals. What stays true: nothing here is shared with `src/`.

use tollgate_model::{DomainLimits, End, Tier};

use super::SECOND;

/// The length of a day; this model knows no other calendar period.
pub const DAY: u64 = 86_400 * SECOND;

/// One pair, in the simplest form.
#[derive(Clone, Debug)]
pub struct Plain {
    limits: DomainLimits,
    entered: Vec<Option<u64>>,
    in_tiers: Vec<Vec<u64>>,
    in_hard: Vec<u64>,
    in_windows: Vec<Vec<u64>>,
    in_quotas: Vec<Vec<u64>>,
    /// In units of one copy ÷ the period, not in lowest terms.
    level: i128,
    level_at: u64,
    started: bool,
    pub time: u64,
    pub denied: Option<End>,
    /// The last instant at which it may not be evicted yet, by the limits of its last ruling.
    stays: u64,
}

/// The result for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainOutcome {
    pub granted: u64,
    pub excess: u64,
    pub late: u64,
    pub counted: u64,
}

impl Plain {
    pub fn new(limits: &DomainLimits) -> Self {
        let tiers = limits.tiers().len();
        let bucket = limits.bucket;
        Self {
            entered: vec![None; tiers],
            in_tiers: vec![Vec::new(); tiers],
            in_hard: Vec::new(),
            in_windows: vec![Vec::new(); limits.windows.len()],
            in_quotas: vec![Vec::new(); limits.quotas.len()],
            level: bucket.map_or(0, |b| i128::from(b.burst) * i128::from(b.period_us)),
            level_at: 0,
            started: false,
            limits: limits.clone(),
            time: 0,
            denied: None,
            stays: 600 * SECOND,
        }
    }

    pub fn entry(&mut self, at: u64, n: u64, unguarded: bool) -> PlainOutcome {
        let late = at < self.time;
        self.time = self.time.max(at);
        self.started = true;
        let mut outcome = PlainOutcome::default();
        for _ in 0..n {
            let answer = match late {
                true => self.late_copy(at),
                false => Some(self.copy(at)),
            };
            match answer {
                Some(true) => outcome.granted += 1,
                Some(false) => {
                    outcome.excess += 1;
                    if !unguarded {
                        outcome.counted += u64::from(self.owe(at));
                    }
                }
                None => outcome.late += 1,
            }
        }
        self.denied = self.opens(self.time);
        self.stay();
        outcome
    }

    pub fn new_limits(&mut self, at: u64, limits: &DomainLimits) -> Option<End> {
        let old = self.clone();
        let mut new = Self::new(limits);
        (new.time, new.started, new.denied) = (self.time, self.started, self.denied);
        new.stays = self.stays;
        let mut same = true;
        for (i, tier) in limits.tiers().iter().enumerate() {
            let before = old.limits.tiers().get(i);
            same &= before.is_some_and(|before| {
                Tier {
                    limit: 0,
                    ..*before
                } == Tier { limit: 0, ..*tier }
            });
            if same {
                new.entered[i] = old.entered[i];
                new.in_tiers[i] = old.in_tiers[i].clone();
            }
        }
        let mut before: Vec<(u64, Vec<u64>)> = Vec::new();
        if old.limits.hard.is_some() {
            before.push((SECOND, old.in_hard.clone()));
        }
        for (window, stamps) in old.limits.windows.iter().zip(&old.in_windows) {
            before.push((window.window_us, stamps.clone()));
        }
        for (length, stamps) in &mut before {
            stamps.retain(|stamp| self.time <= *stamp + *length);
        }
        let longest = before.iter().map(|(length, _)| *length).max();
        let kept = |length: u64| {
            let equal = before.iter().find(|(of, _)| *of == length);
            let longest = before.iter().find(|(of, _)| Some(*of) == longest);
            equal
                .or(longest)
                .map(|(_, stamps)| stamps.clone())
                .unwrap_or_default()
        };
        if limits.hard.is_some() {
            new.in_hard = kept(SECOND);
        }
        for (i, window) in limits.windows.iter().enumerate() {
            new.in_windows[i] = kept(window.window_us);
        }
        for (i, quota) in limits.quotas.iter().enumerate() {
            let same = old
                .limits
                .quotas
                .iter()
                .position(|of| of.zone == quota.zone);
            new.in_quotas[i] = same.map(|i| old.in_quotas[i].clone()).unwrap_or_default();
        }
        new.level_at = self.time;
        new.keep_used_tokens(&old);
        *self = new;
        let now = self.time.max(at);
        let is_looked_at = self.denied.is_some_and(|end| match end {
            End::At(end) => at < end,
            End::Never => true,
        });
        self.denied = match self.denied {
            Some(End::At(end)) if end <= now => None,
            None => None,
            Some(_) => self.opens(now),
        };
        if is_looked_at {
            self.stay();
        }
        self.denied
    }

    /// What was used of the old bucket, rounded up to units of the new period in lowest terms, is used of the new one.
    fn keep_used_tokens(&mut self, old: &Self) {
        if let (Some(was), Some(is)) = (old.limits.bucket, self.limits.bucket) {
            let used = i128::from(was.burst) * i128::from(was.period_us) - old.level_at(self.time);
            let unit = i128::from(gcd(is.tokens, is.period_us));
            let lowest = i128::from(is.period_us) / unit;
            let was_unit = i128::from(gcd(was.tokens, was.period_us));
            let (used, of) = (used / was_unit, i128::from(was.period_us) / was_unit);
            let used = (used * lowest + of - 1) / of * unit;
            self.level = (self.level - used).max(-i128::from(is.debt) * i128::from(is.period_us));
        }
    }

    pub fn current(&self, now: u64) -> usize {
        let mut current = 0;
        for (i, tier) in self.limits.tiers().iter().enumerate() {
            if let Some(entered) = self.entered[i]
                && now < entered + tier.active_us
            {
                current = i + 1;
            }
        }
        current
    }

    pub fn in_tier(&self, tier: usize, now: u64) -> u64 {
        match tier {
            0 => 0,
            _ => within(
                &self.in_tiers[tier - 1],
                self.limits.tiers()[tier - 1].window_us,
                now,
            ),
        }
    }

    fn level_at(&self, now: u64) -> i128 {
        self.limits.bucket.map_or(0, |bucket| {
            // A pair's bucket is full when it is first used.
            let since = if self.started { self.level_at } else { now };
            let elapsed = i128::from(now.saturating_sub(since));
            let full = i128::from(bucket.burst) * i128::from(bucket.period_us);
            (self.level + elapsed * i128::from(bucket.tokens)).min(full)
        })
    }

    /// Whether every constraint except the tiers has room for one copy stamped `at`.
    fn has_room(&self, at: u64, now: u64) -> bool {
        let hard = self
            .limits
            .hard
            .is_none_or(|hard| within(&self.in_hard, SECOND, now) < hard);
        let mut windows = self.limits.windows.iter().zip(&self.in_windows);
        let windows = windows.all(|(of, stamps)| within(stamps, of.window_us, now) < of.limit);
        let mut quotas = self.limits.quotas.iter().zip(&self.in_quotas);
        let quotas = quotas.all(|(of, stamps)| {
            let day = |at: u64| {
                (at as i64 + i64::from(of.zone.first_offset_s) * SECOND as i64)
                    .div_euclid(DAY as i64)
            };
            let today = stamps
                .iter()
                .filter(|stamp| day(**stamp) == day(now))
                .count();
            day(at) < day(now) || (today as u64) < of.limit
        });
        let bucket = self.limits.bucket;
        let bucket = bucket.is_none_or(|of| i128::from(of.period_us) <= self.level_at(now));
        hard && windows && quotas && bucket
    }

    /// Counts one copy in every constraint except the tiers that counts fewer than `bound` times its
    /// limit. Returns whether all did.
    fn count(&mut self, at: u64, bound: u64) -> bool {
        let now = self.time;
        let mut all = true;
        if let Some(hard) = self.limits.hard {
            all &= add(&mut self.in_hard, SECOND, at, now, bound * hard);
        }
        for (of, stamps) in self.limits.windows.iter().zip(&mut self.in_windows) {
            all &= add(stamps, of.window_us, at, now, bound * of.limit);
        }
        for (of, stamps) in self.limits.quotas.iter().zip(&mut self.in_quotas) {
            let day = |at: u64| {
                (at as i64 + i64::from(of.zone.first_offset_s) * SECOND as i64)
                    .div_euclid(DAY as i64)
            };
            let today = stamps
                .iter()
                .filter(|stamp| day(**stamp) == day(now))
                .count();
            let counts = day(at) == day(now) && (today as u64) < bound * of.limit;
            if counts {
                stamps.push(at);
            }
            all &= counts;
        }
        if let Some(of) = self.limits.bucket {
            let level = self.level_at(now);
            let copy = i128::from(of.period_us);
            let floor = match bound {
                1 => 0,
                _ => -i128::from(of.debt) * copy,
            };
            let is_late = bound == 2 && SECOND < now - at;
            let counts = floor <= level - copy && !is_late;
            self.level = if counts { level - copy } else { level };
            self.level_at = now;
            all &= counts;
        }
        all
    }

    /// One copy that is not late. Returns whether it was granted.
    fn copy(&mut self, now: u64) -> bool {
        if !self.has_room(now, now) {
            return false;
        }
        let before = self.entered.clone();
        if self.limits.tiers.is_some() && !self.climb(now) {
            self.entered = before;
            return false;
        }
        self.count(now, 1);
        true
    }

    fn climb(&mut self, now: u64) -> bool {
        let current = self.current(now);
        for i in 1..=self.limits.tiers().len() {
            if i < current {
                continue;
            }
            let tier = self.limits.tiers()[i - 1];
            if i != current {
                let ready = self.entered[i - 1]
                    .is_none_or(|entered| entered + tier.active_us + tier.cooldown_us <= now);
                if ready {
                    self.entered[i - 1] = Some(now);
                } else if tier.skippable {
                    continue;
                } else {
                    return false;
                }
            }
            if self.in_tier(i, now) < tier.limit {
                self.in_tiers[i - 1].push(now);
                return true;
            }
        }
        false
    }

    /// One late copy. `None` means that it is only counted.
    fn late_copy(&mut self, at: u64) -> Option<bool> {
        let now = self.time;
        let mut has_room = self.has_room(at, now);
        let current = self.current(now);
        if let Some(tiers) = &self.limits.tiers {
            if current == 0 || at < self.entered[current - 1].unwrap() {
                return None;
            }
            has_room &= self.in_tier(current, now) < tiers[current - 1].limit;
        }
        if has_room {
            self.count(at, 1);
            if 0 < current {
                self.in_tiers[current - 1].push(at);
            }
        }
        Some(has_room)
    }

    /// One copy of excess. Returns whether every constraint counted it.
    fn owe(&mut self, at: u64) -> bool {
        let now = self.time;
        let mut all = self.count(at, 2);
        if self.limits.tiers.is_some() {
            let current = self.current(now);
            all &= current != 0 && {
                let tier = self.limits.tiers()[current - 1];
                let stamps = &mut self.in_tiers[current - 1];
                add(stamps, tier.window_us, at, now, 2 * tier.limit)
            };
        }
        all
    }

    /// The last instant at which the pair may not be evicted yet.
    pub fn stays_until(&self) -> u64 {
        self.stays
    }

    fn stay(&mut self) {
        self.stays = self.matters_until().max(self.time + 600 * SECOND);
    }

    /// The last instant at which anything that it remembers matters.
    pub fn matters_until(&self) -> u64 {
        let mut last = self.time;
        for (i, tier) in self.limits.tiers().iter().enumerate() {
            last = ends(&self.in_tiers[i], tier.window_us).fold(last, u64::max);
            if let Some(entered) = self.entered[i] {
                last = last.max(entered + tier.active_us + tier.cooldown_us);
            }
        }
        last = ends(&self.in_hard, SECOND).fold(last, u64::max);
        for (of, stamps) in self.limits.windows.iter().zip(&self.in_windows) {
            last = ends(stamps, of.window_us).fold(last, u64::max);
        }
        for of in &self.limits.quotas {
            last = last.max(next_day(self.time, of.zone.first_offset_s));
        }
        if let Some(bucket) = self.limits.bucket {
            let full = i128::from(bucket.burst) * i128::from(bucket.period_us);
            let missing = full - self.level_at(self.time);
            let tokens = i128::from(bucket.tokens);
            last = last.max(self.time + ((missing + tokens - 1) / tokens) as u64);
        }
        match self.denied {
            Some(End::At(end)) => last.max(end),
            Some(End::Never) => u64::MAX,
            None => last,
        }
    }

    /// If the pair is not open: the first candidate instant at which a copy would be granted.
    pub fn opens(&self, now: u64) -> Option<End> {
        let mut candidates = vec![now];
        for (i, tier) in self.limits.tiers().iter().enumerate() {
            if let Some(entered) = self.entered[i] {
                candidates.push(entered + tier.active_us);
                candidates.push(entered + tier.active_us + tier.cooldown_us);
            }
            candidates.extend(ends(&self.in_tiers[i], tier.window_us + 1));
        }
        candidates.extend(ends(&self.in_hard, SECOND + 1));
        for (of, stamps) in self.limits.windows.iter().zip(&self.in_windows) {
            candidates.extend(ends(stamps, of.window_us + 1));
        }
        for of in &self.limits.quotas {
            candidates.push(next_day(now, of.zone.first_offset_s));
        }
        if let Some(bucket) = self.limits.bucket {
            let missing = i128::from(bucket.period_us) - self.level_at(now);
            let tokens = i128::from(bucket.tokens);
            candidates.push(now + (missing.max(0) + tokens - 1) as u64 / bucket.tokens);
        }
        candidates.retain(|at| now <= *at);
        candidates.sort_unstable();
        candidates.dedup();
        let would = |at: &u64| {
            let mut at_that_time = self.clone();
            at_that_time.time = at_that_time.time.max(*at);
            at_that_time.copy(*at)
        };
        match candidates.into_iter().find(would) {
            Some(at) if at == now => None,
            Some(at) => Some(End::At(at)),
            None => Some(End::Never),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn within(stamps: &[u64], length: u64, now: u64) -> u64 {
    stamps
        .iter()
        .filter(|stamp| now <= **stamp + length)
        .count() as u64
}

/// Counts a copy while fewer than `bound` count; a stamp that has left counts nothing.
fn add(stamps: &mut Vec<u64>, length: u64, at: u64, now: u64, bound: u64) -> bool {
    let counts = within(stamps, length, now) < bound && now <= at + length;
    if counts {
        stamps.push(at);
    }
    counts
}

fn ends(stamps: &[u64], length: u64) -> impl Iterator<Item = u64> + '_ {
    stamps.iter().map(move |stamp| stamp + length)
}

fn next_day(now: u64, offset_s: i32) -> u64 {
    let offset = i64::from(offset_s) * SECOND as i64;
    let day = (now as i64 + offset).div_euclid(DAY as i64);
    ((day + 1) * DAY as i64 - offset) as u64
}
