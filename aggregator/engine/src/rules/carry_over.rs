//! What a pair's state keeps under new limits.
//!
//! ```text
//! before   5 in 1s, 8 in 10s        after   9 in 1s, 8 in 20s
//!          the second keeps its stamps; the twenty seconds get those of the ten seconds
//! before   bucket 1 a second, burst 5, level 2      after   burst 9, level 6: three are used
//! before   tier 1   2 per 1s, active 10s      tier 2   9 per 5s, active 1m
//! after    tier 1   3 per 1s, active 10s      tier 2   9 per 6s, active 1m
//!          tier 1 keeps its state, since only its limit changed; tier 2 starts inactive and empty
//! ```
//!
//! A window of a length that was there before keeps its stamps (among equal lengths the first one counts,
//! and the hard limit before windows); any other window gets the stamps of the longest. A bucket keeps its
//! used copies. A quota keeps its count if unit and zone are the same. A tier keeps its state only if
//! window, active, cooldown and skippable of it and of every tier below it are unchanged. The state of
//! constraints that a version no longer has is forgotten. Knows nothing of versions. What stays true:
//! nothing is trimmed to a lowered limit.

use tollgate_shared::time::Timestamp;

use super::bucket::BucketState;
use super::calendar::period;
use super::quota::{QuotaState, kind_of};
use super::stamps::Stamps;
use super::state::State;
use super::window::CountsStamps as _;
use tollgate_limits::{Bucket, RateClass, Tier};

/// Brings a state from one class of limits under another. `time` is the pair's time, to which the state
/// has advanced.
///
/// Must not be called if both classes are equal: only versions that change a pair's own limits are applied
/// to it, and of two windows of one length this would give the second the first one's stamps.
pub fn carry_over(old: &RateClass, new: &RateClass, state: &mut State, time: Timestamp) {
    windows(old, new, state, time);
    quotas(new, state, time);
    bucket(old.bucket.as_ref(), new.bucket.as_ref(), state, time);
    let kept = old.tiers().iter().zip(new.tiers());
    let kept = kept
        .take_while(|(old, new)| have_one_shape(old, new))
        .count();
    state.tiers.truncate(kept);
    state.tiers.extend(new.tiers().len());
    let windows = new.tiers().iter().map(Tier::sliding);
    for (window, tier) in windows.zip(state.tiers.iter_mut()) {
        window.round(&mut tier.window);
    }
}

/// Brings a state whose old limits are not known any more under a class: only quotas keep their counts, as
/// they record what they count.
pub fn start_empty(new: &RateClass, state: &mut State, time: Timestamp) {
    state.windows.fill(new.sliding_len());
    quotas(new, state, time);
    bucket(None, new.bucket.as_ref(), state, time);
    state.tiers.fill(new.tiers().len());
}

/// Brings a state whose old limits are not known any more, but had this class's fingerprint, under the class: its
/// windows, bucket and tiers go on; quotas, which the fingerprint leaves out, are found by unit and zone. Changes
/// nothing if the old limits were the same. Returns whether it forgets a quota.
pub fn follow(new: &RateClass, state: &mut State, time: Timestamp) -> bool {
    for (window, stamps) in new.sliding().zip(state.windows.iter_mut()) {
        window.round(stamps);
        stamps.forget(window.window, time);
    }
    for (tier, kept) in new.tiers().iter().zip(state.tiers.iter_mut()) {
        tier.sliding().round(&mut kept.window);
        kept.window.forget(tier.window, time);
    }
    let kinds: Vec<u32> = new.quotas.iter().map(kind_of).collect();
    let kept = state.quotas.iter().map(|quota| quota.kind);
    if kept.clone().eq(kinds.iter().copied()) {
        // Each in its place: of two quotas with one unit and zone each has a count of its own.
        for (quota, kept) in new.quotas.iter().zip(state.quotas.iter_mut()) {
            kept.ends = period(quota.unit, &quota.zone, time).ends;
        }
        return false;
    }
    let forgets = kept.clone().any(|kind| !kinds.contains(&kind));
    quotas(new, state, time);
    forgets
}

/// A fingerprint of the parts of a class that decide what a state keeps under another one: lengths, the
/// bucket, and the shapes of tiers. Classes with one fingerprint may differ in limits, and in quotas,
/// which record what they count.
///
/// A fixed function, since states contain the fingerprint. It distinguishes classes of versions that are
/// no longer kept; a false match, one in 65,536, does too little harm to be worth more bytes.
pub fn print_of(class: &RateClass) -> u16 {
    let mut print: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |value: u64| {
        print = (print ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        print ^= print >> 29;
    };
    add(u64::from(class.hard.is_some()));
    class
        .sliding()
        .for_each(|window| add(window.window.as_micros()));
    if let Some(bucket) = &class.bucket {
        add(bucket.tokens);
        add(bucket.period.as_micros());
        add(bucket.burst);
        add(bucket.debt);
    }
    for tier in class.tiers() {
        add(tier.window.as_micros() << 1 | u64::from(tier.skippable));
        add(tier.active.as_micros());
        add(tier.cooldown.as_micros());
    }
    (print >> 48) as u16
}

fn windows(old: &RateClass, new: &RateClass, state: &mut State, time: Timestamp) {
    let lengths = |class: &RateClass| class.sliding().map(|window| window.window).collect();
    let (before, after): (Vec<_>, Vec<_>) = (lengths(old), lengths(new));
    // Among equal lengths the first one: `max_by_key` alone would return the last.
    let longest = before
        .iter()
        .enumerate()
        .rev()
        .max_by_key(|(_, length)| **length);
    let longest = longest.map(|(index, _)| index);
    let taken = after.iter().map(|length| {
        let same = before.iter().position(|before| before == length);
        let source = same.or(longest).and_then(|index| state.windows.get(index));
        source.map_or_else(Stamps::new, Stamps::clone)
    });
    let taken = taken.collect();
    state.windows.replace(taken);
    for (window, stamps) in new.sliding().zip(state.windows.iter_mut()) {
        window.round(stamps);
        // What leaves by being rounded must not count again in a longer window of the version after this one.
        stamps.forget(window.window, time);
    }
}

fn quotas(new: &RateClass, state: &mut State, time: Timestamp) {
    let taken = new.quotas.iter().map(|quota| {
        let kind = kind_of(quota);
        let same = state.quotas.iter().find(|before| before.kind == kind);
        match same {
            Some(same) if time < same.ends => QuotaState {
                // The zone may have new tables.
                ends: period(quota.unit, &quota.zone, time).ends,
                ..same.clone()
            },
            _ => {
                let mut begun = QuotaState::default();
                begun.begin(quota);
                begun.advance(quota, time);
                begun
            }
        }
    });
    let taken: Vec<QuotaState> = taken.collect();
    state.quotas.replace(taken);
}

fn bucket(old: Option<&Bucket>, new: Option<&Bucket>, state: &mut State, time: Timestamp) {
    let Some(new) = new else {
        return state.bucket.fill(0);
    };
    match old.zip(state.bucket.first_mut()) {
        Some((old, level)) => convert(old, new, level, time),
        None => {
            state.bucket.fill(1);
            if let Some(level) = state.bucket.first_mut() {
                level.begin(new);
                level.at = time;
            }
        }
    }
}

/// Used copies of a bucket count as used in the other, rounded up to its units.
fn convert(old: &Bucket, new: &Bucket, state: &mut BucketState, time: Timestamp) {
    state.advance(old, time);
    let used = i128::from(old.full()) - i128::from(state.level);
    let (from, to) = (i128::from(old.copy_units()), i128::from(new.copy_units()));
    let used = (used.saturating_mul(to) + from - 1) / from;
    let level = i128::from(new.full()) - used;
    // Between floor and full, which both fit.
    state.level = level.clamp(i128::from(new.floor()), i128::from(new.full())) as i64;
}

/// Whether tiers differ only in the limit.
fn have_one_shape(old: &Tier, new: &Tier) -> bool {
    Tier { limit: 0, ..*old } == Tier { limit: 0, ..*new }
}
