//! What checked limits amount to: tiers that nothing reaches, memory at the limit.
//!
//! ```text
//! hard 10/s, tier 1: 100 in 1s    the second lets 10 through: tier 1 is never full, and tier 2
//!                                 is never reached, unless tier 1 is skippable and cools down
//! tier 2 of 2: limit 0            a hit that ends here is refused, and a refused hit enters
//!                                 nothing: no prison at all
//! ```
//!
//! Only what holds for every sequence of hits in order of time is said. (A hit that arrives late is
//! not held to the hard limit of its own second, so late hits may fill what hits in order cannot.)

use tollgate_shared::time::Span;

use super::path::{Path, Step};
use super::rate::{RateClass, Tier};
use super::resource::RateResource;
use super::version::{ClassId, Limits};
use super::warning::{Collector, WarningKind};

/// State of one pair and tier with one hit remembered, as the engine is built to keep it.
const TIER_BYTES: u64 = 48;

/// Each further hit that is remembered.
const HIT_BYTES: u64 = 4;

/// Bytes of a domain at its limit from which on a warning is given.
pub const STATE_BYTES_WARN: u64 = 64 * 1_024;

/// About how many bytes of state a pair takes that is at its limits.
///
/// Per tier the hits that fill it, and for the hard limit the hits of the last second.
pub fn state_bytes_at_limit(class: &RateClass) -> u64 {
    let further = |hits: u64| HIT_BYTES.saturating_mul(hits.saturating_sub(1));
    let mut bytes: u64 = 0;
    let mut hits: u64 = 0;
    for tier in class.tiers() {
        bytes = bytes
            .saturating_add(TIER_BYTES)
            .saturating_add(further(tier.limit));
        hits = hits.saturating_add(tier.limit);
    }
    match class.hard {
        Some(hard) => bytes.saturating_add(further(hard.min(hits))),
        None => bytes,
    }
}

/// The hits that a hard limit lets into one window.
///
/// A window covers its length and both edges, and so does the hard limit's second: stamps are whole
/// microseconds, so they cover one more than their length, and as many seconds are needed as cover
/// the window.
pub fn hits_max_in(window: Span, hard: u64) -> u64 {
    let stamps = u128::from(window.as_micros()) + 1;
    let seconds = stamps.div_ceil(1_000_001);
    u64::try_from(u128::from(hard) * seconds).unwrap_or(u64::MAX)
}

/// Says what is worth a look in limits that are right.
pub(super) fn judge(limits: &Limits, warnings: &Collector) {
    for rate in limits.rates() {
        let resource = Path::DOCUMENT.then(Step::Named("resource", rate.name()));
        let judgement = Judgement {
            limits,
            rate,
            warnings,
        };
        judgement.judge_class(&resource, rate.default_class(), 0);
        if let Some(class) = rate.default.candidate {
            let candidate = resource.then(Step::Section("candidate"));
            judgement.judge_class(&candidate, class, 0);
            warnings.add(&candidate, WarningKind::NotRuled);
        }
        judgement.judge_overrides(&resource);
    }
}

struct Judgement<'a> {
    limits: &'a Limits,
    rate: &'a RateResource,
    warnings: &'a Collector,
}

impl Judgement<'_> {
    /// Each override once, under the first domain that has it.
    fn judge_overrides(&self, resource: &Path<'_>) {
        for (domain, domains, class) in self.rate.override_uses() {
            if class != self.rate.default_class() {
                let path = resource.then(Step::Named("domain", domain));
                self.judge_class(&path, class, domains as u64 - 1);
            }
        }
    }

    fn judge_class(&self, path: &Path<'_>, class: ClassId, alike: u64) {
        let class = self.limits.class(class);
        let warn = |path: &Path<'_>, kind| self.warnings.add_alike(path, kind, alike);
        if let (Some(hard), Some(global)) = (class.hard, self.rate.global())
            && global < hard
        {
            let kind = WarningKind::HardAboveGlobal { hard, global };
            warn(&path.then(Step::Field("hard")), kind);
        }
        for (index, tier) in class.tiers().iter().enumerate() {
            let path = path.then(Step::Item("tier", index + 1));
            if let Some(kind) = never_reached(class, index) {
                warn(&path, kind);
            } else if let Some(hits_max) = never_full(tier, class.hard) {
                let kind = WarningKind::NeverFull {
                    limit: tier.limit,
                    hard: class.hard.unwrap_or(u64::MAX),
                    hits_max,
                };
                warn(&path.then(Step::Field("limit")), kind);
            }
        }
        let bytes = state_bytes_at_limit(class);
        if STATE_BYTES_WARN < bytes {
            warn(path, WarningKind::ManyBytes { bytes });
        }
    }
}

/// The hits that fit into the tier's window under the hard limit, if these never fill it.
fn never_full(tier: &Tier, hard: Option<u64>) -> Option<u64> {
    let hits_max = hits_max_in(tier.window, hard?);
    (hits_max < tier.limit).then_some(hits_max)
}

/// Why no hit ever enters the tier at an index, if none does.
///
/// A climb starts at the current tier, which was entered before; so the first hit in a tier has
/// passed every tier below at one time or another, either because it was full, or because it is
/// skippable and cooled down.
fn never_reached(class: &RateClass, index: usize) -> Option<WarningKind> {
    let blocked = class.tiers()[..index].iter().position(|tier| {
        let passed_over = tier.skippable && tier.cooldown != Span::ZERO;
        !passed_over && never_full(tier, class.hard).is_some()
    });
    if let Some(below) = blocked {
        return Some(WarningKind::NeverReached { below: below + 1 });
    }
    // A class that grants nothing at all is a ban, and meant.
    let grants = |tiers: &[Tier]| tiers.iter().any(|tier| 0 < tier.limit);
    (grants(class.tiers()) && !grants(&class.tiers()[index..])).then_some(WarningKind::NeverEntered)
}
