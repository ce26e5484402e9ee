//! The courier: batches become numbered records, and stay here until the log has them.
//!
//! ```text
//! batch ── first sending: sequence, stamp ──> in flight ── acknowledged ──> done
//!                                               │ connection lost, or no answer
//!                                               └──> sent again, with the stamp of this sending
//! ```
//!
//! A partition whose record the log does not take now ("not now": no room, or no connection to it) is tried with one
//! record after a pause, and after a longer one each time; once the log takes a record, all others follow.
//!
//! Sequences count from 1 in each partition. The log recognises duplicates within 128 of the highest sequence and for
//! ten minutes. So the sequences in flight in a partition are at most 127 apart, and nothing is sent again five
//! minutes after its first sending.
//!
//! A state machine: it knows no socket and no clock; its driver says what happened and when. What stays true: a
//! record's content never changes but for the instant of its sending; a sequence is used once.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::Sender;

use crate::batch::Payload;
use crate::clock::Mono;
use crate::resource::Resources;

/// The greatest distance between sequences in flight.
const APART_MAX: u64 = 127;

/// How long after its first sending a record may be sent again.
const AGAIN_MAX: Span = Span::from_secs(300);

/// How long to wait for an answer on a working connection; answers may be dropped at a bound.
const ANSWER_WITHIN: Span = Span::from_secs(3);

/// How long to send nothing to a partition after the log answered "not now". Each pause is twice as long as the one
/// before it, so that a full disk is not asked hundreds of times a second by each agent; and none is longer than a
/// second, so that calls count again soon after there is room.
const NOT_NOW: Span = Span::from_millis(100);
const NOT_NOW_MAX: Span = Span::from_secs(1);

/// A record to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    /// The answer repeats it.
    pub(crate) id: u64,
    pub(crate) partition: u32,
    pub(crate) record: Bytes,
}

/// The state of a partition's records about holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    /// How many wait or are in flight.
    pub(crate) holdings: usize,
    /// How many were acknowledged so far.
    pub(crate) acknowledged: u64,
}

/// The courier's counters, in batches and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CourierCounts {
    pub(crate) batches_sent: u64,
    pub(crate) batches_sent_again: u64,
    pub(crate) batches_acknowledged: u64,
    pub(crate) batches_given_up: u64,
    pub(crate) batches_refused: u64,
    pub(crate) hits_acknowledged: u64,
    pub(crate) hits_given_up: u64,
    pub(crate) refused_calls_given_up: u64,
}

/// A record that the log may or may not have.
#[derive(Debug)]
struct Sent {
    id: u64,
    first_sent: Mono,
    /// When to send it (again); `None` while an answer is awaited.
    send_at: Option<Mono>,
    sent: Mono,
    /// Accounts for its partition queue and bytes until it is done.
    payload: Payload,
}

impl Sent {
    /// Whether it is to be sent (again) now.
    fn is_due(&self, now: Mono) -> bool {
        self.send_at.is_some_and(|at| at <= now)
    }
}

/// The log answered "not now" for a partition, and has taken no record of it since.
#[derive(Clone, Copy, Debug)]
struct NotNow {
    pause: Span,
    /// From here on one record at a time is sent, to try.
    until: Mono,
}

#[derive(Debug, Default)]
struct CourierQueue {
    last_sequence: u64,
    not_now: Option<NotNow>,
    waiting: VecDeque<Payload>,
    under_way: BTreeMap<u64, Sent>,
    /// How many of all these are about holds.
    holdings: usize,
    /// How many records about holds were acknowledged.
    acknowledged: u64,
}

/// The courier of one agent.
#[derive(Debug)]
pub(crate) struct Courier {
    agent: Box<str>,
    epoch: u128,
    resources: Arc<Resources>,
    queues: BTreeMap<u32, CourierQueue>,
    by_id: HashMap<u64, (u32, u64)>,
    last_id: u64,
    /// Whether to send again what is not answered. A carrier that does so by itself reports what it lost.
    answers_are_awaited: bool,
    /// Since when records wait for the log, and it takes none, as seen at each tick.
    stalled_since: Option<Mono>,
    /// Where the next search for something to send begins, so that no partition queue starves another.
    next_queue: u32,
    writer: Writer,
    counts: CourierCounts,
    /// Partitions whose records about holds may have been overtaken by later ones, or lost.
    shaken: BTreeSet<u32>,
}

impl Courier {
    pub(crate) fn new(agent: &str, epoch: u128, resources: Arc<Resources>) -> Self {
        Self {
            agent: agent.into(),
            epoch,
            resources,
            queues: BTreeMap::new(),
            by_id: HashMap::new(),
            last_id: 0,
            answers_are_awaited: true,
            stalled_since: None,
            next_queue: 0,
            writer: Writer::new(),
            counts: CourierCounts::default(),
            shaken: BTreeSet::new(),
        }
    }

    /// A courier whose carrier sends again by itself, and always reports the result of a record.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only Kafka does"))]
    pub(crate) fn with_carrier_that_answers(self) -> Self {
        Self {
            answers_are_awaited: false,
            ..self
        }
    }

    /// The agent's name.
    #[cfg(feature = "metrics")]
    pub(crate) fn agent(&self) -> &str {
        &self.agent
    }

    pub(crate) fn counts(&self) -> CourierCounts {
        self.counts
    }

    /// Batches that wait or are in flight.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
            + self
                .queues
                .values()
                .map(|queue| queue.waiting.len())
                .sum::<usize>()
    }

    pub(crate) fn take(&mut self, payload: impl Into<Payload>) {
        let payload = payload.into();
        let queue = self.queues.entry(payload.partition()).or_default();
        queue.holdings += usize::from(payload.is_of_holdings());
        queue.waiting.push_back(payload);
    }

    /// The state of a partition's records about holds.
    pub(crate) fn under_way(&self, partition: u32) -> UnderWay {
        let queue = self.queues.get(&partition);
        queue.map_or_else(UnderWay::default, |queue| UnderWay {
            holdings: queue.holdings,
            acknowledged: queue.acknowledged,
        })
    }

    /// Partitions in which a record about holds may have been overtaken or lost, since the last call.
    pub(crate) fn take_shaken(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.shaken)
    }

    /// The next record to send, if there is one; it then counts as sent.
    pub(crate) fn next(&mut self, now: Mono, wall: Timestamp) -> Option<Outgoing> {
        let (behind, ahead) = (
            self.queues.range(..self.next_queue),
            self.queues.range(self.next_queue..),
        );
        let (partition, _) = ahead.chain(behind).find(|(_, queue)| queue.may_send(now))?;
        let partition = *partition;
        self.next_queue = partition.wrapping_add(1);
        self.next_of(partition, now, wall)
    }

    fn next_of(&mut self, partition: u32, now: Mono, wall: Timestamp) -> Option<Outgoing> {
        let queue = self.queues.get_mut(&partition)?;
        let mut sender = Sender {
            agent: &self.agent,
            epoch: self.epoch,
            sequence: 0,
            sent: wall,
        };
        // A record that was sent before goes first: the window moves on with the oldest. It has the stamp of this sending:
        // that of the first one would make a connection that was lost look like a clock that is slow.
        let mut under_way = queue.under_way.iter_mut();
        if let Some((sequence, one)) = under_way.find(|(_, one)| one.is_due(now)) {
            sender.sequence = *sequence;
            (one.send_at, one.sent) = (None, now);
            self.counts.batches_sent_again += 1;
            if one.payload.is_of_holdings() {
                self.shaken.insert(partition);
            }
            let payload = &one.payload;
            payload.encode(&mut self.writer, &sender, &self.resources);
            return Some(Outgoing {
                id: one.id,
                partition,
                record: Bytes::copy_from_slice(self.writer.as_slice()),
            });
        }
        let payload = queue.waiting.pop_front()?;
        queue.last_sequence += 1;
        sender.sequence = queue.last_sequence;
        self.last_id += 1;
        let id = self.last_id;
        payload.encode(&mut self.writer, &sender, &self.resources);
        let sent = Sent {
            id,
            first_sent: now,
            send_at: None,
            sent: now,
            payload,
        };
        queue.under_way.insert(sender.sequence, sent);
        self.by_id.insert(id, (partition, sender.sequence));
        self.counts.batches_sent += 1;
        Some(Outgoing {
            id,
            partition,
            record: Bytes::copy_from_slice(self.writer.as_slice()),
        })
    }

    /// The log has the record. A second acknowledgement changes nothing.
    pub(crate) fn acknowledged(&mut self, id: u64) {
        if let Some(done) = self.remove(id) {
            self.stalled_since = None;
            self.counts.batches_acknowledged += 1;
            self.counts.hits_acknowledged += done.payload.hits();
            if let Some(queue) = self.queues.get_mut(&done.payload.partition()) {
                queue.not_now = None;
                queue.acknowledged += u64::from(done.payload.is_of_holdings());
            }
        }
    }

    /// The log will never accept the record. Returns whether it was in flight.
    pub(crate) fn refused(&mut self, id: u64) -> bool {
        let done = self.remove(id);
        if let Some(done) = &done {
            self.stalled_since = None;
            self.counts.batches_refused += 1;
            self.count_lost(&done.payload);
        }
        done.is_some()
    }

    /// The carrier has given the record up; the log may have it or not.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code, reason = "only Kafka does"))]
    pub(crate) fn failed(&mut self, id: u64) {
        if let Some(done) = self.remove(id) {
            self.counts.batches_given_up += 1;
            self.count_lost(&done.payload);
        }
    }

    /// The log cannot accept the record now.
    pub(crate) fn not_now(&mut self, id: u64, now: Mono) {
        let Some((partition, sequence)) = self.by_id.get(&id) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(partition) else {
            return;
        };
        if let Some(one) = queue.under_way.get_mut(sequence) {
            one.send_at = Some(now);
            queue.pause(now);
        }
    }

    /// The connection is lost: the records on it may have been lost.
    pub(crate) fn connection_lost(&mut self, now: Mono) {
        for queue in self.queues.values_mut() {
            queue.not_now = None;
            for one in queue.under_way.values_mut() {
                one.send_at.get_or_insert(now);
            }
        }
        // By another connection, the log may take them.
        self.stalled_since = None;
    }

    /// Gives up what may no longer be sent again, and sends again what has waited long enough for an answer. To be
    /// called several times a second.
    pub(crate) fn tick(&mut self, now: Mono) {
        let mut late = Vec::new();
        for one in self
            .queues
            .values_mut()
            .flat_map(|queue| queue.under_way.values_mut())
        {
            if AGAIN_MAX <= now.since(one.first_sent) {
                late.push(one.id);
            } else if self.answers_are_awaited
                && one.send_at.is_none()
                && ANSWER_WITHIN <= now.since(one.sent)
            {
                one.send_at = Some(now);
            }
        }
        for id in late {
            if let Some(given_up) = self.remove(id) {
                self.counts.batches_given_up += 1;
                self.count_lost(&given_up.payload);
            }
        }
        self.queues
            .retain(|_, queue| 0 < queue.last_sequence || !queue.waiting.is_empty());
        self.stalled_since = match self.by_id.is_empty() {
            true => None,
            false => self.stalled_since.or(Some(now)),
        };
    }

    /// For how long records have waited, and the log has taken none.
    pub(crate) fn stalled_for(&self, now: Mono) -> Span {
        self.stalled_since
            .map_or(Span::ZERO, |since| now.since(since))
    }

    /// Gives up everything, at the end.
    pub(crate) fn give_up(&mut self) {
        let queues = std::mem::take(&mut self.queues);
        self.by_id.clear();
        for queue in queues.into_values() {
            for payload in queue
                .under_way
                .into_values()
                .map(|one| one.payload)
                .chain(queue.waiting)
            {
                self.counts.batches_given_up += 1;
                self.count_lost(&payload);
            }
        }
    }

    fn count_lost(&mut self, payload: &Payload) {
        self.counts.hits_given_up += payload.hits();
        self.counts.refused_calls_given_up += payload.refused_calls();
        if payload.is_of_holdings() {
            self.shaken.insert(payload.partition());
        }
    }

    fn remove(&mut self, id: u64) -> Option<Sent> {
        let (partition, sequence) = self.by_id.remove(&id)?;
        let queue = self.queues.get_mut(&partition)?;
        let done = queue.under_way.remove(&sequence)?;
        queue.holdings -= usize::from(done.payload.is_of_holdings());
        Some(done)
    }
}

impl CourierQueue {
    /// The log answered "not now": the next pause begins, unless the answer belongs to a record that was sent before
    /// the present one.
    fn pause(&mut self, now: Mono) {
        let pause = match self.not_now {
            Some(not_now) if now < not_now.until => return,
            Some(not_now) => not_now.pause.saturating_add(not_now.pause).min(NOT_NOW_MAX),
            None => NOT_NOW,
        };
        let until = now.plus(pause);
        self.not_now = Some(NotNow { pause, until });
    }

    /// Whether something is to be sent now, and may be.
    fn may_send(&self, now: Mono) -> bool {
        let mut again = self.under_way.values();
        let is_due = self.has_next() || again.any(|one| one.is_due(now));
        is_due && !self.must_wait(now)
    }

    /// Whether a record waits for its first sending, and its sequence is near enough to those in flight.
    fn has_next(&self) -> bool {
        let oldest = self.under_way.keys().next();
        let is_near = oldest.is_none_or(|oldest| self.last_sequence + 1 - oldest <= APART_MAX);
        is_near && !self.waiting.is_empty()
    }

    /// Whether nothing may be sent now: a pause lasts, or the record that was sent after it is not answered yet.
    fn must_wait(&self, now: Mono) -> bool {
        self.not_now.is_some_and(|not_now| {
            let tries = |one: &Sent| one.send_at.is_none() && not_now.until <= one.sent;
            now < not_now.until || self.under_way.values().any(tries)
        })
    }
}

#[cfg(test)]
mod tests;
