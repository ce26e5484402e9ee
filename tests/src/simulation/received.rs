//! What one process of an agent has received, read from the messages on the wire beside the agent.
//!
//! ```text
//! frame 7 of api.search, sent at 9.0     acme is denied @17, 4 s are left; ruled up to @18
//!                                        acme may be refused until 13.0, and must be until a little before
//! frame 9                                frame 8 is missing: watermarks do not count until a snapshot has arrived
//! ```
//!
//! Knows nothing of the log, and nothing of faults. What stays true: an end is in true time, and its two bounds
//! contain the end that the agent reckons by its own clock.

use std::collections::BTreeMap;
use std::ops::Range;

use tollgate_shared::log_position::{Code, LogId, LogPosition};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::{StatementNotice, Watermark};
use tollgate_shared::wire::statement::Scope;

use super::statements::end_of;

/// How long a current watermark guards calls.
pub(super) const GUARDED_US: u64 = 1_000_000;

/// A statement that arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub resource: Box<str>,
    pub scope: Scope,
    /// The log of its partition, as the agent knew it then.
    pub log: Option<LogId>,
    /// When it was sent first.
    pub sent_us: u64,
    /// The end of the denial by the log's clock. `None`: a lift.
    pub end: Option<Timestamp>,
    /// When the denial ends for the agent at the latest, and at the earliest.
    pub ends_us: (u64, u64),
    /// Whether the agent's deny list must have it.
    pub is_due: bool,
    /// Whether the agent has processed a newer statement about the scope.
    pub is_superseded: bool,
}

/// A message on its way into the deny list: when it was sent, and by which aggregator.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBy {
    pub peer: usize,
    pub sent_us: u64,
}

/// How far the statements of a resource's partition have been received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub position: LogPosition,
    /// When that position last advanced.
    pub at_us: u64,
    /// The least instant from which the agent may count the lease.
    pub from_us: u64,
}

/// The newest heartbeat of an aggregator.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastHeartbeat {
    pub instance: u128,
    pub at_us: u64,
    pub late_us: u64,
}

/// Everything that one process has received.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub statements: BTreeMap<Code, Vec<Arrived>>,
    /// The newest statement about each scope that the agent has processed.
    pub newest: BTreeMap<(Box<str>, Scope), Code>,
    pub reached: BTreeMap<(Box<str>, u32), Reached>,
    /// By aggregator, how long its newest answer to a hello took: frames may seem late to the agent by as much.
    pub round_trips: BTreeMap<usize, u64>,
    pub heartbeats: BTreeMap<usize, LastHeartbeat>,
    /// By partition, when a watermark marked as current last arrived, whatever the agent made of it.
    pub current_us: BTreeMap<u32, u64>,
    /// By aggregator and resource: the last sequence, and whether nothing is missing before it.
    runs: BTreeMap<(usize, Box<str>), (u64, bool)>,
    /// By partition, the log that the agent follows.
    logs: BTreeMap<u32, LogId>,
    /// By partition: the greatest watermark, and the time in which calls are surely guarded.
    guards: BTreeMap<u32, (LogPosition, Range<u64>)>,
}

impl Received {
    /// A feed of an aggregator is open: nothing of its topics is known.
    pub fn feed_opens(&mut self, peer: usize) {
        self.runs.retain(|(of, _), _| *of != peer);
    }

    /// Notes the log of a partition that the agent follows. If it is another one than before, everything about the
    /// partition is void.
    pub fn follows(&mut self, partition: u32, log: LogId) {
        if self
            .logs
            .insert(partition, log)
            .is_some_and(|before| before != log)
        {
            let of_it = self.statements.iter_mut();
            let of_it = of_it.filter(|(code, _)| code.partition == partition);
            of_it.for_each(|(_, at)| at.iter_mut().for_each(|one| one.is_due = false));
            self.reached.retain(|(_, of), _| *of != partition);
        }
    }

    /// Notes a frame of a topic. Returns whether its watermarks may count.
    pub fn frame(&mut self, peer: usize, resource: &str, sequence: u64) -> bool {
        let (last, is_joined) = self.runs.entry((peer, resource.into())).or_default();
        if *last != 0 && *last + 1 < sequence {
            *is_joined = false;
        }
        *last = sequence.max(*last);
        *is_joined
    }

    /// Notes a snapshot of a topic, which fills every gap up to its sequence.
    pub fn snapshot(&mut self, peer: usize, resource: &str, sequence: u64) {
        let (last, is_joined) = self.runs.entry((peer, resource.into())).or_default();
        (*last, *is_joined) = (sequence.max(*last), true);
    }

    /// Notes that the agent has received everything about a resource's partition below a position.
    pub fn reaches(
        &mut self,
        (resource, partition): (&str, u32),
        position: LogPosition,
        (by, now_us): (SentBy, u64),
    ) {
        let from_us = self.seems_sent_us(by).unwrap_or(0);
        let key = (Box::from(resource), partition);
        let before_us = self.reached.get(&key).map_or(0, |one| one.from_us);
        let reached = Reached {
            position,
            at_us: now_us,
            from_us: from_us.max(before_us),
        };
        self.reached.insert(key, reached);
    }

    /// The earliest instant at which the agent may take a message to have been sent. `None`: without an answer of its
    /// sender the agent takes the message to be too late for anything.
    fn seems_sent_us(&self, by: SentBy) -> Option<u64> {
        let trip_us = self.round_trips.get(&by.peer)?;
        Some(by.sent_us.saturating_sub(*trip_us))
    }

    /// Notes a statement. The agent has processed it or, if it is part of an unfinished snapshot, may have; it had to
    /// put it into its list if it `is_news`.
    pub fn state(
        &mut self,
        (resource, notice): (&str, &StatementNotice),
        by: SentBy,
        log: Option<LogId>,
        (is_processed, is_news): (bool, bool),
    ) {
        let statement = &notice.statement;
        let code = Code {
            partition: notice.partition,
            position: statement.position,
        };
        let end = end_of(statement);
        let left_us = notice.remaining.as_micros();
        let ends_us = match (end, notice.remaining) {
            (None, _) => (0, 0),
            (Some(_), Span::MAX) => (u64::MAX, u64::MAX),
            (Some(_), _) => {
                let surely_us = self
                    .seems_sent_us(by)
                    .map_or(0, |from_us| from_us + left_us);
                (by.sent_us + left_us, surely_us)
            }
        };
        let is_it = |one: &&mut Arrived| *one.resource == *resource && one.scope == statement.scope;
        let at = self.statements.entry(code).or_default();
        match at.iter_mut().find(is_it) {
            Some(one) if one.log == log => {
                one.ends_us = (one.ends_us.0.max(ends_us.0), one.ends_us.1.min(ends_us.1));
                one.is_due |= is_news;
            }
            found => {
                let arrived = Arrived {
                    resource: resource.into(),
                    scope: statement.scope.clone(),
                    log,
                    sent_us: by.sent_us,
                    end,
                    ends_us,
                    is_due: is_news,
                    is_superseded: false,
                };
                match found {
                    Some(one) => *one = arrived,
                    None => at.push(arrived),
                }
            }
        }
        if is_processed {
            self.supersede((resource, &statement.scope), code, log);
        }
    }

    /// Of two statements about a scope the one with the lesser log position does not count any more.
    fn supersede(&mut self, (resource, scope): (&str, &Scope), code: Code, log: Option<LogId>) {
        let key = (Box::from(resource), scope.clone());
        let older = match self.newest.get(&key).copied() {
            Some(newest) if newest == code => return,
            Some(newest)
                if code.position < newest.position
                    && self.is_of((resource, scope), newest, log) =>
            {
                code
            }
            newest => {
                self.newest.insert(key, code);
                let Some(newest) = newest else { return };
                newest
            }
        };
        if let Some(one) = self.arrived_mut((resource, scope), older) {
            one.is_superseded = true;
        }
        if older != code
            && let Some(one) = self.arrived_mut((resource, scope), code)
        {
            one.is_superseded = false;
        }
    }

    fn is_of(&self, scope: (&str, &Scope), code: Code, log: Option<LogId>) -> bool {
        self.arrived(scope, code).is_some_and(|one| one.log == log)
    }

    /// The statement about a scope at a log position.
    pub fn arrived(&self, (resource, scope): (&str, &Scope), code: Code) -> Option<&Arrived> {
        let mut at = self.statements.get(&code)?.iter();
        at.find(|one| *one.resource == *resource && one.scope == *scope)
    }

    fn arrived_mut(
        &mut self,
        (resource, scope): (&str, &Scope),
        code: Code,
    ) -> Option<&mut Arrived> {
        let mut at = self.statements.get_mut(&code)?.iter_mut();
        at.find(|one| *one.resource == *resource && one.scope == *scope)
    }

    /// A snapshot of a resource, at a position of a partition, does not list these scopes: their denials may end.
    pub fn unlist(
        &mut self,
        resource: &str,
        (partition, below): (u32, LogPosition),
        listed: &[StatementNotice],
    ) {
        let of_it = |code: &Code| code.partition == partition && code.position < below;
        for (code, at) in self.statements.iter_mut().filter(|(code, _)| of_it(code)) {
            for one in at.iter_mut().filter(|one| *one.resource == *resource) {
                one.is_due &= listed.iter().any(|notice| {
                    let statement = &notice.statement;
                    (notice.partition, statement.position) == (code.partition, code.position)
                        && statement.scope == one.scope
                });
            }
        }
    }

    /// Notes a watermark that the agent has processed.
    pub fn guard(&mut self, one: &Watermark, by: Option<SentBy>, now_us: u64) {
        let position = LogPosition::of_record(one.log, one.ruled);
        let until_us = by.and_then(|by| self.seems_sent_us(by));
        let until_us = until_us.filter(|_| one.current).map(|us| us + GUARDED_US);
        let (newest, guarded) = self.guards.entry(one.partition).or_default();
        if *newest < position {
            *newest = position;
            if guarded.end < now_us {
                guarded.start = now_us;
            }
            guarded.end = until_us.unwrap_or(0).max(guarded.end);
        }
    }

    /// Whether calls of a partition are surely guarded, more than a margin within the time.
    pub fn is_guarded(&self, partition: u32, now_us: u64, margin_us: u64) -> bool {
        let guard = self.guards.get(&partition);
        guard.is_some_and(|(_, guarded)| {
            guarded.start + margin_us < now_us && now_us + margin_us < guarded.end
        })
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::wire::statement::{Cause, Denial, Statement, StatementKind};

    use super::*;

    const BY: SentBy = SentBy {
        peer: 0,
        sent_us: 1_000,
    };

    fn notice(offset: u64, left_us: Option<u64>) -> StatementNotice {
        let denied = |_| Denial {
            end: Timestamp::from_micros(9_000),
            cause: Cause::Hard,
            version: 1,
            limit: 1,
            window: Span::from_secs(1),
            most: u64::MAX,
        };
        let position = LogPosition {
            generation: 1,
            offset,
            entry: 0,
        };
        StatementNotice {
            partition: 0,
            remaining: Span::from_micros(left_us.unwrap_or(0)),
            statement: Statement {
                scope: Scope::Resource,
                position,
                kind: left_us
                    .map(denied)
                    .map_or(StatementKind::Lifted, StatementKind::Denied),
            },
        }
    }

    #[test]
    fn watermarks_behind_a_missing_frame_do_not_count() {
        let mut received = Received::default();
        assert!(!received.frame(0, "r", 4));
        received.snapshot(0, "r", 4);
        assert!(received.frame(0, "r", 5) && received.frame(0, "r", 6));
        assert!(!received.frame(0, "r", 8) && !received.frame(0, "r", 9));
        received.snapshot(0, "r", 9);
        assert!(received.frame(0, "r", 10));
        received.feed_opens(0);
        assert!(!received.frame(0, "r", 11));
    }

    #[test]
    fn the_statement_with_the_later_position_holds_in_any_order() {
        for order in [[2, 7], [7, 2]] {
            let mut received = Received::default();
            received.round_trips.insert(0, 300);
            for offset in order {
                let one = notice(offset, Some(4_000));
                received.state(("r", &one), BY, None, (true, true));
            }
            let code = |offset| Code {
                partition: 0,
                position: notice(offset, None).statement.position,
            };
            let of = |offset| received.arrived(("r", &Scope::Resource), code(offset));
            let is_over = |offset| of(offset).is_some_and(|one| one.is_superseded);
            assert!(is_over(2) && !is_over(7), "{order:?}");
            assert_eq!(of(7).map(|one| one.ends_us), Some((5_000, 4_700)));
        }
    }
}
