//! What a change states of one domain, and why it may be refused.

use tollgate_shared::names::{NAME_BYTES_MAX, NameFault};

use super::fault::{FaultKind, Faults};

/// The most rows of one version: some 100 bytes each, so that a fleet's rows stay within half a gigabyte.
pub const OVERRIDE_ROWS_MAX: usize = 1 << 22;

/// What a domain states of itself, in the words of a document. `None` stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Own {
    /// Hits in a time, as `100/s`; it takes the place of tiers.
    pub rate: Option<Box<str>>,
    /// Hits a second, as `200/s`.
    pub hard: Option<Box<str>>,
    /// Copies.
    pub limit: Option<u64>,
}

impl Own {
    /// What is stated here, and of what is not the same as before.
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

/// Why nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// There is no such resource.
    #[error("resource {0:?} is not configured")]
    NotConfigured(Box<str>),
    /// The resource is limited by something else.
    #[error("resource {resource:?} is limited by {by}: expected {expected}")]
    Kind {
        /// The resource.
        resource: Box<str>,
        /// By what it is limited.
        by: &'static str,
        /// What can be stated.
        expected: &'static str,
    },
    /// What is to be taken away is not there.
    #[error("domain {0:?} has nothing of its own")]
    Nothing(Box<str>),
    /// What is to be taken away is no row: the document states it.
    #[error("domain {0:?} has its limits of the document: expected a change of the document")]
    InDocument(Box<str>),
    /// Addresses that had rows of their own are one network now.
    #[error("domain {0:?} is in the network of another row: expected one row of each network")]
    SameNetwork(Box<str>),
    /// There are rows enough.
    #[error(
        "{OVERRIDE_ROWS_MAX} domains have limits of their own beside the document: expected no more"
    )]
    TooMany,
    /// No document may have the name.
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
    /// No record has room for what is stated.
    #[error("a {field} of {found} bytes: expected at most {NAME_BYTES_MAX}")]
    Long {
        /// Rate or hard limit.
        field: &'static str,
        /// How long it is.
        found: usize,
    },
    /// What is stated is wrong.
    #[error("{0}")]
    Faults(Faults),
}
