//! Decision records of announced statements, on their way to the stream `denials`.
//!
//! ```text
//! ruled ── appended ──> on its way ── acknowledged ──> gone
//!                         │    ^
//!                  failed v    │ again, the oldest first, so many per turn
//! too many: the partition rules nothing until half of them are acknowledged, and then continues from there
//! ```
//!
//! Leaving decision records out would be easier, but could never be repaired: a snapshot may not pass a
//! statement without a decision record. What stays true: no record is ruled while as many statements wait as
//! the bound allows, so at most that many wait plus those that one record caused; every statement is recorded
//! in the end.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::denial;
use tollgate_shared::wire::statement::Statement;

use tollgate_log::{Append, AppendError, RETRY_AFTER, Stream, Ticket};

use super::event::Effect;
use super::partition::event::PartitionStep;
use super::partition::{Partition, Stage};

/// Statements of one partition whose decision records the log does not have yet, and totals, as many of each: about
/// 10 MB.
pub const WAITING_MAX: usize = 65_536;

/// How many of them one turn appends again: that takes a few tenths of a millisecond.
const RETRIES_A_TURN: usize = 1_024;

/// Decision records are written into common memory of this size, some forty. Allocations for each of them took 7 % of a
/// ruling thread where every 13th entry caused one.
const MEMORY_BYTES: usize = 4_096;

/// The decision records of one partition's statements.
#[derive(Debug, Default)]
pub struct Recordings {
    memory: RecordMemory,
    /// By their tickets, which rise.
    sent: VecDeque<SentRecording>,
    /// To be appended again.
    failed: VecDeque<Recording>,
    /// After a failed append, none is appended again before this time.
    not_before: Span,
    /// How many wait, by the offset of the record that caused them.
    causes: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct Recording {
    offset: u64,
    record: Bytes,
}

#[derive(Debug)]
struct SentRecording {
    ticket: Ticket,
    /// `None`: the log has answered it before an earlier one.
    recording: Option<Recording>,
}

/// Where decision records are written.
#[derive(Debug, Default)]
struct RecordMemory {
    writer: Writer,
    chunk: BytesMut,
}

impl RecordMemory {
    /// What the writer has, in the common memory.
    fn keep(&mut self) -> Bytes {
        let record = self.writer.as_slice();
        // What is left after a split.
        if self.chunk.capacity() < record.len() {
            self.chunk = BytesMut::with_capacity(MEMORY_BYTES.max(record.len()));
        }
        self.chunk.extend_from_slice(record);
        self.chunk.split().freeze()
    }
}

impl Recordings {
    /// Writes the decision record of a statement of this log's partition about a resource.
    pub fn write(&mut self, of: (LogId, u32), resource: &str, statement: &Statement) -> Bytes {
        denial::encode(of, resource, statement, &mut self.memory.writer);
        self.memory.keep()
    }

    /// Takes a decision record that was appended under a ticket; `offset` is that of the record that caused it.
    pub fn sent(&mut self, offset: u64, ticket: Ticket, record: Bytes) {
        *self.causes.entry(offset).or_default() += 1;
        self.sent_as(ticket, Recording { offset, record });
    }

    fn sent_as(&mut self, ticket: Ticket, recording: Recording) {
        self.sent.push_back(SentRecording {
            ticket,
            recording: Some(recording),
        });
    }

    /// Takes out what was appended under a ticket and waits for its answer.
    fn take(&mut self, ticket: Ticket) -> Option<Recording> {
        let found = self.sent.binary_search_by_key(&ticket, |sent| sent.ticket);
        let taken = self.sent.get_mut(found.ok()?)?.recording.take();
        while self
            .sent
            .front()
            .is_some_and(|sent| sent.recording.is_none())
        {
            self.sent.pop_front();
        }
        taken
    }

    /// The log has the decision record of this ticket. False: none waits for that.
    pub fn acknowledged(&mut self, ticket: Ticket) -> bool {
        let Some(recording) = self.take(ticket) else {
            return false;
        };
        if let Some(count) = self.causes.get_mut(&recording.offset) {
            *count -= 1;
            if *count == 0 {
                self.causes.remove(&recording.offset);
            }
        }
        true
    }

    /// The log does not have the decision record of this ticket; it is appended again later. False: none waits for that.
    pub fn failed(&mut self, ticket: Ticket, clock: Span) -> bool {
        let Some(recording) = self.take(ticket) else {
            return false;
        };
        self.failed.push_back(recording);
        self.not_before = clock.saturating_add(RETRY_AFTER);
        true
    }

    /// Appends some of the failed ones again, if their time has come.
    pub fn retry(&mut self, clock: Span, mut send: impl FnMut(Bytes) -> Ticket) {
        if clock < self.not_before {
            return;
        }
        for _ in 0..RETRIES_A_TURN {
            let Some(recording) = self.failed.pop_front() else {
                return;
            };
            let ticket = send(recording.record.clone());
            self.sent_as(ticket, recording);
        }
    }

    /// Whether some were refused, and have to be appended again.
    fn have_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The least offset of a record whose decision records the log may not have yet.
    pub fn oldest(&self) -> Option<u64> {
        self.causes.keys().next().copied()
    }

    /// How many the log may not have yet. One that was answered before an earlier one counts until that is answered.
    pub fn len(&self) -> usize {
        self.sent.len() + self.failed.len()
    }

    /// Whether the log has them all.
    pub fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// Whether `max` of them wait, so that nothing more is to be ruled for the moment.
    pub fn is_full(&self, max: usize) -> bool {
        max <= self.len()
    }

    /// Whether few enough of them wait to rule on.
    fn has_room(&self, max: usize) -> bool {
        self.len() <= max / 2
    }
}

/// How much of what a partition caused the log may not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The partition.
    pub partition: u32,
    /// Its totals: with [`Settings::waiting_max`](super::Settings::waiting_max) of them, no delivery to it is ruled.
    pub totals: usize,
    /// Its decision records: with as many of them, none of its records is ruled.
    pub decision_records: usize,
}

impl Partition {
    /// What waits for the log.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            partition: self.index,
            totals: self.totals.len(),
            decision_records: self.recordings.len(),
        }
    }

    /// Rules nothing for the moment, until the log has caught up with what followed from the rulings.
    pub(super) fn hold_back(&mut self, step: &mut PartitionStep<'_>) {
        step.counters().held_back += 1;
        tracing::info!(
            partition = self.index,
            offset = self.position.next,
            evidence = self.recordings.len(),
            "waits until the log has the decision records and totals of its rulings"
        );
        self.stage = Stage::Recording;
    }

    /// Whether [`retry`](Self::retry) could do anything.
    pub(super) fn may_retry(&self) -> bool {
        self.stage == Stage::Recording || self.recordings.have_failed()
    }

    /// Appends failed decision records again, and resumes ruling if the log has caught up.
    pub(super) fn retry(&mut self, step: &mut PartitionStep<'_>) {
        let max = step.context.settings.waiting_max;
        let has_room = self.recordings.has_room(max) && self.totals.has_room(max);
        if self.stage == Stage::Recording && has_room {
            self.follow_again(step);
        }
        let Self {
            index,
            recordings,
            appends,
            ..
        } = self;
        recordings.retry(step.clock(), |record| {
            let ticket = appends.send_unnoted();
            step.ask(Effect::Append(Append {
                stream: Stream::Denials,
                partition: *index,
                ticket,
                record,
            }));
            ticket
        });
    }

    /// The log has answered an append. Returns whether it was that of a decision record.
    pub(super) fn recorded(
        &mut self,
        ticket: Ticket,
        result: &Result<u64, AppendError>,
        step: &mut PartitionStep<'_>,
    ) -> bool {
        let is_one = match result {
            Ok(_) => self.recordings.acknowledged(ticket),
            Err(_) => self.recordings.failed(ticket, step.clock()),
        };
        match result {
            _ if !is_one => {}
            Ok(_) => step.counters().denials_recorded += 1,
            Err(error) => {
                step.counters().append_failures += 1;
                tracing::debug!(partition = self.index, %error, "a decision record was not appended");
            }
        }
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_decision_records_are_retried_until_appended() {
        let mut recordings = Recordings::default();
        recordings.sent(7, Ticket(1), Bytes::from_static(&[1]));
        recordings.sent(8, Ticket(2), Bytes::from_static(&[2]));
        recordings.acknowledged(Ticket(2));
        recordings.failed(Ticket(1), Span::ZERO);
        recordings.retry(Span::from_millis(100), |_| panic!("too early"));
        recordings.retry(RETRY_AFTER, |record| {
            assert_eq!(*record, [1]);
            Ticket(3)
        });
        assert_eq!(recordings.oldest(), Some(7));
        // An answer to a ticket that was answered already, and one to the earlier attempt.
        recordings.acknowledged(Ticket(2));
        recordings.failed(Ticket(1), Span::ZERO);
        assert_eq!(recordings.len(), 1);
        recordings.acknowledged(Ticket(3));
        assert!(recordings.is_empty());
        assert_eq!(recordings.oldest(), None);
    }

    #[test]
    fn a_turn_retries_a_bounded_amount_of_appends() {
        let mut recordings = Recordings::default();
        let mut number = 0;
        let mut next = || {
            number += 1;
            Ticket(number)
        };
        let all: Vec<Ticket> = (0..3_000).map(|_| next()).collect();
        for ticket in &all {
            recordings.sent(ticket.0, *ticket, Bytes::new());
        }
        for ticket in &all {
            recordings.failed(*ticket, Span::ZERO);
        }
        let mut again = Vec::new();
        for turn in [1_024, 2_048, 3_000, 3_000] {
            recordings.retry(RETRY_AFTER, |_| {
                again.push(next());
                *again.last().unwrap()
            });
            assert_eq!(again.len(), turn);
        }
        recordings.failed(again[0], RETRY_AFTER);
        recordings.retry(RETRY_AFTER, |_| panic!("the log has just failed"));
        assert_eq!((recordings.len(), recordings.oldest()), (3_000, Some(1)));
        for ticket in &again[1..] {
            recordings.acknowledged(*ticket);
        }
        assert_eq!((recordings.len(), recordings.oldest()), (1, Some(1)));
    }
}
