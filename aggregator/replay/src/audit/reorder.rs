//! The cost of reordering: how long pairs were denied beyond a replay of the same hits in order of time.
//!
//! ```text
//! log order    hits 0.0 5.0 0.1     denied [5.0, …)
//! time order   hits 0.0 0.1 5.0     denied [0.1, …)      cost: what only the first has
//! ```
//!
//! Aggregators rule in the log's order; hits reach the log a little late and in any order. This gives the
//! model the same hits again, sorted, and measures the difference. Knows nothing of records. What stays
//! true: a hit is held back for as long as an older one may still come, and no longer.

use std::collections::BTreeMap;

use tollgate_model::log::{EntryKind, HitEntry, HitsRecord, LogInput, ScopeName};
use tollgate_model::{End, Limits, PartitionModel};

/// How long hits are held back, in microseconds. Hits older than this are only counted.
const HELD_BACK_US: u64 = 600_000_000;

/// Denied intervals of one pair, ascending and disjoint.
type Intervals = Vec<(u64, u64)>;

/// Denials of pairs, in the order in which the model states them.
#[derive(Debug, Default)]
struct Denied {
    pairs: BTreeMap<ScopeName, Intervals>,
    /// The greatest instant among each pair's entries.
    times: BTreeMap<ScopeName, u64>,
}

enum ReorderEvent {
    Hit {
        scope: ScopeName,
        n: u64,
        kind: EntryKind,
        unguarded: bool,
    },
    Limits(Vec<(u64, Limits)>),
}

/// Both orders, side by side.
#[derive(Default)]
pub struct Reorder {
    in_log_order: Denied,
    in_time_order: Denied,
    sorted: PartitionModel,
    held_back: BTreeMap<(u64, u64), ReorderEvent>,
    number: u64,
}

impl Denied {
    fn passed(&mut self, scope: &ScopeName, at_us: u64) {
        match self.times.get_mut(scope) {
            Some(time) => *time = at_us.max(*time),
            None => {
                self.times.insert(scope.clone(), at_us);
            }
        }
    }

    fn take_statement(&mut self, scope: &ScopeName, not_before_us: u64, end: Option<End>) {
        let time = self
            .times
            .get(scope)
            .copied()
            .unwrap_or(0)
            .max(not_before_us);
        let intervals = self.pairs.entry(scope.clone()).or_default();
        if let Some(last) = intervals.last_mut() {
            last.1 = last.1.min(time.max(last.0));
        }
        match end {
            Some(End::At(end)) if time < end => intervals.push((time, end)),
            Some(End::Never) => intervals.push((time, u64::MAX)),
            _ => {}
        }
    }
}

impl Reorder {
    /// Takes an entry that was ruled, in the order of the log.
    pub fn hit(&mut self, entry: &HitEntry<'_>, at_us: u64) {
        let scope = ScopeName::new(entry.resource, Some(entry.domain));
        self.in_log_order.passed(&scope, at_us);
        self.number += 1;
        let event = ReorderEvent::Hit {
            scope,
            n: entry.n,
            kind: entry.kind,
            unguarded: entry.unguarded,
        };
        self.held_back.insert((at_us, self.number), event);
    }

    /// Takes new limits, which came into force at a record.
    pub fn limits(&mut self, appended_us: u64, versions: Vec<(u64, Limits)>) {
        self.number += 1;
        // Hits from before the first version were sent when that version was in force already.
        let first = self.in_log_order.times.is_empty();
        let at_us = if first { 0 } else { appended_us };
        self.held_back
            .insert((at_us, self.number), ReorderEvent::Limits(versions));
    }

    /// Takes a statement of the model about a pair, in the order of the log. `not_before_us` is the record's
    /// time if limits caused the statement.
    pub fn take_statement(&mut self, scope: &ScopeName, not_before_us: u64, end: Option<End>) {
        if scope.domain.is_some() {
            self.in_log_order.take_statement(scope, not_before_us, end);
        }
    }

    /// Takes the log's progress: rules, in order of time, the hits that no older hit can precede any more.
    pub fn reached(&mut self, appended_us: u64) {
        let upto = appended_us.saturating_sub(HELD_BACK_US);
        while let Some(entry) = self.held_back.first_entry()
            && entry.key().0 < upto
        {
            let ((at_us, _), event) = entry.remove_entry();
            self.rule(at_us, event);
        }
    }

    fn rule(&mut self, at_us: u64, event: ReorderEvent) {
        self.number += 1;
        let (offset, appended_us) = (self.number, at_us);
        let (changes, not_before_us) = match event {
            ReorderEvent::Limits(versions) => {
                let input = LogInput::Limits {
                    offset,
                    appended_us,
                    versions,
                };
                (self.sorted.apply(&input).changes, at_us)
            }
            ReorderEvent::Hit {
                scope,
                n,
                kind,
                unguarded,
            } => {
                self.in_time_order.passed(&scope, at_us);
                let record = HitsRecord {
                    offset,
                    appended_us,
                    agent: "in order of time",
                    epoch: 1,
                    seq: self.number,
                    sent_us: at_us,
                    entries: vec![HitEntry {
                        resource: &scope.resource,
                        domain: scope.domain.as_deref().unwrap_or_default(),
                        at_us,
                        n,
                        kind,
                        unguarded,
                    }],
                };
                (self.sorted.apply(&LogInput::Hits(record)).changes, 0)
            }
        };
        for change in changes {
            let end = change.denied.map(|denial| denial.end);
            self.in_time_order
                .take_statement(&change.scope, not_before_us, end);
        }
    }

    /// How long pairs were denied in all, and how long of that only because of the log's order, up to the
    /// log's end; in microseconds.
    pub fn end(mut self, appended_us: u64) -> (u64, u64) {
        while let Some(((at_us, _), event)) = self.held_back.pop_first() {
            self.rule(at_us, event);
        }
        let (mut denied, mut beyond) = (0u64, 0u64);
        for (scope, intervals) in &self.in_log_order.pairs {
            let sorted = self.in_time_order.pairs.get(scope);
            let sorted = sorted.map(Vec::as_slice).unwrap_or_default();
            for interval in intervals {
                let (from, to) = (interval.0, interval.1.min(appended_us).max(interval.0));
                denied = denied.saturating_add(to - from);
                beyond = beyond.saturating_add(to - from - shared((from, to), sorted));
            }
        }
        (denied, beyond)
    }
}

/// How much of an interval lies in others, which are disjoint.
fn shared((from, to): (u64, u64), others: &[(u64, u64)]) -> u64 {
    let first = others.partition_point(|(_, end)| *end <= from);
    others[first..]
        .iter()
        .take_while(|(begin, _)| *begin < to)
        .map(|(begin, end)| end.min(&to) - begin.max(&from))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tollgate_model::{DomainLimits, ResourceLimits, Tier};

    fn limits(window_us: u64) -> Vec<(u64, Limits)> {
        let tier = Tier {
            limit: 1,
            window_us,
            active_us: 1_000_000_000,
            cooldown_us: 0,
            skippable: false,
        };
        let resource = ResourceLimits {
            default: DomainLimits::of_tiers(&[tier]),
            domains: BTreeMap::new(),
            global: None,
        };
        let limits = Limits {
            resources: BTreeMap::from([("r".to_owned(), resource)]),
            pairs_per_partition_max: 100,
        };
        vec![(1, limits)]
    }

    /// One hit fills a window of 1 s. In the log's order the pair is denied from each new hit on.
    fn cost(hits_us: &[u64]) -> (u64, u64) {
        let mut reorder = Reorder::default();
        let mut model = PartitionModel::new();
        let versions = limits(1_000_000);
        model.apply(&LogInput::Limits {
            offset: 0,
            appended_us: 0,
            versions: versions.clone(),
        });
        reorder.limits(0, versions);
        for (seq, at_us) in (1u64..).zip(hits_us) {
            let entry = HitEntry {
                resource: "r",
                domain: "d",
                at_us: *at_us,
                n: 1,
                kind: EntryKind::Hit,
                unguarded: false,
            };
            let record = HitsRecord {
                offset: seq,
                appended_us: 30_000_000,
                agent: "a",
                epoch: 1,
                seq,
                sent_us: 30_000_000,
                entries: vec![entry],
            };
            reorder.hit(&entry, *at_us);
            for change in model.apply(&LogInput::Hits(record)).changes {
                reorder.take_statement(&change.scope, 0, change.denied.map(|denial| denial.end));
            }
        }
        reorder.end(30_000_000)
    }

    #[test]
    fn only_records_out_of_order_cost_denials() {
        assert_eq!(cost(&[1_000_000, 3_000_000]), (2_000_002, 0));
        // Up to twice the limit counts: in order of time the hit of 1.4 counts and that of 1.8 is forgiven,
        // so the pair would have been open again at 2.400001, not only at 2.800001.
        assert_eq!(cost(&[1_000_000, 1_400_000, 1_800_000]), (1_400_001, 0));
        let late = cost(&[1_000_000, 1_800_000, 1_400_000]);
        assert_eq!(late, (1_800_001, 400_000));
    }
}
