//! Everything that can wake the core, and every effect that it can request.
//!
//! The core does no I/O: the caller hands it one [`Event`] after the other and carries out the
//! [`Effect`]s. So a simulation runs the code that ships.

use std::collections::BTreeSet;

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::Member;

use super::assignment::{Known, Restored};
use super::snapshots::Moment;
use super::view::{Query, Reply};
use tollgate_log::{Append, Delivered, LogEvent, Stream};

/// The time at which an event is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On this process's monotonic clock, from its start.
    pub clock: Span,
    /// The wall clock. It stands in pushed limits, for people; nothing is computed from it.
    pub wall: Timestamp,
}

/// Everything that can wake the core.
#[derive(Debug)]
pub enum Event {
    /// An event of the log.
    Log(LogEvent),
    /// A request of an agent.
    Agent {
        /// The agent's connection.
        peer: Peer,
        /// The request.
        request: Request,
    },
    /// An agent's connection takes answers again, or stops taking them.
    Room(Peer, AgentRoom),
    /// A query by HTTP.
    Query {
        /// Names the answer.
        id: QueryId,
        /// The query.
        query: Query,
    },
    /// The limits file was read: at start, or at an operator's request.
    LimitsFile(LimitsFile),
    /// Writing a snapshot has ended.
    SnapshotSaved {
        /// Its partition.
        partition: u32,
        /// Whether it was written.
        saved: bool,
    },
    /// The other members of this process's fleet.
    Members(Vec<Member>),
    /// The partitions that members of other groups rule as well.
    RuledToo(BTreeSet<u32>),
    /// This process is to rule these partitions. Only for a core made by [`super::Core::shared`].
    Assigned(Vec<u32>),
    /// Other aggregators rule these partitions from now on.
    Revoked(Vec<u32>),
    /// A partition was restored, at the request of [`Effect::Restore`].
    Restored {
        /// The partition.
        partition: u32,
        /// The attempt, as in the request.
        attempt: u64,
        /// The result.
        restored: Restored,
    },
    /// All events at hand have been handled, or the time that the core asked for has come: announce, tick.
    Turn,
}

/// Whether an agent's connection takes answers. While it does not, no part of a snapshot is made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentRoom {
    /// So much waits to be sent that no more is to be made.
    Full,
    /// The connection has taken what waited.
    Free,
    /// The connection is gone: nothing more is to be made for it.
    Gone,
}

/// An agent's connection, as the link names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub bytes::Bytes);

/// Names a query until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// A request of an agent, decoded and checked: see `link::admit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Where is the feed?
    Hello {
        /// Echoed.
        nonce: u64,
    },
    /// Append this record, which was checked to be whole and of a kind that agents may write.
    Append {
        /// Echoed.
        id: u64,
        /// The partition.
        partition: u32,
        /// Its bytes.
        record: Vec<u8>,
    },
    /// What is in force for these resources?
    Ask {
        /// Echoed.
        nonce: u64,
        /// The resources.
        resources: Vec<Box<str>>,
    },
}

/// The limits file, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsFile {
    /// Its name, for messages.
    pub name: String,
    /// Its text, or why it could not be read.
    pub text: Result<String, String>,
}

/// Every effect that the core can request.
#[derive(Debug)]
pub enum Effect {
    /// Append a record to the log; an event with the ticket is the answer.
    Append(Append),
    /// Follow a partition of the log.
    Follow {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The offset to begin with.
        from: u64,
    },
    /// Stop following a partition of the log.
    Unfollow {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
    },
    /// Restore a partition from its newest snapshot; an event is the answer.
    Restore {
        /// The partition.
        partition: u32,
        /// Names the answer.
        attempt: u64,
        /// The limits that are known.
        known: Box<Known>,
    },
    /// Publish a frame to the subscribers of a topic.
    Publish {
        /// The topic.
        topic: Topic,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Answer an agent.
    Answer {
        /// The agent's connection.
        peer: Peer,
        /// The message.
        message: Vec<u8>,
    },
    /// Answer a query.
    Reply {
        /// The query.
        id: QueryId,
        /// The answer.
        reply: Box<Reply>,
    },
    /// Keep a snapshot; an event is the answer.
    SaveSnapshot {
        /// Its partition.
        partition: u32,
        /// The offset of the last record in it.
        upto: u64,
        /// The engine at that moment.
        moment: Moment,
    },
    /// Drop a snapshot that is not of this log.
    DropSnapshot {
        /// Its partition.
        partition: u32,
        /// The offset of the last record in it.
        upto: u64,
    },
    /// Keep a refused record as a dead letter, for inspection.
    Aside(DeadLetter),
    /// Nothing can be ruled: the limits file is bad, and the log has no limits version.
    GiveUp {
        /// All faults, a line each.
        why: String,
        /// Whether the file could not even be read.
        unreadable: bool,
    },
}

/// A dead letter: a record that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The stream.
    pub stream: Stream,
    /// The partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// The reason.
    pub why: String,
    /// Whether it was read while this process caught up, so that it may have been refused before.
    pub replayed: bool,
    /// Its bytes.
    pub bytes: bytes::Bytes,
}

impl DeadLetter {
    /// The dead letter of a delivered record.
    pub(super) fn of(
        (stream, partition): (Stream, u32),
        delivered: &Delivered,
        why: String,
        replayed: bool,
    ) -> Self {
        Self {
            stream,
            partition,
            offset: delivered.offset,
            why,
            replayed,
            bytes: delivered.bytes.clone(),
        }
    }
}
