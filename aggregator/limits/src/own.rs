//! What a change states of one domain, and why it may be refused.

use tollgate_shared::names::{NAME_BYTES_MAX, NameFault};

use super::fault::{FaultKind, Faults};

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
