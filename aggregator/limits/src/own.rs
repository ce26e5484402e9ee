//! The statement of a change about one domain, and why it may be refused.

use tollgate_shared::names::{NAME_BYTES_MAX, NameFault};

use super::fault::{FaultKind, Faults};

/// The most rows of one version: about 100 bytes each, so that a fleet's rows stay within half a
/// gigabyte.
pub const OVERRIDE_ROWS_MAX: usize = 1 << 22;

/// A domain's own statement, in a document's notation. A field that is `None` stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Own {
    /// Hits in a time, as `100/s`; it replaces tiers.
    pub rate: Option<Box<str>>,
    /// Hits a second, as `200/s`.
    pub hard: Option<Box<str>>,
    /// Copies.
    pub limit: Option<u64>,
}

impl Own {
    /// The fields stated here, and for the other fields those stated before.
    #[must_use]
    pub fn or(self, before: Option<&Self>) -> Self {
        let Some(before) = before else {
            return self;
        };
        Self {
            rate: self.rate.or_else(|| before.rate.clone()),
            hard: self.hard.or_else(|| before.hard.clone()),
            limit: self.limit.or(before.limit),
        }
    }
}

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// There is no such resource.
    #[error("resource {0:?} is not configured")]
    NotConfigured(Box<str>),
    /// The limits do not name the resource; a pattern limits it.
    #[error(
        "resource {resource:?} is limited by the pattern {pattern:?}, expected a resource that the limits name"
    )]
    ByPattern {
        /// The resource.
        resource: Box<str>,
        /// The pattern.
        pattern: Box<str>,
    },
    /// The resource is limited by something else.
    #[error("resource {resource:?} is limited by {by}: expected {expected}")]
    Kind {
        /// The resource.
        resource: Box<str>,
        /// What limits it.
        by: &'static str,
        /// What can be stated.
        expected: &'static str,
    },
    /// The row to remove does not exist.
    #[error("domain {0:?} has no limits of its own")]
    Nothing(Box<str>),
    /// The statement to remove is not a row: the document contains it.
    #[error("the limits of domain {0:?} stand in the document: expected a change of the document")]
    InDocument(Box<str>),
    /// Addresses that had rows of their own are one network now.
    #[error(
        "domain {0:?} is in the same network as another row: expected one row for each network"
    )]
    SameNetwork(Box<str>),
    /// A row of the version before cannot stand beside a new document.
    #[error("resource {resource:?}: a row beside the document: {why}")]
    BesideDocument {
        /// The resource.
        resource: Box<str>,
        /// What is wrong with the row under this document.
        why: Box<NotChanged>,
    },
    /// There are as many rows as allowed.
    #[error(
        "{OVERRIDE_ROWS_MAX} domains have rows (limits beside the document) already: expected no more"
    )]
    TooMany,
    /// A document may not contain the name.
    #[error("domain {domain:?}: {fault}")]
    Name {
        /// The name.
        domain: Box<str>,
        /// What is wrong with it.
        fault: NameFault,
    },
    /// The name looks like a network, and the resource could not limit it.
    #[error("domain {domain:?}: {kind}")]
    Network {
        /// The domain.
        domain: Box<str>,
        /// What is wrong with it.
        kind: FaultKind,
    },
    /// The statement is too long for a record.
    #[error("a {field} of {found} bytes: expected at most {NAME_BYTES_MAX}")]
    Long {
        /// Rate or hard limit.
        field: &'static str,
        /// Its length in bytes.
        found: usize,
    },
    /// The statement is invalid.
    #[error("{0}")]
    Faults(Faults),
}
