//! Why a batch of an agent does not go to the log, as messages and as metrics.
//!
//! Knows nothing of connections. What stays true: every fault has a name of its own in the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_shared::time::Span;
use tollgate_shared::wire::DecodeError;
use tollgate_shared::wire::link::Refusal;

use super::session::{BATCH_BYTES_MAX, SENT_APART_MAX, SEQUENCE_MAX};

/// Why a batch does not go to the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    /// The log has no such partition.
    #[error("partition {found} does not exist, there are {partitions}")]
    Partition {
        /// The partition that was named.
        found: u32,
        /// How many there are.
        partitions: u32,
    },
    /// Agents may not write records of this kind.
    #[error("kind {0} is not an agent's to write")]
    Kind(u8),
    /// It is not a whole record.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// It is longer than one turn of a partition may take.
    #[error("{found} bytes of hits or holds: expected at most {BATCH_BYTES_MAX}")]
    Size {
        /// Its bytes.
        found: usize,
    },
    /// The connection has not stated its agent and epoch yet.
    #[error("no hello came over this connection")]
    NoHello,
    /// It is of another agent, or of another process of the same agent.
    #[error("agent {agent:?}, epoch {epoch:032x}: this connection speaks for {expected}")]
    NotItsOwn {
        /// The batch's agent.
        agent: Box<str>,
        /// The batch's epoch.
        epoch: u128,
        /// The agent for which the connection speaks.
        expected: Box<str>,
    },
    /// It would end an epoch whose secret the connection has not shown.
    #[error("replaces epoch {0:032x}, whose secret the hello did not contain")]
    Replaces(u128),
    /// Its sequence is too high to be one of this process.
    #[error("sequence {0}: expected 1 to {SEQUENCE_MAX}")]
    Sequence(u64),
    /// It names a resource that the connection's token does not cover.
    #[error("resource {0:?}: the connection's token is not for its namespace")]
    Namespace(Box<str>),
    /// It has a hit of a pair that another partition rules.
    #[error(
        "resource {resource:?}, domain {domain:?}: found in partition {found}, expected in {expected}"
    )]
    Misrouted {
        /// The pair's resource.
        resource: Box<str>,
        /// The pair's domain.
        domain: Box<str>,
        /// The partition that was named.
        found: u32,
        /// The partition of the pair.
        expected: u32,
    },
    /// Its send stamp is too far from this process's clock.
    #[error(
        "sent {} s {} this aggregator's clock, expected at most {} s: one of the two clocks is wrong",
        .apart.as_micros() / 1_000_000,
        if *.ahead { "ahead of" } else { "behind" },
        SENT_APART_MAX.as_micros() / 1_000_000
    )]
    Sent {
        /// The distance.
        apart: Span,
        /// Whether the stamp is in this process's future.
        ahead: bool,
    },
}

impl BatchFault {
    /// The names of all faults, as metrics have them.
    pub const NAMES: [&'static str; 11] = [
        "partition",
        "kind",
        "malformed",
        "no_hello",
        "not_its_own",
        "replaces",
        "sequence",
        "sent",
        "namespace",
        "misrouted",
        "size",
    ];

    const fn index(&self) -> usize {
        match self {
            Self::Partition { .. } => 0,
            Self::Kind(_) => 1,
            Self::Malformed(_) => 2,
            Self::NoHello => 3,
            Self::NotItsOwn { .. } => 4,
            Self::Replaces(_) => 5,
            Self::Sequence(_) => 6,
            Self::Sent { .. } => 7,
            Self::Namespace(_) => 8,
            Self::Misrouted { .. } => 9,
            Self::Size { .. } => 10,
        }
    }

    /// Its name, as in the counter's label.
    pub(super) fn name(&self) -> &'static str {
        Self::NAMES.get(self.index()).copied().unwrap_or_default()
    }

    /// Whether the same batch may be let through later.
    pub(super) const fn reason(&self) -> Refusal {
        match self {
            Self::NoHello => Refusal::NotNow,
            _ => Refusal::Never,
        }
    }
}

/// How many batches were refused, by fault.
#[derive(Debug, Default)]
pub struct RefusedBatches([AtomicU64; BatchFault::NAMES.len()]);

impl RefusedBatches {
    /// Counts a refused batch.
    pub fn count(&self, fault: &BatchFault) {
        if let Some(counter) = self.0.get(fault.index()) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every fault's name, and how many batches had it.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.0.iter().map(|one| one.load(Ordering::Relaxed));
        BatchFault::NAMES.into_iter().zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_counted_under_its_name() {
        let refused = RefusedBatches::default();
        refused.count(&BatchFault::NoHello);
        refused.count(&BatchFault::Replaces(1));
        let counts: Vec<_> = refused.counts().filter(|(_, count)| 0 < *count).collect();
        assert_eq!(counts, [("no_hello", 1), ("replaces", 1)]);
    }
}
