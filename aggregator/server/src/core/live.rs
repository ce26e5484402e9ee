//! Live statements: what is in force at the moment, by resource, as agents should know it.
//!
//! A mirror of the statements of ready partitions' engines, so that a snapshot for an agent or a list for
//! an operator costs what it returns. Knows nothing of topics and frames.
//!
//! What stays true: for one scope the statement of the greatest log position wins; a statement that has ended by its
//! partition's log time is removed; the index of ends has at most twice as many entries as there are live statements.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Scope, Statement, StatementKind};

/// Where a statement belongs: the partition that ruled it, and its scope in the resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The partition.
    pub partition: u32,
    /// The scope.
    pub scope: Scope,
}

/// The ends of statements: instant, resource, scope; the earliest on top.
type Ends = BinaryHeap<Reverse<(Timestamp, Arc<str>, Scope)>>;

/// Everything that is in force.
#[derive(Debug, Default)]
pub struct Live {
    /// In order, so that what is published is a function of what was ruled.
    resources: BTreeMap<Arc<str>, BTreeMap<At, Statement>>,
    count: usize,
    /// By partition: the ends of its statements. Entries may be stale.
    ends: HashMap<u32, Ends>,
    ends_count: usize,
}

/// When a statement ends by itself; `None` for a lift, after which nothing is in force.
pub fn end_of(statement: &Statement) -> Option<Timestamp> {
    match statement.kind {
        StatementKind::Denied(denial) => Some(denial.end),
        StatementKind::Lifted => None,
    }
}

impl Live {
    /// Takes a statement; returns whether any was in force in its scope before.
    pub fn take(&mut self, partition: u32, resource: &Arc<str>, statement: &Statement) -> bool {
        let at = At {
            partition,
            scope: statement.scope.clone(),
        };
        let Some(end) = end_of(statement) else {
            return self.remove(resource, &at);
        };
        if !self.resources.contains_key(resource) {
            self.resources.insert(Arc::clone(resource), BTreeMap::new());
        }
        let Some(statements) = self.resources.get_mut(resource) else {
            return false;
        };
        let was_there = statements.insert(at, statement.clone()).is_some();
        self.count += usize::from(!was_there);
        if end < Timestamp::MAX {
            let ends = self.ends.entry(partition).or_default();
            ends.push(Reverse((
                end,
                Arc::clone(resource),
                statement.scope.clone(),
            )));
            self.ends_count += 1;
            self.rebuild_ends_if_stale();
        }
        was_there
    }

    /// Removes a statement; returns whether it existed.
    fn remove(&mut self, resource: &str, at: &At) -> bool {
        let Some(statements) = self.resources.get_mut(resource) else {
            return false;
        };
        let was_there = statements.remove(at).is_some();
        self.count -= usize::from(was_there);
        if statements.is_empty() {
            self.resources.remove(resource);
        }
        was_there
    }

    /// Removes the statements of a partition that have ended by its log time.
    pub fn expire(&mut self, partition: u32, log_now: Timestamp) {
        let mut ended = Vec::new();
        if let Some(ends) = self.ends.get_mut(&partition) {
            while ends
                .peek()
                .is_some_and(|Reverse((end, ..))| *end <= log_now)
            {
                if let Some(Reverse((_, resource, scope))) = ends.pop() {
                    ended.push((resource, scope));
                }
            }
        }
        self.ends_count -= ended.len();
        for (resource, scope) in ended {
            let at = At { partition, scope };
            let statement = self.resources.get(&resource).and_then(|s| s.get(&at));
            // The scope may have a newer statement, with a later end.
            if statement.and_then(end_of).is_some_and(|end| end <= log_now) {
                self.remove(&resource, &at);
            }
        }
    }

    /// Removes all statements of a partition.
    pub fn forget(&mut self, partition: u32) {
        for statements in self.resources.values_mut() {
            let before = statements.len();
            statements.retain(|at, _| at.partition != partition);
            self.count -= before - statements.len();
        }
        self.resources
            .retain(|_, statements| !statements.is_empty());
        if let Some(ends) = self.ends.remove(&partition) {
            self.ends_count -= ends.len();
        }
    }

    /// What is in force for a resource, in order.
    pub fn of_resource(&self, resource: &str) -> impl Iterator<Item = (&At, &Statement)> {
        self.resources.get(resource).into_iter().flatten()
    }

    /// The same, after a scope.
    pub fn after(
        &self,
        resource: &str,
        after: Option<&At>,
    ) -> impl Iterator<Item = (&At, &Statement)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let statements = self.resources.get(resource);
        statements
            .map(|statements| statements.range((from, Bound::Unbounded)))
            .into_iter()
            .flatten()
    }

    /// How many statements of a resource are kept, some of which may just have ended.
    pub fn kept_of(&self, resource: &str) -> usize {
        self.resources.get(resource).map_or(0, BTreeMap::len)
    }

    /// What is in force for one scope.
    pub fn get(&self, resource: &str, at: &At) -> Option<(&At, &Statement)> {
        self.resources.get(resource)?.get_key_value(at)
    }

    /// The resources that have something in force, in order, from a name on.
    pub fn resources_from(&self, name: &str) -> impl Iterator<Item = &Arc<str>> {
        let from = (Bound::Included(name), Bound::Unbounded);
        self.resources.range::<str, _>(from).map(|(name, _)| name)
    }

    /// The resources that have something in force.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.resources.keys()
    }

    /// How many resources have something in force.
    pub fn resources_len(&self) -> usize {
        self.resources.len()
    }

    /// Whether a resource has something in force.
    pub fn has(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// How many statements are in force.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is in force.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn rebuild_ends_if_stale(&mut self) {
        // Twice the live statements and some more, so that a rebuild costs no more than the statements taken since.
        if self.ends_count <= 2 * self.count + 1_024 {
            return;
        }
        self.ends.clear();
        self.ends_count = 0;
        for (resource, statements) in &self.resources {
            for (at, statement) in statements {
                let Some(end) = end_of(statement).filter(|end| *end < Timestamp::MAX) else {
                    continue;
                };
                let ends = self.ends.entry(at.partition).or_default();
                ends.push(Reverse((end, resource.clone(), at.scope.clone())));
                self.ends_count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::log_position::LogPosition;
    use tollgate_shared::time::Span;
    use tollgate_shared::wire::statement::{Cause, Denial};

    fn r() -> Arc<str> {
        "r".into()
    }

    fn denied(domain: &str, offset: u64, end: u64) -> Statement {
        Statement {
            scope: Scope::Pair(domain.into()),
            position: LogPosition {
                generation: 1,
                offset,
                entry: 0,
            },
            kind: StatementKind::Denied(Denial {
                end: Timestamp::from_micros(end),
                cause: Cause::Tier(1),
                version: 1,
                limit: 1,
                window: Span::from_secs(1),
                most: u64::MAX,
            }),
        }
    }

    fn open(domain: &str, offset: u64) -> Statement {
        Statement {
            kind: StatementKind::Lifted,
            ..denied(domain, offset, 0)
        }
    }

    #[test]
    fn ended_denials_are_removed_and_restated_ones_stay() {
        let mut live = Live::default();
        live.take(0, &r(), &denied("a", 1, 10));
        live.take(0, &r(), &denied("b", 2, 10));
        live.take(0, &r(), &denied("b", 3, 20));
        live.take(1, &r(), &denied("c", 1, 10));
        live.expire(0, Timestamp::from_micros(10));
        let names: Vec<_> = live.of_resource("r").map(|(at, _)| at.clone()).collect();
        assert_eq!(names.len(), 2);
        assert_eq!(names[0].scope, Scope::Pair("b".into()));
        live.take(0, &r(), &open("b", 4));
        live.forget(1);
        assert_eq!((live.len(), live.has("r")), (0, false));
    }

    #[test]
    fn the_index_of_ends_stays_in_proportion() {
        let mut live = Live::default();
        for n in 0..100_000u64 {
            live.take(0, &r(), &denied("a", n, 1_000_000 + n));
        }
        assert_eq!(live.len(), 1);
        assert!(live.ends_count <= 1_100, "{}", live.ends_count);
        live.expire(0, Timestamp::from_micros(2_000_000));
        assert_eq!(live.len(), 0);
    }

    #[test]
    fn a_denial_without_end_stays_until_it_is_lifted() {
        let mut live = Live::default();
        live.take(0, &r(), &denied("a", 1, u64::MAX));
        live.expire(0, Timestamp::MAX);
        assert_eq!(live.len(), 1);
        live.take(0, &r(), &open("a", 2));
        assert_eq!(live.len(), 0);
    }
}
