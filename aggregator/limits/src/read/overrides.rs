//! `plans` and `domains` of a resource: the statements of single domains.
//!
//! A domain's own statement overrides its plan's, field by field. Plans are resolved here: the result is a table
//! of domains, addresses and networks in canonical spelling. What stays true: domains with the same statement
//! share it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::networks::{AddressPrefixes, address};

use super::ResourceReading;
use crate::assemble::OverridesDraft;
use crate::fault::FaultKind;
use crate::names::NameTable;
use crate::network_names::domain_of;
use crate::networks::meant_as;
use crate::path::{Path, PathStep};
use crate::source::{Item, Section, nearest};
use crate::stated::Stated;
use crate::unseen::has_unseen;
use crate::warning::{Collector, WarningKind};

/// Reads the overrides of a rate-limited resource; `read` reads a single statement. `has_quota`: the resource itself
/// states a quota.
pub(super) fn read_overrides(
    resource: &Section<'_, '_>,
    reading: &ResourceReading<'_, '_>,
    addresses: Option<AddressPrefixes>,
    has_quota: bool,
    read: impl Fn(&Item<'_, '_>) -> Option<Stated>,
) -> OverridesDraft {
    let mut statements = Statements::default();
    let mut of_domain: BTreeMap<Cow<'_, str>, u32> = BTreeMap::new();
    for (domain, (_, stated)) in plan_of_domain(resource, reading, addresses, &read) {
        of_domain.insert(domain, statements.number(stated));
    }
    let domains = resource.section("domains", PathStep::Through("domains"));
    let own = domains.iter();
    let own = own.flat_map(|of| own_of_domain(of, addresses, reading.warnings));
    for (domain, item) in own {
        let Some(stated) = read(&item) else {
            continue;
        };
        let has_zone = stated.zone.is_some();
        let stated = match of_domain.get(&domain) {
            Some(&plan) => stated.or(&statements.list[plan as usize]),
            None => stated,
        };
        if has_zone && !has_quota && stated.quotas.value().is_none() {
            let path = item.path.then(PathStep::Field("zone"));
            reading.warnings.add(&path, WarningKind::ZoneWithoutQuota);
        }
        of_domain.insert(domain, statements.number(stated));
    }
    OverridesDraft {
        domains: NameTable::from_sorted(of_domain.keys().map(|domain| &**domain)),
        stated_of: of_domain.into_values().collect(),
        stated: statements.list,
    }
}

/// The statements of plans about a resource, by domain, with the plan's name.
pub(super) fn plan_of_domain<'t, T: Clone>(
    resource: &Section<'_, 't>,
    reading: &ResourceReading<'_, 't>,
    addresses: Option<AddressPrefixes>,
    read: impl Fn(&Item<'_, '_>) -> Option<T>,
) -> BTreeMap<Cow<'t, str>, (&'t str, T)> {
    let plans = reading.plans;
    let mut of_domain: BTreeMap<Cow<'_, str>, (&str, T)> = BTreeMap::new();
    let stated_plans = resource.section("plans", PathStep::Through("plans"));
    for (plan, item) in stated_plans.iter().flat_map(|plans| plans.checked("plan")) {
        let stated = read(&item);
        let Some(members) = plans.get(plan) else {
            let suggestion = nearest(plan, plans.keys().copied()).map(Into::into);
            item.place_fault(FaultKind::UnknownPlan { suggestion });
            continue;
        };
        let Some(stated) = stated else {
            continue;
        };
        for name in members {
            let Ok(domain) = domain_of(name, addresses) else {
                // It is a fault of the plan, or of this resource's `addresses`.
                note_narrow(resource, name, &item, addresses);
                continue;
            };
            let path = resource.path.then(PathStep::Named("domain", name));
            warn_of_width(name, &path, addresses, reading.warnings);
            let before = of_domain.get(&domain).map(|(other, _)| *other);
            if let Some(other) = before.filter(|other| *other != plan) {
                let kind = FaultKind::TwoPlans {
                    first: other.into(),
                    second: plan.into(),
                };
                resource.place_fault_below(PathStep::Named("domain", &domain), &item, kind);
            }
            of_domain.insert(domain, (plan, stated.clone()));
        }
    }
    of_domain
}

/// The domains of a table `domains`, each with its value; an invalid name is noted as a fault and left out.
pub(super) fn own_of_domain<'s, 't>(
    domains: &'s Section<'_, 't>,
    addresses: Option<AddressPrefixes>,
    warnings: &Collector,
) -> Vec<(Cow<'t, str>, Item<'s, 't>)> {
    let mut seen = BTreeSet::new();
    let mut own = Vec::new();
    for (name, item) in domains.checked("domain") {
        match domain_of(name, addresses) {
            Ok(domain) if seen.contains(&domain) => item.place_fault(FaultKind::SameNetwork {
                network: domain.as_ref().into(),
            }),
            Ok(domain) => {
                warn_of_name(name, &item.path, warnings);
                warn_of_width(name, &item.path, addresses, warnings);
                seen.insert(domain.clone());
                own.push((domain, item));
            }
            Err(kind) => item.place_fault(kind),
        }
    }
    own
}

/// Warns of a name that looks like a network, or like another name.
pub(super) fn warn_of_name(name: &str, path: &Path<'_>, warnings: &Collector) {
    if has_unseen(name) {
        warnings.add(path, WarningKind::UnseenCharacter);
    }
    if let Some(meant) = meant_as(name) {
        warnings.add(path, WarningKind::NotANetwork { meant });
    }
}

/// Warns of an address that applies to a whole network.
fn warn_of_width(
    name: &str,
    path: &Path<'_>,
    addresses: Option<AddressPrefixes>,
    warnings: &Collector,
) {
    let Some((address, addresses)) = address(name).zip(addresses) else {
        return;
    };
    let network = addresses.network_of(address);
    if network.prefix_len() < network.max_prefix_len() {
        warnings.add(path, WarningKind::WholeNetwork { network });
    }
}

fn note_narrow(
    resource: &Section<'_, '_>,
    domain: &str,
    item: &Item<'_, '_>,
    addresses: Option<AddressPrefixes>,
) {
    if let Err(kind @ FaultKind::NarrowNetwork { .. }) = domain_of(domain, addresses) {
        resource.place_fault_below(PathStep::Named("domain", domain), item, kind);
    }
}

/// Statements, each stored once.
#[derive(Default)]
struct Statements {
    numbers: BTreeMap<Stated, u32>,
    list: Vec<Stated>,
}

impl Statements {
    fn number(&mut self, stated: Stated) -> u32 {
        if let Some(&number) = self.numbers.get(&stated) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(stated.clone());
        self.numbers.insert(stated, number);
        number
    }
}
