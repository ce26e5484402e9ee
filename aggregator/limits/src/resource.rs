//! The content of a document about one resource, checked: which limits each domain has on it.
//!
//! An override keeps its own statement separate from what it inherits, so that the document can be printed again, and
//! a changed default applies to all domains that do not override it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_shared::networks::{AddressPrefixes, address};
use tollgate_shared::time::Span;

use super::fault::FaultKind;
use super::names::NameTable;
use super::network_names::domain_of;
use super::networks::Networks;
use super::numbers::{ClassId, ResourceIx};
use super::rows::{CopiesRows, RateRows};
use super::settings::BlindPolicy;
use super::stated::Stated;
use super::tables::{CopiesTable, RateOverride, RateTable};

/// Whether denials are announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Denials are announced and hold.
    #[default]
    Enforced,
    /// Everything is ruled and counted, nothing is announced.
    Shadow,
}

/// A resource that a document configures.
// Nearly all resources are limited by rate, so a box would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Limited in hits over time.
    Rate(RateResource),
    /// Limited in copies at a time.
    Copies(CopiesResource),
}

impl Resource {
    /// The resource's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Rate(rate) => rate.name(),
            Self::Copies(copies) => copies.name(),
        }
    }

    /// The resource's number within its version.
    pub fn ix(&self) -> ResourceIx {
        match self {
            Self::Rate(rate) => rate.ix(),
            Self::Copies(copies) => copies.ix(),
        }
    }

    /// How agents treat it while blind; `None`: as [`RateResource::blind`].
    pub fn blind(&self) -> Option<BlindPolicy> {
        match self {
            Self::Rate(rate) => rate.blind(),
            Self::Copies(copies) => Some(copies.blind),
        }
    }
}

/// The default room, in percent of the least limit, from which a pair is announced as near.
pub const NEAR_DEFAULT: u8 = 20;

/// A rate-limited resource, or a pattern of resources: then its name ends with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateResource {
    pub(super) name: Box<str>,
    pub(super) ix: ResourceIx,
    /// The limits of a domain that has no override.
    pub(super) default: RateOverride,
    /// The candidate's statement, in place of the default's.
    pub(super) candidate: Option<Stated>,
    pub(super) global: Option<u64>,
    pub(super) near: u8,
    pub(super) addresses: Option<AddressPrefixes>,
    /// `None` only for a pattern that spans namespaces.
    pub(super) blind: Option<BlindPolicy>,
    pub(super) mode: Mode,
    pub(super) large_state: bool,
    /// The networks and addresses among the domains that have an override, or had one.
    pub(super) networks: Networks,
    /// The overrides in the document.
    pub(super) table: Arc<RateTable>,
    /// The overrides in rows beside the document.
    pub(super) rows: RateRows,
}

/// The entries of a table, replaced by those of rows, ascending.
pub(super) fn overlaid<'a, V: Copy>(
    table: impl Iterator<Item = (&'a str, V)>,
    rows: impl Iterator<Item = (&'a str, V)>,
) -> impl Iterator<Item = (&'a str, V)> {
    let (mut table, mut rows) = (table.peekable(), rows.peekable());
    std::iter::from_fn(move || match (table.peek(), rows.peek()) {
        (Some((named, _)), Some((row, _))) if row <= named => {
            table.next_if(|(named, _)| named == row);
            rows.next()
        }
        (Some(_), _) => table.next(),
        (None, _) => rows.next(),
    })
}

impl RateResource {
    /// The resource's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The resource's number within its version.
    pub fn ix(&self) -> ResourceIx {
        self.ix
    }

    /// The limits that rule a domain.
    ///
    /// One hash of the domain; for a domain without an override mostly one memory access beside it.
    pub fn class_of(&self, domain: &str) -> ClassId {
        self.override_for(domain).class
    }

    /// The candidate's limits for a domain, if the resource has a candidate.
    pub fn candidate_class_of(&self, domain: &str) -> Option<ClassId> {
        self.override_for(domain).candidate
    }

    /// The limits of a domain without an override.
    pub fn default_class(&self) -> ClassId {
        self.default.class
    }

    /// The resource's statement for all its domains.
    pub fn stated(&self) -> &Stated {
        &self.default.stated
    }

    /// The candidate's statement in its place, if there is one.
    pub fn candidate(&self) -> Option<&Stated> {
        self.candidate.as_ref()
    }

    /// Hits a second of all domains together; `None`: unbounded.
    pub fn global(&self) -> Option<u64> {
        self.global
    }

    /// Percent of the least limit: a pair with at most so much room is announced as near.
    pub fn near(&self) -> u8 {
        self.near
    }

    /// How a domain that is an address becomes a network; `None`: domains stay as they are.
    pub fn addresses(&self) -> Option<AddressPrefixes> {
        self.addresses
    }

    /// The domain under which a name from an operator is limited: an address as its network, a network in canonical
    /// spelling, otherwise the name itself.
    ///
    /// # Errors
    ///
    /// If a network is invalid, or narrower than those by which this resource limits addresses.
    pub fn limited_as<'n>(&self, name: &'n str) -> Result<Cow<'n, str>, FaultKind> {
        match (self.addresses, address(name)) {
            // Agents pass it on as it is, and its pair is another one than that of the canonical spelling.
            (None, Some(_)) => Ok(Cow::Borrowed(name)),
            _ => domain_of(name, self.addresses),
        }
    }

    /// Whether its pairs may take more memory than others.
    pub fn large_state(&self) -> bool {
        self.large_state
    }

    /// How agents treat it while blind. `None`: each resource that this pattern matches as its own namespace states;
    /// see [`Limits::blind_of`](crate::Limits::blind_of).
    pub fn blind(&self) -> Option<BlindPolicy> {
        self.blind
    }

    /// Whether its denials are announced.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether any domain has an override.
    pub fn has_overrides(&self) -> bool {
        0 < self.entries()
    }

    /// How many domains the document and the rows name; a domain of both counts twice.
    pub(super) fn entries(&self) -> usize {
        self.table.domains.len() + self.rows.len()
    }

    /// The domains that the document names, ascending.
    pub(super) fn document_domains(&self) -> impl Iterator<Item = &str> {
        self.table.domains.iter()
    }

    /// The domains that have an override, ascending, each with it.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, &RateOverride)> {
        overlaid(self.table.iter(), self.rows.all().into_iter())
    }

    /// The override of a domain, if it has one.
    pub fn override_of(&self, domain: &str) -> Option<&RateOverride> {
        self.rows.get(domain).or_else(|| self.table.get(domain))
    }

    /// Each override of the document once, with the first domain that has it and the number of domains that have it.
    pub(super) fn override_uses(&self) -> impl Iterator<Item = (&str, usize, &RateOverride)> {
        let table = &*self.table;
        let mut uses: Vec<Option<(&str, usize)>> = vec![None; table.overrides.len()];
        for (domain, &number) in table.domains.iter().zip(&table.override_of) {
            match &mut uses[number as usize] {
                Some((_, domains)) => *domains += 1,
                first => *first = Some((domain, 1)),
            }
        }
        uses.into_iter()
            .zip(&table.overrides)
            .filter_map(|(used, of)| used.map(|(domain, domains)| (domain, domains, of)))
    }

    /// The limits of all overrides, each of the document and of the rows once.
    pub(super) fn override_classes(&self) -> impl Iterator<Item = ClassId> {
        let document = self.table.overrides.iter();
        document.chain(self.rows.overrides()).map(|of| of.class)
    }

    /// Bytes on the heap, for a report.
    pub fn heap_bytes(&self) -> usize {
        let table = &*self.table;
        table.domains.heap_bytes()
            + size_of_val(&*table.override_of)
            + size_of_val(&*table.overrides)
    }

    /// The limits of a domain: its own override, else that of its address in canonical spelling, else that of the
    /// longest network that contains it, else the default.
    #[inline]
    pub(super) fn override_for(&self, domain: &str) -> &RateOverride {
        let own = self.override_of(domain);
        let of_network = || self.networks.find(domain, |name| self.override_of(name));
        own.or_else(of_network).unwrap_or(&self.default)
    }

    /// The domain or network whose override applies to a domain; `None` if the default applies.
    pub fn ruling_domain(&self, domain: &str) -> Option<Box<str>> {
        let named = |name: &str| self.override_of(name).map(|_| name.into());
        named(domain).or_else(|| self.networks.find(domain, named))
    }
}

/// How copies are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reserve {
    /// They are in use at once; copies that were too many are excess.
    #[default]
    Optimistic,
    /// They are in use once the aggregator has granted them.
    Strict,
}

/// What an agent does with copies that were too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Excess {
    /// Keeps them; only further copies are refused.
    #[default]
    Keep,
    /// Gets a request to release them.
    GiveBack,
}

/// A set of domains that share a limit on copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Copies of all members together, at most the resource's global limit.
    pub limit: u64,
    /// The members, ascending.
    pub members: NameTable,
}

/// A copy-limited resource. Effective limits: each is at most the global one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiesResource {
    pub(super) name: Box<str>,
    pub(super) ix: ResourceIx,
    /// Copies of one domain that has no override.
    pub limit: u64,
    /// Copies of all domains together; `None`: unbounded.
    pub global: Option<u64>,
    /// How copies are taken.
    pub reserve: Reserve,
    /// How agents treat copies that were too many.
    pub on_excess: Excess,
    /// How long a hold may last; `None`: without end.
    pub max_age: Option<Span>,
    /// How agents treat it while blind.
    pub blind: BlindPolicy,
    /// The groups by name.
    pub groups: BTreeMap<Box<str>, Group>,
    /// The networks among the domains that have a limit of their own, or had one.
    pub(super) networks: Networks,
    /// The domains' own limits in the document.
    pub(super) table: Arc<CopiesTable>,
    /// The domains' own limits in rows beside the document.
    pub(super) rows: CopiesRows,
    /// No domain may hold more than this: the greatest limit of any domain now, or of a row before; it is never
    /// lowered, so that a version costs no more than its change.
    pub(super) greatest: u64,
}

impl CopiesResource {
    /// The resource's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The resource's number within its version.
    pub fn ix(&self) -> ResourceIx {
        self.ix
    }

    /// Copies that a domain may hold: its own limit, else that of the longest network that contains it, else the
    /// default.
    pub fn limit_of(&self, domain: &str) -> u64 {
        let own = self.override_of(domain);
        let of_network = || self.networks.find(domain, |name| self.override_of(name));
        own.or_else(of_network).unwrap_or(self.limit)
    }

    /// The domain or network whose limit applies to a domain; `None` if the default applies.
    pub fn ruling_domain(&self, domain: &str) -> Option<Box<str>> {
        let named = |name: &str| self.override_of(name).map(|_| name.into());
        named(domain).or_else(|| self.networks.find(domain, named))
    }

    /// The groups that a domain belongs to, ascending.
    pub fn groups_of<'a>(&'a self, domain: &'a str) -> impl Iterator<Item = (&'a str, &'a Group)> {
        self.groups
            .iter()
            .filter(move |(_, group)| group.members.number_of(domain).is_some())
            .map(|(name, group)| (&**name, group))
    }

    /// Whether any domain has a limit of its own.
    pub fn has_overrides(&self) -> bool {
        0 < self.entries()
    }

    /// How many domains the document and the rows give a limit; a domain of both counts twice.
    pub(super) fn entries(&self) -> usize {
        self.table.domains.len() + self.rows.len()
    }

    /// The domains that have a limit of their own, ascending, each with it.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, u64)> {
        let table = self
            .table
            .domains
            .iter()
            .zip(self.table.limits.iter().copied());
        let rows = self.rows.all();
        overlaid(
            table,
            rows.map(|(domain, limit)| (domain, self.lowered(limit))),
        )
    }

    /// A domain's own limit, if it has one.
    pub fn override_of(&self, domain: &str) -> Option<u64> {
        let of_document = || {
            let number = self.table.domains.number_of(domain)?;
            Some(self.table.limits[number])
        };
        let row = self.rows.get(domain).map(|limit| self.lowered(limit));
        row.or_else(of_document)
    }

    /// The limit, lowered to the global one if that is less.
    fn lowered(&self, limit: u64) -> u64 {
        self.global.map_or(limit, |global| limit.min(global))
    }
}
