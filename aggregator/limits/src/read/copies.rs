//! `[copies.…]`: reads a copy-limited resource.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use tollgate_shared::networks::{NetworkText, is_wide, network_of_domain};
use tollgate_shared::time::Span;

use super::overrides::{own_of_domain, plan_of_domain};
use super::{COPIES_MAX, ResourceReading, SPAN_MAX, read_names};
use crate::names::NameTable;
use crate::networks::Networks;
use crate::numbers::ResourceIx;
use crate::path::{Path, PathStep};
use crate::resource::{CopiesResource, Excess, Group, Reserve};
use crate::rows::CopiesRows;
use crate::settings::BlindPolicy;
use crate::source::{Item, Section};
use crate::tables::CopiesTable;
use crate::warning::{Collector, WarningKind};

pub(super) const RESOURCE_FIELDS: &[&str] = &[
    "limit",
    "global",
    "reserve",
    "on_excess",
    "max_age",
    "blind",
    "plans",
    "domains",
    "groups",
];

pub(super) const GROUP_FIELDS: &[&str] = &["limit", "members"];

/// All copy-limited resources of a document.
pub(super) fn read_copies(
    document: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
) -> Vec<CopiesResource> {
    let Some(copies) = document.section("copies", PathStep::Through("copies")) else {
        return Vec::new();
    };
    copies
        .checked("resource")
        .filter_map(|(name, item)| {
            let section = item.table("a table of limits")?;
            let inherited = reading.namespaces.of_resource(name).blind;
            Some(read_resource(name, &section, reading, inherited))
        })
        .collect()
}

fn read_resource(
    name: &str,
    section: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
    inherited: BlindPolicy,
) -> CopiesResource {
    section.only(RESOURCE_FIELDS);
    let global = section.get("global").and_then(|item| read_count(&item));
    let cap = Cap {
        global,
        warnings: reading.warnings,
    };
    let limit = section
        .require("limit", "copies of one domain, as 10")
        .and_then(|item| Some(cap.apply(read_count(&item)?, &item.path)))
        .unwrap_or_default();
    let reserve = section
        .get("reserve")
        .and_then(|item| {
            let choices = [
                ("optimistic", Reserve::Optimistic),
                ("strict", Reserve::Strict),
            ];
            item.one_of(&choices, "\"optimistic\" or \"strict\"")
        })
        .unwrap_or_default();
    let on_excess = section
        .get("on_excess")
        .and_then(|item| {
            let choices = [("keep", Excess::Keep), ("give-back", Excess::GiveBack)];
            item.one_of(&choices, "\"keep\" or \"give-back\"")
        })
        .unwrap_or_default();
    // Ages are counted in ticks of half a second.
    let max_age = section.get("max_age").and_then(|item| {
        let bounds = Span::from_millis(500)..=SPAN_MAX;
        item.span(bounds, "a duration from 500ms to 3650d, as \"1h\"")
    });
    let domains = read_domains(section, reading, &cap);
    let greatest = domains.values().copied().fold(limit, u64::max);
    CopiesResource {
        name: name.into(),
        ix: ResourceIx(0),
        limit,
        global,
        reserve,
        on_excess,
        max_age,
        blind: read_blind(section, reserve, inherited),
        groups: read_groups(section, reading, &cap),
        networks: Networks::among(domains.keys().map(|domain| &**domain)),
        table: Arc::new(CopiesTable {
            domains: NameTable::from_sorted(domains.keys().map(|domain| &**domain)),
            limits: domains.into_values().collect(),
        }),
        rows: CopiesRows::default(),
        greatest,
    }
}

/// While blind a strict resource refuses, unless it states otherwise itself: the namespace's
/// default is for resources that may overshoot. A local rate does not apply to copies.
fn read_blind(section: &Section<'_, '_>, reserve: Reserve, inherited: BlindPolicy) -> BlindPolicy {
    let choices = [("open", BlindPolicy::Open), ("closed", BlindPolicy::Closed)];
    let stated = section.get("blind").and_then(|item| {
        item.one_of(
            &choices,
            "\"open\" or \"closed\" (a local rate says nothing about copies)",
        )
    });
    match (stated, reserve, inherited) {
        (Some(blind), _, _) => blind,
        (None, Reserve::Strict, _) => BlindPolicy::Closed,
        (None, Reserve::Optimistic, BlindPolicy::Closed) => BlindPolicy::Closed,
        (None, Reserve::Optimistic, _) => BlindPolicy::Open,
    }
}

fn read_domains<'t>(
    section: &Section<'_, 't>,
    reading: &ResourceReading<'_, 't>,
    cap: &Cap<'_>,
) -> BTreeMap<Cow<'t, str>, u64> {
    let read = |item: &Item<'_, '_>| Some(cap.apply(read_count(item)?, &item.path));
    let mut limits: BTreeMap<Cow<'_, str>, u64> = plan_of_domain(section, reading, None, read)
        .into_iter()
        .map(|(domain, (_, limit))| (domain, limit))
        .collect();
    let domains = section.section("domains", PathStep::Through("domains"));
    for (domain, item) in domains
        .iter()
        .flat_map(|of| own_of_domain(of, None, reading.warnings))
    {
        if let Some(limit) = read(&item) {
            limits.insert(domain, limit);
        }
    }
    limits
}

fn read_groups(
    section: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
    cap: &Cap<'_>,
) -> BTreeMap<Box<str>, Group> {
    let Some(groups) = section.section("groups", PathStep::Through("groups")) else {
        return BTreeMap::new();
    };
    groups
        .checked("group")
        .filter_map(|(name, item)| {
            let section = item.table("a table as { limit = 4, members = [\"new-1\"] }")?;
            section.only(GROUP_FIELDS);
            let limit = section
                .require("limit", "copies of all members together, as 4")
                .and_then(|item| Some(cap.apply(read_count(&item)?, &item.path)));
            let members = section.require("members", "a list of domains, as [\"new-1\"]");
            let list = members?;
            let members = read_names(&list, reading.warnings);
            for network in members.iter().filter_map(|name| no_member(name)) {
                let kind = WarningKind::NetworkMember { network };
                reading.warnings.add(&list.path, kind);
            }
            let group = Group {
                limit: limit?,
                members: NameTable::from_sorted(members.into_iter()),
            };
            Some((name.into(), group))
        })
        .collect()
}

/// The network of several addresses that a name is, or the address that it spells in another than the canonical way.
fn no_member(name: &str) -> Option<IpNet> {
    let of = network_of_domain(name)?;
    (is_wide(&of) || *NetworkText::default().write(of) != *name).then_some(of)
}

fn read_count(item: &Item<'_, '_>) -> Option<u64> {
    item.number(0..=COPIES_MAX, "a whole number of copies, from 0 to 2^63-1")
}

/// The global limit, to which all others are lowered (Charon, section 4.1).
struct Cap<'a> {
    global: Option<u64>,
    warnings: &'a Collector,
}

impl Cap<'_> {
    fn apply(&self, limit: u64, path: &Path<'_>) -> u64 {
        match self.global {
            Some(global) if global < limit => {
                let kind = WarningKind::LoweredToGlobal {
                    before: limit,
                    after: global,
                };
                self.warnings.add(path, kind);
                global
            }
            _ => limit,
        }
    }
}
