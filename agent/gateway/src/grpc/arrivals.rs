//! The order in which requests came, and reports that were handled before the requests whose end they report.
//!
//! ```text
//! come           request 7, report 8     Envoy sends a request before the report of its end
//! are handled    report 8                it finds no copies: remembered, because request 7 is unanswered
//!                request 7               takes copies, and report 8 gives them back at once
//! ```
//!
//! Requests of one connection run at once, so two that lie in one read are handled in any order. Requests that came
//! after a report have nothing to do with it, even if a client uses its id again. Knows nothing of holds. What stays
//! true: a report is remembered only while a request that came before it is unanswered, and requests are answered
//! within seconds; at most [`EARLY_MAX`] are remembered; each that is forgotten is counted.

use std::collections::BTreeSet;

use tollgate_shared::names::admit_domain;

use crate::state::{Shared, Undecided};

/// The most reports that are remembered at once. A connection has 128 requests at once, so this is the case of several
/// connections that stood still together.
pub(crate) const EARLY_MAX: usize = 1_000;

/// A connection, by a number that is unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(pub u64);

/// What a hold is for: a resource, a domain, and a request if known, otherwise empty. Each has a bounded length:
/// [`HeldFor::new`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeldFor {
    pub resource: String,
    pub domain: String,
    pub request: String,
}

impl HeldFor {
    /// From the names in a request. Long names are shortened with a hash, like domains everywhere.
    pub fn new(resource: &str, domain: &str, request: &str) -> Self {
        let bounded = |name: &str| match name {
            // The empty name is a name of its own here.
            "" => String::new(),
            name => admit_domain(name).into_owned(),
        };
        Self {
            resource: bounded(resource),
            domain: bounded(domain),
            request: bounded(request),
        }
    }
}

/// When a request came: over which connection, and as which of all requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub by: ConnectionId,
    /// Greater than those of all requests whose heads came before.
    pub number: u64,
}

/// A report that found fewer copies than it gives back.
#[derive(Debug)]
pub(crate) struct EarlyReport {
    pub number: u64,
    pub held_for: HeldFor,
    /// The copies that it did not find.
    pub copies: u64,
    /// Why it is left undecided if its request does not follow.
    pub why: Undecided,
}

/// The unanswered requests, and the remembered reports.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    last: u64,
    unanswered: BTreeSet<u64>,
    early: Vec<EarlyReport>,
}

impl Arrivals {
    /// The number of a request whose head has come.
    pub fn begin(&mut self) -> u64 {
        self.last += 1;
        self.unanswered.insert(self.last);
        self.last
    }

    /// A request is answered, or has ended without an answer. Reports that only it could belong to are forgotten.
    pub fn end(&mut self, number: u64) {
        self.unanswered.remove(&number);
        let first = self.unanswered.first().copied().unwrap_or(u64::MAX);
        self.early.retain(|report| {
            let is_awaited = first < report.number;
            if !is_awaited {
                Shared::note_undecided(report.why);
            }
            is_awaited
        });
    }

    /// Remembers a report for a request that came before it and is unanswered. Returns whether there may be one, and
    /// room to remember it.
    pub fn remember(&mut self, report: EarlyReport) -> bool {
        let first = self.unanswered.first();
        let is_awaited = first.is_some_and(|first| *first < report.number);
        // Without an id every request of the pair would fit.
        let is_named = !report.held_for.request.is_empty();
        let remembers = is_awaited && is_named && self.early.len() < EARLY_MAX;
        if remembers {
            self.early.push(report);
        }
        remembers
    }

    /// How many of this many copies, which a request is about to take or is refused, have been reported as done
    /// already. Each is reported once.
    pub fn take(&mut self, number: u64, held_for: &HeldFor, copies: u64) -> u64 {
        let mut left = copies;
        let is_of = |report: &EarlyReport| number < report.number && report.held_for == *held_for;
        for report in self.early.iter_mut().filter(|report| is_of(report)) {
            let part = left.min(report.copies);
            report.copies -= part;
            left -= part;
        }
        self.early.retain(|report| report.copies != 0);
        copies - left
    }

    /// How many reports are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.early.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::super::holds::{EnvoyHolds, Unanswered};
    use super::*;
    use tollgate_agent::testing::TestAgent;

    const ONE: ConnectionId = ConnectionId(1);

    /// Holds of `sandbox` by `acme`, for requests that come one after another.
    struct Bench {
        kit: TestAgent,
        holds: Arc<EnvoyHolds>,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                kit: TestAgent::new(),
                holds: Arc::default(),
                now: Instant::now(),
            }
        }

        fn come(&self) -> Unanswered {
            Unanswered::new(&self.holds)
        }

        fn take(&self, request: &Unanswered, id: &str, copies: u32) {
            let sandbox = self.kit.agent().copies("sandbox");
            let hold = sandbox.reserve("acme", copies).expect("room");
            let held_for = HeldFor::new("sandbox", "acme", id);
            self.holds
                .keep(request.arrival(ONE), held_for, hold, self.now);
        }

        fn refuse(&self, request: &Unanswered, id: &str) {
            let held_for = HeldFor::new("sandbox", "acme", id);
            self.holds
                .refuse(request.arrival(ONE), held_for, 1, self.now);
        }

        /// Returns how many copies were neither held nor remembered.
        fn report(&self, report: &Unanswered, id: &str, copies: u64) -> u64 {
            let held_for = HeldFor::new("sandbox", "acme", id);
            let why = || Undecided::NotHeld;
            let of = report.arrival(ONE);
            self.holds.release(of, &held_for, copies, why, self.now)
        }

        fn held(&self) -> u32 {
            self.kit.held().iter().map(|held| held.copies).sum()
        }
    }

    #[test]
    fn a_request_handled_after_its_report_keeps_nothing() {
        let bench = Bench::new();
        let (request, report, later) = (bench.come(), bench.come(), bench.come());
        assert_eq!(bench.report(&report, "a", 1), 0, "remembered");
        drop(report);
        bench.take(&later, "a", 1);
        assert_eq!(bench.held(), 1, "it came after the report");
        bench.take(&request, "a", 3);
        assert_eq!(bench.held(), 3, "of 3 one is reported");
        bench.take(&request, "a", 1);
        assert_eq!(bench.held(), 4, "once");
    }

    #[test]
    fn a_report_with_nothing_before_it_is_not_remembered() {
        let bench = Bench::new();
        let report = bench.come();
        let request = bench.come();
        assert_eq!(bench.report(&report, "a", 1), 1);
        bench.take(&request, "a", 1);
        assert_eq!(bench.held(), 1);
        // It is done, and is reported twice.
        for left in [0, 1] {
            let report = bench.come();
            drop(bench.come());
            assert_eq!(
                bench.report(&report, "b", 1),
                0,
                "the request is unanswered"
            );
            assert_eq!(bench.report(&report, "a", 1), 0, "{left}");
        }
        assert_eq!(bench.held(), 0);
        drop(request);
        let again = bench.come();
        bench.take(&again, "a", 1);
        assert_eq!(bench.held(), 1, "the second report was not its own");
    }

    #[test]
    fn a_report_is_forgotten_once_those_before_it_are_answered() {
        let bench = Bench::new();
        let (first, second, report) = (bench.come(), bench.come(), bench.come());
        assert_eq!(bench.report(&report, "a", 1), 0);
        drop(second);
        drop(bench.come());
        assert_eq!(bench.holds.early(), 1);
        drop(first);
        assert_eq!(bench.holds.early(), 0, "it is unanswered itself");
    }

    #[test]
    fn a_refused_request_whose_report_came_first_expects_none() {
        let bench = Bench::new();
        let (request, report) = (bench.come(), bench.come());
        assert_eq!(bench.report(&report, "a", 1), 0);
        bench.refuse(&request, "a");
        let again = bench.come();
        bench.take(&again, "a", 1);
        assert_eq!(bench.held(), 1);
        assert_eq!(bench.report(&bench.come(), "a", 1), 0);
        assert_eq!(bench.held(), 0, "its own report");
    }

    #[test]
    fn few_reports_are_remembered_and_none_without_an_id() {
        let bench = Bench::new();
        let _request = bench.come();
        let report = bench.come();
        assert_eq!(bench.report(&report, "", 2), 2);
        for _ in 0..EARLY_MAX {
            assert_eq!(bench.report(&report, "a", 1), 0);
        }
        assert_eq!(bench.report(&report, "a", 1), 1);
        assert_eq!(bench.holds.early(), EARLY_MAX);
    }
}
