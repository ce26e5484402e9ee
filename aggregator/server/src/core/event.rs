//! Everything that can wake the core, and everything that it can ask for.
//!
//! The core does no I/O: whoever runs it hands it one [`Event`] after the other and does what the
//! [`Effect`]s say. So a simulation runs the code that ships.

use std::collections::BTreeSet;

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::Member;

use super::assignment::{Known, Restored};
use super::snapshots::Moment;
use super::view::{Query, Reply};
use tollgate_log::{Delivered, LogEvent, Stream, Ticket};

/// The time at which an event is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On this process's monotonic clock, from its start.
    pub clock: Span,
    /// The wall clock. It stands in pushed limits, for people; nothing is reckoned from it.
    pub wall: Timestamp,
}

/// Everything that can wake the core.
#[derive(Debug)]
pub enum Event {
    /// The log says something.
    Log(LogEvent),
    /// An agent asks for something.
    Agent {
        /// Who, as the link knows him.
        peer: Peer,
        /// What.
        request: Request,
    },
    /// The connection of an agent takes answers again, or does not.
    Room(Peer, AgentRoom),
    /// Somebody wants to see something, by HTTP.
    Query {
        /// Names the answer.
        id: QueryId,
        /// What.
        query: Query,
    },
    /// The limits file was read: at start, or because an operator said so.
    LimitsFile(LimitsFile),
    /// A snapshot was written, or could not be.
    SnapshotSaved {
        /// Its partition.
        partition: u32,
        /// Which of the two.
        saved: bool,
    },
    /// These others belong to this process's fleet.
    Members(Vec<Member>),
    /// These partitions are ruled by members of other groups, too.
    RuledToo(BTreeSet<u32>),
    /// This process is to rule these partitions. Only for one made by [`super::Core::shared`].
    Assigned(Vec<u32>),
    /// Another rules these partitions from now on.
    Revoked(Vec<u32>),
    /// A partition was restored, as [`Effect::Restore`] asked.
    Restored {
        /// The partition.
        partition: u32,
        /// As it was asked.
        attempt: u64,
        /// What came of it.
        restored: Restored,
    },
    /// What was at hand has been handled, or the time that was asked for has come: announce, tick.
    Turn,
}

/// Whether an agent takes its answers: of a snapshot no part is made while it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentRoom {
    /// So much waits for it that no more is to be made.
    Full,
    /// It took what waited.
    Free,
    /// It is gone: nothing is to be made any more.
    Gone,
}

/// An agent's connection, as the link names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub bytes::Bytes);

/// Names a query until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// What an agent asks for, decoded and checked: see `link::admit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Where is the feed?
    Hello {
        /// Echoed.
        nonce: u64,
    },
    /// Append this record, which an agent may write and which is whole.
    Append {
        /// Echoed.
        id: u64,
        /// Where to.
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
    /// Its text, or why it cannot be read.
    pub text: Result<String, String>,
}

/// Everything that the core can ask for.
#[derive(Debug)]
pub enum Effect {
    /// Append a record to the log; answered by an event with the ticket.
    Append {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// Names the answer.
        ticket: Ticket,
        /// The record.
        record: Vec<u8>,
    },
    /// Follow a partition of the log.
    Follow {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// From this offset on.
        from: u64,
    },
    /// Follow a partition of the log no more.
    Unfollow {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
    },
    /// Restore a partition from its newest snapshot; answered by an event.
    Restore {
        /// The partition.
        partition: u32,
        /// Names the answer.
        attempt: u64,
        /// The limits that are known.
        known: Box<Known>,
    },
    /// Tell the subscribers of a topic.
    Publish {
        /// The topic.
        topic: Topic,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Answer an agent.
    Answer {
        /// Who.
        peer: Peer,
        /// The message.
        message: Vec<u8>,
    },
    /// Answer a query.
    Reply {
        /// Which one.
        id: QueryId,
        /// The answer.
        reply: Box<Reply>,
    },
    /// Keep a snapshot; answered by an event.
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
    /// Keep a refused record aside, for inspection.
    Aside(Aside),
    /// Nothing can be ruled: the limits file is bad, and the log has no version to rule by.
    GiveUp {
        /// All faults, a line each.
        why: String,
        /// Whether the file could not even be read.
        unreadable: bool,
    },
}

/// A record that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The stream.
    pub stream: Stream,
    /// The partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Why.
    pub why: String,
    /// Its bytes.
    pub bytes: bytes::Bytes,
}

impl Aside {
    /// A record that was delivered.
    pub(super) fn of(stream: Stream, partition: u32, delivered: &Delivered, why: String) -> Self {
        Self {
            stream,
            partition,
            offset: delivered.offset,
            why,
            bytes: delivered.bytes.clone(),
        }
    }
}
