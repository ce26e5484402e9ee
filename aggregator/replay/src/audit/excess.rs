//! Why excess copies were let through: by pair, and by what kept a denial from stopping them.
//!
//! ```text
//! charged      a cost that was known only after the call: the call itself may have been within its limits
//! unguarded    the agent marked the call: it had received no watermark, or it refused nothing
//! propagation  no denial that ended more than 250 ms after the call had been stated, or it was stated less than a
//!              second before
//! restart      the call was made in the first second of an agent's or aggregator's process that began since
//! loss         the denial had been stated for a second or more, and the agent did not refuse by it
//! ```
//!
//! The bound is a second because a guarded agent has received a watermark of the partition within the last second,
//! and so must have received any older denial. It is 250 ms because agents end denials some milliseconds early, so that
//! no call is refused too long, and the stamps of calls may be wrong by that much. Global limits are not covered. Knows
//! nothing of the rules. What stays true: each copy of excess has one cause, and memory is bounded.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::Serialize;
use tollgate_engine::engine::{CLOCK_TOLERATED, Rulings};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::hits::{Hit, HitBatch, HitKind};
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Scope, StatementKind};

use super::report::PartitionAudit;

/// How old an agent's newest watermark may be while its calls count as guarded.
const GUARDED: Span = Span::from_secs(1);

/// How long before a denial's end its agent need not refuse any more. Agents end a denial early by the time that a tick
/// and the frame were on their way; and a call that is stamped so little before the end may have been made after it,
/// because stamps of a clock that is wrong by less are not corrected.
const ENDING: Span = CLOCK_TOLERATED;

/// How many denials are remembered, some 100 bytes each. Excess of a pair whose denial is not remembered counts as
/// propagation.
const DENIED_MAX: usize = 200_000;

/// How many statements per scope are remembered: the newest ones, each with a later end than the one before.
const STATED_MAX: usize = 8;

/// How many processes of agents are remembered. Any other process is assumed to be old.
const AGENTS_MAX: usize = 100_000;

/// How many processes of aggregators are remembered. A new process beyond that is taken for an old one.
const AGGREGATORS_MAX: usize = 10_000;

/// How many pairs are named: those whose excess came first.
const PAIRS_MAX: usize = 10_000;

/// Copies of excess by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExcessByCause {
    /// The denial was still on its way, or about to end.
    pub propagation: u64,
    /// The agent did not receive the denial, or did not heed it.
    pub loss: u64,
    /// An agent or aggregator had just started.
    pub restart: u64,
    /// The call was unguarded, so that it is never debt.
    pub unguarded: u64,
    /// The cost was known only after the call, and no denial can stop it.
    pub charged: u64,
}

impl ExcessByCause {
    /// The total.
    pub fn total(&self) -> u64 {
        let calls = [self.propagation, self.loss, self.restart, self.unguarded];
        calls.into_iter().fold(self.charged, u64::saturating_add)
    }

    /// Adds another count.
    pub fn add(&mut self, other: &Self) {
        self.propagation += other.propagation;
        self.loss += other.loss;
        self.restart += other.restart;
        self.unguarded += other.unguarded;
        self.charged += other.charged;
    }
}

impl fmt::Display for ExcessByCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            propagation,
            loss,
            restart,
            unguarded,
            charged,
        } = self;
        write!(
            f,
            "{propagation} propagation, {loss} loss, {restart} restart, {unguarded} unguarded, {charged} charged"
        )
    }
}

/// A pair's excess.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairExcess {
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The copies, by cause.
    #[serde(flatten)]
    pub excess: ExcessByCause,
}

type ScopeKey = (Box<str>, Option<Box<str>>);

/// The excess of one partition.
#[derive(Debug, Default)]
pub(super) struct ExcessLedger {
    /// Denied scopes: when each denial was stated, and until when. Ends rise.
    denied: HashMap<ScopeKey, Vec<(Timestamp, Timestamp)>>,
    /// By epoch of an agent's process: when its first batch was appended.
    agents: HashMap<u128, Timestamp>,
    aggregators: HashSet<u128>,
    /// When the newest aggregator process first appeared in the log.
    aggregator_began: Option<Timestamp>,
    pairs: BTreeMap<(Box<str>, Box<str>), ExcessByCause>,
}

impl ExcessLedger {
    /// Takes a record that the engine has ruled.
    pub fn ruled(
        &mut self,
        record: &Record<'_>,
        appended: Timestamp,
        rulings: &Rulings,
        in_range: bool,
        part: &mut PartitionAudit,
    ) {
        match record {
            Record::Hits(batch) => self.batch(batch, appended, rulings, in_range, part),
            Record::Tick(tick) => self.tick(tick.instance, appended),
            _ => {}
        }
        // Only after the calls: denials that a record causes come after its own calls.
        self.stated(appended, rulings);
    }

    /// Takes an aggregator's tick. The first processes in the log may be old, so they do not count as new.
    fn tick(&mut self, instance: u128, appended: Timestamp) {
        if self.aggregators.contains(&instance) || AGGREGATORS_MAX <= self.aggregators.len() {
            return;
        }
        if !self.aggregators.is_empty() {
            self.aggregator_began = Some(appended);
        }
        self.aggregators.insert(instance);
    }

    fn batch(
        &mut self,
        batch: &HitBatch<'_>,
        appended: Timestamp,
        rulings: &Rulings,
        in_range: bool,
        part: &mut PartitionAudit,
    ) {
        let epoch = batch.sender.epoch;
        let is_first = batch.sender.sequence <= 1;
        if is_first && self.agents.len() < AGENTS_MAX {
            self.agents.entry(epoch).or_insert(appended);
        }
        if rulings.excess.is_empty() || !in_range {
            return;
        }
        let moved_us = rulings.corrections.iter().map(|of| of.moved_us).sum();
        let mut excess = rulings.excess.iter().peekable();
        for (number, mut hit) in (0u32..).zip(batch.hits().iter().copied()) {
            let Some((_, copies)) = excess.next_if(|(of, _)| *of == number) else {
                continue;
            };
            // Corrected as the rules do: a wrong clock must not influence which denials the agent had received.
            hit.at = hit.at.saturating_offset(moved_us);
            let resource = batch.resource(hit.resource);
            let by_cause = self.causes(resource, epoch, &hit, *copies);
            part.excess.add(&by_cause);
            self.note(resource, hit.domain, &by_cause, part);
        }
    }

    /// Takes the statements that a record caused.
    fn stated(&mut self, appended: Timestamp, rulings: &Rulings) {
        for stated in &rulings.statements {
            let domain = match &stated.statement.scope {
                Scope::Pair(domain) => Some((**domain).into()),
                Scope::Resource => None,
                Scope::Group(_) => continue,
            };
            let key = (Box::from(&*stated.resource), domain);
            match &stated.statement.kind {
                StatementKind::Denied(denial) => self.denied(key, appended, denial.end),
                StatementKind::Lifted => drop(self.denied.remove(&key)),
            }
        }
    }

    fn denied(&mut self, key: ScopeKey, stated: Timestamp, end: Timestamp) {
        if DENIED_MAX <= self.denied.len() && !self.denied.contains_key(&key) {
            return;
        }
        let all = self.denied.entry(key).or_default();
        // Drop denials that are over, and those that a lower end has replaced.
        all.retain(|(_, known)| stated < *known && *known <= end);
        if all.last().is_none_or(|(_, known)| *known < end) {
            all.push((stated, end));
        }
        if STATED_MAX < all.len() {
            all.remove(0);
        }
    }

    /// When a denial of the pair that an agent has to obey at `at` was first stated.
    fn denied_since(&self, resource: &str, domain: &str, at: Timestamp) -> Option<Timestamp> {
        let pair = (Box::from(resource), Some(Box::from(domain)));
        let all = self.denied.get(&pair)?;
        let reaches = |(_, end): &&(Timestamp, Timestamp)| at.saturating_add(ENDING) < *end;
        let reaches = all.iter().find(reaches);
        reaches.map(|(stated, _)| *stated)
    }

    fn causes(&self, resource: &str, epoch: u128, hit: &Hit<'_>, copies: u64) -> ExcessByCause {
        let mut by_cause = ExcessByCause::default();
        let count = if hit.kind == HitKind::Charge {
            &mut by_cause.charged
        } else if hit.unguarded {
            &mut by_cause.unguarded
        } else {
            let stated = self.denied_since(resource, hit.domain, hit.at);
            match stated.filter(|stated| stated.saturating_add(GUARDED) <= hit.at) {
                None => &mut by_cause.propagation,
                Some(stated) if self.has_just_begun(epoch, stated, hit.at) => &mut by_cause.restart,
                Some(_) => &mut by_cause.loss,
            }
        };
        *count = copies;
        by_cause
    }

    /// Whether the agent's process, or an aggregator's, began after the denial was stated and less than a second
    /// before the call.
    fn has_just_begun(&self, epoch: u128, stated: Timestamp, at: Timestamp) -> bool {
        let began = [self.agents.get(&epoch).copied(), self.aggregator_began];
        let mut began = began.into_iter().flatten();
        began.any(|began| stated <= began && at < began.saturating_add(GUARDED))
    }

    fn note(
        &mut self,
        resource: &str,
        domain: &str,
        by_cause: &ExcessByCause,
        part: &mut PartitionAudit,
    ) {
        let key = (Box::from(resource), Box::from(domain));
        if PAIRS_MAX <= self.pairs.len() && !self.pairs.contains_key(&key) {
            part.excess_unnamed += by_cause.total();
            return;
        }
        self.pairs.entry(key).or_default().add(by_cause);
    }

    /// Takes the end of the log.
    pub fn end(self, part: &mut PartitionAudit) {
        let pairs = self.pairs.into_iter();
        let named = pairs.map(|((resource, domain), excess)| PairExcess {
            resource,
            domain,
            excess,
        });
        part.excess_pairs.extend(named);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn cause_of(ledger: &ExcessLedger, at_ms: u64, unguarded: bool) -> &'static str {
        cause_of_a(HitKind::Hit, ledger, at_ms, unguarded)
    }

    fn cause_of_a(
        kind: HitKind,
        ledger: &ExcessLedger,
        at_ms: u64,
        unguarded: bool,
    ) -> &'static str {
        let hit = Hit {
            resource: 0,
            domain: "acme",
            at: at(at_ms),
            copies: 3,
            calls: 1,
            min: None,
            kind,
            unguarded,
        };
        let by_cause = ledger.causes("search", 7, &hit, 3);
        assert_eq!(by_cause.total(), 3, "each copy has one cause");
        let all = [
            (by_cause.propagation, "propagation"),
            (by_cause.loss, "loss"),
            (by_cause.restart, "restart"),
            (by_cause.unguarded, "unguarded"),
            (by_cause.charged, "charged"),
        ];
        all.into_iter().find(|(copies, _)| *copies == 3).unwrap().1
    }

    fn denied(ledger: &mut ExcessLedger, stated_ms: u64, end_ms: u64) {
        let pair = (Box::from("search"), Some(Box::from("acme")));
        ledger.denied(pair, at(stated_ms), at(end_ms));
    }

    #[test]
    fn a_denial_stated_for_a_second_should_have_arrived() {
        let mut ledger = ExcessLedger::default();
        assert_eq!(cause_of(&ledger, 5_000, false), "propagation");
        denied(&mut ledger, 5_000, 9_000);
        assert_eq!(cause_of(&ledger, 5_999, false), "propagation");
        assert_eq!(cause_of(&ledger, 6_000, false), "loss");
        assert_eq!(cause_of(&ledger, 6_000, true), "unguarded");
        // The denial is over: a limit that is full again was filled by calls of this moment.
        assert_eq!(cause_of(&ledger, 9_000, false), "propagation");
    }

    #[test]
    fn no_denial_can_stop_a_cost_that_is_known_afterwards() {
        let mut ledger = ExcessLedger::default();
        denied(&mut ledger, 5_000, 9_000);
        for unguarded in [false, true] {
            let cause_of_a = |kind| cause_of_a(kind, &ledger, 6_000, unguarded);
            assert_eq!(cause_of_a(HitKind::Charge), "charged");
            assert_ne!(cause_of_a(HitKind::Estimate), "charged");
        }
    }

    #[test]
    fn agents_may_end_a_denial_a_little_early() {
        let mut ledger = ExcessLedger::default();
        denied(&mut ledger, 5_000, 9_000);
        assert_eq!(cause_of(&ledger, 8_749, false), "loss");
        assert_eq!(cause_of(&ledger, 8_750, false), "propagation");
        assert_eq!(cause_of(&ledger, 8_999, false), "propagation");
        assert_eq!(cause_of(&ledger, 8_999, true), "unguarded");
        // A statement that makes the denial longer counts once it has been known for a second.
        denied(&mut ledger, 7_900, 12_000);
        assert_eq!(cause_of(&ledger, 8_899, false), "propagation");
        assert_eq!(cause_of(&ledger, 8_900, false), "loss");
    }

    #[test]
    fn a_denial_counts_from_the_statement_that_covers_it() {
        let mut ledger = ExcessLedger::default();
        denied(&mut ledger, 5_000, 9_000);
        denied(&mut ledger, 8_900, 12_000);
        assert_eq!(cause_of(&ledger, 8_749, false), "loss");
        assert_eq!(cause_of(&ledger, 9_001, false), "propagation");
        assert_eq!(cause_of(&ledger, 9_900, false), "loss");
        // A version with an earlier end replaces what was stated before.
        denied(&mut ledger, 9_950, 10_500);
        assert_eq!(cause_of(&ledger, 10_600, false), "propagation");
        for n in 0..20 {
            denied(&mut ledger, 11_000 + n, 20_000 + n);
        }
        let all = ledger.denied.values().map(Vec::len);
        assert_eq!(all.collect::<Vec<_>>(), [STATED_MAX]);
    }

    #[test]
    fn agents_started_after_a_denial_have_a_second_to_learn_it() {
        let mut ledger = ExcessLedger::default();
        denied(&mut ledger, 5_000, 60_000);
        ledger.agents.insert(7, at(20_000));
        assert_eq!(cause_of(&ledger, 20_999, false), "restart");
        assert_eq!(cause_of(&ledger, 21_000, false), "loss");
        // The first aggregator in the log may have started before it.
        ledger.tick(1, at(30_000));
        assert_eq!(cause_of(&ledger, 30_100, false), "loss");
        ledger.tick(2, at(31_000));
        assert_eq!(cause_of(&ledger, 31_100, false), "restart");
        ledger.tick(1, at(33_000));
        assert_eq!(cause_of(&ledger, 33_100, false), "loss");
    }

    #[test]
    fn pairs_beyond_the_bound_are_counted_without_a_name() {
        let (mut ledger, mut part) = (ExcessLedger::default(), PartitionAudit::new(0));
        let one = ExcessByCause {
            loss: 2,
            ..ExcessByCause::default()
        };
        for n in 0..=PAIRS_MAX {
            ledger.note("search", &n.to_string(), &one, &mut part);
        }
        ledger.note("search", "0", &one, &mut part);
        assert_eq!(part.excess_unnamed, 2);
        ledger.end(&mut part);
        assert_eq!(part.excess_pairs.len(), PAIRS_MAX);
        assert_eq!(part.excess_pairs[0].excess.loss, 4);
    }
}
