//! A limits version in the model's types.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_limits::{
    Allowance, Bucket, Calendar, Limits, Quota, RateClass, Setting, Stated, Tier, Window, Zone,
};
use tollgate_model::log::Act as ModelAct;
use tollgate_model::{
    Calendar as ModelCalendar, DomainLimits, DomainOverride, End, FieldStated as ModelStated,
    Limits as ModelLimits, Quota as ModelQuota, ResourceLimits, Zone as ModelZone,
};
use tollgate_shared::networks::{NetworkName, network, network_of_domain};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::set_rows::SetRow;

/// The limits for the model: rates only, and as stated, since the model applies inheritance by itself.
pub fn to_model(limits: &Limits) -> ModelLimits {
    to_model_of(limits, &|_, _| true)
}

/// The same without entries that rule none of the `wanted` pairs.
pub fn to_model_of(limits: &Limits, wanted: &dyn Fn(&str, &str) -> bool) -> ModelLimits {
    let resources = limits.rates().map(|rate| {
        let domains = rate
            .overrides()
            .filter(|(domain, _)| is_needed(rate.name(), domain, wanted))
            .map(|(domain, own)| (domain.to_owned(), override_of(&own.stated, rate.stated())));
        let resource = ResourceLimits {
            // A resource inherits from nothing, so what it states is the default.
            default: of_class(&rate.stated().class()),
            domains: domains.collect(),
            global: rate.global(),
        };
        (rate.name().to_owned(), resource)
    });
    ModelLimits {
        resources: resources.collect(),
        pairs_per_partition_max: limits.engine().pairs_per_partition_max,
    }
}

/// The same, from what the version before is for the model: `limits` differ from that only by rows of these domains.
/// An import of many rows is many versions, and converting each of them whole takes minutes.
pub fn with_rows(
    before: &ModelLimits,
    limits: &Limits,
    rows: &[SetRow],
    wanted: &dyn Fn(&str, &str) -> bool,
) -> ModelLimits {
    let mut after = before.clone();
    for SetRow {
        resource, domain, ..
    } in rows
    {
        let spelt = limits.domain_of_entry(resource, domain);
        let (Some(rate), Ok(domain)) = (limits.rate(resource), spelt) else {
            continue;
        };
        let of_resource = after.resources.get_mut(rate.name());
        let of_resource = of_resource.filter(|_| is_needed(rate.name(), &domain, wanted));
        let Some(ResourceLimits { domains, .. }) = of_resource else {
            continue;
        };
        match rate.override_of(&domain) {
            Some(own) => {
                let stated = override_of(&own.stated, rate.stated());
                domains.insert(domain.into_owned(), stated);
            }
            None => drop(domains.remove(&*domain)),
        }
    }
    after
}

/// The wanted pairs of rate-limited resources that rows name, each once.
pub fn pairs_of(
    limits: &Limits,
    rows: &[SetRow],
    wanted: &dyn Fn(&str, &str) -> bool,
) -> Vec<(String, String)> {
    let of_rates = rows
        .iter()
        .filter(|row| limits.rate(&row.resource).is_some() && wanted(&row.resource, &row.domain));
    let pairs = of_rates.map(|row| (row.resource.to_string(), row.domain.to_string()));
    pairs.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether an entry may rule a pair that is wanted. An address or a network rules other names, too, and an entry under a
/// pattern other resources.
fn is_needed(resource: &str, domain: &str, wanted: &dyn Fn(&str, &str) -> bool) -> bool {
    resource.ends_with('*') || wanted(resource, domain) || network_of_domain(domain).is_some()
}

fn override_of(stated: &Stated, of_resource: &Stated) -> DomainOverride {
    // A domain inherits the zone separately: a quota of the resource counts in the domain's zone.
    let zone = stated.zone.as_ref().or(of_resource.zone.as_ref());
    let quotas = |all: &[Allowance]| {
        let zone = zone.map(|zone| (**zone).clone()).unwrap_or_default();
        let zone = zone_of(&zone);
        let quota = |of: &Allowance| ModelQuota {
            limit: of.limit,
            unit: unit_of(of.unit),
            zone: zone.clone(),
        };
        all.iter().map(quota).collect::<Vec<_>>()
    };
    let inherited = match (&stated.quotas, &of_resource.quotas) {
        (Setting::Inherited, Setting::Value(all)) if stated.zone.is_some() => {
            ModelStated::Own(quotas(all))
        }
        (own, _) => own_of(own, |all| quotas(all)),
    };
    // A quota of its own would open a closed resource; one that is only counted in another zone does not. So the domain
    // states what closes the resource, and with it, because that goes together, what it inherits beside.
    let is_of_resource = matches!(
        (&stated.quotas, &inherited, stated.hard.value()),
        (Setting::Inherited, ModelStated::Own(_), None)
    );
    let closes = matches!(&of_resource.tiers, Setting::Value(none) if none.is_empty());
    let replaces = stated.windows.value().is_some() || stated.bucket.value().is_some();
    let is_of_resource = is_of_resource && !replaces;
    let all_inherited = is_of_resource && closes && matches!(stated.tiers, Setting::Inherited);
    let windows = match &stated.windows {
        Setting::Inherited if all_inherited => &of_resource.windows,
        own => own,
    };
    let bucket = match &stated.bucket {
        Setting::Inherited if all_inherited => &of_resource.bucket,
        own => own,
    };
    let tiers = match all_inherited {
        true => ModelStated::Own(Vec::new()),
        false => own_of(&stated.tiers, |tiers| tiers_of(tiers)),
    };
    DomainOverride {
        hard: own_of(&stated.hard, |hard| *hard),
        windows: own_of(windows, |windows| windows_of(windows)),
        quotas: inherited,
        bucket: own_of(bucket, |bucket| bucket_of(*bucket)),
        tiers,
        no_refunds: stated.refunds.map(|refunds| !refunds),
    }
}

fn own_of<T, M>(stated: &Setting<T>, to_model: impl FnOnce(&T) -> M) -> ModelStated<M> {
    match stated {
        Setting::Inherited => ModelStated::Inherited,
        Setting::Unstated => ModelStated::Nothing,
        Setting::Value(value) => ModelStated::Own(to_model(value)),
    }
}

fn of_class(class: &RateClass) -> DomainLimits {
    let quota = |of: &Quota| ModelQuota {
        limit: of.limit,
        unit: unit_of(of.unit),
        zone: zone_of(&of.zone),
    };
    DomainLimits {
        hard: class.hard,
        windows: windows_of(&class.windows),
        quotas: class.quotas.iter().map(quota).collect(),
        bucket: class.bucket.map(bucket_of),
        tiers: class.tiers.as_deref().map(tiers_of),
        no_refunds: !class.refunds,
    }
}

fn windows_of(windows: &[Window]) -> Vec<tollgate_model::Window> {
    let window = |of: &Window| tollgate_model::Window {
        limit: of.limit,
        window_us: of.window.as_micros(),
    };
    windows.iter().map(window).collect()
}

fn bucket_of(bucket: Bucket) -> tollgate_model::Bucket {
    tollgate_model::Bucket {
        tokens: bucket.tokens,
        period_us: bucket.period.as_micros(),
        burst: bucket.burst,
        debt: bucket.debt,
    }
}

fn zone_of(zone: &Zone) -> ModelZone {
    let (first, changes) = match zone.offsets() {
        [(_, first), changes @ ..] => (*first, changes),
        [] => (0, Default::default()),
    };
    let change = |(from, offset): &(Timestamp, i32)| (from.as_micros(), *offset);
    ModelZone {
        name: zone.name().to_owned(),
        first_offset_s: first,
        changes: changes.iter().map(change).collect(),
    }
}

fn unit_of(unit: Calendar) -> ModelCalendar {
    match unit {
        Calendar::Day => ModelCalendar::Day,
        Calendar::Week => ModelCalendar::Week,
        Calendar::Month => ModelCalendar::Month,
        Calendar::Year => ModelCalendar::Year,
    }
}

fn tiers_of(tiers: &[Tier]) -> Vec<tollgate_model::Tier> {
    tiers
        .iter()
        .map(|tier| tollgate_model::Tier {
            limit: tier.limit,
            window_us: tier.window.as_micros(),
            active_us: tier.active.as_micros(),
            cooldown_us: tier.cooldown.as_micros(),
            skippable: tier.skippable,
        })
        .collect()
}

/// An operator's act for the model. Acts on pairs that are not `wanted`, and on things that the
/// model does not know, become acts on no pair.
pub fn act_to_model(
    act: &Act,
    limits: Option<&Arc<Limits>>,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> ModelAct {
    let here = |domain: &str| {
        let rates = limits.into_iter().flat_map(|limits| limits.rates());
        let names = rates.map(|rate| rate.name());
        let names = names.filter(|name| !name.ends_with('*'));
        let here = names.filter(|resource| wanted(resource, domain));
        here.map(str::to_owned).collect::<Vec<_>>()
    };
    let pair = |resource: &str, domain: &str| {
        wanted(resource, domain).then(|| (resource.to_owned(), domain.to_owned()))
    };
    // A network has pairs in every partition, so each pair must be checked.
    let is_here = |resource: &Option<Box<str>>, domain: &str| {
        let is_network = matches!(network(domain), NetworkName::Network(_));
        resource
            .as_ref()
            .is_none_or(|resource| is_network || wanted(resource, domain))
    };
    let nobody = || ModelAct::Unban {
        resource: Some(String::new()),
        domain: String::new(),
        here: Vec::new(),
    };
    let statements =
        match act {
            Act::Reset { resource, domain } => pair(resource, domain)
                .map(|(resource, domain)| ModelAct::Reset { resource, domain }),
            Act::Pardon { resource, domain } => pair(resource, domain)
                .map(|(resource, domain)| ModelAct::Pardon { resource, domain }),
            Act::Refund {
                resource,
                domain,
                hits,
            } => pair(resource, domain).map(|(resource, domain)| ModelAct::Refund {
                resource,
                domain,
                hits: *hits,
            }),
            Act::Ban {
                resource,
                domain,
                until,
            } => is_here(resource, domain).then(|| ModelAct::Ban {
                resource: resource.as_deref().map(str::to_owned),
                domain: domain.to_string(),
                here: here(domain),
                end: match *until {
                    Timestamp::MAX => End::Never,
                    until => End::At(until.as_micros()),
                },
            }),
            Act::Unban { resource, domain } => is_here(resource, domain).then(|| ModelAct::Unban {
                resource: resource.as_deref().map(str::to_owned),
                domain: domain.to_string(),
                here: here(domain),
            }),
            Act::ReleaseHold { .. }
            | Act::ReleaseHolds { .. }
            | Act::ReleaseTransfer { .. }
            | Act::Switch { .. }
            | Act::Set(_)
            | Act::SetMany(_) => None,
        };
    statements.unwrap_or_else(nobody)
}
