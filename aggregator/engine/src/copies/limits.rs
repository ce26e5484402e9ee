//! The limits on one resource's copies, in the form that the rules use: one look-up for a domain.
//!
//! ```text
//! domain ── who ──> class ──> (limit of the domain, the groups it belongs to)
//! 10.1.2.3, without a limit of its own ──> 10.1.0.0/16, the longest network with one ──> that limit, and no groups
//! ```
//!
//! Knows nothing of documents and plans, of holds or of time. What stays true: every limit here is
//! effective, that is, at most the global one; groups are ordered by name.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::time::Span;

use tollgate_limits::{CopiesResource, NameTable, Networks};

use super::names::CELLS_MAX;

/// How many holds (lost ones included) and staged transfers one resource keeps, unless its limits
/// state another number. Each costs about a hundred bytes at most.
pub const HOLDS_MAX: u32 = 1 << 22;

/// The limits on one resource's copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    pub(super) global: Option<u64>,
    pub(super) max_age: Option<Span>,
    pub(super) holds_max: u32,
    pub(super) groups: Box<[GroupLimit]>,
    /// Class 0 is the class of all domains that are not in `names`.
    pub(super) classes: Box<[CopiesClass]>,
    names: NameTable,
    class_of_names: Box<[u32]>,
    /// The networks among the domains that have a limit of their own.
    networks: Networks,
    /// For each class the one of the same limit without groups: a network's members are in none of its groups.
    ungrouped: Box<[u32]>,
}

/// A group and its effective limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupLimit {
    pub(super) name: Box<str>,
    pub(super) limit: u64,
}

/// What domains share that are limited in the same way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CopiesClass {
    pub(super) limit: u64,
    /// Numbers of groups, ascending.
    pub(super) groups: Box<[u32]>,
}

/// Builds limits, one statement after the other.
#[derive(Clone, Debug)]
pub struct CopyLimitsBuilder {
    limit: u64,
    global: Option<u64>,
    max_age: Option<Span>,
    holds_max: u32,
    domains: BTreeMap<String, u64>,
    groups: BTreeMap<String, (u64, BTreeSet<String>)>,
}

impl CopyLimits {
    /// Limits that allow each domain `limit` copies, and state nothing else.
    pub fn builder(limit: u64) -> CopyLimitsBuilder {
        CopyLimitsBuilder {
            limit,
            global: None,
            max_age: None,
            holds_max: HOLDS_MAX,
            domains: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// The number of the class that limits a domain.
    #[inline]
    pub(super) fn class_of(&self, domain: &str) -> u32 {
        let of_name = |name: &str| Some(self.class_of_names[self.names.number_of(name)?]);
        let of_network = |name: &str| Some(self.ungrouped[of_name(name)? as usize]);
        of_name(domain)
            .or_else(|| self.networks.find(domain, of_network))
            .unwrap_or(0)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.names.heap_bytes()
            + size_of_val(&*self.class_of_names)
            + size_of_val(&*self.ungrouped)
            + size_of_val(&*self.classes)
            + size_of_val(&*self.groups)
    }
}

impl From<&CopiesResource> for CopyLimits {
    fn from(resource: &CopiesResource) -> Self {
        let mut builder = Self::builder(resource.limit)
            .global(resource.global)
            .max_age(resource.max_age);
        for (domain, limit) in resource.overrides() {
            builder = builder.domain(domain, limit);
        }
        for (name, group) in &resource.groups {
            builder = builder.group(name, group.limit, group.members.iter());
        }
        builder.build()
    }
}

impl CopyLimitsBuilder {
    /// The limit on the copies of all domains together; `None`: unbounded.
    #[must_use]
    pub fn global(mut self, copies: Option<u64>) -> Self {
        self.global = copies;
        self
    }

    /// How long a hold may last; `None`: without end.
    #[must_use]
    pub fn max_age(mut self, span: Option<Span>) -> Self {
        self.max_age = span;
        self
    }

    /// How many holds and transfers are kept; any beyond that are not counted.
    #[must_use]
    pub fn holds_max(mut self, holds: u32) -> Self {
        self.holds_max = holds.min(CELLS_MAX);
        self
    }

    /// A domain's own limit.
    #[must_use]
    pub fn domain(mut self, domain: &str, copies: u64) -> Self {
        self.domains.insert(domain.to_owned(), copies);
        self
    }

    /// A group's limit and members.
    #[must_use]
    pub fn group<'a>(
        mut self,
        name: &str,
        copies: u64,
        members: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let members = members.into_iter().map(str::to_owned).collect();
        self.groups.insert(name.to_owned(), (copies, members));
        self
    }

    /// The limits, each lowered to the global one if that is less.
    pub fn build(self) -> CopyLimits {
        let cap = |limit: u64| self.global.map_or(limit, |global| limit.min(global));
        let mut groups_of: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for domain in self.domains.keys() {
            groups_of.insert(domain, Vec::new());
        }
        for (number, (_, members)) in (0u32..).zip(self.groups.values()) {
            for member in members {
                groups_of.entry(member).or_default().push(number);
            }
        }
        let networks = Networks::among(self.domains.keys().map(String::as_str));
        let own = |domain: &str| self.domains.get(domain).copied();
        let mut classes = Classes::default();
        classes.number_of(cap(self.limit), &[]);
        let mut class_of_names = Vec::with_capacity(groups_of.len());
        for (domain, groups) in &groups_of {
            let of_network = || networks.find(domain, own);
            let limit = own(domain).or_else(of_network).unwrap_or(self.limit);
            class_of_names.push(classes.number_of(cap(limit), groups));
        }
        let mut ungrouped = Vec::new();
        while let Some(limit) = classes.all.get(ungrouped.len()).map(|class| class.limit) {
            ungrouped.push(classes.number_of(limit, &[]));
        }
        CopyLimits {
            global: self.global,
            max_age: self.max_age,
            holds_max: self.holds_max,
            names: NameTable::from_sorted(groups_of.keys().copied()),
            class_of_names: class_of_names.into(),
            classes: classes.all.into(),
            networks,
            ungrouped: ungrouped.into(),
            groups: self
                .groups
                .iter()
                .map(|(name, (limit, _))| GroupLimit {
                    name: name.as_str().into(),
                    limit: cap(*limit),
                })
                .collect(),
        }
    }
}

/// Classes, each with a number.
#[derive(Debug, Default)]
struct Classes {
    all: Vec<CopiesClass>,
    numbers: BTreeMap<CopiesClass, u32>,
}

impl Classes {
    fn number_of(&mut self, limit: u64, groups: &[u32]) -> u32 {
        let class = CopiesClass {
            limit,
            groups: groups.into(),
        };
        *self.numbers.entry(class).or_insert_with_key(|class| {
            self.all.push(class.clone());
            self.all.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_limits::Limits;

    #[test]
    fn a_document_equals_limits_of_the_builder() {
        let text = "version = 1\nrules = 2\n[copies.sandbox]\nlimit = 10\nglobal = 40\n\
                    max_age = \"1h\"\ndomains = { acme = 50, tiny = 1 }\n\
                    groups.probation = { limit = 4, members = [\"new-1\", \"tiny\"] }\n";
        let limits = Limits::parse(text).expect("a document");
        let resource = limits.copies("sandbox");
        let built = CopyLimits::builder(10)
            .global(Some(40))
            .max_age(Some(Span::from_secs(3_600)))
            .domain("acme", 50)
            .domain("tiny", 1)
            .group("probation", 4, ["new-1", "tiny"])
            .build();
        assert_eq!(CopyLimits::from(resource.expect("sandbox")), built);
        let limit = |domain: &str| built.classes[built.class_of(domain) as usize].limit;
        assert_eq!([limit("acme"), limit("tiny"), limit("x")], [40, 1, 10]);
    }

    #[test]
    fn an_address_has_the_limit_of_its_longest_network() {
        let built = CopyLimits::builder(10)
            .global(Some(40))
            .domain("10.0.0.0/8", 50)
            .domain("10.1.0.0/16", 3)
            .domain("10.1.2.3", 5)
            .domain("2001:db8::/32", 0)
            .group("probation", 4, ["10.1.9.9", "10.0.0.0/8", "172.16.0.1"])
            .build();
        for (domain, limit, groups) in [
            ("10.1.2.3", 5, 0),
            ("::ffff:10.1.2.3", 5, 0),
            ("10.1.2.4", 3, 0),
            ("::ffff:10.1.2.4", 3, 0),
            ("10.9.9.9", 40, 0),
            ("10.1.9.9", 3, 1),
            ("10.0.0.0/8", 40, 1),
            ("172.16.0.1", 10, 1),
            ("2001:db8::7", 0, 0),
            ("2001:db9::7", 10, 0),
            ("acme", 10, 0),
        ] {
            let class = &built.classes[built.class_of(domain) as usize];
            let found = (class.limit, class.groups.len());
            assert_eq!(found, (limit, groups), "{domain}");
        }
    }

    #[test]
    fn domains_that_are_limited_alike_share_a_class() {
        let mut builder = CopyLimits::builder(10);
        for n in 0..1_000 {
            builder = builder.domain(&format!("t{n}"), n % 3);
        }
        assert_eq!(builder.build().classes.len(), 4);
    }
}
