//! Overrides in a document: tables of domains, built once and never changed.
//!
//! Domains with the same statement share one [`RateOverride`]; a domain costs its name and four bytes. Knows
//! nothing of rows. What stays true: domains ascend.

use super::names::NameTable;
use super::numbers::ClassId;
use super::stated::Stated;

/// The statement of one or more domains, and the resulting limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateOverride {
    /// The statement.
    pub stated: Stated,
    /// Their limits.
    pub class: ClassId,
    /// Their limits under the candidate, which are not announced; `Some` if the resource has a candidate.
    pub candidate: Option<ClassId>,
}

/// The overrides of a document: shared by the versions that differ from it by rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RateTable {
    pub domains: NameTable,
    /// For each domain by its number: the number of its override.
    pub override_of: Box<[u32]>,
    pub overrides: Box<[RateOverride]>,
    /// The numbers of the domains whose limits grant nothing, ascending.
    pub closed: Box<[u32]>,
}

impl RateTable {
    pub fn get(&self, domain: &str) -> Option<&RateOverride> {
        let number = self.domains.number_of(domain)?;
        Some(&self.overrides[self.override_of[number] as usize])
    }

    /// The domains whose limits grant nothing, ascending.
    pub fn closed(&self) -> impl Iterator<Item = &str> {
        let numbers = self.closed.iter();
        numbers.map(|number| self.domains.name(*number as usize))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &RateOverride)> {
        self.domains
            .iter()
            .zip(&self.override_of)
            .map(|(domain, &number)| (domain, &self.overrides[number as usize]))
    }
}

/// The overrides of a document, each domain with its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CopiesTable {
    pub domains: NameTable,
    pub limits: Box<[u64]>,
}
