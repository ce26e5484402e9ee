//! `[rate.…]`: a rate-limited resource as it is written.

use tollgate_shared::time::Span;

use super::overrides::read_overrides;
use super::{LIMIT_MAX, Plans, SPAN_MAX, read_blind, read_per_second};
use crate::limits::assemble::RateDraft;
use crate::limits::fault::FaultKind;
use crate::limits::normal::normalise;
use crate::limits::path::{Path, Step};
use crate::limits::rate::Tier;
use crate::limits::resource::{Mode, Stated};
use crate::limits::settings::{Namespaces, Rate};
use crate::limits::source::{Item, Section};
use crate::limits::warning::{Collector, WarningKind};

/// The most tiers of one domain: agents learn them with every snapshot, and a climb visits them all.
const TIERS_MAX: usize = tollgate_shared::wire::public::TIERS_MAX as usize;

pub(super) const RESOURCE_FIELDS: &[&str] = &[
    "algorithm",
    "rate",
    "tiers",
    "hard",
    "global",
    "blind",
    "shadow",
    "candidate",
    "plans",
    "domains",
];

const STATED_FIELDS: &[&str] = &["rate", "tiers", "hard"];

pub(super) const TIER_FIELDS: &[&str] = &["limit", "window", "active", "cooldown", "skippable"];

/// All rate-limited resources of a document.
pub(super) fn read_rates(
    document: &Section<'_, '_>,
    plans: &Plans<'_>,
    namespaces: &Namespaces,
    warnings: &Collector,
) -> Vec<RateDraft> {
    let Some(rates) = document.section("rate", Step::Through("rate")) else {
        return Vec::new();
    };
    rates
        .checked("resource")
        .filter_map(|(name, item)| {
            let section = item.table("a table of limits")?;
            Some(read_rate(name, &section, plans, namespaces, warnings))
        })
        .collect()
}

fn read_rate(
    name: &str,
    section: &Section<'_, '_>,
    plans: &Plans<'_>,
    namespaces: &Namespaces,
    warnings: &Collector,
) -> RateDraft {
    section.only(RESOURCE_FIELDS);
    if let Some(algorithm) = section.get("algorithm") {
        algorithm.word(&[("tiers", ())], "\"tiers\", the only algorithm");
    }
    let default = read_stated(section, warnings);
    if section.value("rate").is_none() && section.value("tiers").is_none() {
        section.missing(
            "rate",
            "`rate` or `tiers` (`tiers = []` makes the resource inaccessible)",
        );
    }
    let candidate = section
        .section("candidate", Step::Section("candidate"))
        .map(|candidate| {
            refuse_global(&candidate, "a candidate stands beside limits of one domain");
            read_stated_only(&candidate, warnings)
        });
    let blind = section.get("blind").and_then(|item| read_blind(&item));
    let shadow = section.get("shadow").and_then(|item| item.boolean());
    RateDraft {
        name: name.into(),
        default,
        candidate,
        global: section
            .get("global")
            .and_then(|item| read_per_second(&item)),
        blind: blind.unwrap_or(namespaces.of_resource(name).blind),
        mode: match shadow {
            Some(true) => Mode::Shadow,
            _ => Mode::Enforced,
        },
        overrides: read_overrides(section, plans, |item| {
            let section = item.table("a table with `rate` or `tiers`, or `hard`")?;
            refuse_global(&section, "a global limit is of all domains together");
            Some(read_stated_only(&section, warnings))
        }),
    }
}

/// `global` is a field of resources alone; its presence elsewhere deserves its own words.
fn refuse_global(section: &Section<'_, '_>, reason: &'static str) {
    if let Some(global) = section.get("global") {
        global.fault(FaultKind::OutOfPlace { reason });
    }
}

/// What a plan, a domain or a candidate states.
fn read_stated_only(section: &Section<'_, '_>, warnings: &Collector) -> Stated {
    section.only_beside(STATED_FIELDS, &["global"]);
    read_stated(section, warnings)
}

fn read_stated(section: &Section<'_, '_>, warnings: &Collector) -> Stated {
    let rate = section.get("rate");
    let tiers = section.get("tiers");
    if let (Some(rate), Some(_)) = (&rate, &tiers) {
        rate.fault(FaultKind::Beside { other: "tiers" });
    }
    let tiers = match (rate, tiers) {
        (_, Some(tiers)) => read_tiers(section, &tiers, warnings),
        (Some(rate), None) => read_one_tier(&rate),
        (None, None) => None,
    };
    Stated {
        tiers,
        hard: section.get("hard").and_then(|item| read_per_second(&item)),
    }
}

/// A rate is one tier that is active for as long as its window.
fn read_one_tier(item: &Item<'_, '_>) -> Option<Box<[Tier]>> {
    let Rate { hits, unit } = item.rate(
        |rate| rate.hits <= LIMIT_MAX,
        "a rate as \"100/s\", \"6000/m\", \"10/h\" or \"5/d\"",
    )?;
    Some(Box::new([Tier {
        limit: hits,
        window: unit.span(),
        active: unit.span(),
        cooldown: Span::ZERO,
        skippable: false,
    }]))
}

fn read_tiers(
    section: &Section<'_, '_>,
    list: &Item<'_, '_>,
    warnings: &Collector,
) -> Option<Box<[Tier]>> {
    let values =
        list.list("a list of tiers, as [{ limit = 100, window = \"1s\", active = \"1s\" }]")?;
    if TIERS_MAX < values.len() {
        list.expected("at most 64 tiers");
        return None;
    }
    let tiers: Vec<Option<Tier>> = values
        .iter()
        .enumerate()
        .map(|(index, value)| read_tier(&section.item(value, Step::Item("tier", index + 1))))
        .collect();
    let tiers: Vec<Tier> = tiers.into_iter().collect::<Option<_>>()?;
    let (normal, changes) = normalise(&tiers);
    for (number, change) in changes {
        warn_normalised(section.path, number, change, warnings);
    }
    if normal.is_empty() && !tiers.is_empty() {
        warnings.add(&section.path, WarningKind::NoTierLeft);
    }
    Some(normal)
}

fn warn_normalised(
    path: Path<'_>,
    number: usize,
    change: crate::limits::normal::Change,
    warnings: &Collector,
) {
    use crate::limits::normal::Change;
    let tier = path.then(Step::Item("tier", number));
    let field = match change {
        Change::Dropped => None,
        Change::WindowCut { .. } => Some("window"),
        Change::ActiveTrimmed { .. } => Some("active"),
    };
    let kind = WarningKind::Normalised(change);
    match field {
        None => warnings.add(&tier, kind),
        Some(field) => warnings.add(&tier.then(Step::Field(field)), kind),
    }
}

fn read_tier(item: &Item<'_, '_>) -> Option<Tier> {
    const ACTIVE: &str = "\"0s\" (never active) or a duration from 1ms to 3650d";
    let section = item.table("a table as { limit = 100, window = \"1s\", active = \"1s\" }")?;
    section.only(TIER_FIELDS);
    let limit = section
        .require("limit", "hits in one window, as 100")
        .and_then(|item| item.number(0..=LIMIT_MAX, "a whole number of hits, from 0 to 2^63-1"));
    let window = section
        .require("window", "a duration, as \"1s\"")
        .and_then(|item| {
            let window = item.span(
                Span::ZERO..=SPAN_MAX,
                "a duration, as \"1s\", at most 3650d",
            );
            if window.is_some_and(|window| window < SPAN_MIN) {
                item.expected("a duration of at least 1ms");
                return None;
            }
            window
        });
    let active = section
        .require("active", "a duration, as \"1m\"")
        .and_then(|item| {
            let active = item.span(Span::ZERO..=SPAN_MAX, ACTIVE)?;
            if active != Span::ZERO && active < SPAN_MIN {
                item.expected(ACTIVE);
                return None;
            }
            Some(active)
        });
    let cooldown = match section.get("cooldown") {
        None => Some(Span::ZERO),
        Some(item) => item.span(
            Span::ZERO..=SPAN_MAX,
            "a duration, as \"5m\", at most 3650d",
        ),
    };
    let skippable = match section.get("skippable") {
        None => Some(false),
        Some(item) => item.boolean(),
    };
    Some(Tier {
        limit: limit?,
        window: window?,
        active: active?,
        cooldown: cooldown?,
        skippable: skippable?,
    })
}

/// The shortest window: a log stamps by the millisecond, so a shorter one would rule by chance.
const SPAN_MIN: Span = Span::from_millis(1);
