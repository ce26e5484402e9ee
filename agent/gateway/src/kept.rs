//! What services hold in the gateway between two questions: copies with a lease, and estimates until they are
//! settled.
//!
//! ```text
//! holds      taken ── lease, renewed ──> released, the lease ends, or the service learns by a renewal that it should
//!                                        give the hold up: the copies are given back
//! estimates  charged ──────────────────> settled, or ten minutes are over: the estimate stays charged
//! ```
//!
//! A service that dies releases nothing, and only the lease reveals it. Ids contain the gateway's process, so that an
//! id of an earlier process is unknown, and a number that nobody can guess, so that nobody releases or settles what
//! others hold. Knows nothing of HTTP. What stays true: there are at most [`KEPT_MAX`] of each.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use metrics::{counter, gauge};
use tollgate_agent::{Estimate, Hold, Revoked, Settled};

/// The most holds, and the most estimates, at once.
pub(crate) const KEPT_MAX: usize = 100_000;

/// How long an estimate can be settled; the agent settles no older one.
const SETTLED_WITHIN: Duration = Duration::from_secs(600);

/// Things with an end, by number.
#[derive(Debug)]
struct Ending<T> {
    by_number: HashMap<u64, (T, Instant)>,
    ends: BTreeSet<(Instant, u64)>,
}

impl<T> Default for Ending<T> {
    fn default() -> Self {
        Self {
            by_number: HashMap::new(),
            ends: BTreeSet::new(),
        }
    }
}

impl<T> Ending<T> {
    /// Keeps a thing, unless the bound is reached. Returns whether it did.
    fn put(&mut self, number: u64, thing: T, end: Instant) -> bool {
        let has_room = self.by_number.len() < KEPT_MAX;
        if has_room {
            self.by_number.insert(number, (thing, end));
            self.ends.insert((end, number));
        }
        has_room
    }

    fn take(&mut self, number: u64) -> Option<T> {
        let (thing, end) = self.by_number.remove(&number)?;
        self.ends.remove(&(end, number));
        Some(thing)
    }

    /// Drops what has ended. Returns how many things that were.
    fn end(&mut self, now: Instant) -> u64 {
        let mut ended = 0;
        while let Some((end, number)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&(end, number));
            self.by_number.remove(&number);
            ended += 1;
        }
        ended
    }
}

/// Whether a hold no longer exists for its service: the aggregators have ended it, or ask for some of its copies back. A
/// hold that the aggregators had no room to track stays in use: nothing is too much.
fn is_revoked(hold: &Hold) -> bool {
    let revoked = hold.revoked_now();
    matches!(revoked, Some(Revoked::GiveBack { .. } | Revoked::Ended(_)))
}

#[derive(Debug, Default)]
struct KeptTable {
    next: u64,
    /// Turns rising numbers into those of ids, by a secret of the process.
    numbers: RandomState,
    /// With a lease.
    holds: Ending<Hold>,
    estimates: Ending<Estimate>,
}

/// The holds and estimates of services.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The prefix of ids of this process.
    process: u128,
    table: Mutex<KeptTable>,
}

impl Default for Kept {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            process: since.unwrap_or_default().as_micros(),
            table: Mutex::default(),
        }
    }
}

impl Kept {
    /// Keeps copies until their lease ends, and returns their id. `None` at the bound on holds; the copies are given
    /// back.
    pub fn keep_hold(&self, hold: Hold, lease: Duration) -> Option<String> {
        let mut table = self.table();
        let number = table.number();
        let is_kept = table.holds.put(number, hold, Instant::now() + lease);
        note(&table, is_kept);
        is_kept.then(|| self.id(number))
    }

    /// Keeps an estimate until it is settled, and returns its id. `None` at the bound; the estimate stays charged.
    pub fn keep_estimate(&self, estimate: Estimate) -> Option<String> {
        let mut table = self.table();
        let number = table.number();
        let is_kept = table
            .estimates
            .put(number, estimate, Instant::now() + SETTLED_WITHIN);
        note(&table, is_kept);
        is_kept.then(|| self.id(number))
    }

    /// Renews a lease from now on. Returns whether the hold still exists. It does not if the aggregators have ended it,
    /// by its age or by an operator's act; and it is given back now if some of its copies are excess, and the resource
    /// has `on_excess = "give-back"`.
    pub fn renew(&self, id: &str, lease: Duration) -> bool {
        let Some(number) = self.number_of(id) else {
            return false;
        };
        let mut table = self.table();
        let hold = table.holds.take(number);
        let Some(hold) = hold.filter(|hold| !is_revoked(hold)) else {
            note(&table, true);
            return false;
        };
        table.holds.put(number, hold, Instant::now() + lease)
    }

    /// Gives back copies before their lease ends. Returns whether the hold existed: it does not if the aggregators have
    /// ended it.
    pub fn release(&self, id: &str) -> bool {
        let Some(number) = self.number_of(id) else {
            return false;
        };
        let mut table = self.table();
        let hold = table.holds.take(number);
        note(&table, true);
        hold.is_some_and(|hold| !hold.is_over())
    }

    /// Settles an estimate. `None` if it does not exist, or can no longer be settled.
    pub fn settle(&self, id: &str, actual: u32) -> Option<Settled> {
        let estimate = self.table().estimates.take(self.number_of(id)?)?;
        estimate.settle(actual).ok()
    }

    /// Gives back copies whose lease has ended, and forgets estimates that can no longer be settled.
    pub fn end_leases(&self) {
        let now = Instant::now();
        let mut table = self.table();
        let ended = table.holds.end(now);
        let unsettled = table.estimates.end(now);
        if ended + unsettled != 0 {
            counter!("tollgate_gateway_leases_ended_total").increment(ended);
            counter!("tollgate_gateway_estimates_unsettled_total").increment(unsettled);
            note(&table, true);
        }
    }

    fn id(&self, number: u64) -> String {
        format!("{:x}-{number:x}", self.process)
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (process, number) = id.split_once('-')?;
        let is_ours = u128::from_str_radix(process, 16).ok()? == self.process;
        u64::from_str_radix(number, 16).ok().filter(|_| is_ours)
    }

    fn table(&self) -> MutexGuard<'_, KeptTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptTable {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.numbers.hash_one(self.next)
    }
}

fn note(table: &KeptTable, is_kept: bool) {
    if !is_kept {
        counter!("tollgate_gateway_holds_dropped_total").increment(1);
    }
    // A number of holds is exact far beyond the bound.
    gauge!("tollgate_gateway_leases").set(table.holds.by_number.len() as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_agent::testing::{Ruling, TestAgent};

    const LONG: Duration = Duration::from_secs(3_600);

    #[test]
    fn copies_come_back_when_they_are_released_or_their_lease_ends() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let kept = Kept::default();
        let take = |lease| kept.keep_hold(sandbox.reserve("acme", 1).expect("room"), lease);
        let (released, ended, renewed) = (take(LONG), take(Duration::ZERO), take(Duration::ZERO));
        let id = |id: &Option<String>| id.clone().expect("room");
        assert_eq!(kit.held().len(), 3);
        assert!(kept.renew(&id(&renewed), LONG));
        kept.end_leases();
        assert_eq!(kit.held().len(), 2);
        assert!(!kept.release(&id(&ended)) && !kept.renew(&id(&ended), LONG));
        assert!(kept.release(&id(&released)) && !kept.release(&id(&released)));
        assert_eq!(kit.held().len(), 1);
        for unknown in ["", "-", "x-1", "0-1", "é-1"] {
            assert!(!kept.release(unknown), "{unknown}");
        }
    }

    #[test]
    fn a_hold_that_the_aggregators_ended_exists_no_more() {
        let kit = TestAgent::new();
        let sandbox = kit.agent().copies("sandbox");
        let kept = Kept::default();
        let take = || {
            let hold = sandbox.reserve("acme", 1).expect("room");
            let number = hold.number().expect("it is tracked");
            (kept.keep_hold(hold, LONG).expect("room"), number)
        };
        let [(renewed, one), (released, other), (stays, _)] = [take(), take(), take()];
        for number in [one, other] {
            kit.rule("sandbox", number, Ruling::Ended);
        }
        assert!(!kept.renew(&renewed, LONG) && !kept.renew(&renewed, LONG));
        assert!(!kept.release(&released));
        assert!(kept.renew(&stays, LONG) && kept.release(&stays));
    }

    #[test]
    fn an_estimate_is_settled_once() {
        let kit = TestAgent::new();
        let tokens = kit.agent().rate("llm.tokens");
        let kept = Kept::default();
        let estimate = tokens.hit_estimated("acme", 800).expect("let through");
        let id = kept.keep_estimate(estimate).expect("room");
        assert!(kept.settle(&id, 620).is_some());
        assert!(kept.settle(&id, 620).is_none());
        assert!(!kept.release(&id), "it is no hold");
    }
}
