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

use tollgate_limits::Limits;
use tollgate_shared::wire::hits::Refused;
use tollgate_shared::wire::statement::Cause;

/// What is left out of a log, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct CopiesLeftOut<'a> {
    /// The limits documents.
    documents: Vec<&'a Limits>,
    /// Resources that the log has, and that are limited by copies.
    met: BTreeSet<Box<str>>,
    /// Refused reservations.
    refused: u64,
}

impl<'a> CopiesLeftOut<'a> {
    /// Nothing yet; resources that some of these limits limit by copies, and none by rates, are known as such.
    pub fn new(limits: impl Iterator<Item = &'a Limits>) -> Self {
        Self {
            documents: limits.collect(),
            ..Self::default()
        }
    }

    /// Notes the resources of a record of holds.
    pub(super) fn met(&mut self, resources: &[&str]) {
        for resource in resources {
            if !self.met.contains(*resource) {
                self.met.insert((*resource).into());
            }
        }
    }

    /// Whether refused calls are reservations of copies; then they are counted here.
    pub(super) fn leaves_out(&mut self, resource: &str, refused: &Refused<'_>) -> bool {
        let is_of_copies = matches!(refused.cause, Cause::Full | Cause::NotRate);
        if !is_of_copies && !self.has(resource) {
            return false;
        }
        self.met(&[resource]);
        self.refused += refused.calls;
        true
    }

    /// Whether a resource is known to be limited by copies: by its own name, or by a pattern that it matches.
    pub(super) fn has(&self, resource: &str) -> bool {
        let documents = || self.documents.iter();
        self.met.contains(resource)
            || documents().any(|limits| limits.copies(resource).is_some())
                && documents().all(|limits| limits.rate(resource).is_none())
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

#[cfg(test)]
mod tests {
    use tollgate_shared::time::Timestamp;

    use super::*;

    #[test]
    fn refusals_on_copies_of_a_pattern_are_no_calls_on_rates() {
        let limits = |text: &str| Limits::parse(text).expect("good");
        let copies = limits("[copies.\"jobs.*\"]\nlimit = 2\n");
        let mixed = limits("[copies.\"jobs.*\"]\nlimit = 2\n[rate.\"jobs.a\"]\nrate = \"1/s\"\n");
        let rates = limits("[rate.\"jobs.*\"]\nrate = \"1/s\"\n");
        let banned = Refused {
            resource: 0,
            domain: "acme",
            calls: 3,
            copies: 3,
            first: Timestamp::ZERO,
            last: Timestamp::ZERO,
            cause: Cause::Banned,
            position: None,
        };
        for (documents, resource, is_left_out) in [
            (vec![&copies], "jobs.a", true),
            (vec![&copies], "search", false),
            (vec![&mixed], "jobs.a", false),
            (vec![&mixed], "jobs.b", true),
            (vec![&copies, &rates], "jobs.a", false),
        ] {
            let mut left_out = CopiesLeftOut::new(documents.into_iter());
            assert_eq!(left_out.has(resource), is_left_out, "{resource}");
            let is_found = left_out.leaves_out(resource, &banned);
            assert_eq!(is_found, is_left_out, "{resource}");
            let refused = if is_left_out { 3 } else { 0 };
            assert_eq!(left_out.refused(), refused, "{resource}");
            assert_eq!(left_out.names().is_empty(), !is_left_out, "{resource}");
        }
    }
}
