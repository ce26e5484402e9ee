//! All constraints of one domain on one resource, and the result for each copy under them.
//!
//! ```text
//! windows 3 per 1s and 5 per 10s; 4 copies at 0.0
//! in line   3 granted, the fourth is refused by window 0 and changes nothing
//! stream    3 granted, the fourth is excess: it was let through, so both windows count 4
//! ```
//!
//! Knows nothing of logs, agents or time that runs backwards. What stays true: asking whether a copy
//! would be granted changes nothing, a refused copy changes nothing, and [`PairState::open_again`]
//! asks that very question, so that it cannot disagree with the rule.

mod reshape;

use crate::bucket::{BucketState, rate};
use crate::instants::{FOR_EVER_US, first_instant};
use crate::limits::{DomainLimits, Window};
use crate::quota::QuotaState;
use crate::tiers::TiersState;
use crate::verdict::{Cause, Standing, Until};
use crate::window::WindowState;

/// The span of hard and global limits, in microseconds.
pub(crate) const SECOND_US: u64 = 1_000_000;

/// The grant of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Granted {
    pub copies: u64,
    /// A granted copy moved into another tier.
    pub burst: bool,
    /// The constraint that refused the first copy that was not granted.
    pub stopped_by: Option<Cause>,
}

/// The state of one pair. Always used with the limits of its last `new` or `reshape`.
#[derive(Clone, Debug)]
pub(crate) struct PairState {
    hard: WindowState,
    windows: Vec<WindowState>,
    quotas: Vec<QuotaState>,
    bucket: Option<BucketState>,
    tiers: TiersState,
    /// Whether the next copies are an estimate, which a settlement may take back from quotas and the bucket.
    estimated: bool,
}

impl PairState {
    /// A state in which nothing counts and the bucket is full.
    pub fn new(limits: &DomainLimits, now_us: u64) -> Self {
        let quotas = limits.quotas.iter();
        Self {
            hard: WindowState::default(),
            windows: vec![WindowState::default(); limits.windows.len()],
            quotas: quotas.map(|quota| QuotaState::new(quota, now_us)).collect(),
            bucket: limits
                .bucket
                .map(|bucket| BucketState::full(bucket, now_us)),
            tiers: TiersState::new(limits.tiers()),
            estimated: false,
        }
    }

    /// States whether the next copies are an estimate.
    pub fn expect(&mut self, estimated: bool) {
        self.estimated = estimated;
    }

    /// Grants the largest n ≤ `copies` that the limits grant at `now_us` and that also fits into `global_room`. If
    /// that is below `min`, nothing changes.
    pub fn request(
        &mut self,
        limits: &DomainLimits,
        now_us: u64,
        copies: u64,
        min: u64,
        global_room: Option<u64>,
    ) -> Granted {
        // A refused first copy changes nothing anyway, so only larger minimums need a state to go back to.
        let before = (1 < min).then(|| self.clone());
        let mut granted = Granted::default();
        while granted.copies < copies {
            let global_room = global_room.map(|room| room - granted.copies);
            let rooms = self.rooms(limits, now_us, now_us, global_room);
            let closed = rooms.iter().find(|(_, room)| *room == 0);
            if let Some((cause, _)) = closed {
                granted.stopped_by = Some(*cause);
                break;
            }
            // Copies granted in the same way are taken together, which saves a check of each copy.
            let rooms = rooms.iter().map(|(_, room)| *room);
            let mut alike = rooms.fold(copies - granted.copies, u64::min);
            let mut taker = 0;
            if let Some(tiers) = &limits.tiers {
                let current = self.tiers.current(tiers, now_us);
                let Some(climb) = self.tiers.climb(tiers, now_us) else {
                    granted.stopped_by = Some(Cause::Tier(current));
                    break;
                };
                self.tiers.enter(&climb, now_us);
                taker = climb.taker;
                granted.burst |= taker != current;
                alike = alike.min(self.tiers.room(tiers, taker, now_us, now_us));
            }
            self.take(limits, taker, now_us, now_us, alike);
            granted.copies += alike;
        }
        if granted.copies < min {
            if let Some(before) = before {
                *self = before;
            }
            (granted.copies, granted.burst) = (0, false);
        }
        granted
    }

    /// How many of `n` late copies, stamped `at_us` and ruled at `now_us`, have room. `None` if it is too late to
    /// decide: no tier is current, or the copies are older than its entry.
    pub fn late_request(
        &mut self,
        limits: &DomainLimits,
        now_us: u64,
        at_us: u64,
        n: u64,
    ) -> Option<Granted> {
        let mut taker = 0;
        let mut rooms = self.rooms(limits, at_us, now_us, None);
        if let Some(tiers) = &limits.tiers {
            taker = self.tiers.current(tiers, now_us);
            if at_us < self.tiers.entered(taker)? {
                return None;
            }
            let room = self.tiers.room(tiers, taker, at_us, now_us);
            rooms.push((Cause::Tier(taker), room));
        }
        // Each room shrinks copy by copy: the least room is used up first.
        let copies = rooms.iter().map(|(_, room)| *room).fold(n, u64::min);
        let first_full = rooms.iter().find(|(_, room)| *room == copies);
        self.take(limits, taker, at_us, now_us, copies);
        Some(Granted {
            copies,
            burst: false,
            stopped_by: first_full.filter(|_| copies < n).map(|(cause, _)| *cause),
        })
    }

    /// Counts `n` copies of excess stamped `at_us`: each constraint counts as many as its debt allows. Returns how
    /// many copies every constraint counted.
    pub fn excess(&mut self, limits: &DomainLimits, now_us: u64, at_us: u64, n: u64) -> u64 {
        let mut by_all = n;
        let mut counts = |counted: u64| {
            by_all = by_all.min(counted);
            counted
        };
        if let Some(hard) = hard_window(limits) {
            let n = counts(self.hard.debt(hard, at_us, now_us, n));
            self.hard.take(hard, at_us, now_us, n);
        }
        for (state, window) in self.windows.iter_mut().zip(&limits.windows) {
            let n = counts(state.debt(*window, at_us, now_us, n));
            state.take(*window, at_us, now_us, n);
        }
        for (state, quota) in self.quotas.iter_mut().zip(&limits.quotas) {
            let n = counts(state.debt(quota, at_us, now_us, n));
            state.take(quota, at_us, now_us, n, self.estimated);
        }
        if let (Some(state), Some(bucket)) = (&mut self.bucket, limits.bucket) {
            let n = counts(state.debt(bucket, at_us, now_us, n));
            state.take(bucket, at_us, now_us, n, self.estimated);
        }
        if let Some(tiers) = &limits.tiers {
            let current = self.tiers.current(tiers, now_us);
            let n = counts(self.tiers.debt(tiers, current, at_us, now_us, n));
            self.tiers.take(tiers, current, at_us, now_us, n);
        }
        by_all
    }

    /// Takes back, in each constraint by itself, the copies above `actual` that an estimate of `estimated` copies
    /// made at `made_us` counted. Returns the copies taken out of the constraint that gave most.
    pub fn settle(
        &mut self,
        limits: &DomainLimits,
        now_us: u64,
        made_us: u64,
        estimated: u64,
        actual: u64,
    ) -> u64 {
        let mut most = 0;
        // The lesser of the counted copies and the actual cost stays counted.
        let mut gives = |counted: u64| {
            let gives = counted.min(estimated).saturating_sub(actual);
            most = most.max(gives);
            gives
        };
        if let Some(hard) = hard_window(limits) {
            let n = gives(self.hard.count_at(hard, made_us, now_us));
            self.hard.take_out(hard, made_us, n);
        }
        for (state, window) in self.windows.iter_mut().zip(&limits.windows) {
            let n = gives(state.count_at(*window, made_us, now_us));
            state.take_out(*window, made_us, n);
        }
        for (state, quota) in self.quotas.iter_mut().zip(&limits.quotas) {
            let n = gives(state.count_at(quota, made_us, now_us));
            state.take_out(made_us, n);
        }
        if let (Some(state), Some(bucket)) = (&mut self.bucket, limits.bucket) {
            let n = gives(state.count_at(made_us, now_us));
            state.take_out(bucket, made_us, now_us, n);
        }
        let n = gives(self.tiers.count_at(limits.tiers(), made_us, now_us));
        self.tiers.take_out(limits.tiers(), made_us, now_us, n);
        most
    }

    /// Advances everything to `now_us`: copies leave their windows, periods begin, the bucket fills.
    pub fn advance(&mut self, limits: &DomainLimits, now_us: u64) {
        if let Some(hard) = hard_window(limits) {
            self.hard.forget(hard, now_us);
        }
        for (state, window) in self.windows.iter_mut().zip(&limits.windows) {
            state.forget(*window, now_us);
        }
        for (state, quota) in self.quotas.iter_mut().zip(&limits.quotas) {
            state.advance(quota, now_us);
        }
        if let (Some(state), Some(bucket)) = (&mut self.bucket, limits.bucket) {
            state.forget(bucket, now_us);
        }
        self.tiers.forget(limits.tiers(), now_us);
    }

    /// When one more copy would be granted if no other copy arrived until then.
    ///
    /// Between two instants at which an active time or a cooldown ends, tiers stay as they are, windows only
    /// empty, periods only begin and the bucket only fills. So within such a stretch the answer changes from no to
    /// yes at most once: if it is no at the last instant it is no throughout, and otherwise bisection finds the
    /// first instant at which it is yes.
    pub fn open_again(&self, limits: &DomainLimits, now_us: u64) -> Until {
        self.open_with(limits, now_us, |_| true)
    }

    /// The same if another condition has to be open too, which does not close by itself.
    pub fn open_with(
        &self,
        limits: &DomainLimits,
        now_us: u64,
        is_other_open: impl Fn(u64) -> bool,
    ) -> Until {
        let would = |at_us| is_other_open(at_us) && self.closed_by(limits, at_us).is_none();
        if would(now_us) {
            return Until::Now;
        }
        let mut starts_us = vec![now_us];
        starts_us.extend(self.tiers.turns_us(limits.tiers()));
        starts_us.retain(|start_us| now_us <= *start_us && *start_us < FOR_EVER_US);
        starts_us.sort_unstable();
        for (i, start_us) in starts_us.iter().enumerate() {
            let next_us = *starts_us.get(i + 1).unwrap_or(&FOR_EVER_US);
            let last_us = (*start_us).max(next_us - 1);
            if let Some(at_us) = first_instant(*start_us, last_us, would) {
                return Until::At(at_us);
            }
        }
        Until::Never
    }

    /// The constraint that closes the pair at `now_us`; `None` if it is open.
    pub fn closed_by(&self, limits: &DomainLimits, now_us: u64) -> Option<Cause> {
        let rooms = self.rooms(limits, now_us, now_us, None);
        if let Some((cause, _)) = rooms.iter().find(|(_, room)| *room == 0) {
            return Some(*cause);
        }
        let tiers = limits.tiers.as_deref()?;
        match self.tiers.climb(tiers, now_us) {
            Some(_) => None,
            None => Some(self.current_tier(limits, now_us)),
        }
    }

    /// The tier at `now_us`, as a cause.
    pub fn current_tier(&self, limits: &DomainLimits, now_us: u64) -> Cause {
        Cause::Tier(self.tiers.current(limits.tiers(), now_us))
    }

    /// The counts at `now_us`.
    pub fn standing(&self, limits: &DomainLimits, now_us: u64) -> Standing {
        let windows = self.windows.iter().zip(&limits.windows);
        let bucket = self.bucket.as_ref().zip(limits.bucket);
        let tier = self.tiers.current(limits.tiers(), now_us);
        Standing {
            hard: hard_window(limits).map(|hard| self.hard.count(hard, now_us)),
            windows: windows
                .map(|(state, window)| state.count(*window, now_us))
                .collect(),
            quotas: self
                .quotas
                .iter()
                .map(|quota| quota.count(now_us))
                .collect(),
            bucket: bucket.map(|(state, bucket)| (state.level(bucket, now_us), rate(bucket).1)),
            tier,
            tier_hits: self.tiers.count(limits.tiers(), tier, now_us),
        }
    }

    /// The last instant at which anything of this state still matters: windows, tiers, the ends of
    /// periods, and the instant at which the bucket is full.
    pub fn last_matter_us(&self, limits: &DomainLimits, now_us: u64) -> u64 {
        let hard_us = hard_window(limits).map_or(0, |hard| self.hard.last_us(hard));
        let windows = self.windows.iter().zip(&limits.windows);
        let windows_us = windows.map(|(state, window)| state.last_us(*window));
        let quotas_us = self.quotas.iter().map(QuotaState::ends_us);
        let bucket = self.bucket.as_ref().zip(limits.bucket);
        let full_us = bucket.map(|(state, bucket)| {
            let is_full = |at_us| state.is_full(bucket, at_us);
            first_instant(now_us, FOR_EVER_US - 1, is_full).unwrap_or(FOR_EVER_US)
        });
        let all = windows_us.chain(quotas_us).chain(full_us);
        all.fold(hard_us.max(self.tiers.last_us(limits.tiers())), u64::max)
    }

    /// Takes the newest `n` copies out of every constraint, as an operator's refund does.
    pub fn refund(&mut self, limits: &DomainLimits, now_us: u64, n: u64) {
        if let Some(hard) = hard_window(limits) {
            self.hard.take_newest_out(hard, now_us, n);
        }
        for (state, window) in self.windows.iter_mut().zip(&limits.windows) {
            state.take_newest_out(*window, now_us, n);
        }
        for state in &mut self.quotas {
            state.refund(n);
        }
        if let (Some(state), Some(bucket)) = (&mut self.bucket, limits.bucket) {
            state.refund(bucket, now_us, n);
        }
        self.tiers.take_newest_out(limits.tiers(), now_us, n);
    }

    /// Takes debt back to the limit, as a pardon does: in windows the newest copies go.
    pub fn forgive(&mut self, limits: &DomainLimits, now_us: u64) {
        if let Some(hard) = hard_window(limits) {
            self.hard.forgive(hard, now_us);
        }
        for (state, window) in self.windows.iter_mut().zip(&limits.windows) {
            state.forgive(*window, now_us);
        }
        for (state, quota) in self.quotas.iter_mut().zip(&limits.quotas) {
            state.forgive(quota);
        }
        if let (Some(state), Some(bucket)) = (&mut self.bucket, limits.bucket) {
            state.forgive(bucket, now_us);
        }
        self.tiers.forgive(limits.tiers(), now_us);
    }

    /// The room that each constraint except the tiers has for copies stamped `at_us`, in the order of the checks.
    fn rooms(
        &self,
        limits: &DomainLimits,
        at_us: u64,
        now_us: u64,
        global_room: Option<u64>,
    ) -> Vec<(Cause, u64)> {
        let mut rooms = Vec::new();
        if let Some(hard) = hard_window(limits) {
            rooms.push((Cause::Hard, self.hard.room(hard, at_us, now_us)));
        }
        if let Some(room) = global_room {
            rooms.push((Cause::Global, room));
        }
        for (i, (state, window)) in self.windows.iter().zip(&limits.windows).enumerate() {
            rooms.push((Cause::Window(i), state.room(*window, at_us, now_us)));
        }
        for (i, (state, quota)) in self.quotas.iter().zip(&limits.quotas).enumerate() {
            rooms.push((Cause::Quota(i), state.room(quota, at_us, now_us)));
        }
        if let (Some(state), Some(bucket)) = (&self.bucket, limits.bucket) {
            rooms.push((Cause::Bucket, state.room(bucket, now_us)));
        }
        rooms
    }

    /// Counts `n` granted copies in all constraints; `taker` is the tier that takes them.
    fn take(&mut self, limits: &DomainLimits, taker: usize, at_us: u64, now_us: u64, n: u64) {
        if let Some(hard) = hard_window(limits) {
            self.hard.take(hard, at_us, now_us, n);
        }
        for (state, window) in self.windows.iter_mut().zip(&limits.windows) {
            state.take(*window, at_us, now_us, n);
        }
        for (state, quota) in self.quotas.iter_mut().zip(&limits.quotas) {
            state.take(quota, at_us, now_us, n, self.estimated);
        }
        if let (Some(state), Some(bucket)) = (&mut self.bucket, limits.bucket) {
            state.take(bucket, at_us, now_us, n, self.estimated);
        }
        self.tiers.take(limits.tiers(), taker, at_us, now_us, n);
    }
}

/// A hard limit is a window of one second.
fn hard_window(limits: &DomainLimits) -> Option<Window> {
    limits.hard.map(|limit| Window {
        limit,
        window_us: SECOND_US,
    })
}
