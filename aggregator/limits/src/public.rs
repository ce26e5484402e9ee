//! The part of a resource's limits that agents learn.
//!
//! Agents decide by denials, not by limits. They need these for headers, for calls while blind, and for resources
//! that are not configured.

use tollgate_shared::descriptors::rules_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::public::{
    BlindPolicy as PublicBlind, GROUPS_BYTES_MAX, Kind, OnExcess, Public, PublicBucket,
    PublicCopies, PublicGroup, PublicQuota, PublicTier, QuotaUnit, Reserving,
};

use super::closed::PublicEntries;
use super::rate::Calendar;
use super::resource::{CopiesResource, Excess, Mode, RateResource, Reserve, Resource};
use super::settings::BlindPolicy;
use super::version::Limits;

impl Limits {
    /// What agents learn about a resource, configured or not; `version` is the number of these limits.
    pub fn public(&self, resource: &str, version: u64) -> Public {
        if let Some(rules) = self.public_descriptors(resource, version) {
            return rules;
        }
        let namespace = self.namespace_of(resource);
        let unconfigured = Public {
            version,
            blind: public_blind(namespace.blind),
            ..Public::default()
        };
        match self.resource(resource) {
            None => Public {
                refused: !namespace.allow_unconfigured,
                ..unconfigured
            },
            Some(Resource::Copies(copies)) => {
                let ignored = namespace.ignore_configured;
                let entries = (!ignored).then(|| copies.public_entries());
                let PublicEntries { networks, allowed } = entries.unwrap_or_default();
                let closed = (!ignored).then(|| copies.public_closed());
                Public {
                    kind: Kind::Copies,
                    has_overrides: copies.has_overrides(),
                    blind: public_blind(copies.blind),
                    ignored,
                    copies: Some(public_copies(copies, self.engine().agent_timeout)),
                    closed: closed.unwrap_or_default(),
                    networks,
                    allowed,
                    ..unconfigured
                }
            }
            Some(Resource::Rate(rate)) => Public {
                ignored: namespace.ignore_configured || rate.mode() == Mode::Shadow,
                ..self.public_rate(rate, namespace.ignore_configured, unconfigured)
            },
        }
    }

    /// Whether agents learn the same from both, whatever resources they use.
    pub fn is_public_equal(&self, other: &Self) -> bool {
        let names = |limits: &Self| -> Vec<Box<str>> {
            let resources = limits.resources().iter();
            resources.map(|resource| resource.name().into()).collect()
        };
        let mut names = [names(self), names(other)].concat();
        names.sort_unstable();
        names.dedup();
        // A resource is one of these, matches a pattern that is one of these, or has its namespace's switches alone.
        self.namespaces == other.namespaces
            && self.descriptors == other.descriptors
            && self.is_public_equal_of(other, names.iter().map(|name| &**name))
    }

    /// The same, if the limits of other resources than these are known to be equal.
    pub fn is_public_equal_of<'n>(
        &self,
        other: &Self,
        mut resources: impl Iterator<Item = &'n str>,
    ) -> bool {
        resources.all(|name| self.public(name, 0) == other.public(name, 0))
    }

    /// The rules that agents learn under this name. A descriptor without a rule is a use of what is not configured.
    fn public_descriptors(&self, resource: &str, version: u64) -> Option<Public> {
        let domain = rules_of_resource(resource)?;
        let refused = !self.namespace_of(domain).allow_unconfigured;
        let rules = self.descriptors.get(domain);
        (refused || rules.is_some()).then(|| Public {
            version,
            kind: Kind::Descriptors,
            refused,
            descriptors: rules.cloned().unwrap_or_default(),
            ..Public::default()
        })
    }

    fn public_rate(&self, rate: &RateResource, ignored: bool, unconfigured: Public) -> Public {
        let class = self.class(rate.default_class());
        let windows = class.windows.iter().map(|window| PublicTier {
            limit: window.limit,
            window: window.window,
        });
        let tiers = class.tiers().iter().map(|tier| PublicTier {
            limit: tier.limit,
            window: tier.window,
        });
        let bucket = class.bucket.map(|bucket| PublicBucket {
            tokens: bucket.tokens,
            period: bucket.period,
            burst: bucket.burst,
        });
        let quotas = class.quotas.iter().map(|quota| PublicQuota {
            limit: quota.limit,
            unit: public_unit(quota.unit),
        });
        let has_overrides = rate.has_overrides();
        let is_enforced = !ignored && rate.mode() != Mode::Shadow;
        let closed = is_enforced.then(|| self.public_closed(rate));
        let entries = is_enforced.then(|| self.public_entries(rate));
        let PublicEntries { networks, allowed } = entries.unwrap_or_default();
        Public {
            kind: Kind::Rate,
            windows: windows.collect(),
            tiers: tiers.collect(),
            bucket,
            quotas: quotas.collect(),
            hard: class.hard,
            most: self.most_of_any(rate),
            least: self.least_of_any(rate, allowed.is_some()),
            global: rate.global().map(|global| as_near(global, rate.near())),
            keeps_estimates: self.keeps_estimates_of_all(rate),
            addresses: rate.addresses(),
            has_overrides,
            blind: rate.blind().map_or(unconfigured.blind, public_blind),
            // Otherwise a caller that uses a new name each time would cause a denial without end for each of them.
            refused: class.grants_nothing() && !has_overrides && is_enforced,
            closed: closed.unwrap_or_default(),
            networks,
            allowed,
            ..unconfigured
        }
    }

    /// Whether no domain's limits give anything back: agents then send no such settlement. Where some do, aggregators
    /// decide for each domain.
    fn keeps_estimates_of_all(&self, rate: &RateResource) -> bool {
        let of_overrides = rate.override_classes();
        let mut all = std::iter::once(rate.default_class()).chain(of_overrides);
        all.all(|class| !self.class(class).refunds)
    }

    /// The least limit of any domain, as agents have to apply it; see [`as_near`]. With tiers it is 0, so that no call
    /// waits in an agent: a hit stamped before its pair's tier was entered counts nowhere, which happens to a call that
    /// waited while another agent sent at once. It is 0 for allow lists that agents do not know, too: others pass until
    /// denied.
    fn least_of_any(&self, rate: &RateResource, is_known: bool) -> Option<u64> {
        if !is_known && self.class(rate.default_class()).grants_nothing() {
            return Some(0);
        }
        let of_overrides = rate.override_classes();
        let all = std::iter::once(rate.default_class()).chain(of_overrides);
        let mut least = None;
        for class in all.map(|class| self.class(class)) {
            if !class.tiers().is_empty() {
                return Some(0);
            }
            least = least.into_iter().chain(class.least()).min();
        }
        least.map(|limit| as_near(limit, rate.near()))
    }

    /// The most copies that the limits of any domain can grant at once. `None`: any number.
    ///
    /// Checks each override of the document once, and each distinct override of rows.
    fn most_of_any(&self, rate: &RateResource) -> Option<u64> {
        let most = |class| self.class(class).most_at_once();
        let of_overrides = rate.override_classes().map(most);
        let mut of_all = std::iter::once(most(rate.default_class())).chain(of_overrides);
        // `None` is the greatest.
        let greatest = of_all.try_fold(0, |so_far: u64, most| Some(so_far.max(most?)));
        greatest
            .map(|most| rate.global().map_or(most, |global| most.min(global)))
            .or(rate.global())
    }
}

/// A limit as agents have to apply it if they let calls of pairs wait that are not near: they rely on a fifth of it
/// being left when they get the notice about the pair.
fn as_near(limit: u64, near_percent: u8) -> u64 {
    const USUAL: u64 = 20;
    let percent = u64::from(near_percent).min(USUAL);
    limit / USUAL * percent + limit % USUAL * percent / USUAL
}

fn public_unit(unit: Calendar) -> QuotaUnit {
    match unit {
        Calendar::Day => QuotaUnit::Day,
        Calendar::Week => QuotaUnit::Week,
        Calendar::Month => QuotaUnit::Month,
        Calendar::Year => QuotaUnit::Year,
    }
}

fn public_copies(copies: &CopiesResource, agent_timeout: Span) -> PublicCopies {
    PublicCopies {
        limit: copies.limit,
        global: nobody_is_above(copies),
        reserve: match copies.reserve {
            Reserve::Optimistic => Reserving::Optimistic,
            Reserve::Strict => Reserving::Strict,
        },
        on_excess: match copies.on_excess {
            Excess::Keep => OnExcess::Keep,
            Excess::GiveBack => OnExcess::GiveBack,
        },
        max_age: copies.max_age,
        agent_timeout,
        groups: public_groups(copies, GROUPS_BYTES_MAX),
    }
}

/// A number of copies that no domain exceeds, apart from the default limit of domains without a limit of their own.
fn nobody_is_above(copies: &CopiesResource) -> Option<u64> {
    let greatest = copies.has_overrides().then_some(copies.greatest);
    copies.global.into_iter().chain(greatest).min()
}

/// The groups of a resource, as far as they fit into `bytes`: first the names of all, then the members of one after
/// the other.
fn public_groups(copies: &CopiesResource, bytes: usize) -> Box<[PublicGroup]> {
    // Names of fields, heads of texts and arrays, and the limit.
    const GROUP: usize = 48;
    const MEMBER: usize = 3;
    let mut left = bytes;
    let mut groups: Vec<PublicGroup> = Vec::new();
    for (name, group) in &copies.groups {
        let Some(rest) = left.checked_sub(name.len() + GROUP) else {
            break;
        };
        left = rest;
        groups.push(PublicGroup {
            name: name.clone(),
            limit: group.limit,
            members: None,
        });
    }
    for public_group in &mut groups {
        let Some(group) = copies.groups.get(&public_group.name) else {
            continue;
        };
        let size: usize = group.members.iter().map(|name| name.len() + MEMBER).sum();
        if let Some(rest) = left.checked_sub(size) {
            left = rest;
            public_group.members = Some(group.members.iter().map(Into::into).collect());
        }
    }
    groups.into_boxed_slice()
}

fn public_blind(blind: BlindPolicy) -> PublicBlind {
    match blind {
        BlindPolicy::Open => PublicBlind::Open,
        BlindPolicy::Closed => PublicBlind::Closed,
        BlindPolicy::Local(rate) => PublicBlind::Local {
            limit: rate.hits,
            window: rate.window,
        },
    }
}

#[cfg(test)]
#[path = "public_tests.rs"]
mod tests;
