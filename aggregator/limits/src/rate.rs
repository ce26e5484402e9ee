//! The limits of one domain on a rate-limited resource: its constraints, checked and normalised.
//!
//! A pair is granted a copy only if every stated constraint has room. The rules check them in the
//! order hard, global (which belongs to the resource), windows, quotas, bucket, tiers.

use std::sync::Arc;

use tollgate_shared::time::{Span, Timestamp};

use super::units::greatest_common_divisor;
use super::zone::Zone;

/// The length over which hard and global limits count.
pub const SECOND: Span = Span::from_secs(1);

/// The greatest limit of a window with exact stamps.
pub const EXACT_MAX: u64 = 4_096;

/// A burst tier, as in the Charon paper, section 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tier {
    /// Hits that may fall within one window. Zero: a prison that grants nothing.
    pub limit: u64,
    /// Length of the sliding window.
    pub window: Span,
    /// How long the tier stays active after it was entered.
    pub active: Span,
    /// How long it cannot be entered after its active period.
    pub cooldown: Span,
    /// Whether a climb passes over it while it cools down.
    pub skippable: bool,
}

impl Tier {
    /// The tier's window.
    #[inline]
    pub fn sliding(&self) -> Window {
        Window {
            limit: self.limit,
            window: self.window,
        }
    }
}

/// An exact sliding window: a hit at h counts until h + window, that instant included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// Copies that may fall within one window; below 2³².
    pub limit: u64,
    /// Length of the sliding window.
    pub window: Span,
}

impl Window {
    /// A global limit: all domains' copies of a second.
    #[inline]
    pub fn of_second(limit: u64) -> Self {
        Self {
            limit,
            window: SECOND,
        }
    }

    /// The stamp under which a copy counts.
    #[inline]
    pub fn rounded(&self, at: Timestamp) -> Timestamp {
        match self.is_exact() {
            true => at,
            false => {
                let step_us = self.window.as_micros().div_ceil(EXACT_MAX).max(1);
                Timestamp::from_micros(at.as_micros() - at.as_micros() % step_us)
            }
        }
    }

    /// Whether stamps are kept exactly.
    #[inline]
    pub fn is_exact(&self) -> bool {
        self.limit <= EXACT_MAX
    }

    /// Whether a copy stamped `at` has left at `now`, by the stamp under which it counts.
    #[inline]
    pub fn has_left(&self, at: Timestamp, now: Timestamp) -> bool {
        has_left(self.window, self.rounded(at), now)
    }
}

/// Whether a copy stamped `at` has left a window of `span` at `now`.
#[inline]
pub fn has_left(span: Span, at: Timestamp, now: Timestamp) -> bool {
    at.saturating_add(span) < now
}

/// A token bucket, full when a pair is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    /// Copies that flow in each `period`: N of N ÷ P, divided by their greatest common divisor.
    pub tokens: u64,
    /// P: microseconds in which `tokens` flow in, divided likewise. A copy is P units of the level.
    pub period: Span,
    /// Copies that a full bucket holds.
    pub burst: u64,
    /// Copies by which excess may take the level below zero.
    pub debt: u64,
}

impl Bucket {
    /// A bucket into which `tokens` copies flow each `period`, reduced.
    pub fn new(tokens: u64, period: Span, burst: u64, debt: u64) -> Self {
        let divisor = greatest_common_divisor(tokens, period.as_micros());
        Self {
            tokens: tokens / divisor,
            period: Span::from_micros(period.as_micros() / divisor),
            burst,
            debt,
        }
    }

    /// The debt of a bucket that states none: the burst, or the inflow of a second rounded up to
    /// whole copies if that is greater.
    pub fn default_debt(tokens: u64, period: Span, burst: u64) -> u64 {
        let a_second = u128::from(tokens) * 1_000_000;
        let a_second = a_second.div_ceil(u128::from(period.as_micros().max(1)));
        burst.max(u64::try_from(a_second).unwrap_or(u64::MAX))
    }
}

impl Bucket {
    /// The units of one copy.
    #[inline]
    pub fn copy_units(&self) -> i64 {
        i64::try_from(self.period.as_micros())
            .unwrap_or(i64::MAX)
            .max(1)
    }

    /// Copies in units, saturating.
    #[inline]
    pub fn units(&self, copies: u64) -> i64 {
        let units = i128::from(copies) * i128::from(self.copy_units());
        // A document with a larger bucket is refused; this keeps the arithmetic total.
        i64::try_from(units).unwrap_or(i64::MAX).min(1 << 62)
    }

    /// The level of a full bucket.
    #[inline]
    pub fn full(&self) -> i64 {
        self.units(self.burst)
    }

    /// The lowest level that debt may cause.
    #[inline]
    pub fn floor(&self) -> i64 {
        -self.units(self.debt)
    }

    /// How long the level takes to rise to at least another level; `None`: for ever.
    #[inline]
    pub fn rises_in(&self, from: i64, to: i64) -> Option<Span> {
        let missing = i128::from(to) - i128::from(from);
        if missing <= 0 {
            return Some(Span::ZERO);
        }
        if self.tokens == 0 {
            return None;
        }
        let tokens = i128::from(self.tokens);
        u64::try_from((missing + tokens - 1) / tokens)
            .ok()
            .map(Span::from_micros)
    }

    /// How long an empty bucket takes to fill, to display limits.
    pub fn fills_in(&self) -> Span {
        self.rises_in(0, self.full()).unwrap_or(Span::MAX)
    }
}

/// The length of a quota's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Calendar {
    /// From the first instant of each local date.
    Day,
    /// From the first instant of each Monday.
    Week,
    /// From the first instant of each month.
    Month,
    /// From the first instant of each year.
    Year,
}

impl Calendar {
    /// The name of the period: `day`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// A count per calendar period. Nothing slides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quota {
    /// Copies in one period; below 2³².
    pub limit: u64,
    /// The kind of period.
    pub unit: Calendar,
    /// The zone whose local dates begin it.
    pub zone: Arc<Zone>,
}

/// The limits of one domain on one resource, after inheritance, plans and normalisation. Domains
/// with equal limits share one class.
///
/// A constraint that is not stated always has room, so the default lets everything through.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateClass {
    /// Copies a second of this domain; `None` means unbounded.
    pub hard: Option<u64>,
    /// Sliding windows that must all have room.
    pub windows: Box<[Window]>,
    /// Calendar periods that must all have room.
    pub quotas: Box<[Quota]>,
    /// A token bucket.
    pub bucket: Option<Bucket>,
    /// The tiers, lowest first. `None`: the tiers limit nothing; an empty list makes the resource
    /// inaccessible.
    pub tiers: Option<Box<[Tier]>>,
    /// Whether a settlement may refund copies of an estimate.
    pub refunds: bool,
}

impl RateClass {
    /// The hard limit, if there is one, and then the windows, in the order in which the rules check
    /// them.
    #[inline]
    pub fn sliding(&self) -> impl Iterator<Item = Window> + '_ {
        let hard = self.hard.map(Window::of_second);
        hard.into_iter().chain(self.windows.iter().copied())
    }

    /// The number of items of [`RateClass::sliding`].
    #[inline]
    pub fn sliding_len(&self) -> usize {
        usize::from(self.hard.is_some()) + self.windows.len()
    }
}

impl Default for RateClass {
    fn default() -> Self {
        Self {
            hard: None,
            windows: Box::default(),
            quotas: Box::default(),
            bucket: None,
            tiers: None,
            refunds: true,
        }
    }
}

impl RateClass {
    /// The limits of a resource that states nothing: no hit is ever granted.
    pub fn inaccessible() -> Self {
        Self {
            tiers: Some(Box::default()),
            ..Self::default()
        }
    }

    /// The tiers, lowest first; empty if tiers limit nothing.
    pub fn tiers(&self) -> &[Tier] {
        self.tiers.as_deref().unwrap_or_default()
    }

    /// Whether it states an empty list of tiers.
    pub fn is_inaccessible(&self) -> bool {
        self.tiers.as_deref().is_some_and(<[Tier]>::is_empty)
    }

    /// Whether it states no constraint at all.
    pub fn is_unlimited(&self) -> bool {
        self.hard.is_none()
            && self.windows.is_empty()
            && self.quotas.is_empty()
            && self.bucket.is_none()
            && self.tiers.is_none()
    }

    /// Whether no hit is ever granted.
    pub fn grants_nothing(&self) -> bool {
        self.most_at_once() == Some(0)
    }

    /// The least of its limits: with so many copies it may be full. `None`: it has no limit but 0.
    pub fn least(&self) -> Option<u64> {
        let sliding = self.sliding().map(|window| window.limit);
        let tiers = self.tiers().iter().map(|tier| tier.limit);
        let quotas = self.quotas.iter().map(|quota| quota.limit);
        let bucket = self.bucket.map(|bucket| bucket.burst);
        let all = sliding.chain(tiers).chain(quotas).chain(bucket);
        all.filter(|limit| *limit != 0).min()
    }

    /// The most copies that can ever be granted at one instant; `None` means unbounded.
    pub fn most_at_once(&self) -> Option<u64> {
        let tiers = self.tiers.as_deref().map(|tiers| {
            let limits = tiers.iter().map(|tier| tier.limit);
            limits.fold(0, u64::saturating_add)
        });
        let windows = self.windows.iter().map(|window| window.limit);
        let quotas = self.quotas.iter().map(|quota| quota.limit);
        let all = windows.chain(quotas).chain(self.hard);
        let all = all.chain(self.bucket.map(|bucket| bucket.burst));
        all.chain(tiers).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stamps_of_large_limits_are_rounded_down() {
        let of = |limit| Window {
            limit,
            window: Span::from_secs(10),
        };
        let at = Timestamp::from_micros(1_700_000_000_000_001);
        assert_eq!(of(4_096).rounded(at), at);
        let rounded = of(4_097).rounded(at);
        assert_eq!(rounded.as_micros() % 2_442, 0);
        assert!(at.since(rounded) < Span::from_micros(2_442));
    }
}
