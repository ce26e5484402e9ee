//! A partition's log compared with plain pairs, over random records.
//!
//! The partition keeps a schedule of evictions, looks pairs up and routes statements; here the same log is ruled by
//! [`Plain`] pairs in one map that is scanned at every tick.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tollgate_model::log::{EntryRuling, HitEntry, NotRuled, RecordOutcome, ScopeName};
use tollgate_model::{DomainLimits, End};

use crate::support::log::{Log, START, hits, of_resource};
use crate::support::plain::PlainOutcome;
use crate::support::{Plain, SECOND, any_limits};

/// Domain, microseconds before the append, copies, unguarded.
type RandomEntry = (usize, u64, u64, bool);

#[derive(Clone, Debug)]
enum Record {
    /// Sequence and entries.
    Hits(u64, Vec<RandomEntry>),
    Tick,
    Limits(usize),
}

fn any_record() -> impl Strategy<Value = (u64, Record)> {
    let back = prop_oneof![3 => 0u64..1000, 1 => 0..20 * SECOND, 1 => 590 * SECOND..610 * SECOND];
    let entry = (0usize..6, back, 1u64..5, prop::bool::weighted(0.2));
    let pause = prop_oneof![6 => 0u64..2 * SECOND, 1 => 0..700 * SECOND];
    let record = prop_oneof![
        5 => (1u64..200, prop::collection::vec(entry, 1..5))
            .prop_map(|(seq, entries)| Record::Hits(seq, entries)),
        3 => Just(Record::Tick),
        1 => (0usize..2).prop_map(Record::Limits),
    ];
    (pause, record)
}

/// The partition as its rules state it, without schedule or history.
struct PlainLog {
    limits: DomainLimits,
    /// A pair, and until when its windows, active times and cooldowns matter.
    pairs: BTreeMap<usize, Plain>,
    cap: usize,
    /// The slot of the last tick at which pairs that remembered nothing were evicted, since there were `cap` pairs.
    room_made: u64,
    /// How long after its time a pair remembered something, as of its last entry; at most a minute.
    rests: BTreeMap<usize, u64>,
    log_us: u64,
    seen: BTreeSet<u64>,
    seen_us: u64,
}

impl PlainLog {
    fn entry(&mut self, append: u64, entry: RandomEntry) -> Option<PlainOutcome> {
        let (domain, back, n, unguarded) = entry;
        if 600 * SECOND < back {
            return None;
        }
        let slot = self.log_us / 500_000;
        if !self.pairs.contains_key(&domain) && self.cap <= self.pairs.len() {
            self.room_made = slot;
            self.leave_if_rested();
            if self.cap <= self.pairs.len() {
                return None;
            }
        }
        let limits = &self.limits;
        let pair = self
            .pairs
            .entry(domain)
            .or_insert_with(|| Plain::new(limits));
        let outcome = pair.entry(append - back, n, unguarded);
        let remembers = pair.matters_until().saturating_sub(pair.time);
        let rests = [1_500_000, 10_500_000, 60_500_000].into_iter();
        match rests.into_iter().find(|rest| remembers <= *rest) {
            Some(rest) => self.rests.insert(domain, rest),
            None => self.rests.remove(&domain),
        };
        self.leave_if_rested();
        Some(outcome)
    }

    fn leave_if_rested(&mut self) {
        let (rests, room_made) = (&self.rests, self.room_made);
        self.pairs.retain(|domain, pair| {
            let rest = rests.get(domain);
            rest.is_none_or(|rest| room_made <= (pair.time + rest) / 500_000)
        });
    }

    fn is_new(&mut self, seq: u64) -> bool {
        let highest = self.seen.last().copied().unwrap_or(0);
        if seq + 128 < highest || !self.seen.insert(seq) {
            return false;
        }
        self.seen_us = self.log_us;
        true
    }

    /// Applies a batch, and compares what it comes to with the model's rulings.
    fn rules_as(
        &mut self,
        got: &RecordOutcome,
        now: u64,
        seq: u64,
        entries: &[RandomEntry],
    ) -> Result<(), TestCaseError> {
        let is_new = self.is_new(seq);
        for (got, entry) in got.entries.iter().zip(entries) {
            let expected = if is_new {
                self.entry(now, *entry)
            } else {
                None
            };
            match got {
                EntryRuling::Ruled { outcome, .. } => {
                    let outcome = PlainOutcome {
                        granted: outcome.granted,
                        excess: outcome.excess,
                        late: outcome.late,
                        counted: outcome.counted,
                    };
                    prop_assert_eq!(Some(outcome), expected);
                }
                EntryRuling::NotRuled(why) => {
                    prop_assert_eq!(expected, None);
                    prop_assert_ne!(*why, NotRuled::Unconfigured);
                }
            }
        }
        Ok(())
    }

    fn new_limits(&mut self, now: u64, limits: &DomainLimits) {
        self.limits = limits.clone();
        for (domain, pair) in &mut self.pairs {
            let denied_upto = pair.time.max(now);
            if pair.denied.is_some_and(|end| end.is_after(denied_upto)) {
                self.rests.remove(domain);
            }
            pair.new_limits(now, limits);
        }
    }

    fn tick(&mut self, append: u64) {
        if append / 500_000 <= self.log_us / 500_000 {
            return;
        }
        self.log_us = append;
        if self.seen_us + 600 * SECOND < append {
            self.seen.clear();
        }
        let slot = append / 500_000 * 500_000;
        self.pairs.retain(|_, pair| slot <= pair.stays_until());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_partition_rules_as_plain_pairs_do(
        versions in prop::collection::vec(any_limits(30 * SECOND, true), 2),
        cap in 2usize..7,
        records in prop::collection::vec(any_record(), 1..80),
    ) {
        let capped = |limits: &DomainLimits| {
            let mut limits = of_resource(limits.clone(), None);
            limits.pairs_per_partition_max = cap as u64;
            limits
        };
        let mut log = Log::new(capped(&versions[0]));
        let mut plain = PlainLog {
            limits: versions[0].clone(),
            pairs: BTreeMap::new(),
            cap,
            room_made: 0,
            rests: BTreeMap::new(),
            log_us: START,
            seen: BTreeSet::new(),
            seen_us: START,
        };
        let names = ["a", "b", "c", "d", "e", "f"];
        let (mut now, mut version) = (START, 1);
        let mut stated: BTreeMap<ScopeName, Option<End>> = BTreeMap::new();
        for (pause, record) in records {
            // Whole milliseconds, so that no stamp lies after its append.
            now += pause / 1000 * 1000;
            let outcome = match record {
                Record::Hits(seq, entries) => {
                    let written: Vec<HitEntry<'_>> = entries
                        .iter()
                        .map(|(domain, back, n, unguarded)| HitEntry {
                            unguarded: *unguarded,
                            ..hits(names[*domain], now - back, *n)
                        })
                        .collect();
                    let got = log.batch("a", 1, seq, now, now, &written);
                    plain.rules_as(&got, now, seq, &entries)?;
                    got
                }
                Record::Tick => {
                    plain.tick(now);
                    log.tick(now);
                    prop_assert_eq!(log.model.log_us(), Some(plain.log_us));
                    continue;
                }
                Record::Limits(which) => {
                    version += 1;
                    plain.new_limits(now, &versions[which]);
                    log.version(now, version, capped(&versions[which]))
                }
            };
            prop_assert_eq!(log.model.pairs_count(), plain.pairs.len() as u64);
            for change in outcome.changes {
                stated.insert(change.scope, change.denied.map(|denial| denial.end));
            }
            for (domain, pair) in &plain.pairs {
                // The statements agree with the denials in force, except for denials that ended by themselves.
                let scope = ScopeName::new("r", Some(names[*domain]));
                let in_force = |end: &End| end.is_after(pair.time.max(now));
                let stated = stated.get(&scope).copied().flatten().filter(in_force);
                prop_assert_eq!(stated, pair.denied.filter(in_force));
                let current = log.model.denied_until("r", names[*domain]);
                prop_assert_eq!(current, pair.denied);
            }
        }
    }
}
