//! The log: the ordered, partitioned record of everything that decides, behind one trait.
//!
//! Two implementations offer the same: the embedded journal and Kafka; the simulation has a third.
//! A log is told what to do and answers by events, in whatever order its medium works; it never
//! blocks its caller. It knows nothing of what records mean.
//!
//! What stays true, whatever lies behind it: offsets of a stream's partition rise by at least one from
//! record to record; a record that was acknowledged as appended is delivered to whoever follows, once
//! in each pass, in order; append times never decrease within a partition, except that of Kafka when
//! another broker comes to lead it, whose clock may be behind.

pub mod clock;
pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;

use std::sync::atomic::AtomicU64;

use tollgate_shared::time::{Span, Timestamp};

/// How long an owner waits before it appends again what was refused.
pub const RETRY_AFTER: Span = Span::from_millis(250);

/// A snapshot as the log keeps it: its chunks.
pub type Chunks = Vec<Vec<u8>>;

/// What became of refused records, wherever they are kept aside.
#[derive(Debug, Default)]
pub struct AsideCounters {
    /// Those that were kept.
    pub kept: AtomicU64,
    /// Those that were not, because there were too many, or nobody took them.
    pub dropped: AtomicU64,
}

/// A family of partitions within the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Hits, totals, ticks, pointers: what engines read. `P` partitions.
    Hits,
    /// Limits documents and amendments. One partition, kept for ever.
    Limits,
    /// What was announced. As many partitions as `Hits`.
    Denials,
}

/// One record as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its offset in the partition.
    pub offset: u64,
    /// When the log took it, to the millisecond.
    pub appended: Timestamp,
    /// Its bytes.
    pub bytes: bytes::Bytes,
}

/// Names an append until it is answered. Chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a record was not appended. It may yet turn up in the log where the medium lost the answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No such partition, or the record is larger than the log takes.
    #[error("{0}")]
    Never(String),
    /// The log cannot be reached, has no room, or its disk is full. Later it may.
    #[error("{0}")]
    NotNow(String),
}

/// What a log tells its owner.
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
    /// A followed partition has no more records at the moment: what existed when following began has
    /// been delivered. Said once for each `follow`.
    CaughtUp {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset that the next record will have, at least.
        next: u64,
    },
    /// A `follow` begins. What was delivered of this partition before this event belongs to an earlier
    /// `follow` of it; who follows again ignores everything until this. Said once for each `follow`.
    Following {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset that was asked for.
        from: u64,
    },
    /// Records that were to be delivered next are not there. Delivery goes on at `next`: above `wanted`
    /// where retention overtook the reader, below it where the log ends before it (it lost its unsynced
    /// end in a power cut, or was made anew).
    Gap {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset that was wanted.
        wanted: u64,
        /// The one that delivery goes on at.
        next: u64,
    },
    /// A followed partition cannot be read any further: its medium is damaged, or does not let us.
    /// Delivery of it has ended; what lies behind is neither skipped nor guessed. A new `follow` tries
    /// again.
    Broken {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset of the record that cannot be read.
        next: u64,
        /// What was found and where, for people.
        why: String,
    },
    /// An append was answered.
    Appended {
        /// Which one.
        ticket: Ticket,
        /// The record's offset, as durable as configured.
        result: Result<u64, AppendError>,
        /// The instant at which the log took it, where the log says that more exactly than by the record's append
        /// time, which is in milliseconds.
        taken: Option<Timestamp>,
    },
    /// The log takes nothing: it cannot be reached, or its disk is full. It goes on trying.
    Down {
        /// Why, for people.
        why: String,
    },
    /// The log takes records (again).
    Up,
    /// The log was closed: everything accepted before `close` has been answered and is durable, and
    /// what it held (locks, connections) has been let go. The last event.
    Closed,
}

/// A log that was opened. Events come by the channel that was given when it was opened.
pub trait Log: Send {
    /// How many partitions `Hits` has.
    fn partitions(&self) -> u32;

    /// Appends a record and answers with [`LogEvent::Appended`]. Appends to one partition by one
    /// caller keep their order.
    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Vec<u8>);

    /// Delivers a partition's records from `from` on, and then each new one; replaces an earlier
    /// follow of the same partition.
    fn follow(&mut self, stream: Stream, partition: u32, from: u64);

    /// Delivers no more of a partition, sooner or later: who is not interested any more ignores what
    /// still comes. A log that is never shared may go on delivering.
    fn unfollow(&mut self, _stream: Stream, _partition: u32) {}

    /// Finishes what was accepted, makes it durable, and closes; [`LogEvent::Closed`] says when that
    /// is done, so that the owner goes on taking events until then. Delivery ends. Appends that come
    /// later are answered with [`AppendError::NotNow`].
    fn close(&mut self);
}
