//! The events of the simulated world: one closed list.
//!
//! Knows nothing of their effects. What stays true: an event for a process names the process's life, so that it
//! never reaches a later process.

use bytes::Bytes;
use tollgate_agent::simulation::Happening;
use tollgate_log::LogEvent;
use tollgate_server::core::assignment::Known;
use tollgate_shared::wire::frame::Topic;

use super::operators::Does;

/// An event at an instant.
#[derive(Debug)]
pub enum Event {
    /// A fault begins.
    Begins(usize),
    /// A fault ends.
    Ends(usize),
    /// An agent's process starts.
    AgentStarts(usize),
    /// Services call an agent.
    Calls(usize, u64),
    /// An agent's flusher runs.
    Flush(usize, u64),
    /// An agent's network thread checks the time.
    AgentTick(usize, u64),
    /// An agent tries to connect a link.
    LinkTried {
        /// The agent.
        agent: usize,
        /// Its life.
        life: u64,
        /// The aggregator.
        owner: usize,
        /// The number of the attempt.
        attempt: u64,
    },
    /// An agent tries to connect a feed.
    FeedTried {
        /// The agent.
        agent: usize,
        /// Its life.
        life: u64,
        /// The aggregator.
        owner: usize,
        /// The number of the attempt.
        attempt: u64,
    },
    /// Something arrives on a connection of an agent.
    AgentHears {
        /// The agent.
        agent: usize,
        /// Its life.
        life: u64,
        /// The connection.
        connection: u64,
        /// The arrival.
        happening: Happening,
    },
    /// An aggregator's process starts.
    OwnerStarts(usize),
    /// An aggregator reads its limits file.
    OwnerReads(usize),
    /// An operator asks an aggregator for an act.
    OwnerAsked {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The kind of act.
        does: Does,
        /// The object of the act is drawn from this number.
        draw: u64,
    },
    /// A message arrives on a connection of an aggregator.
    OwnerHears {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The connection.
        connection: u64,
        /// The message.
        message: Bytes,
    },
    /// A subscription arrives on a feed's connection.
    Subscribes {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The connection.
        connection: u64,
        /// The topic.
        topic: Topic,
    },
    /// An aggregator's turn ends, if this is still the turn that is due.
    OwnerTurn {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
    },
    /// Events of the log arrive at an aggregator.
    OwnerLog {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The events.
        events: Vec<LogEvent>,
    },
    /// An aggregator's journal takes a turn.
    JournalTurn {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
    },
    /// The shared log accepts an aggregator's appends.
    SharedAppends {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
    },
    /// The shared log delivers records to an aggregator.
    SharedDelivers {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
    },
    /// The shared log's answers arrive at an aggregator.
    SharedAnswers {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The answers.
        answers: Vec<LogEvent>,
    },
    /// The writing of a snapshot succeeded or failed.
    SnapshotWritten {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The partition.
        partition: u32,
    },
    /// An aggregator learns that a partition is assigned to it.
    Assigned {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The partition.
        partition: u32,
    },
    /// An aggregator learns that a partition was revoked from it.
    Revoked {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The partition.
        partition: u32,
    },
    /// The group misses an aggregator that is gone.
    OwnerMissed {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
    },
    /// The restore of a partition ended.
    Restored {
        /// The aggregator.
        owner: usize,
        /// Its life.
        life: u64,
        /// The partition.
        partition: u32,
        /// The number of the attempt.
        attempt: u64,
        /// The limits that were known.
        known: Box<Known>,
    },
    /// An agent's process continues after a freeze.
    AgentGoesOn(usize),
    /// An aggregator's process continues after a stall.
    OwnerGoesOn(usize),
    /// State is compared with the second engine's.
    Checked,
    /// The simulation ends.
    End,
}
