//! `[rate.…]`: reads a rate-limited resource, or a pattern of resources.

use tollgate_shared::names::check_name;
use tollgate_shared::networks::AddressPrefixes;

use super::overrides::read_overrides;
use super::stated::{STATED_FIELDS, read_stated};
use super::{ResourceReading, read_blind, read_per_second};
use crate::assemble::{OverridesDraft, RateDraft};
use crate::fault::FaultKind;
use crate::patterns::spans_namespaces;
use crate::resource::{Mode, NEAR_DEFAULT};
use crate::source::{Item, Section};
use crate::stated::Stated;
use crate::warning::WarningKind;

use crate::path::PathStep;

pub(crate) const RESOURCE_FIELDS: &[&str] = &[
    "rate",
    "windows",
    "bucket",
    "tiers",
    "hard",
    "quota",
    "zone",
    "refunds",
    "global",
    "near",
    "addresses",
    "blind",
    "shadow",
    "large_state",
    "candidate",
    "plans",
    "domains",
];

pub(crate) const ADDRESSES_FIELDS: &[&str] = &["v4", "v6"];

/// Fields of a resource that a plan, a domain or a candidate may not state, with the reason.
const OF_RESOURCES: [(&str, &str); 5] = [
    ("global", "a global limit applies to all domains together"),
    ("near", "it applies to a resource with all its domains"),
    ("addresses", "it applies to a resource with all its domains"),
    ("blind", "it applies to a resource with all its domains"),
    ("shadow", "it applies to a resource with all its domains"),
];

/// All rate-limited resources of a document.
pub(super) fn read_rates(
    document: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
) -> Vec<RateDraft> {
    let Some(rates) = document.section("rate", PathStep::Through("rate")) else {
        return Vec::new();
    };
    rates
        .named("resource")
        .filter(|(name, item)| check_pattern(name, item))
        .filter_map(|(name, item)| {
            let section = item.table("a table of limits")?;
            Some(read_rate(name, &section, reading))
        })
        .collect()
}

/// Whether the name is valid for a resource, or for a pattern: `*` alone, or a prefix followed by `*`.
fn check_pattern(name: &str, item: &Item<'_, '_>) -> bool {
    let literal = match name.strip_suffix('*') {
        // The pattern of all resources.
        Some("") => return true,
        Some(literal) => literal,
        None => name,
    };
    if literal.contains('*') {
        item.place_fault(FaultKind::StarInside);
        return false;
    }
    match check_name(literal) {
        Ok(()) => true,
        Err(fault) => {
            item.place_fault(FaultKind::Name(fault));
            false
        }
    }
}

fn read_rate(
    name: &str,
    section: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
) -> RateDraft {
    let mut own_words = halves_of_names(name, section);
    own_words.extend(["algorithm", "burst"]);
    section.only_beside(RESOURCE_FIELDS, &own_words);
    if let Some(algorithm) = section.get("algorithm") {
        algorithm.fault(FaultKind::OutOfPlace {
            reason: "the field of the limit implies it: `rate`, `windows`, `bucket`, `quota` or `tiers`",
        });
    }
    refuse_burst(section);
    let default = read_stated(section, reading.zones, reading.warnings);
    let global = section.get("global");
    if let (Some(global), true) = (&global, name.ends_with('*')) {
        global.fault(FaultKind::OutOfPlace {
            reason: "each resource that a pattern matches is limited separately",
        });
    }
    let global = global.and_then(|item| read_per_second(&item));
    let addresses = section
        .get("addresses")
        .and_then(|item| read_addresses(&item));
    let candidate = section
        .section("candidate", PathStep::Section("candidate"))
        .map(|candidate| {
            let reason = "a candidate has limits of single domains only";
            read_stated_only(&candidate, reading, Some(reason))
        });
    let has_quota = default.quotas.value().is_some();
    let overrides = read_overrides(section, reading, addresses, has_quota, |item| {
        let section = item.table("a table of limits, as { rate = \"5/s\" }")?;
        Some(read_stated_only(&section, reading, None))
    });
    warn_of_closed_candidate(section, &default, (global, candidate.as_ref()), reading);
    warn_of_zone(section, &default, (&candidate, &overrides), reading);
    let switch = |field: &str| section.get(field).and_then(|item| item.boolean());
    let blind = section.get("blind").and_then(|item| read_blind(&item));
    RateDraft {
        name: name.into(),
        default: own_or_inaccessible(
            section,
            default,
            global,
            overrides.domains.is_empty(),
            reading,
        ),
        candidate,
        global,
        near: section
            .get("near")
            .and_then(|item| read_near(&item))
            .unwrap_or(NEAR_DEFAULT),
        addresses,
        blind: match spans_namespaces(name) {
            true => blind,
            false => Some(blind.unwrap_or(reading.namespaces.of_resource(name).blind)),
        },
        mode: match switch("shadow") {
            Some(true) => Mode::Shadow,
            _ => Mode::Enforced,
        },
        large_state: switch("large_state").unwrap_or_default(),
        overrides,
    }
}

/// Warns of a candidate that inherits the refusal of a resource without limits, which ends once it is promoted.
fn warn_of_closed_candidate(
    section: &Section<'_, '_>,
    default: &Stated,
    (global, candidate): (Option<u64>, Option<&Stated>),
    reading: &ResourceReading<'_, '_>,
) {
    let is_closed = !default.states_a_constraint() && global.is_none();
    let inherits = |of: &Stated| of.states_a_constraint() && of.tiers.is_inherited();
    if is_closed && candidate.is_some_and(inherits) {
        let path = section.path.then(PathStep::Section("candidate"));
        reading.warnings.add(&path, WarningKind::CandidateClosed);
    }
}

/// Warns of a zone that nothing uses: the default, the candidate, the plans and the domains have no quota.
fn warn_of_zone(
    section: &Section<'_, '_>,
    default: &Stated,
    (candidate, overrides): (&Option<Stated>, &OverridesDraft),
    reading: &ResourceReading<'_, '_>,
) {
    let has_quota = |stated: &Stated| stated.quotas.value().is_some();
    let mut of_others = candidate.iter().chain(&overrides.stated);
    if default.zone.is_some() && !has_quota(default) && !of_others.any(has_quota) {
        let path = section.path.then(PathStep::Field("zone"));
        reading.warnings.add(&path, WarningKind::ZoneWithoutQuota);
    }
}

/// Fields that are tables and no fields of a resource: `[rate.api.search]` is a table `search` in a resource `api`.
fn halves_of_names<'t>(name: &str, section: &Section<'_, 't>) -> Vec<&'t str> {
    let tables = section
        .named("resource")
        .filter(|(field, item)| item.is_table() && !RESOURCE_FIELDS.contains(field));
    let mut halves = Vec::new();
    for (half, item) in tables {
        let name = format!("{name}.{half}").into();
        section.place_fault_below(PathStep::Field(half), &item, FaultKind::Unquoted { name });
        halves.push(half);
    }
    halves
}

/// A resource that states no constraint itself refuses all domains, except those with limits of their own.
fn own_or_inaccessible(
    section: &Section<'_, '_>,
    stated: Stated,
    global: Option<u64>,
    is_nobody_else: bool,
    reading: &ResourceReading<'_, '_>,
) -> Stated {
    if stated.states_a_constraint() || global.is_some() {
        return stated;
    }
    if is_nobody_else {
        reading
            .warnings
            .add(&section.path, WarningKind::NothingStated);
    }
    Stated {
        zone: stated.zone.clone(),
        refunds: stated.refunds,
        ..Stated::inaccessible()
    }
}

/// The statement of a plan, a domain or a candidate.
fn read_stated_only(
    section: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
    global: Option<&'static str>,
) -> Stated {
    let mut elsewhere = OF_RESOURCES.map(|(field, _)| field).to_vec();
    elsewhere.push("burst");
    section.only_beside(STATED_FIELDS, &elsewhere);
    refuse_burst(section);
    for (field, reason) in OF_RESOURCES {
        if let Some(item) = section.get(field) {
            let reason = match field {
                "global" => global.unwrap_or(reason),
                _ => reason,
            };
            item.fault(FaultKind::OutOfPlace { reason });
        }
    }
    read_stated(section, reading.zones, reading.warnings)
}

/// Refuses a burst beside a rate: only a bucket has one.
fn refuse_burst(section: &Section<'_, '_>) {
    if let Some(burst) = section.get("burst") {
        burst.fault(FaultKind::OutOfPlace {
            reason: "a bucket has a burst: expected bucket = { rate = \"100/s\", burst = 500 } in place of `rate`",
        });
    }
}

/// `"20%"`.
fn read_near(item: &Item<'_, '_>) -> Option<u8> {
    const EXPECTED: &str = "a share of room left, from \"0%\" (never) to \"100%\", as \"20%\"";
    let percent = item.text().and_then(|text| text.strip_suffix('%'));
    let digits = percent.filter(|text| text.bytes().all(|digit| digit.is_ascii_digit()));
    let near = digits.and_then(|text| text.parse::<u8>().ok());
    let near = near.filter(|percent| *percent <= 100);
    if near.is_none() {
        item.expected(EXPECTED);
    }
    near
}

/// `{ v4 = 32, v6 = 64 }`.
fn read_addresses(item: &Item<'_, '_>) -> Option<AddressPrefixes> {
    let section = item.table("a table as { v4 = 32, v6 = 64 }")?;
    section.only(ADDRESSES_FIELDS);
    let bits = |field, most: u8, default: u8, expected| match section.get(field) {
        None => Some(default),
        Some(item) => item
            .number(1..=u64::from(most), expected)
            .map(|bits| bits as u8),
    };
    let AddressPrefixes { v4, v6 } = AddressPrefixes::default();
    let v4 = bits("v4", 32, v4, "a number of leading bits, from 1 to 32");
    let v6 = bits("v6", 128, v6, "a number of leading bits, from 1 to 128");
    Some(AddressPrefixes { v4: v4?, v6: v6? })
}
