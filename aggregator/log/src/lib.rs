//! The log: the ordered, partitioned record of everything that decides, behind one trait.
//!
//! Two implementations have the same interface: the embedded journal and Kafka; the simulation has a third. A log
//! takes commands and answers by events, in whatever order its medium works; it never blocks its caller. It knows
//! nothing of what records mean.
//!
//! What stays true for every implementation: offsets of a stream's partition rise by at least one from record to
//! record; a record that was acknowledged as appended is delivered to every follower, once per follow, in order;
//! append times never decrease within a partition, except in Kafka when another broker, whose clock may be
//! behind, becomes the partition's leader.

mod channel;
pub mod clock;
pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;

use std::sync::atomic::AtomicU64;

use bytes::Bytes;

pub use channel::{LogReceiver, LogSender, channel};

use tollgate_shared::time::{Span, Timestamp};

/// How long an owner waits before it repeats a refused append.
pub const RETRY_AFTER: Span = Span::from_millis(250);

/// The chunks of a snapshot, as the log keeps them.
pub type Chunks = Vec<Vec<u8>>;

/// The outcomes of dead letters.
#[derive(Debug, Default)]
pub struct DeadLetterCounters {
    /// How many were kept.
    pub kept: AtomicU64,
    /// How many were dropped, because there were too many, or because writing them failed.
    pub dropped: AtomicU64,
}

/// A family of partitions within the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Hits, totals, ticks, limits activations: the records that engines read. `P` partitions.
    Hits,
    /// Limits documents and amendments. One partition, kept for ever.
    Limits,
    /// Announced statements. As many partitions as `Hits`.
    Denials,
}

/// One record as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its offset in the partition.
    pub offset: u64,
    /// When the log appended it, to the millisecond.
    pub appended: Timestamp,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Delivered {
    /// A mark by which the record is recognised: a hash of its bytes and of the instant at which the log took it.
    pub fn mark(&self) -> u128 {
        let mut hasher = blake3::Hasher::new_derive_key("tollgate 2026-11 mark of a record");
        hasher.update(&self.appended.as_micros().to_le_bytes());
        hasher.update(&self.bytes);
        let mut mark = [0; 16];
        hasher.finalize_xof().fill(&mut mark);
        u128::from_le_bytes(mark)
    }
}

/// Identifies an append until it is answered. The caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a record was not appended. If the medium lost the answer, the record may still appear in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// There is no such partition, or the record is larger than the log accepts.
    #[error("{0}")]
    Never(String),
    /// The log cannot be reached, has no room, or its disk is full. A later attempt may succeed.
    #[error("{0}")]
    NotNow(String),
}

/// An event from a log to its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Records of a followed partition, in order.
    Delivered {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The records; at least one.
        records: Vec<Delivered>,
    },
    /// Every record that existed when following began has been delivered, and there are no more at the moment.
    /// Sent once for each `follow`.
    CaughtUp {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The least offset that the next record will have.
        next: u64,
    },
    /// A `follow` begins. Records of this partition delivered before this event belong to an earlier `follow`; an
    /// owner that follows again ignores them. Sent once for each `follow`.
    Following {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The requested offset.
        from: u64,
    },
    /// The records to be delivered next are missing. Delivery goes on at `next`: above `wanted` if retention
    /// overtook the reader, below it if the log ends before it (the log lost its unsynced end in a power cut, or
    /// was recreated).
    Gap {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset of the missing record.
        wanted: u64,
        /// The offset at which delivery goes on.
        next: u64,
    },
    /// A followed partition cannot be read any further: its content is damaged, or the log has no such partition. Its
    /// delivery has ended; the log neither skips nor guesses what comes next. Another `follow` tries again. A medium
    /// that only refuses a read is no reason: the log tries again by itself.
    Broken {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset of the record that cannot be read.
        next: u64,
        /// What is wrong and where, for people.
        why: String,
    },
    /// Retention removed records of hits although no snapshot had them: the log was above its bound on bytes. A start
    /// before the next snapshot does not know what they used.
    Lost {
        /// The partition.
        partition: u32,
        /// The offset of the first of them.
        from: u64,
        /// The offset of the last.
        upto: u64,
    },
    /// Appends were answered. A log that takes several records at once answers them by one event.
    Appended {
        /// At least one answer, in the order of their records.
        answers: Vec<Answer>,
        /// The instant at which the log took them, if the log knows that more precisely than the records' append
        /// time, which is in milliseconds.
        taken: Option<Timestamp>,
    },
    /// The log accepts no records: it cannot be reached, or its disk is full. It keeps trying.
    Down {
        /// Why, for people.
        why: String,
    },
    /// The log takes records (again).
    Up,
    /// The log could not be closed in order; [`Self::Closed`] follows. What was acknowledged is as safe as after a kill.
    CloseFailed {
        /// Why, for people.
        why: String,
    },
    /// The log was closed: everything accepted before `close` has been answered and is durable (unless closing
    /// failed), and the log has
    /// released its locks and connections. The last event.
    Closed,
}

/// The answer to one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The ticket of the append.
    pub ticket: Ticket,
    /// The offset of the record, which is as durable as configured.
    pub result: Result<u64, AppendError>,
}

impl LogEvent {
    /// The event that answers one append, by a log that does not know when it took the record.
    pub fn answer(ticket: Ticket, result: Result<u64, AppendError>) -> Self {
        Self::Appended {
            answers: vec![Answer { ticket, result }],
            taken: None,
        }
    }

    /// The answers to appends that this event brings: none, unless it is [`LogEvent::Appended`].
    pub fn answers(&self) -> &[Answer] {
        match self {
            Self::Appended { answers, .. } => answers,
            _ => &[],
        }
    }

    /// The answer to this append, if this event brings it.
    pub fn answer_to(&self, ticket: Ticket) -> Option<&Result<u64, AppendError>> {
        let mut answers = self.answers().iter();
        let answer = answers.find(|answer| answer.ticket == ticket)?;
        Some(&answer.result)
    }
}

/// A record to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The stream.
    pub stream: Stream,
    /// The partition.
    pub partition: u32,
    /// Names the answer.
    pub ticket: Ticket,
    /// The record's bytes.
    pub record: Bytes,
}

/// An open log. It sends events to the channel that its owner passed when opening it.
pub trait Log: Send {
    /// How many partitions `Hits` has.
    fn partitions(&self) -> u32;

    /// Appends a record and answers with [`LogEvent::Appended`]. Appends to one partition by one
    /// caller keep their order.
    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Bytes);

    /// Appends several records in this order. A log with a thread of its own wakes it once for all of them.
    fn append_all(&mut self, appends: Vec<Append>) {
        for append in appends {
            self.append(
                append.stream,
                append.partition,
                append.ticket,
                append.record,
            );
        }
    }

    /// Delivers a partition's records from `from` on, and then each new one. Replaces an earlier follow of the
    /// same partition.
    fn follow(&mut self, stream: Stream, partition: u32, from: u64);

    /// Ends delivery of a partition, sooner or later: the caller must ignore what still arrives. A log that is
    /// never shared may go on delivering.
    fn unfollow(&mut self, _stream: Stream, _partition: u32) {}

    /// Finishes what was accepted, makes it durable, and closes. The log sends [`LogEvent::Closed`] when that is
    /// done, so the owner must go on taking events until then. Delivery ends. Later appends are answered with
    /// [`AppendError::NotNow`].
    fn close(&mut self);
}
