//! The state of a pair under other limits than before.
//!
//! ```text
//! next version        windows by length, the bucket's use, quotas by unit and zone, tiers by shape
//! many versions later the same lengths, bucket and shapes go on in their places; otherwise only quotas go on
//! ```
//!
//! Knows nothing of versions. What stays true: nothing is trimmed to a lowered limit.

use super::{PairState, hard_window};
use crate::bucket::{BucketState, rate};
use crate::limits::{DomainLimits, Window};
use crate::quota::QuotaState;
use crate::window::WindowState;

impl PairState {
    /// Brings the state under new limits, at the pair's time.
    ///
    /// A window of the same length keeps its copies (of equal lengths the first one, the hard limit before
    /// windows). Any other window takes the copies of the longest earlier window.
    pub fn reshape(&mut self, old: &DomainLimits, new: &DomainLimits, now_us: u64) {
        self.advance(old, now_us);
        let hard_before = hard_window(old).map(|window| (window, &self.hard));
        let windows_before = old.windows.iter().copied().zip(&self.windows);
        let before: Vec<(Window, &WindowState)> =
            hard_before.into_iter().chain(windows_before).collect();
        let carried = |window: Window| {
            let same = before
                .iter()
                .find(|(old, _)| old.window_us == window.window_us);
            // `rev`, since the last of equals is taken.
            let longest = before.iter().rev().max_by_key(|(old, _)| old.window_us);
            let kept = same.or(longest);
            kept.map_or_else(WindowState::default, |(_, state)| state.carried_to(window))
        };
        let hard = hard_window(new).map(carried).unwrap_or_default();
        let windows = new.windows.iter().copied().map(carried).collect();
        let quotas = self.quotas_by_kind(old, new, now_us);
        let bucket = new.bucket.map(|new| match (&self.bucket, old.bucket) {
            (Some(kept), Some(old)) => kept.carried_to(old, new, now_us),
            _ => BucketState::full(new, now_us),
        });
        let (old_tiers, new_tiers) = (old.tiers(), new.tiers());
        *self = Self {
            hard,
            windows,
            quotas,
            bucket,
            tiers: self.tiers.carried_to(old_tiers, new_tiers),
            estimated: false,
        };
        self.advance(new, now_us);
    }

    /// Brings the state under limits many versions later, at the pair's time. If lengths, bucket and shapes of tiers are
    /// the same, each of these goes on in its place; otherwise all of them start anew. Quotas go on by unit and zone.
    pub fn follow(&mut self, old: &DomainLimits, new: &DomainLimits, now_us: u64) {
        self.advance(old, now_us);
        let kinds = |limits: &DomainLimits| -> Vec<_> {
            let quotas = limits.quotas.iter();
            quotas
                .map(|quota| (quota.unit, quota.zone.name.clone()))
                .collect()
        };
        let has_shape = has_shape_of(old, new);
        let quotas = match has_shape && kinds(old) == kinds(new) {
            true => {
                let kept = self.quotas.iter().zip(&new.quotas);
                kept.map(|(kept, quota)| kept.carried_to(quota, now_us))
                    .collect()
            }
            false => self.quotas_by_kind(old, new, now_us),
        };
        *self = match has_shape {
            true => {
                let hard = hard_window(new).map(|hard| self.hard.carried_to(hard));
                let windows = self.windows.iter().zip(&new.windows);
                Self {
                    hard: hard.unwrap_or_default(),
                    windows: windows
                        .map(|(kept, window)| kept.carried_to(*window))
                        .collect(),
                    quotas,
                    bucket: self.bucket.clone(),
                    tiers: self.tiers.carried_to(old.tiers(), new.tiers()),
                    estimated: false,
                }
            }
            false => Self {
                quotas,
                ..Self::new(new, now_us)
            },
        };
        self.advance(new, now_us);
    }

    /// The quotas under new limits: each keeps the count of the first one before with its unit and zone.
    fn quotas_by_kind(
        &self,
        old: &DomainLimits,
        new: &DomainLimits,
        now_us: u64,
    ) -> Vec<QuotaState> {
        let quotas = new.quotas.iter().map(|quota| {
            let mut same = old.quotas.iter().zip(&self.quotas);
            let same =
                same.find(|(old, _)| old.unit == quota.unit && old.zone.name == quota.zone.name);
            match same {
                Some((_, kept)) => kept.carried_to(quota, now_us),
                None => QuotaState::new(quota, now_us),
            }
        });
        quotas.collect()
    }
}

/// Whether limits have the same lengths, bucket and shapes of tiers, so that they may differ in limits and quotas alone.
fn has_shape_of(old: &DomainLimits, new: &DomainLimits) -> bool {
    let lengths = |limits: &DomainLimits| -> Vec<u64> {
        let windows = limits.windows.iter();
        windows.map(|window| window.window_us).collect()
    };
    let bucket = |limits: &DomainLimits| {
        let bucket = limits.bucket;
        bucket.map(|bucket| (rate(bucket), bucket.burst, bucket.debt))
    };
    let mut tiers = old.tiers().iter().zip(new.tiers());
    old.hard.is_some() == new.hard.is_some()
        && lengths(old) == lengths(new)
        && bucket(old) == bucket(new)
        && old.tiers().len() == new.tiers().len()
        && tiers.all(|(old, new)| old.has_shape_of(new))
}
