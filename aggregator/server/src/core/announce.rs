//! Announcing: statements become frames of their topics, and those in force become snapshots for agents.
//!
//! ```text
//! ruled in a turn    api.search: acme denied, globex denied        one frame of the topic
//! heartbeat due      control: watermarks                           one frame each
//!                    topics with something in force that have subscribers: watermarks
//! ```
//!
//! Each frame takes the next sequence of its topic and carries how far every ready partition has been
//! ruled, so that an agent can tell silence from loss. Statements of a turn are published before any
//! watermark beyond them. More than a few frames at once, as after a start, are published in steps that
//! subscribers can follow. Knows nothing of sockets.
//!
//! What stays true: if a topic skips a sequence, this process has forgotten a statement that an agent may have
//! received, or the topic; a watermark on a topic never runs ahead of the topic's statements; a frame is never larger than a
//! message may be.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::{Frame, StatementNotice, Topic, Watermark};
use tollgate_shared::wire::statement::{Scope, Statement};
use tollgate_shared::wire::{MESSAGE_BYTES_MAX, Writer};

use super::event::Effect;
use super::live::{At, Live, end_of};
use super::ready::ReadyPartitions;
use super::topics::{Subscribed, Topics};

/// The key of topic names where the fleet has no key.
pub const TOPIC_KEY_UNPROTECTED: [u8; 16] = [0; 16];

/// Statements in one frame or one part of a snapshot. With names of the greatest length a statement
/// takes 400 bytes, so that this many stay below 900 kB and leave room for the rest.
pub const STATEMENTS_MAX: usize = 2_000;

const _: () = assert!(STATEMENTS_MAX * 400 + 100_000 <= MESSAGE_BYTES_MAX);

/// Statements about a resource that are published at once. A larger turn is published in steps: what is in
/// force when an aggregator starts would be more than a subscriber's queue takes.
const STEP_STATEMENTS: usize = 5 * STATEMENTS_MAX;

/// The least time between two steps: at most 4 MB each, mostly a tenth of it.
const STEP_EVERY: Span = Span::from_millis(25);

/// A point of the feed, at which a snapshot is true.
#[derive(Clone, Debug)]
pub struct Point {
    /// The publisher.
    pub instance: u128,
    /// How far the ready partitions had been ruled.
    pub watermarks: Vec<Watermark>,
    /// The last sequence of the control topic.
    pub control_sequence: u64,
    /// The last sequence of the topic of each resource that was asked for, in that order.
    pub sequences: Vec<u64>,
}

/// A statement that is to be published.
#[derive(Clone, Debug)]
struct Untold {
    partition: u32,
    statement: Statement,
    /// A statement was in force in its scope, and an agent may have received it.
    takes_back: bool,
}

/// The announcer of one aggregator.
#[derive(Debug)]
pub struct Announcer {
    instance: u128,
    topics: Topics,
    control_sequence: u64,
    live: Live,
    /// Partitions whose statements were forgotten after agents may have received them.
    forgotten: BTreeSet<u32>,
    /// Ruled in this turn and not published yet, by resource.
    pending: BTreeMap<Arc<str>, Vec<Untold>>,
    /// Too many to be published at once, by resource; no watermark of their topic is published before them.
    rest: BTreeMap<Arc<str>, VecDeque<Untold>>,
    /// When the next step of them is published.
    next_step: Span,
    writer: Writer,
    frames: u64,
}

impl Announcer {
    /// An announcer that has published nothing.
    pub fn new(instance: u128, topic_key: [u8; 16]) -> Self {
        Self {
            instance,
            topics: Topics::new(topic_key),
            control_sequence: 0,
            live: Live::default(),
            forgotten: BTreeSet::new(),
            pending: BTreeMap::new(),
            rest: BTreeMap::new(),
            next_step: Span::ZERO,
            writer: Writer::new(),
            frames: 0,
        }
    }

    /// What is in force.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Frames published so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Takes a statement of a ready partition, and publishes it at the end of the turn.
    pub fn announce(&mut self, partition: u32, resource: &Arc<str>, statement: Statement) {
        self.topics.meet(resource);
        let takes_back = self.live.take(partition, resource, &statement);
        let unannounced = Untold {
            partition,
            statement,
            takes_back,
        };
        match self.pending.get_mut(resource) {
            Some(pending) => pending.push(unannounced),
            None => {
                self.pending.insert(Arc::clone(resource), vec![unannounced]);
            }
        }
    }

    /// Begins to announce a partition: publishes once what is in force there. Where the partition's statements were
    /// forgotten before, later statements cannot take back what was published then, or by other aggregators
    /// meanwhile. So all topics skip a sequence, and each agent that follows one asks for a snapshot.
    pub fn begin(&mut self, partition: u32, live: impl IntoIterator<Item = (Arc<str>, Statement)>) {
        if self.forgotten.remove(&partition) {
            self.topics.skip();
        }
        for (resource, statement) in live {
            self.announce(partition, &resource, statement);
        }
    }

    /// Forgets the statements of a partition: it is ruled again from the start, or by another aggregator.
    pub fn forget(&mut self, partition: u32) {
        self.forgotten.insert(partition);
        self.live.forget(partition);
        for pending in self.pending.values_mut() {
            pending.retain(|unannounced| unannounced.partition != partition);
        }
        self.rest.retain(|_, rest| {
            rest.retain(|unannounced| unannounced.partition != partition);
            !rest.is_empty()
        });
    }

    /// When the next step is to be published although no event arrives.
    pub fn next_step(&self) -> Option<Span> {
        (!self.rest.is_empty()).then_some(self.next_step)
    }

    /// Publishes the statements of this turn.
    pub fn publish_pending(
        &mut self,
        clock: Span,
        ready: &ReadyPartitions,
        effects: &mut Vec<Effect>,
    ) {
        for (resource, statements) in std::mem::take(&mut self.pending) {
            let statements = newest(statements);
            if STEP_STATEMENTS < statements.len() {
                self.rest.entry(resource).or_default().extend(statements);
            } else {
                self.publish_statements(&resource, statements, clock, ready, effects);
            }
        }
        if self.next_step <= clock {
            self.publish_step(clock, ready, effects);
        }
    }

    /// Publishes one step of statements that were too many to publish at once.
    fn publish_step(&mut self, clock: Span, ready: &ReadyPartitions, effects: &mut Vec<Effect>) {
        let Some(mut entry) = self.rest.first_entry() else {
            return;
        };
        let rest = entry.get_mut();
        let some = rest.drain(..rest.len().min(STEP_STATEMENTS)).collect();
        let resource = Arc::clone(entry.key());
        if entry.get().is_empty() {
            entry.remove();
        }
        self.publish_statements(&resource, some, clock, ready, effects);
        self.next_step = clock.saturating_add(STEP_EVERY);
    }

    fn publish_statements(
        &mut self,
        resource: &Arc<str>,
        statements: Vec<Untold>,
        clock: Span,
        ready: &ReadyPartitions,
        effects: &mut Vec<Effect>,
    ) {
        let more = self.rest.contains_key(resource);
        let mut rest = statements
            .into_iter()
            .filter_map(|unannounced| {
                let stated = notice_of(unannounced.partition, unannounced.statement, ready)?;
                // A statement that is over is published only where it ends an earlier one that agents may have
                // received.
                (unannounced.takes_back || !is_over(&stated)).then_some(stated)
            })
            .peekable();
        while rest.peek().is_some() {
            let stated = rest.by_ref().take(STATEMENTS_MAX).collect();
            // Watermarks come with the last frame: until then, statements below them are outstanding.
            let watermarks = if rest.peek().is_none() && !more {
                ready.watermarks()
            } else {
                Vec::new()
            };
            self.publish(Some(resource), clock, watermarks, stated, effects);
        }
    }

    /// Publishes a heartbeat on the control topic, and on every topic that has something in force and subscribers.
    pub fn publish_heartbeats(
        &mut self,
        clock: Span,
        ready: &ReadyPartitions,
        subscribed: &Subscribed,
        effects: &mut Vec<Effect>,
    ) {
        for ready in ready.iter() {
            self.live.expire(ready.watermark.partition, ready.log_now);
        }
        self.publish(None, clock, ready.watermarks(), Vec::new(), effects);
        for resource in self.topics.with_subscribers(&self.live, subscribed) {
            let watermarks = match self.rest.contains_key(&resource) {
                true => Vec::new(),
                false => ready.watermarks(),
            };
            self.publish(Some(&resource), clock, watermarks, Vec::new(), effects);
        }
    }

    fn publish(
        &mut self,
        resource: Option<&Arc<str>>,
        clock: Span,
        watermarks: Vec<Watermark>,
        stated: Vec<StatementNotice>,
        effects: &mut Vec<Effect>,
    ) {
        let (topic, sequence) = match resource {
            None => {
                self.control_sequence += 1;
                (Topic::CONTROL, self.control_sequence)
            }
            Some(resource) => self.topics.next(resource),
        };
        let frame = Frame {
            instance: self.instance,
            sequence,
            sent: clock,
            resource: resource.map(|name| (**name).into()).unwrap_or_default(),
            watermarks,
            statements: stated,
        };
        frame.encode(&mut self.writer);
        self.frames += 1;
        effects.push(Effect::Publish {
            topic,
            frame: self.writer.as_slice().to_vec(),
        });
    }

    /// The point of the feed at which a snapshot of these resources, taken now, is true.
    pub fn point(&self, ready: &ReadyPartitions, resources: &[Box<str>]) -> Point {
        Point {
            instance: self.instance,
            watermarks: ready.watermarks(),
            control_sequence: self.control_sequence,
            sequences: resources.iter().map(|one| self.topics.last(one)).collect(),
        }
    }

    /// At most `max` of the statements in force for a resource, in order, after `after`; and the position of the last
    /// one, if more follow.
    pub fn slice(
        &self,
        resource: &str,
        after: Option<&At>,
        max: usize,
        ready: &ReadyPartitions,
    ) -> (Vec<StatementNotice>, Option<At>) {
        let mut statements = self.live.after(resource, after);
        let mut last = None;
        let slice = statements
            .by_ref()
            .take(max)
            .inspect(|(at, _)| last = Some(*at))
            .filter_map(|(at, statement)| notice_of(at.partition, statement.clone(), ready))
            // A statement that is over is not in force, and agents take what is not listed for open.
            .filter(|stated| !is_over(stated))
            .collect();
        let more = statements.next().is_some();
        (slice, last.filter(|_| more).cloned())
    }
}

/// The newest statement about each scope, in the order of log positions. It takes back what any of them does.
fn newest(statements: Vec<Untold>) -> Vec<Untold> {
    if statements.len() < 2 {
        return statements;
    }
    let mut last: HashMap<(u32, &Scope), (usize, bool)> = HashMap::new();
    for (index, unannounced) in statements.iter().enumerate() {
        let scope = (unannounced.partition, &unannounced.statement.scope);
        let (newest, takes_back) = last.entry(scope).or_default();
        *newest = index;
        *takes_back |= unannounced.takes_back;
    }
    let mut kept: Vec<(usize, bool)> = last.into_values().collect();
    kept.sort_unstable();
    let mut kept = kept.into_iter().peekable();
    let newest = |(index, unannounced): (usize, Untold)| {
        let (_, takes_back) = kept.next_if(|(kept, _)| *kept == index)?;
        Some(Untold {
            takes_back,
            ..unannounced
        })
    };
    statements
        .into_iter()
        .enumerate()
        .filter_map(newest)
        .collect()
}

/// Whether a statement has ended. A lift, which has no end, never has.
fn is_over(stated: &StatementNotice) -> bool {
    stated.remaining == Span::ZERO && end_of(&stated.statement).is_some()
}

/// A statement with its remaining time, zero if it is over; `None` if the partition is not ready, since then its log
/// time is unknown.
fn notice_of(
    partition: u32,
    statement: Statement,
    ready: &ReadyPartitions,
) -> Option<StatementNotice> {
    let log_now = ready.get(partition)?.log_now;
    let remaining = match end_of(&statement) {
        None => Span::ZERO,
        Some(Timestamp::MAX) => Span::MAX,
        Some(end) => end.since(log_now),
    };
    Some(StatementNotice {
        partition,
        remaining,
        statement,
    })
}

#[cfg(test)]
mod tests {
    use tollgate_shared::log_position::{LogId, LogPosition};
    use tollgate_shared::wire::statement::{Cause, Denial, StatementKind};

    use super::super::ready::Ready;
    use super::*;

    fn statement(offset: u64, kind: StatementKind) -> Statement {
        Statement {
            scope: Scope::Pair("acme".into()),
            position: LogPosition {
                generation: 1,
                offset,
                entry: 0,
            },
            kind,
        }
    }

    fn denied(until_us: u64) -> StatementKind {
        StatementKind::Denied(Denial {
            end: Timestamp::from_micros(until_us),
            cause: Cause::Tier(1),
            version: 1,
            limit: 1,
            window: Span::from_secs(1),
            most: u64::MAX,
        })
    }

    /// Partition 0, at log time 100 µs.
    fn ready() -> ReadyPartitions {
        let log = LogId {
            generation: 1,
            random: 1,
        };
        let log_now = Timestamp::from_micros(100);
        let watermark = Watermark {
            partition: 0,
            log,
            ruled: 9,
            appended: log_now,
            current: true,
        };
        Ready { watermark, log_now }.into()
    }

    /// What is published for statements ruled in these turns, at log time 100 µs; and what is in force then.
    fn stated_in(turns: &[Vec<&Statement>]) -> (Vec<StatementNotice>, Vec<StatementNotice>) {
        let ready = ready();
        let mut announcer = Announcer::new(1, TOPIC_KEY_UNPROTECTED);
        let mut effects = Vec::new();
        for turn in turns {
            for one in turn {
                announcer.announce(0, &"r".into(), (*one).clone());
            }
            announcer.publish_pending(Span::ZERO, &ready, &mut effects);
        }
        let frames = effects.iter().map(|effect| match effect {
            Effect::Publish { frame, .. } => Frame::decode(frame).expect("a frame"),
            other => panic!("{other:?}"),
        });
        let stated = frames.flat_map(|frame| frame.statements).collect();
        (stated, announcer.slice("r", None, 9, &ready).0)
    }

    #[test]
    fn ended_denials_are_announced_only_to_correct_earlier_ones() {
        let long = statement(1, denied(160));
        let lift = statement(2, StatementKind::Lifted);
        let over = statement(3, denied(60));
        let with = |remaining, statement: &Statement| StatementNotice {
            partition: 0,
            remaining: Span::from_micros(remaining),
            statement: statement.clone(),
        };
        // An agent that received the long denial learns of the lift from the statement after it in the same turn.
        let (stated, in_force) = stated_in(&[vec![&long], vec![&lift, &over]]);
        assert_eq!(stated, [with(60, &long), with(0, &over)]);
        assert_eq!(in_force, []);
        let (stated, _) = stated_in(&[vec![&long], vec![&over]]);
        assert_eq!(stated, [with(60, &long), with(0, &over)]);
        // No agent received what was in force before.
        assert_eq!(stated_in(&[vec![&over]]), (Vec::new(), Vec::new()));
        assert_eq!(stated_in(&[vec![&lift, &over]]), (Vec::new(), Vec::new()));
        let (stated, in_force) = stated_in(&[vec![&long]]);
        assert_eq!(
            (stated, in_force),
            (vec![with(60, &long)], vec![with(60, &long)])
        );
    }

    #[test]
    fn forgetting_denials_in_force_skips_a_sequence() {
        let ready = ready();
        let mut announcer = Announcer::new(1, TOPIC_KEY_UNPROTECTED);
        let published = |announcer: &mut Announcer| {
            let mut effects = Vec::new();
            announcer.publish_pending(Span::ZERO, &ready, &mut effects);
            let of = |effect: &Effect| match effect {
                Effect::Publish { frame, .. } => {
                    let frame = Frame::decode(frame).expect("a frame");
                    (frame.resource.to_string(), frame.sequence)
                }
                other => panic!("{other:?}"),
            };
            effects.iter().map(of).collect::<Vec<_>>()
        };
        let r: Arc<str> = "r".into();
        announcer.announce(0, &r, statement(1, denied(900)));
        assert_eq!(published(&mut announcer), [("r".to_owned(), 1)]);
        announcer.forget(0);
        announcer.begin(0, [(Arc::clone(&r), statement(2, denied(900)))]);
        announcer.announce(0, &"other".into(), statement(3, denied(900)));
        // No agent has received anything of the topic `other`.
        let of_both = [("other".to_owned(), 1), ("r".to_owned(), 3)];
        assert_eq!(published(&mut announcer), of_both);
        announcer.announce(0, &r, statement(4, denied(950)));
        assert_eq!(published(&mut announcer), [("r".to_owned(), 4)]);
    }
}
