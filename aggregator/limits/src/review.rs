//! Warnings about checked limits: tiers that nothing reaches, memory at the limit.
//!
//! ```text
//! hard 10/s, tier 1: 100 in 1s    the second allows 10: tier 1 is never full, and tier 2 is never
//!                                 reached, unless tier 1 is skippable and cools down
//! tier 2 of 2: limit 0            a hit that ends here is refused, and a refused hit enters no
//!                                 tier: no prison at all
//! ```
//!
//! Warns only of what holds for every sequence of hits in order of time. (A hit that arrives late does not have
//! to fit the hard limit of its own second, so late hits may fill what hits in order cannot.)

use tollgate_shared::networks::address;
use tollgate_shared::time::Span;

use super::fault::FaultKind;
use super::numbers::ClassId;
use super::path::{Path, PathStep};
use super::quotas;
use super::rate::{RateClass, Tier, Window};
use super::resource::{RateResource, Resource};
use super::source::Notes;
use super::stated_places::{LimitsOwner, StatedPlaces};
use super::tables::RateOverride;
use super::version::Limits;
use super::warning::{Collector, WarningKind};

/// Bytes of one constraint of a pair with one hit remembered.
const CONSTRAINT_BYTES: u64 = 48;

/// Bytes of each further remembered hit.
const HIT_BYTES: u64 = 4;

/// Above so many copies a window's stamps are rounded, so that it has no more different ones.
const STAMPS_MAX: u64 = 4_096;

/// A warning is given for a domain that takes more bytes than this at its limit.
pub const STATE_BYTES_WARN: u64 = 64 * 1_024;

/// A document is refused if a domain takes more bytes than this at its limit, unless the document explicitly
/// allows it.
pub const STATE_BYTES_MAX: u64 = 256 * 1_024;

/// Estimates the bytes of state of a pair that has used its limits and the whole debt beyond them.
///
/// A bucket and a quota take the same whatever their length; a window and a tier take up to twice the hits of
/// their limit, or of the limit above which their stamps are rounded.
pub fn state_bytes_at_limit(class: &RateClass) -> u64 {
    let further = |hits: u64| HIT_BYTES.saturating_mul(hits.saturating_mul(2).saturating_sub(1));
    let window = |limit: u64| CONSTRAINT_BYTES.saturating_add(further(limit.min(STAMPS_MAX)));
    let tiers = class.tiers().iter();
    let tiers = tiers.map(|tier| window(tier.limit));
    let windows = class.windows.iter().map(|of| window(of.limit));
    let hard = class.hard.map(window);
    let counts = class.quotas.len() + usize::from(class.bucket.is_some());
    let counts = CONSTRAINT_BYTES.saturating_mul(counts as u64);
    let all = tiers.chain(windows).chain(hard).chain([counts]);
    all.fold(0, u64::saturating_add)
}

/// The hits that a hard limit allows in one window.
///
/// A window includes both ends, and so does the hard limit's second: stamps are whole microseconds, so each
/// covers one more than its length; the result counts as many seconds as cover the window.
pub fn hits_max_in(window: Span, hard: u64) -> u64 {
    let stamps = u128::from(window.as_micros()) + 1;
    let seconds = stamps.div_ceil(1_000_001);
    u64::try_from(u128::from(hard) * seconds).unwrap_or(u64::MAX)
}

/// Adds warnings about valid limits, and faults for those that take too much memory.
pub(super) fn review(
    limits: &Limits,
    places: StatedPlaces<'_>,
    warnings: &Collector,
    notes: &Notes,
) {
    for rate in limits.rates() {
        let resource = Path::DOCUMENT.then(PathStep::Named("resource", rate.name()));
        let review = Review {
            limits,
            places,
            rate,
            warnings,
            notes,
        };
        let owner = LimitsOwner::Resource;
        review.review_class((&resource, owner), rate.default_class(), 0);
        if let Some(class) = rate.default.candidate {
            let candidate = resource.then(PathStep::Section("candidate"));
            review.review_class((&candidate, LimitsOwner::Candidate), class, 0);
        }
        review.review_bytes((&resource, owner), &rate.default, 0);
        review.review_overrides(&resource);
        review.review_spellings(&resource);
    }
    review_copies(limits, warnings);
    review_rules(limits, warnings);
    let beyond = |name: &str, kind| {
        let resource = Path::DOCUMENT.then(PathStep::Named("resource", name));
        warnings.add(&resource, kind);
    };
    let closed = limits.closed_beyond_bound();
    closed.for_each(|(name, _)| beyond(name, WarningKind::ClosedBeyondBound));
    let allowed = limits.allowed_beyond_bound();
    allowed.for_each(|name| beyond(name, WarningKind::AllowedBeyondBound));
}

/// Warns once, of each resource of copies, of entries for addresses, whose spellings hold copies each by itself. An
/// entry of 0 refuses every spelling.
fn review_copies(limits: &Limits, warnings: &Collector) {
    let copies = limits.resources().iter().filter_map(|of| match of {
        Resource::Copies(copies) if copies.networks.has_addresses() => Some(copies),
        _ => None,
    });
    for copies in copies {
        let mut spelt = copies
            .overrides()
            .filter(|(domain, limit)| 0 < *limit && address(domain).is_some());
        if let Some((first, _)) = spelt.next() {
            let resource = Path::DOCUMENT.then(PathStep::Named("resource", copies.name()));
            let path = resource.then(PathStep::Named("domain", first));
            let alike = spelt.count() as u64;
            warnings.add_alike(&path, WarningKind::SpeltCopiesAddress, alike);
        }
    }
}

/// Warns of rules of descriptors whose resource is stated as a whole, and has no limits.
fn review_rules(limits: &Limits, warnings: &Collector) {
    for (name, rules) in limits.descriptors.iter() {
        let descriptors = Path::DOCUMENT.then(PathStep::Named("descriptors", name));
        for (index, rule) in rules.iter().enumerate() {
            let resource = rule.resource().text();
            if !resource.contains('{') && limits.resource(resource).is_none() {
                let rule = descriptors.then(PathStep::item("rule", index));
                let resource = rule.then(PathStep::Named("resource", resource));
                warnings.add(&resource, WarningKind::ResourceWithoutLimits);
            }
        }
    }
}

struct Review<'a> {
    limits: &'a Limits,
    places: StatedPlaces<'a>,
    rate: &'a RateResource,
    warnings: &'a Collector,
    notes: &'a Notes,
}

impl Review<'_> {
    /// Checks each override once, under the first domain that has it.
    fn review_overrides(&self, resource: &Path<'_>) {
        for (domain, domains, of) in self.rate.override_uses() {
            if self.is_not_let_in(of) {
                let path = resource.then(PathStep::Named("domain", domain));
                let alike = domains as u64 - 1;
                self.warnings.add_alike(&path, WarningKind::NotLetIn, alike);
            }
            if of.class != self.rate.default_class() {
                let path = resource.then(PathStep::Named("domain", domain));
                let place = (&path, LimitsOwner::Domain(domain));
                self.review_class(place, of.class, domains as u64 - 1);
                self.review_bytes(place, of, domains as u64 - 1);
            }
        }
    }

    /// Whether an entry leaves its domain the empty list of tiers of its resource, and states no limit. A limit of 0,
    /// or an empty list of its own, is a ban, which is intended.
    fn is_not_let_in(&self, of: &RateOverride) -> bool {
        let stated = &of.stated;
        stated.tiers.is_inherited()
            && stated.hard.value().is_none()
            && stated.quotas.value().is_none()
            && self.limits.class(of.class).is_inaccessible()
    }

    /// Warns once of entries for addresses whose spellings are limited each by itself, because the resource does not
    /// make domains of addresses. An entry that grants all, or nothing, does so in any spelling.
    fn review_spellings(&self, resource: &Path<'_>) {
        if self.rate.addresses().is_some() || !self.rate.networks.has_addresses() {
            return;
        }
        let counts = |domain: &&str| {
            let class = self.limits.class(self.rate.class_of(domain));
            address(domain).is_some() && !class.grants_nothing() && !class.is_unlimited()
        };
        let mut spelt = self.rate.document_domains().filter(counts);
        if let Some(first) = spelt.next() {
            let path = resource.then(PathStep::Named("domain", first));
            let alike = spelt.count() as u64;
            self.warnings
                .add_alike(&path, WarningKind::SpeltAddress, alike);
        }
    }

    fn review_class(
        &self,
        (path, owner): (&Path<'_>, LimitsOwner<'_>),
        class: ClassId,
        alike: u64,
    ) {
        let class = self.limits.class(class);
        let warn = |path: &Path<'_>, kind| self.warnings.add_alike(path, kind, alike);
        if let (Some(hard), Some(global)) = (class.hard, self.rate.global())
            && global < hard
        {
            let kind = WarningKind::HardAboveGlobal { hard, global };
            warn(&path.then(PathStep::Field("hard")), kind);
        }
        self.review_windows((path, owner), class, alike);
        for (step, kind) in quotas::idle(&class.quotas) {
            warn(&path.then(step), kind);
        }
        if let Some(kind) = windows_in_tiers_clothing(class.tiers()) {
            warn(&path.then(PathStep::Field("tiers")), kind);
        }
        for (index, tier) in class.tiers().iter().enumerate() {
            let path = path.then(PathStep::item("tier", index));
            if let Some(kind) = never_reached(class, index) {
                warn(&path, kind);
            } else if let Some(hits_max) = never_full(tier, class.hard) {
                let kind = WarningKind::NeverFull {
                    limit: tier.limit,
                    hard: class.hard.unwrap_or(u64::MAX),
                    hits_max,
                };
                warn(&path.then(PathStep::Field("limit")), kind);
            } else if let Some(kind) = always_there(class.tiers(), index) {
                warn(&path, kind);
            }
        }
    }

    /// Warns of windows that another one, or the hard limit, keeps from ever being full.
    fn review_windows(
        &self,
        (path, owner): (&Path<'_>, LimitsOwner<'_>),
        class: &RateClass,
        alike: u64,
    ) {
        let hard = class.hard.map(|limit| Window {
            limit,
            window: Span::from_secs(1),
        });
        for (index, window) in class.windows.iter().enumerate() {
            let others = class.windows.iter().enumerate();
            let others = others.filter(|(other, _)| *other != index);
            let numbered = others.map(|(other, of)| (of, other < index));
            let mut binding = hard.iter().map(|hard| (hard, false)).chain(numbered);
            let found = binding.find_map(|(of, is_before)| {
                let most = copies_max_in(window.window, of);
                // Of two windows with the same effect the first is the one that binds.
                let keeps = most < window.limit || (most == window.limit && is_before);
                let longer = window.window < of.window && of.limit <= window.limit;
                (keeps || longer).then_some((most, of))
            });
            if let Some((most, of)) = found {
                let step = match self.places.are_windows(self.rate.name(), owner) {
                    false => PathStep::Field("rate"),
                    true => PathStep::item("windows", index),
                };
                let (limit, window) = (of.limit, of.window);
                let kind = WarningKind::NeverBinds {
                    most,
                    limit,
                    window,
                };
                self.warnings.add_alike(&path.then(step), kind, alike);
            }
        }
    }

    /// Checks the bytes of a pair, together with those of the candidate.
    fn review_bytes(
        &self,
        (path, owner): (&Path<'_>, LimitsOwner<'_>),
        of: &RateOverride,
        alike: u64,
    ) {
        let of_class = |class| state_bytes_at_limit(self.limits.class(class));
        let bytes = of_class(of.class).saturating_add(of.candidate.map_or(0, of_class));
        if STATE_BYTES_MAX < bytes && !self.rate.large_state() {
            let at = self.places.offset_of(self.rate.name(), owner);
            self.notes.add(path, at, FaultKind::TooManyBytes { bytes });
        } else if STATE_BYTES_WARN < bytes {
            let kind = WarningKind::ManyBytes { bytes };
            self.warnings.add_alike(path, kind, alike);
        }
    }
}

/// The copies that one window allows within another of some length, both ends of each included.
fn copies_max_in(window: Span, of: &Window) -> u64 {
    if window <= of.window {
        return of.limit;
    }
    let stamps = u128::from(window.as_micros()) + 1;
    let windows = stamps.div_ceil(u128::from(of.window.as_micros()) + 1);
    u64::try_from(u128::from(of.limit) * windows).unwrap_or(u64::MAX)
}

/// Whether tiers look like independent windows: all are always available, and the longer the window, the greater
/// the limit.
fn windows_in_tiers_clothing(tiers: &[Tier]) -> Option<WarningKind> {
    let plain = |tier: &Tier| tier.cooldown == Span::ZERO && tier.active == tier.window;
    let rises = |two: &[Tier]| two[0].window < two[1].window && two[0].limit < two[1].limit;
    let last = tiers.last()?;
    let looks_so = 1 < tiers.len() && tiers.iter().all(plain) && tiers.windows(2).all(rises);
    looks_so.then(|| WarningKind::TiersAddUp {
        sum: sum_of(tiers),
        last: last.limit,
    })
}

/// Whether a tier only adds to the one below: a greater limit, and no cooldown during which it is unavailable.
fn always_there(tiers: &[Tier], index: usize) -> Option<WarningKind> {
    let below = tiers.get(index.checked_sub(1)?)?;
    let tier = tiers.get(index)?;
    let more = 0 < below.limit && below.limit < tier.limit && tier.cooldown == Span::ZERO;
    let warned = windows_in_tiers_clothing(tiers).is_some();
    (more && !warned).then(|| WarningKind::TierWithoutCooldown {
        sum: sum_of(tiers.get(..=index).unwrap_or_default()),
    })
}

fn sum_of(tiers: &[Tier]) -> u64 {
    let limits = tiers.iter().map(|tier| tier.limit);
    limits.fold(0, u64::saturating_add)
}

/// The hits that fit into the tier's window under the hard limit, if they never fill it.
fn never_full(tier: &Tier, hard: Option<u64>) -> Option<u64> {
    let hits_max = hits_max_in(tier.window, hard?);
    (hits_max < tier.limit).then_some(hits_max)
}

/// Why no hit ever enters the tier at an index, if so.
///
/// A climb starts at the current tier, which was entered before. So the first hit in a tier has passed every tier
/// below at some time, because that was full, or because it is skippable and cooled down.
fn never_reached(class: &RateClass, index: usize) -> Option<WarningKind> {
    let blocked = class.tiers()[..index].iter().position(|tier| {
        let passed_over = tier.skippable && tier.cooldown != Span::ZERO;
        !passed_over && never_full(tier, class.hard).is_some()
    });
    if let Some(below) = blocked {
        return Some(WarningKind::NeverReached { below: below + 1 });
    }
    // A class that grants nothing at all is a ban, which is intended.
    let grants = |tiers: &[Tier]| tiers.iter().any(|tier| 0 < tier.limit);
    (grants(class.tiers()) && !grants(&class.tiers()[index..])).then_some(WarningKind::NeverEntered)
}
