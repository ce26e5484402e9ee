//! What rules one domain's use of a rate-limited resource: its constraints, checked and normalised.
//!
//! A pair is granted a copy only if every stated constraint has room. They are asked in the order
//! hard, global (which belongs to the resource), windows, quotas, bucket, tiers.

use std::sync::Arc;

use tollgate_shared::time::Span;

use super::zone::Zone;

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

/// An exact sliding window: a hit at h counts until h + window, that instant included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// Copies that may fall within one window; below 2³².
    pub limit: u64,
    /// Length of the sliding window.
    pub window: Span,
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
        let (mut divisor, mut rest) = (tokens, period.as_micros());
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let divisor = divisor.max(1);
        Self {
            tokens: tokens / divisor,
            period: Span::from_micros(period.as_micros() / divisor),
            burst,
            debt,
        }
    }

    /// The debt of a bucket that states none: the greater of the burst and of what flows in within a
    /// second, rounded up to whole copies.
    pub fn default_debt(tokens: u64, period: Span, burst: u64) -> u64 {
        let a_second = u128::from(tokens) * 1_000_000;
        let a_second = a_second.div_ceil(u128::from(period.as_micros().max(1)));
        burst.max(u64::try_from(a_second).unwrap_or(u64::MAX))
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

/// A count per calendar period. Nothing slides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quota {
    /// Copies in one period; below 2³².
    pub limit: u64,
    /// What the period is.
    pub unit: Calendar,
    /// Whose local dates begin it.
    pub zone: Arc<Zone>,
}

/// The limits of one domain on one resource, after inheritance, plans and normalisation. Domains
/// with equal limits share one class.
///
/// A constraint that is not stated asks nothing, so the default lets everything through.
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
    /// The tiers, lowest first. `None` means that tiers ask nothing; an empty list makes the resource
    /// inaccessible.
    pub tiers: Option<Box<[Tier]>>,
    /// Whether a settlement may take back what was estimated.
    pub refunds: bool,
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

    /// The tiers, lowest first; none where tiers ask nothing.
    pub fn tiers(&self) -> &[Tier] {
        self.tiers.as_deref().unwrap_or_default()
    }

    /// Whether it states tiers and has none.
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
