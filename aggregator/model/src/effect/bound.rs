//! The greatest number of copies that each constraint allows in a span of its own length.
//!
//! ```text
//! window, hard     L in w                       L above 4,096: in w − w/4096, since stamps are rounded
//! bucket           burst + rate × w in w = (burst + debt) ÷ rate
//! quota            L in each calendar period
//! tiers            the most that an in-line limiter grants in a tier's window
//! ```
//!
//! Copies let through within a denial's delay may be let through again as soon as the copies that count have
//! left: once in a span of the constraint's own length, and in a tier's span once in each window of every
//! other tier that begins in it.
//!
//! ```text
//! tiers   2 per 20 ms, 90 per 1 s, both always active; 5 within each delay
//! in 1 s  2 × 50 and 90 in line; 5 each time the first tier is full, and 5 when the second is
//! ```
//!
//! A run is a stretch of time over which a constraint stays the same; spans are checked only within one run. Knows
//! nothing of calls. What stays true: a bound is never below what an in-line limiter grants.

use crate::bucket::rate;
use crate::limits::{Bucket, Quota, Tier};
use crate::rules::SECOND_US;
use crate::verdict::Cause;

use super::InForce;

/// The spans over which the copies of a run are summed.
#[derive(Clone, Debug)]
pub(super) enum Length {
    /// Any span of this many microseconds, both ends included.
    Sliding(u64),
    /// Each period.
    Periods(Quota),
}

/// A stretch of time over which a constraint stays the same.
#[derive(Clone, Debug)]
pub(super) struct ConstraintRun {
    pub constraint: Cause,
    /// The start and the (excluded) end, in microseconds.
    pub from_us: u64,
    pub to_us: u64,
    pub length: Length,
    /// Instants, each with the copies that are allowed from it on without any delay.
    pub limits: Vec<(u64, u64)>,
    /// Debts that the copies of one delay may each fill: the size of each debt, and how often it may be filled in a
    /// span. Copies above a debt are forgiven, and may be let through again.
    pub debts: Vec<(u64, u64)>,
    /// How many times in a span excess may count nowhere.
    pub gaps: u64,
}

/// A version and its end, if nothing is forgotten in between.
type Piece<'a> = (&'a InForce, u64);

/// All runs of all constraints.
pub(super) fn runs(in_force: &[InForce]) -> Vec<ConstraintRun> {
    let ends = in_force.iter().skip(1).map(|next| next.from_us);
    let pieces: Vec<Piece<'_>> = in_force.iter().zip(ends.chain([u64::MAX])).collect();
    let mut runs = Vec::new();
    for (i, piece) in pieces.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &pieces[i]);
        let before = before.filter(|_| !piece.0.starts_anew);
        for (constraint, length, limit) in sliding(piece) {
            let is_new =
                before.is_none_or(|before| sliding(before).iter().all(|(_, of, _)| *of != length));
            if is_new {
                let of = |piece: &Piece<'_>| {
                    let all = sliding(piece);
                    all.iter().find(|(_, of, _)| *of == length).map(|of| of.2)
                };
                runs.push(window_run(constraint, length, limit, &pieces[i..], of));
            }
        }
        for (index, quota) in piece.0.limits.quotas.iter().enumerate() {
            let same = |of: &Quota| of.unit == quota.unit && of.zone.name == quota.zone.name;
            let is_new = before.is_none_or(|before| !before.0.limits.quotas.iter().any(same));
            if is_new {
                runs.push(quota_run(index, quota, &pieces[i..]));
            }
        }
        if let Some(bucket) = piece.0.limits.bucket {
            runs.extend(bucket_run(bucket, piece));
        }
        if let Some(tiers) = &piece.0.limits.tiers {
            for tier in tiers {
                runs.push(tiers_run(tiers, tier.window_us, piece));
            }
        }
    }
    runs
}

/// The hard limit and the windows: constraint, length and limit; of equal lengths the least limit.
fn sliding(piece: &Piece<'_>) -> Vec<(Cause, u64, u64)> {
    let limits = &piece.0.limits;
    let hard = limits.hard.map(|limit| (Cause::Hard, SECOND_US, limit));
    let windows = limits.windows.iter().enumerate();
    let windows = windows.map(|(i, window)| (Cause::Window(i), window.window_us, window.limit));
    let mut all: Vec<(Cause, u64, u64)> = Vec::new();
    for (cause, length, limit) in hard.into_iter().chain(windows) {
        match all.iter_mut().find(|(_, of, _)| *of == length) {
            Some(known) if known.2 <= limit => {}
            Some(known) => *known = (cause, length, limit),
            None => all.push((cause, length, limit)),
        }
    }
    all
}

fn window_run(
    constraint: Cause,
    length_us: u64,
    limit: u64,
    pieces: &[Piece<'_>],
    limit_of: impl Fn(&Piece<'_>) -> Option<u64>,
) -> ConstraintRun {
    let limits = continued(pieces, limit_of);
    let greatest = limits.1.iter().map(|(_, limit)| *limit).max();
    let rounded_us = match greatest.unwrap_or(limit) {
        0..=4_096 => 0,
        _ => length_us.div_ceil(4_096),
    };
    let least = limits.1.iter().map(|(_, limit)| *limit).min();
    ConstraintRun {
        constraint,
        from_us: pieces[0].0.from_us,
        to_us: limits.0,
        length: Length::Sliding(length_us - rounded_us),
        limits: limits.1,
        debts: vec![(least.unwrap_or(limit), 1)],
        gaps: 0,
    }
}

fn quota_run(index: usize, quota: &Quota, pieces: &[Piece<'_>]) -> ConstraintRun {
    let same = |of: &&Quota| of.unit == quota.unit && of.zone.name == quota.zone.name;
    let limit_of = |piece: &Piece<'_>| {
        let quota = piece.0.limits.quotas.iter().find(same);
        quota.map(|quota| quota.limit)
    };
    let (to_us, limits) = continued(pieces, limit_of);
    let of_two = limits.windows(2);
    let raises = of_two.filter(|two| two[0].1 < two[1].1).count() as u64;
    let least = limits.iter().map(|(_, limit)| *limit).min();
    let debt = match raises {
        // A full period does not open again, so forgiven copies are not let through again.
        0 => (u64::MAX, 1),
        // Unless a version raises the limit.
        _ => (least.unwrap_or(0), raises),
    };
    ConstraintRun {
        constraint: Cause::Quota(index),
        from_us: pieces[0].0.from_us,
        to_us,
        length: Length::Periods(quota.clone()),
        limits,
        debts: vec![debt],
        gaps: 0,
    }
}

/// The end of a constraint's run, and its limits with their instants.
fn continued(
    pieces: &[Piece<'_>],
    limit_of: impl Fn(&Piece<'_>) -> Option<u64>,
) -> (u64, Vec<(u64, u64)>) {
    let mut limits = Vec::new();
    let mut to_us = u64::MAX;
    for (i, piece) in pieces.iter().enumerate() {
        match limit_of(piece) {
            Some(limit) if i == 0 || !piece.0.starts_anew => {
                limits.push((piece.0.from_us, limit));
                to_us = piece.1;
            }
            _ => break,
        }
    }
    (to_us, limits)
}

/// A bucket without a rate never fills, so its span has no length.
fn bucket_run(bucket: Bucket, piece: &Piece<'_>) -> Option<ConstraintRun> {
    let (tokens, period) = rate(bucket);
    let whole = (i128::from(bucket.burst) + i128::from(bucket.debt)) * period;
    let length_us = u64::try_from(whole.checked_div(tokens)?).unwrap_or(u64::MAX);
    let flows = i128::from(length_us) * tokens / period + 1;
    let limit = u64::try_from(i128::from(bucket.burst) + flows).unwrap_or(u64::MAX);
    Some(ConstraintRun {
        constraint: Cause::Bucket,
        from_us: piece.0.from_us,
        to_us: piece.1,
        length: Length::Sliding(length_us),
        limits: vec![(piece.0.from_us, limit)],
        debts: vec![(bucket.debt, 1)],
        // If its debt is below its burst, the bucket may close and open again more than once in a span.
        gaps: bucket.burst.checked_div(bucket.debt).unwrap_or(0),
    })
}

fn tiers_run(tiers: &[Tier], length_us: u64, piece: &Piece<'_>) -> ConstraintRun {
    let times = tiers
        .iter()
        .map(|tier| (tier.limit, windows_in(tier, length_us)));
    let most = times
        .clone()
        .map(|(limit, times)| limit.saturating_mul(times));
    let active_us = tiers.iter().map(|tier| tier.active_us).min();
    ConstraintRun {
        constraint: Cause::Tier(0),
        from_us: piece.0.from_us,
        to_us: piece.1,
        length: Length::Sliding(length_us),
        limits: vec![(piece.0.from_us, most.fold(0, u64::saturating_add))],
        debts: times.collect(),
        // While no tier is current, excess counts nowhere; between two such times some tier is active.
        gaps: length_us / active_us.unwrap_or(1).max(1) + 1,
    }
}

/// The greatest number of windows of a tier that may begin in a span while the tier is active.
fn windows_in(tier: &Tier, length_us: u64) -> u64 {
    let windows = |span_us: u64| span_us / tier.window_us.saturating_add(1) + 1;
    let cycle_us = tier.active_us.saturating_add(tier.cooldown_us).max(1);
    let periods = length_us / cycle_us + 2;
    let active = periods.saturating_mul(windows(tier.active_us.saturating_sub(1)));
    windows(length_us).min(active)
}
