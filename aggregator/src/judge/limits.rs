//! A limits version under the model's names.

use std::sync::Arc;

use tollgate_engine::limits::{Limits, Stated, Tier};
use tollgate_model::log::Act as ModelAct;
use tollgate_model::{
    DomainLimits, DomainOverride, End, Limits as ModelLimits, ResourceLimits, Stated as ModelStated,
};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;

/// The same limits as the model has them: rates only, and as stated, since the model works out
/// inheritance by itself.
pub fn to_model(limits: &Limits) -> ModelLimits {
    let resources = limits.rates().map(|rate| {
        let domains = rate
            .overrides()
            .map(|(domain, own)| (domain.to_owned(), override_of(&own.stated)));
        let resource = ResourceLimits {
            default: DomainLimits {
                tiers: Some(tiers_of(rate.stated().tiers.as_deref().unwrap_or_default())),
                hard: rate.stated().hard,
                ..DomainLimits::default()
            },
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

fn override_of(stated: &Stated) -> DomainOverride {
    DomainOverride {
        tiers: own_of(stated.tiers.as_deref().map(tiers_of)),
        hard: own_of(stated.hard),
        ..DomainOverride::default()
    }
}

fn own_of<T>(stated: Option<T>) -> ModelStated<T> {
    stated.map_or(ModelStated::Inherited, ModelStated::Own)
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

/// What an operator did as the model has it. Acts on pairs that are not `wanted`, and on what the
/// model does not know, become acts on nobody.
pub fn act_to_model(
    act: &Act,
    limits: Option<&Arc<Limits>>,
    wanted: &dyn Fn(&str, &str) -> bool,
) -> ModelAct {
    let here = |domain: &str| {
        let rates = limits.into_iter().flat_map(|limits| limits.rates());
        let names = rates.map(|rate| rate.name());
        let here = names.filter(|resource| wanted(resource, domain));
        here.map(str::to_owned).collect::<Vec<_>>()
    };
    let pair = |resource: &str, domain: &str| {
        wanted(resource, domain).then(|| (resource.to_owned(), domain.to_owned()))
    };
    let is_here = |resource: &Option<Box<str>>, domain: &str| {
        resource
            .as_ref()
            .is_none_or(|resource| wanted(resource, domain))
    };
    let nobody = || ModelAct::Unban {
        resource: Some(String::new()),
        domain: String::new(),
        here: Vec::new(),
    };
    let said =
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
    said.unwrap_or_else(nobody)
}
