//! How operations on each resource that a record names are treated: counted, let through or refused.
//!
//! ```text
//! limited by copies, of this partition            counted
//! not limited any more, and still held            counted without bound; new copies are refused where unnamed
//!                                                 resources are
//! not limited by copies                           let through, or refused where unnamed resources are
//! limited by copies, of another partition         refused
//! ```
//!
//! Knows nothing of operations. What stays true: all resources of a record are opened before any of them is used.

use super::Engine;
use super::holders::AgentProcess;
use crate::copies::AgentIx;

/// How operations on a resource are treated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Admission {
    /// Its copies are counted here.
    Counted {
        /// The index of the resource among the holders.
        index: usize,
        /// The number of the sender in it.
        agent: AgentIx,
        /// Whether it takes no more copies: limits do not name it any more, and its namespace refuses such resources.
        is_closed: bool,
    },
    /// It is not limited by copies, none are kept of it, and operations are let through.
    Free,
    /// It is not limited by copies, and operations are refused.
    Unconfigured,
    /// It belongs to another partition.
    Misrouted,
}

impl Engine {
    /// How operations on each of these resources are treated.
    pub(super) fn doors(&mut self, names: &[&str], process: &AgentProcess) -> Vec<Admission> {
        let limits = self.steps.newest().limits.clone();
        // All are opened before any index is taken: a new one moves those behind it.
        for name in names {
            if !self.is_of_another_partition(name) {
                let key = self.name_key();
                self.holders.open(name, &limits, key, self.log_time);
            }
        }
        let door = |name: &&str| {
            let is_limited = limits.copies(name).is_some();
            let lets_in = is_limited || limits.namespace_of(name).allow_unconfigured;
            if !is_limited && self.holders.find(name).is_err() {
                return match lets_in {
                    true => Admission::Free,
                    false => Admission::Unconfigured,
                };
            }
            let Ok(index) = self.holders.find(name) else {
                return Admission::Misrouted;
            };
            match self.holders.at(index) {
                Some((held, _)) => Admission::Counted {
                    index,
                    agent: held.copies.agent(&process.name, process.epoch),
                    is_closed: !lets_in,
                },
                None => Admission::Misrouted,
            }
        };
        names.iter().map(door).collect()
    }

    /// Whether a copy-limited resource belongs to another partition.
    fn is_of_another_partition(&self, resource: &str) -> bool {
        let of = tollgate_shared::names::partition_of_resource(resource, self.partitions);
        1 < self.partitions && of != self.partition
    }
}
