//! Resources of a log that are limited by copies: a backtest plays rates, so it leaves them out.
//!
//! ```text
//! holds, heartbeats        their resources are limited by copies; their records are no calls
//! a refused reservation    stands among the refused calls of rates: known by its resource or its cause
//! ```
//!
//! A refusal that an operator's ban or a blind agent caused has the same cause on both. Before the log shows holds of
//! its resource, and if no limits document has that resource, it counts as a call on a rate. What stays true: a hit is
//! never left out.

use std::collections::BTreeSet;

use tollgate_limits::{Limits, Resource};
use tollgate_shared::wire::hits::Refused;
use tollgate_shared::wire::statement::Cause;

/// What is left out of a log, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct CopiesLeftOut {
    /// Resources that are limited by copies.
    limited: BTreeSet<Box<str>>,
    /// Those of them that the log has.
    met: BTreeSet<Box<str>>,
    /// Refused reservations.
    refused: u64,
}

impl CopiesLeftOut {
    /// Nothing yet; resources that some of these limits limit by copies, and none by rates, are known as such.
    pub fn new<'a>(limits: impl Iterator<Item = &'a Limits> + Clone) -> Self {
        let mut left_out = Self::default();
        let resources = limits.clone().flat_map(Limits::resources);
        for resource in resources {
            if let Resource::Copies(copies) = resource
                && limits.clone().all(|of| of.rate(copies.name()).is_none())
            {
                left_out.limited.insert(copies.name().into());
            }
        }
        left_out
    }

    /// Notes the resources of a record of holds.
    pub(super) fn met(&mut self, resources: &[&str]) {
        for resource in resources {
            if !self.met.contains(*resource) {
                self.limited.insert((*resource).into());
                self.met.insert((*resource).into());
            }
        }
    }

    /// Whether refused calls are reservations of copies; then they are counted here.
    pub(super) fn leaves_out(&mut self, resource: &str, refused: &Refused<'_>) -> bool {
        let is_of_copies = matches!(refused.cause, Cause::Full | Cause::NotRate);
        if !is_of_copies && !self.limited.contains(resource) {
            return false;
        }
        self.met(&[resource]);
        self.refused += refused.calls;
        true
    }

    /// Whether a resource is known to be limited by copies.
    pub(super) fn has(&self, resource: &str) -> bool {
        self.limited.contains(resource)
    }

    /// The resources that were left out.
    pub(super) fn names(&self) -> Vec<String> {
        self.met.iter().map(|name| name.to_string()).collect()
    }

    /// Refused reservations that were left out.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }
}
