//! The state of one pair: for each constraint, what counts in it.
//!
//! ```text
//! hard 9; 5 in 1s; 100 a day; a bucket; two tiers
//!     two windows of stamps, one count with its period's end, one level, two tiers: when each was
//!     entered, and the stamps in its window
//! ```
//!
//! Each constraint has a memory of its own, so that copies can be forgotten, forgiven or refunded in
//! one of them alone. Knows nothing of requests. What stays true: the state has the shape of the class
//! with which it is used; and after [`State::forget`] it contains only what can change an answer at
//! that instant or later, so equal histories lead to equal states.

use tollgate_shared::time::Timestamp;

use super::bucket::BucketState;
use super::pool::{Pool, Renew};
use super::quota::QuotaState;
use super::stamps::Stamps;
use tollgate_limits::{RateClass, Tier};

/// The state of one tier.
#[derive(Clone, Debug, Default)]
pub struct TierState {
    /// When it was entered last; `None` means that it is inactive, or that its cooldown has passed.
    pub entered: Option<Timestamp>,
    /// The copies that count in it.
    pub window: Stamps,
}

impl Renew for TierState {
    fn renew(&mut self) {
        self.entered = None;
        self.window.clear();
    }
}

/// The state of one pair. Always used with the limits for which it was shaped.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The stamps of the hard limit, if there is one, and of each window, in the order of
    /// [`RateClass::sliding`].
    pub windows: Pool<Stamps>,
    /// The count of each quota.
    pub quotas: Pool<QuotaState>,
    /// The level of the bucket, if there is one.
    pub bucket: Pool<BucketState>,
    /// The tiers, lowest first.
    pub tiers: Pool<TierState>,
}

impl State {
    /// A state without constraints.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state of a new pair.
    pub fn of(class: &RateClass) -> Self {
        let mut state = Self::new();
        state.begin(class);
        state
    }

    /// Makes this the state of a new pair.
    pub fn begin(&mut self, class: &RateClass) {
        self.windows.fill(class.sliding_len());
        self.quotas.fill(class.quotas.len());
        for (state, quota) in self.quotas.iter_mut().zip(&class.quotas) {
            state.begin(quota);
        }
        self.bucket.fill(usize::from(class.bucket.is_some()));
        for (state, bucket) in self.bucket.iter_mut().zip(&class.bucket) {
            state.begin(bucket);
        }
        self.tiers.fill(class.tiers().len());
    }

    /// Makes this a state of one window alone.
    pub fn begin_window(&mut self) {
        self.begin(&RateClass::default());
        self.windows.fill(1);
    }

    /// Advances to `now`: forgets what can change no answer at `now` or later.
    #[inline]
    pub fn forget(&mut self, class: &RateClass, now: Timestamp) {
        for (stamps, window) in self.windows.iter_mut().zip(class.sliding()) {
            stamps.forget(window.window, now);
        }
        for (state, quota) in self.quotas.iter_mut().zip(&class.quotas) {
            state.advance(quota, now);
        }
        for (state, bucket) in self.bucket.iter_mut().zip(&class.bucket) {
            state.advance(bucket, now);
        }
        for (state, tier) in self.tiers.iter_mut().zip(class.tiers()) {
            if state.phase(tier, now).is_inactive() {
                state.entered = None;
            }
            state.window.forget(tier.window, now);
        }
    }

    /// Remembers, for full windows, the places of the hits that decide when they open again.
    pub fn aim(&mut self, class: &RateClass) {
        for (stamps, window) in self.windows.iter_mut().zip(class.sliding()) {
            stamps.aim(window.limit);
        }
        for (state, tier) in self.tiers.iter_mut().zip(class.tiers()) {
            state.window.aim(tier.limit);
        }
    }

    /// The last instant at which something of this state still matters: windows, active times,
    /// cooldowns, the ends of its quotas' periods, and when its bucket is full.
    pub fn matters_until(&self, class: &RateClass) -> Timestamp {
        let windows = self.windows.iter().zip(class.sliding());
        let windows = windows.filter_map(|(stamps, window)| {
            let newest = stamps.newest()?;
            Some(newest.saturating_add(window.window))
        });
        let quotas = self.quotas.iter().map(|quota| quota.ends);
        let buckets = self.bucket.iter().zip(&class.bucket);
        let buckets = buckets.map(|(state, bucket)| state.full_at(bucket));
        let of_tier = |(state, tier): (&TierState, &Tier)| {
            let window = state.window.newest();
            let window = window.map(|at| at.saturating_add(tier.window));
            let phases = state
                .entered
                .map(|at| at.saturating_add(tier.active).saturating_add(tier.cooldown));
            window.max(phases)
        };
        let tiers = self.tiers.iter().zip(class.tiers()).filter_map(of_tier);
        let all = windows.chain(quotas).chain(buckets).chain(tiers);
        all.max().unwrap_or_default()
    }
}
