//! Limits on copies: of a domain, of a group of domains, of all domains of a resource together.
//!
//! ```text
//! limit = 4, global = 9, groups.few = 3 for acme     acme: the domain 4, few 3, the resource 9
//! global = 2                                         acme: the domain 2, few 2, the resource 2
//! ```
//!
//! Knows nothing of holds. What stays true: no limit is above the global one.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{address_of, networks_of};

/// The scope of a limit. Where several scopes have equally little room, the first in this order is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyScope {
    /// One domain.
    Domain(String),
    /// A group of domains.
    Group(String),
    /// All domains of the resource.
    Resource,
}

/// The limits on one resource, as the limits document states them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldLimits {
    /// The limit of each domain without one of its own.
    pub domain: u64,
    /// The limit of all domains together.
    pub global: Option<u64>,
    /// How long copies may be held, in microseconds.
    pub max_age_us: Option<u64>,
    /// The greatest number of holds and transfers that are kept.
    pub kept_max: usize,
    /// The limits of single domains, and of networks of domains.
    pub domains: BTreeMap<String, u64>,
    /// Each group's limit and members.
    pub groups: BTreeMap<String, (u64, BTreeSet<String>)>,
}

impl HoldLimits {
    /// The limit of a scope, if it has one.
    pub fn limit_of(&self, scope: &CopyScope) -> Option<u64> {
        let own = match scope {
            CopyScope::Domain(name) => Some(self.of_domain(name)),
            CopyScope::Group(name) => self.groups.get(name).map(|(limit, _)| *limit),
            CopyScope::Resource => self.global,
        };
        own.map(|own| own.min(self.global.unwrap_or(u64::MAX)))
    }

    /// A domain's own limit, else that of its address in canonical spelling, else that of the longest network that
    /// contains it, else the default.
    fn of_domain(&self, domain: &str) -> u64 {
        let others = address_of(domain).into_iter().chain(networks_of(domain));
        let names = std::iter::once(domain.to_owned()).chain(others);
        let mut own = names.filter_map(|name| self.domains.get(&name).copied());
        own.next().unwrap_or(self.domain)
    }

    /// The groups that a domain belongs to, by name.
    pub fn groups_of(&self, domain: &str) -> Vec<String> {
        let groups = self.groups.iter();
        groups
            .filter(|(_, (_, members))| members.contains(domain))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// The scopes that copies of a domain count in, if they were taken under these groups.
pub(super) fn scopes_of(domain: &str, groups: &[String]) -> Vec<CopyScope> {
    let groups = groups.iter().cloned().map(CopyScope::Group);
    let mut all = vec![CopyScope::Domain(domain.to_owned())];
    all.extend(groups);
    all.push(CopyScope::Resource);
    all
}

/// A resource with limits on copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedCopies {
    /// Its limits.
    pub limits: HoldLimits,
    /// Whether its limits are enforced. If not, no scope is denied, and every reserve is granted in full.
    pub is_heeded: bool,
}

/// The part of a limits version that concerns copies. The default is in force before the first version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesVersion {
    /// The resources of this partition with limits on copies.
    pub resources: BTreeMap<String, LimitedCopies>,
    /// Other resources whose bans are enforced.
    pub heeded_others: BTreeSet<String>,
    /// Whether operations on other resources are refused. Otherwise they are accepted and not counted.
    pub refuses_others: bool,
    /// The greatest number of domains of one resource that are denied because they are full.
    pub denied_max: usize,
    /// An agent is gone after this many counted ticks without a record of holds from it.
    pub timeout_ticks: u64,
}

impl Default for CopiesVersion {
    fn default() -> Self {
        Self {
            resources: BTreeMap::new(),
            heeded_others: BTreeSet::new(),
            refuses_others: false,
            denied_max: 0,
            // Two seconds.
            timeout_ticks: 4,
        }
    }
}
