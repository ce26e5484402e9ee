//! What rules one domain's use of a rate-limited resource: tiers and a hard limit, normalised.

use tollgate_shared::time::Span;

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

/// The limits of one domain on one resource, after inheritance, plans and normalisation. Domains
/// with equal limits share one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RateClass {
    /// The tiers, lowest first. None at all: the resource is inaccessible.
    pub tiers: Box<[Tier]>,
    /// Hits a second of this domain; none: unbounded.
    pub hard: Option<u64>,
}

impl RateClass {
    /// Whether no hit is ever granted.
    pub fn grants_nothing(&self) -> bool {
        self.hard == Some(0) || self.tiers.iter().all(|tier| tier.limit == 0)
    }
}
