//! What is configured: tiers, hard and global limits, what a domain states for itself.
//!
//! Spans are whole microseconds, limits are whole hits. Knows nothing of state or time. What stays
//! true: [`ResourceLimits::of`] hands out normalised limits only, so that no rule ever sees a tier
//! that cannot be active or a window longer than its active time (section 3.1: "Limits are
//! normalised before everything else").

use std::collections::BTreeMap;

/// One burst tier as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Hits that may be in the window at once.
    pub limit: u64,
    /// Window, in microseconds.
    pub window_us: u64,
    /// Active time from the tier's entry, in microseconds.
    pub active_us: u64,
    /// Cooldown after the active time, in microseconds.
    pub cooldown_us: u64,
    /// Whether a climb passes over the tier while it cools down.
    pub skippable: bool,
}

impl Tier {
    /// Whether `self` and `other` differ in nothing but the limit, which is what lets a tier keep
    /// its state over a new version (section 3.3, "New limits").
    pub fn has_shape_of(&self, other: &Self) -> bool {
        Self { limit: 0, ..*self } == Self { limit: 0, ..*other }
    }
}

/// The limits that hold for one domain on one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainLimits {
    /// Tiers 1..n. None at all: inaccessible.
    pub tiers: Vec<Tier>,
    /// Hits a second, if limited.
    pub hard: Option<u64>,
}

impl DomainLimits {
    /// The same limits with normalised tiers.
    pub fn normalized(&self) -> Self {
        Self {
            tiers: normalize(&self.tiers),
            hard: self.hard,
        }
    }
}

/// What one domain states for itself; a field it does not state is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainOverride {
    /// The domain's own tiers. `Some` of an empty list closes the resource to it.
    pub tiers: Option<Vec<Tier>>,
    /// The domain's own hard limit.
    pub hard: Option<u64>,
}

/// All limits of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// What holds for a domain that states nothing.
    pub default: DomainLimits,
    /// What domains state for themselves.
    pub domains: BTreeMap<String, DomainOverride>,
    /// Hits a second of all domains, if limited.
    pub global: Option<u64>,
}

impl ResourceLimits {
    /// The normalised limits of `domain`: each field it states replaces the default's.
    pub fn of(&self, domain: &str) -> DomainLimits {
        let own = self.domains.get(domain);
        let tiers = own.and_then(|own| own.tiers.as_ref());
        let hard = own.and_then(|own| own.hard);
        DomainLimits {
            tiers: tiers.unwrap_or(&self.default.tiers).clone(),
            hard: hard.or(self.default.hard),
        }
        .normalized()
    }
}

/// One version of the limits document: everything that can change a ruling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The rate-limited resources by name. A resource that is not here is not ruled.
    pub resources: BTreeMap<String, ResourceLimits>,
    /// Pairs that a partition rules at most, whole-resource pairs included.
    pub pairs_per_partition_max: u64,
}

impl Default for Limits {
    /// No resource, and no bound on pairs.
    fn default() -> Self {
        Self {
            resources: BTreeMap::new(),
            pairs_per_partition_max: u64::MAX,
        }
    }
}

/// The tiers as the rules see them.
///
/// A tier that is never active goes. A window longer than the active time is cut to it. An active
/// time that is no whole number of windows is trimmed to one, since with a partial window at its
/// end a domain could exceed the limit across two active periods.
pub fn normalize(tiers: &[Tier]) -> Vec<Tier> {
    let mut normal = Vec::new();
    for tier in tiers {
        if tier.active_us == 0 {
            continue;
        }
        let window_us = tier.window_us.min(tier.active_us);
        // Every active time is a whole number of windows of no length.
        let partial_us = tier.active_us.checked_rem(window_us).unwrap_or(0);
        normal.push(Tier {
            window_us,
            active_us: tier.active_us - partial_us,
            ..*tier
        });
    }
    normal
}
