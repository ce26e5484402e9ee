//! The configured constraints of a resource, and the ones that a domain states for itself.
//!
//! Spans are whole microseconds, limits are whole copies. Knows nothing of state or time. What stays
//! true: [`ResourceLimits::of`] hands out normalised limits only, so that no rule ever sees a tier
//! that cannot be active or a window longer than its active time.

use std::collections::BTreeMap;

use crate::calendar::{Calendar, Zone};
use crate::names::{address_of, networks_of, patterns_of};

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
    /// Whether `self` and `other` differ at most in the limit; only then does the tier keep
    /// its state over a new version.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        Self { limit: 0, ..*self } == Self { limit: 0, ..*other }
    }
}

/// An exact sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Copies that may count in it at once.
    pub limit: u64,
    /// Its length, in microseconds.
    pub window_us: u64,
}

/// A token bucket, full when first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Copies that come back in each period.
    pub tokens: u64,
    /// The period, in microseconds.
    pub period_us: u64,
    /// The level at which it is full, in copies.
    pub burst: u64,
    /// How far below zero excess takes it, in copies.
    pub debt: u64,
}

impl Bucket {
    /// The debt of a bucket that states none: the greater of its burst and one second of its rate,
    /// rounded up to whole copies.
    pub fn default_debt(tokens: u64, period_us: u64, burst: u64) -> u64 {
        let second = u128::from(tokens) * 1_000_000;
        let rate = second.div_ceil(u128::from(period_us));
        burst.max(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// A count per calendar period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Copies that may count in one period.
    pub limit: u64,
    /// The unit of the period.
    pub unit: Calendar,
    /// The zone whose clocks delimit the period.
    pub zone: Zone,
}

/// The constraints on one domain on one resource. A constraint that is not stated does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainLimits {
    /// Copies a second, if limited.
    pub hard: Option<u64>,
    /// Sliding windows, all of which must have room.
    pub windows: Vec<Window>,
    /// Counts per calendar period.
    pub quotas: Vec<Quota>,
    /// The token bucket, if there is one.
    pub bucket: Option<Bucket>,
    /// Tiers 1..n, if any are stated. `Some` of an empty list makes the resource inaccessible.
    pub tiers: Option<Vec<Tier>>,
    /// Whether a settlement may not take copies back.
    pub no_refunds: bool,
}

impl DomainLimits {
    /// Limits of these tiers and nothing else.
    pub fn of_tiers(tiers: &[Tier]) -> Self {
        Self {
            tiers: Some(tiers.to_vec()),
            ..Self::default()
        }
    }

    /// The tiers; empty if no tiers are stated.
    pub fn tiers(&self) -> &[Tier] {
        self.tiers.as_deref().unwrap_or_default()
    }

    /// The same limits with normalised tiers.
    pub fn normalized(&self) -> Self {
        Self {
            tiers: self.tiers.as_deref().map(normalize),
            ..self.clone()
        }
    }
}

/// A domain's statement about one field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FieldStated<T> {
    /// No statement: the field is inherited.
    #[default]
    Inherited,
    /// `"none"`: no constraint of this kind for the domain.
    Nothing,
    /// The domain's own value.
    Own(T),
}

impl<T: Clone> FieldStated<T> {
    fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    fn or(&self, inherited: Option<T>) -> Option<T> {
        match self {
            Self::Inherited => inherited,
            Self::Nothing => None,
            Self::Own(own) => Some(own.clone()),
        }
    }
}

/// The constraints that one domain states for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainOverride {
    /// The domain's own hard limit.
    pub hard: FieldStated<u64>,
    /// The domain's own windows.
    pub windows: FieldStated<Vec<Window>>,
    /// The domain's own quotas.
    pub quotas: FieldStated<Vec<Quota>>,
    /// The domain's own bucket.
    pub bucket: FieldStated<Bucket>,
    /// The domain's own tiers. An empty list closes the resource to the domain.
    pub tiers: FieldStated<Vec<Tier>>,
    /// Whether a settlement of the domain may not take copies back.
    pub no_refunds: Option<bool>,
}

/// All limits of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceLimits {
    /// The constraints on a domain that states nothing.
    pub default: DomainLimits,
    /// The statements of domains, and of networks of domains.
    pub domains: BTreeMap<String, DomainOverride>,
    /// Copies a second of all domains, if limited.
    pub global: Option<u64>,
}

impl ResourceLimits {
    /// The normalised limits of `domain`: by its own statements, or else by those of the
    /// longest network that contains it.
    ///
    /// Windows, bucket and tiers go together: stating any of them replaces the inherited values of all three.
    /// `hard` and quotas are each inherited alone, and "none" removes its own field only.
    pub fn of(&self, domain: &str) -> DomainLimits {
        let inherited = &self.default;
        let Some(own) = self.stated_by(domain) else {
            return inherited.normalized();
        };
        let replaces = own.windows.is_own() || own.bucket.is_own() || own.tiers.is_own();
        let windows = Some(inherited.windows.clone()).filter(|_| !replaces);
        let bucket = inherited.bucket.filter(|_| !replaces);
        let is_closed = |tiers: &Vec<Tier>| normalize(tiers).is_empty();
        // A hard limit or a quota of its own lets a domain in where the resource lets in nobody.
        let opens = own.hard.is_own() || own.quotas.is_own();
        let tiers = inherited.tiers.clone().filter(|_| !replaces);
        let tiers = tiers.filter(|tiers| !(opens && is_closed(tiers)));
        DomainLimits {
            hard: own.hard.or(inherited.hard),
            windows: own.windows.or(windows).unwrap_or_default(),
            quotas: own
                .quotas
                .or(Some(inherited.quotas.clone()))
                .unwrap_or_default(),
            bucket: own.bucket.or(bucket),
            tiers: own.tiers.or(tiers),
            no_refunds: own.no_refunds.unwrap_or(inherited.no_refunds),
        }
        .normalized()
    }

    fn stated_by(&self, domain: &str) -> Option<&DomainOverride> {
        if self.domains.is_empty() {
            return None;
        }
        let own = self.domains.get(domain);
        own.or_else(|| {
            let mut names = address_of(domain).into_iter().chain(networks_of(domain));
            names.find_map(|name| self.domains.get(&name))
        })
    }
}

/// One version of the limits document: everything that can change a ruling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The rate-limited resources by name or pattern (`api.*`).
    pub resources: BTreeMap<String, ResourceLimits>,
    /// The greatest number of pairs that a partition rules, whole-resource pairs included.
    pub pairs_per_partition_max: u64,
}

impl Limits {
    /// The limits of a resource: those under its own name, or else those of the longest pattern that it matches. A
    /// resource with neither is not ruled.
    pub fn of(&self, resource: &str) -> Option<&ResourceLimits> {
        let own = self.resources.get(resource);
        own.or_else(|| {
            let mut patterns = patterns_of(resource);
            patterns.find_map(|name| self.resources.get(&name))
        })
    }
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
/// A tier that is never active is removed. A window longer than the active time is cut to it. An active time that
/// is not a whole number of windows is trimmed to one, since with a partial window at its end a domain could exceed
/// the limit across two active periods.
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
