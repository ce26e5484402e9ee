//! Announcing: statements become frames of their topics, and live ones answer who asks.
//!
//! ```text
//! ruled in a turn    api.search: acme denied, globex denied        one frame of the topic
//! heartbeat due      control: evidence                             one frame each
//!                    topics with something in force: evidence
//! ```
//!
//! Each frame takes the next sequence of its topic and carries how far every ready partition has been
//! ruled, so that an agent can tell silence from loss. Frames of a turn go out before evidence above
//! them could. More than a few frames at once, as after a start, go out in steps, which subscribers can
//! follow. Knows nothing of sockets.
//!
//! What stays true: sequences of a topic have no gaps; evidence of a topic never runs ahead of its
//! statements; a frame is never larger than a message may be.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::{Evidence, Frame, Told, Topic};
use tollgate_shared::wire::statement::Statement;
use tollgate_shared::wire::{MESSAGE_BYTES_MAX, Writer};

use super::event::Effect;
use super::live::{At, Live, end_of};

/// The key of topic names where the fleet has no key.
pub const TOPIC_KEY_UNPROTECTED: [u8; 16] = [0; 16];

/// Statements in one frame or one part of a snapshot. With names of the greatest length a statement
/// takes 400 bytes, so that this many stay below 900 kB and leave room for the rest.
pub const TOLD_MAX: usize = 2_000;

const _: () = assert!(TOLD_MAX * 400 + 100_000 <= MESSAGE_BYTES_MAX);

/// Statements about a resource that go out at once. Those of a larger turn go out in steps: what is in
/// force when an aggregator starts would be more than a subscriber's queue takes.
const STEP_TOLD: usize = 5 * TOLD_MAX;

/// The least time between two steps: at most 4 MB each, mostly a tenth of it.
const STEP_EVERY: Span = Span::from_millis(25);

/// What the announcer needs to know of a partition: its log time and how far it has been ruled.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// How far.
    pub evidence: Evidence,
    /// The log's time now.
    pub log_now: Timestamp,
}

/// A point of the feed: what a snapshot is true of.
#[derive(Clone, Debug)]
pub struct Point {
    /// The publisher.
    pub instance: u128,
    /// How far partitions had been ruled.
    pub evidence: Vec<Evidence>,
    /// The last sequence of the control topic.
    pub control_sequence: u64,
    /// The last sequence of the topic of each resource that was asked for, in that order.
    pub sequences: Vec<u64>,
}

/// The announcer of one aggregator.
#[derive(Debug)]
pub struct Announcer {
    instance: u128,
    topic_key: [u8; 16],
    /// By resource: the last sequence of its topic.
    sequences: HashMap<Arc<str>, u64>,
    control_sequence: u64,
    live: Live,
    /// Ruled in this turn and not told yet, by resource.
    pending: BTreeMap<Arc<str>, Vec<(u32, Statement)>>,
    /// Too many to be told at once, by resource; no evidence of its topic goes out before them.
    rest: BTreeMap<Arc<str>, VecDeque<(u32, Statement)>>,
    /// When the next of them go out.
    next_step: Span,
    writer: Writer,
    frames: u64,
}

impl Announcer {
    /// One that has said nothing.
    pub fn new(instance: u128, topic_key: [u8; 16]) -> Self {
        Self {
            instance,
            topic_key,
            sequences: HashMap::new(),
            control_sequence: 0,
            live: Live::default(),
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

    /// Takes a statement of a ready partition; it goes out at the end of the turn.
    pub fn announce(&mut self, partition: u32, resource: &Arc<str>, statement: Statement) {
        self.live.take(partition, resource, &statement);
        match self.pending.get_mut(resource) {
            Some(pending) => pending.push((partition, statement)),
            None => {
                self.pending
                    .insert(Arc::clone(resource), vec![(partition, statement)]);
            }
        }
    }

    /// Forgets what a partition said: it is ruled anew.
    pub fn forget(&mut self, partition: u32) {
        self.live.forget(partition);
        for pending in self.pending.values_mut() {
            pending.retain(|(of, _)| *of != partition);
        }
        self.rest.retain(|_, rest| {
            rest.retain(|(of, _)| *of != partition);
            !rest.is_empty()
        });
    }

    /// When more is to be told although nothing happens.
    pub fn next_step(&self) -> Option<Span> {
        (!self.rest.is_empty()).then_some(self.next_step)
    }

    /// Publishes what was ruled in this turn.
    pub fn publish_pending(
        &mut self,
        clock: Span,
        ready: &BTreeMap<u32, Ready>,
        effects: &mut Vec<Effect>,
    ) {
        for (resource, statements) in std::mem::take(&mut self.pending) {
            let statements = newest(statements);
            if STEP_TOLD < statements.len() {
                self.rest.entry(resource).or_default().extend(statements);
            } else {
                self.publish_told(&resource, statements, clock, ready, effects);
            }
        }
        if self.next_step <= clock {
            self.publish_step(clock, ready, effects);
        }
    }

    /// Publishes some of what was too much at once.
    fn publish_step(
        &mut self,
        clock: Span,
        ready: &BTreeMap<u32, Ready>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(mut entry) = self.rest.first_entry() else {
            return;
        };
        let rest = entry.get_mut();
        let some = rest.drain(..rest.len().min(STEP_TOLD)).collect();
        let resource = Arc::clone(entry.key());
        if entry.get().is_empty() {
            entry.remove();
        }
        self.publish_told(&resource, some, clock, ready, effects);
        self.next_step = clock.saturating_add(STEP_EVERY);
    }

    fn publish_told(
        &mut self,
        resource: &Arc<str>,
        statements: Vec<(u32, Statement)>,
        clock: Span,
        ready: &BTreeMap<u32, Ready>,
        effects: &mut Vec<Effect>,
    ) {
        let more = self.rest.contains_key(resource);
        let mut rest = statements
            .into_iter()
            .filter_map(|(partition, statement)| told(partition, statement, ready))
            .peekable();
        while rest.peek().is_some() {
            let told = rest.by_ref().take(TOLD_MAX).collect();
            // Evidence comes with the last frame: before it, statements below it are outstanding.
            let evidence = if rest.peek().is_none() && !more {
                evidence(ready)
            } else {
                Vec::new()
            };
            self.publish(Some(resource), clock, evidence, told, effects);
        }
    }

    /// Publishes a heartbeat on the control topic and on every topic that has something in force.
    pub fn publish_heartbeats(
        &mut self,
        clock: Span,
        ready: &BTreeMap<u32, Ready>,
        effects: &mut Vec<Effect>,
    ) {
        for (partition, ready) in ready {
            self.live.expire(*partition, ready.log_now);
        }
        self.publish(None, clock, evidence(ready), Vec::new(), effects);
        let resources: Vec<Arc<str>> = self.live.resources().cloned().collect();
        for resource in resources {
            let evidence = match self.rest.contains_key(&resource) {
                true => Vec::new(),
                false => evidence(ready),
            };
            self.publish(Some(&resource), clock, evidence, Vec::new(), effects);
        }
    }

    fn publish(
        &mut self,
        resource: Option<&str>,
        clock: Span,
        evidence: Vec<Evidence>,
        told: Vec<Told>,
        effects: &mut Vec<Effect>,
    ) {
        let (topic, sequence) = match resource {
            None => (Topic::CONTROL, &mut self.control_sequence),
            Some(resource) => {
                if !self.sequences.contains_key(resource) {
                    self.sequences.insert(resource.into(), 0);
                }
                let Some(sequence) = self.sequences.get_mut(resource) else {
                    return;
                };
                (Topic::of_resource(&self.topic_key, resource), sequence)
            }
        };
        *sequence += 1;
        let frame = Frame {
            instance: self.instance,
            sequence: *sequence,
            sent: clock,
            resource: resource.unwrap_or_default().into(),
            evidence,
            told,
        };
        frame.encode(&mut self.writer);
        self.frames += 1;
        effects.push(Effect::Publish {
            topic,
            frame: self.writer.as_slice().to_vec(),
        });
    }

    /// The point of the feed that a snapshot of these resources taken now is true of.
    pub fn point(&self, ready: &BTreeMap<u32, Ready>, resources: &[Box<str>]) -> Point {
        let last = |resource: &str| self.sequences.get(resource).copied().unwrap_or(0);
        Point {
            instance: self.instance,
            evidence: evidence(ready),
            control_sequence: self.control_sequence,
            sequences: resources.iter().map(|one| last(one)).collect(),
        }
    }

    /// At most `max` of what is in force for a resource, in order, behind `after`; with where it ended,
    /// if more follows.
    pub fn slice(
        &self,
        resource: &str,
        after: Option<&At>,
        max: usize,
        ready: &BTreeMap<u32, Ready>,
    ) -> (Vec<Told>, Option<At>) {
        let mut statements = self.live.after(resource, after);
        let mut last = None;
        let slice = statements
            .by_ref()
            .take(max)
            .inspect(|(at, _)| last = Some(*at))
            .filter_map(|(at, statement)| told(at.partition, statement.clone(), ready))
            .collect();
        let more = statements.next().is_some();
        (slice, last.filter(|_| more).cloned())
    }
}

/// The newest statement about each scope, in the order of places.
fn newest(statements: Vec<(u32, Statement)>) -> Vec<(u32, Statement)> {
    if statements.len() < 2 {
        return statements;
    }
    let mut last: HashMap<(u32, &tollgate_shared::wire::statement::Scope), usize> = HashMap::new();
    for (index, (partition, statement)) in statements.iter().enumerate() {
        last.insert((*partition, &statement.scope), index);
    }
    let mut kept: Vec<usize> = last.into_values().collect();
    kept.sort_unstable();
    let mut kept = kept.into_iter().peekable();
    statements
        .into_iter()
        .enumerate()
        .filter(|(index, _)| kept.next_if_eq(index).is_some())
        .map(|(_, statement)| statement)
        .collect()
}

/// A statement with the time it still has; none if it has ended, or nobody knows the log's time.
fn told(partition: u32, statement: Statement, ready: &BTreeMap<u32, Ready>) -> Option<Told> {
    let log_now = ready.get(&partition)?.log_now;
    let remaining = match end_of(&statement) {
        None => Span::ZERO,
        Some(Timestamp::MAX) => Span::MAX,
        Some(end) if end <= log_now => return None,
        Some(end) => end.since(log_now),
    };
    Some(Told {
        partition,
        remaining,
        statement,
    })
}

fn evidence(ready: &BTreeMap<u32, Ready>) -> Vec<Evidence> {
    ready.values().map(|ready| ready.evidence).collect()
}
