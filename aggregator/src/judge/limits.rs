//! A limits version under the model's names.

use tollgate_engine::limits::{Limits, Stated, Tier};
use tollgate_model::{DomainLimits, DomainOverride, Limits as ModelLimits, ResourceLimits};

/// The same limits as the model has them: rates only, and as stated, since the model works out
/// inheritance by itself.
pub fn to_model(limits: &Limits) -> ModelLimits {
    let resources = limits.rates().map(|rate| {
        let domains = rate
            .overrides()
            .map(|(domain, own)| (domain.to_owned(), override_of(&own.stated)));
        let resource = ResourceLimits {
            default: DomainLimits {
                tiers: tiers_of(rate.stated().tiers.as_deref().unwrap_or_default()),
                hard: rate.stated().hard,
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
        tiers: stated.tiers.as_deref().map(tiers_of),
        hard: stated.hard,
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
