//! Copies that requests through Envoy hold, until Envoy reports that their streams are done.
//!
//! ```text
//! request begins    ShouldRateLimit, hits_addend 1              reserve: kept here, under resource, domain and request
//! stream is done    ShouldRateLimit, negative hits_addend 1     the copies of that request are given back
//! connection ends   Envoy is gone: no report will come          all copies of its requests are given back
//! ```
//!
//! If descriptors have no request id, the oldest hold of resource and domain is given back; equal holds are
//! interchangeable. Requests with the same id are equal in that sense, too, because a client may choose its id, and
//! use it again. But Envoy also reports the end of a refused request, which has taken nothing. So the table remembers
//! each refused request, and ignores one report for it: a refused client frees nothing of a request that runs under
//! the same id. A report may arrive over another connection than its request, and may be handled before it:
//! [`Arrivals`]. Knows nothing of gRPC. What stays true: no copies are kept that no connection could report; there are
//! at most [`HOLDS_MAX`] holds, and as many expected reports of refused requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::{counter, gauge};
use tollgate_agent::Hold;

use super::arrivals::{Arrival, Arrivals, ConnectionId, EarlyReport, HeldFor};
use crate::state::Undecided;

/// The most holds at once. Further requests are let through without a hold, and counted.
pub(crate) const HOLDS_MAX: usize = 100_000;

/// How long the report of a refused request may take. Envoy sends it when the client has read the refusal, which the
/// client may delay, or when its stream has been idle for too long (5 minutes by default).
const REPORTED_WITHIN: Duration = Duration::from_secs(3_600);

/// How often overdue reports are searched for at the bound: each search takes milliseconds, during which no other
/// request is answered.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// An expected report of a refused request.
#[derive(Debug)]
struct RefusedReport {
    by: ConnectionId,
    /// Until when it is expected.
    until: Instant,
    copies: u64,
}

#[derive(Debug, Default)]
struct HeldTable {
    held: HashMap<HeldFor, VecDeque<(ConnectionId, Hold)>>,
    count: usize,
    refused: HashMap<HeldFor, VecDeque<RefusedReport>>,
    refused_count: usize,
    /// When overdue reports were last searched for.
    searched: Option<Instant>,
    arrivals: Arrivals,
}

/// A request that is not answered yet; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Unanswered {
    holds: Arc<EnvoyHolds>,
    number: u64,
}

impl Unanswered {
    /// The head of a request has come.
    pub fn new(holds: &Arc<EnvoyHolds>) -> Self {
        Self {
            number: holds.table().arrivals.begin(),
            holds: Arc::clone(holds),
        }
    }

    /// When it came, over this connection.
    pub const fn arrival(&self, by: ConnectionId) -> Arrival {
        let number = self.number;
        Arrival { by, number }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.holds.table().arrivals.end(self.number);
    }
}

/// The holds of all connections.
#[derive(Debug, Default)]
pub(crate) struct EnvoyHolds(Mutex<HeldTable>);

impl EnvoyHolds {
    /// Keeps a hold until its report, or until its connection ends. Copies whose report was handled already are given
    /// back. Beyond the bound all are given back, and the report is ignored.
    pub fn keep(&self, of: Arrival, held_for: HeldFor, mut hold: Hold, now: Instant) {
        let mut table = self.table();
        let has = hold.copies();
        let done = table.arrivals.take(of.number, &held_for, u64::from(has));
        let done = u32::try_from(done).unwrap_or(u32::MAX);
        if done != 0 && (has <= done || hold.release(done).is_err()) {
            return;
        }
        if HOLDS_MAX <= table.count {
            counter!("tollgate_gateway_holds_dropped_total").increment(1);
            return table.expect_report(of.by, held_for, u64::from(hold.copies()), now);
        }
        table.count += 1;
        table
            .held
            .entry(held_for)
            .or_default()
            .push_back((of.by, hold));
        show(&table);
    }

    /// This many copies were refused: the report of their end is ignored.
    pub fn refuse(&self, of: Arrival, held_for: HeldFor, copies: u64, now: Instant) {
        let mut table = self.table();
        let left = copies - table.arrivals.take(of.number, &held_for, copies);
        if left != 0 {
            table.expect_report(of.by, held_for, left, now);
        }
    }

    /// Gives back this many copies, the oldest first, this connection's before others'. Returns how many were not
    /// held, unless the report is remembered for a request that came before it. If that request takes nothing, the
    /// report is counted with this reason.
    pub fn release(
        &self,
        of: Arrival,
        held_for: &HeldFor,
        copies: u64,
        why: impl FnOnce() -> Undecided,
        now: Instant,
    ) -> u64 {
        let mut table = self.table();
        if table.is_of_refused(held_for, copies, now) {
            return 0;
        }
        let left = table.give_back(of.by, held_for, copies);
        if left == 0 {
            return 0;
        }
        let report = EarlyReport {
            number: of.number,
            held_for: held_for.clone(),
            copies: left,
            why: why(),
        };
        match table.arrivals.remember(report) {
            true => 0,
            false => left,
        }
    }

    /// A connection has ended: no report will come for its requests.
    pub fn end(&self, connection: ConnectionId) {
        let mut table = self.table();
        table.forget_reports(|report| report.by != connection);
        if table.count == 0 {
            return;
        }
        table.held.retain(|_, held| {
            held.retain(|(of, _)| *of != connection);
            !held.is_empty()
        });
        table.count = table.held.values().map(VecDeque::len).sum();
        show(&table);
    }

    /// How many reports are remembered for requests that came before them.
    #[cfg(test)]
    pub fn early(&self) -> usize {
        self.table().arrivals.remembered()
    }

    fn table(&self) -> MutexGuard<'_, HeldTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldTable {
    /// Gives back held copies, and returns how many were not held.
    fn give_back(&mut self, by: ConnectionId, held_for: &HeldFor, copies: u64) -> u64 {
        let Some(held) = self.held.get_mut(held_for) else {
            return copies;
        };
        let before = held.len();
        let mut left = copies;
        while left != 0 {
            let own = held.iter().position(|(of, _)| *of == by);
            let Some((of, mut hold)) = held.remove(own.unwrap_or(0)) else {
                break;
            };
            let has = u64::from(hold.copies());
            let part = u32::try_from(left).unwrap_or(u32::MAX);
            // A hold that was ended meanwhile has nothing to give back; all that remains is to drop it.
            if left < has && hold.release(part).is_ok() {
                held.push_front((of, hold));
                left = 0;
            } else {
                left = left.saturating_sub(has);
            }
        }
        let gone = before - held.len();
        if held.is_empty() {
            self.held.remove(held_for);
        }
        self.count -= gone;
        show(self);
        left
    }

    /// Expects a report that gives nothing back.
    fn expect_report(&mut self, by: ConnectionId, held_for: HeldFor, copies: u64, now: Instant) {
        let is_due = |searched: Instant| SEARCH_EVERY <= now.saturating_duration_since(searched);
        if HOLDS_MAX <= self.refused_count && self.searched.is_none_or(is_due) {
            self.searched = Some(now);
            self.forget_reports(|report| now <= report.until);
        }
        if HOLDS_MAX <= self.refused_count {
            counter!("tollgate_gateway_reports_dropped_total").increment(1);
            return;
        }
        self.refused_count += 1;
        let until = now + REPORTED_WITHIN;
        let reports = self.refused.entry(held_for).or_default();
        reports.push_back(RefusedReport { by, until, copies });
    }

    /// Whether a report is that of a refused request, which is then no longer expected.
    fn is_of_refused(&mut self, held_for: &HeldFor, copies: u64, now: Instant) -> bool {
        let Some(reports) = self.refused.get_mut(held_for) else {
            return false;
        };
        let before = reports.len();
        // In the order in which they are expected.
        while reports.front().is_some_and(|report| report.until < now) {
            reports.pop_front();
        }
        let found = reports.iter().position(|report| report.copies == copies);
        if let Some(found) = found {
            reports.remove(found);
        }
        self.refused_count -= before - reports.len();
        if reports.is_empty() {
            self.refused.remove(held_for);
        }
        found.is_some()
    }

    /// Forgets reports that are no longer expected.
    fn forget_reports(&mut self, is_awaited: impl Fn(&RefusedReport) -> bool) {
        if self.refused_count == 0 {
            return;
        }
        self.refused.retain(|_, reports| {
            reports.retain(&is_awaited);
            !reports.is_empty()
        });
        self.refused_count = self.refused.values().map(VecDeque::len).sum();
    }
}

fn show(table: &HeldTable) {
    // A number of holds is exact far beyond the bound.
    gauge!("tollgate_gateway_holds").set(table.count as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_agent::testing::TestAgent;

    const ONE: Arrival = Arrival {
        by: ConnectionId(1),
        number: 1,
    };
    const OTHER: Arrival = Arrival {
        by: ConnectionId(2),
        number: 2,
    };
    const NOT_HELD: Undecided = Undecided::NotHeld;

    fn of(domain: &str, request: &str) -> HeldFor {
        HeldFor::new("sandbox", domain, request)
    }

    fn copies(kit: &TestAgent) -> Vec<u32> {
        kit.held().iter().map(|held| held.copies).collect()
    }

    #[test]
    fn a_report_releases_the_oldest_hold_of_its_connection() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let (holds, now) = (EnvoyHolds::default(), Instant::now());
        for (by, copies) in [(OTHER, 5), (ONE, 2), (ONE, 3)] {
            let hold = sandbox.reserve("acme", copies).expect("room");
            holds.keep(by, of("acme", ""), hold, Instant::now());
        }
        let acme = of("acme", "");
        assert_eq!(holds.release(ONE, &acme, 3, || NOT_HELD, now), 0);
        assert_eq!(copies(&kit), [5, 2], "2, and 1 of 3");
        assert_eq!(holds.release(ONE, &acme, 4, || NOT_HELD, now), 0);
        assert_eq!(copies(&kit), [3], "those of the other connection");
        assert_eq!(holds.release(ONE, &of("other", ""), 1, || NOT_HELD, now), 1);
        assert_eq!(holds.release(ONE, &acme, 9, || NOT_HELD, now), 6);
        assert!(copies(&kit).is_empty());
    }

    #[test]
    fn the_report_of_a_refused_request_releases_nothing() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let (holds, now) = (EnvoyHolds::default(), Instant::now());
        let acme = of("acme", "");
        let hold = sandbox.reserve("acme", 1).expect("room");
        holds.keep(ONE, acme.clone(), hold, now);
        holds.refuse(ONE, acme.clone(), 1, now);
        assert_eq!(holds.release(ONE, &acme, 1, || NOT_HELD, now), 0);
        assert_eq!(copies(&kit), [1], "the refused one's");
        assert_eq!(holds.release(ONE, &acme, 1, || NOT_HELD, now), 0);
        assert!(copies(&kit).is_empty());
        // A report that never came is not expected for ever.
        let hold = sandbox.reserve("acme", 1).expect("room");
        holds.keep(ONE, acme.clone(), hold, now);
        holds.refuse(ONE, acme.clone(), 1, now);
        let later = now + REPORTED_WITHIN + Duration::from_secs(1);
        assert_eq!(holds.release(ONE, &acme, 1, || NOT_HELD, later), 0);
        assert!(copies(&kit).is_empty());
    }

    #[test]
    fn a_request_by_name_ends_itself_alone() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let (holds, now) = (EnvoyHolds::default(), Instant::now());
        for (request, copies) in [("a", 1), ("b", 2)] {
            let hold = sandbox.reserve("acme", copies).expect("room");
            holds.keep(ONE, of("acme", request), hold, now);
        }
        holds.refuse(ONE, of("acme", "c"), 1, now);
        assert_eq!(holds.release(ONE, &of("acme", "c"), 1, || NOT_HELD, now), 0);
        assert_eq!(copies(&kit), [1, 2], "it was refused");
        assert_eq!(holds.release(ONE, &of("acme", "b"), 2, || NOT_HELD, now), 0);
        assert_eq!(copies(&kit), [1]);
        assert_eq!(holds.release(ONE, &of("acme", "b"), 2, || NOT_HELD, now), 2);
    }

    #[test]
    fn a_refused_request_frees_nothing_of_its_own_id() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let (holds, now) = (EnvoyHolds::default(), Instant::now());
        let same = of("acme", "chosen by the client");
        let hold = sandbox.reserve("acme", 1).expect("room");
        holds.keep(ONE, same.clone(), hold, now);
        for _ in 0..2 {
            holds.refuse(ONE, same.clone(), 1, now);
        }
        // The client took its time to read the refusal, and the report came over another connection.
        let later = now + Duration::from_secs(600);
        for by in [ONE, OTHER] {
            assert_eq!(holds.release(by, &same, 1, || NOT_HELD, later), 0);
            assert_eq!(copies(&kit), [1], "the first is in use");
        }
        assert_eq!(holds.release(ONE, &same, 1, || NOT_HELD, later), 0);
        assert!(copies(&kit).is_empty(), "it is done");
        assert_eq!(holds.release(ONE, &same, 1, || NOT_HELD, later), 1);
    }

    #[test]
    fn reports_are_awaited_until_their_connection_ends() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let (holds, now) = (EnvoyHolds::default(), Instant::now());
        let acme = of("acme", "");
        for by in [ONE, OTHER] {
            holds.refuse(by, acme.clone(), 1, now);
        }
        holds.end(ONE.by);
        let hold = sandbox.reserve("acme", 1).expect("room");
        holds.keep(OTHER, acme.clone(), hold, now);
        assert_eq!(holds.release(OTHER, &acme, 1, || NOT_HELD, now), 0);
        assert_eq!(
            copies(&kit),
            [1],
            "of what the other connection was refused"
        );
        assert_eq!(holds.release(OTHER, &acme, 1, || NOT_HELD, now), 0);
        assert!(copies(&kit).is_empty());
    }

    #[test]
    fn kept_names_are_short() {
        let long = "x".repeat(100_000);
        let held_for = HeldFor::new(&long, &long, &long);
        let names = [&held_for.resource, &held_for.domain, &held_for.request];
        assert!(names.iter().all(|name| name.len() <= 256), "{held_for:?}");
        assert_ne!(held_for, HeldFor::new(&long, &long, &format!("{long}y")));
        assert_eq!(HeldFor::new("r", "d", "").request, "");
    }

    #[test]
    fn state_of_a_connection_ends_with_it() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let holds = EnvoyHolds::default();
        for (by, copies) in [(ONE, 1), (OTHER, 2)] {
            let hold = sandbox.reserve("acme", copies).expect("room");
            holds.keep(by, of("acme", ""), hold, Instant::now());
        }
        holds.end(ONE.by);
        assert_eq!(copies(&kit), [2]);
        holds.end(OTHER.by);
        assert!(copies(&kit).is_empty());
    }
}
