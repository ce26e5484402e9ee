//! What limits copies: a domain, a group of domains, all domains of a resource together.
//!
//! ```text
//! limit = 4, global = 9, groups.few = 3 for acme     acme: the domain 4, few 3, the resource 9
//! global = 2                                         acme: the domain 2, few 2, the resource 2
//! ```
//!
//! Knows nothing of who holds what. What stays true: no limit is above the global one.

use std::collections::{BTreeMap, BTreeSet};

/// What a limit is on. In the order in which scopes are named where several have equally little room.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CopyScope {
    /// One domain.
    Domain(String),
    /// A group of domains.
    Group(String),
    /// All domains of the resource.
    Resource,
}

/// The limits on one resource, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldLimits {
    /// Of each domain that has none of its own.
    pub domain: u64,
    /// Of all domains together.
    pub global: Option<u64>,
    /// How long copies may be held, in microseconds.
    pub max_age_us: Option<u64>,
    /// Holds and transfers that are kept at most.
    pub kept_max: usize,
    /// Domains' own limits.
    pub domains: BTreeMap<String, u64>,
    /// Each group's limit and members.
    pub groups: BTreeMap<String, (u64, BTreeSet<String>)>,
}

impl HoldLimits {
    /// The limit of a scope, if it has one.
    pub fn limit_of(&self, scope: &CopyScope) -> Option<u64> {
        let own = match scope {
            CopyScope::Domain(name) => self.domains.get(name).copied().or(Some(self.domain)),
            CopyScope::Group(name) => self.groups.get(name).map(|(limit, _)| *limit),
            CopyScope::Resource => self.global,
        };
        own.map(|own| own.min(self.global.unwrap_or(u64::MAX)))
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

/// A resource that is limited by copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedCopies {
    /// Its limits.
    pub limits: HoldLimits,
    /// Whether its limits are heeded. If not, no scope is denied, and a reserve is granted what it asks for.
    pub is_heeded: bool,
}

/// A version of limits, as far as copies go. The default is what rules before the first version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesVersion {
    /// The resources of this partition that are limited by copies.
    pub resources: BTreeMap<String, LimitedCopies>,
    /// Whether operations on other resources are refused. Otherwise they are let through and not counted.
    pub refuses_others: bool,
    /// Domains of one resource that are denied at most because they are full.
    pub denied_max: usize,
    /// After so many counted ticks without a record of holds an agent is gone.
    pub timeout_ticks: u64,
}

impl Default for CopiesVersion {
    fn default() -> Self {
        Self {
            resources: BTreeMap::new(),
            refuses_others: false,
            denied_max: 0,
            // Two seconds.
            timeout_ticks: 4,
        }
    }
}
