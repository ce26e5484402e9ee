//! What can happen in the world: one closed list.
//!
//! Knows nothing of what follows from it. What stays true: whatever is meant for a process names its life, so
//! that it never reaches the next one.

use bytes::Bytes;
use tollgate_agent::simulation::Happening;
use tollgate_log::LogEvent;
use tollgate_server::core::assignment::Known;
use tollgate_shared::wire::frame::Topic;

use super::operators::Does;

/// Something that happens at a time.
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
    /// An agent's flusher comes by.
    Flush(usize, u64),
    /// An agent's network thread looks at the time.
    AgentTick(usize, u64),
    /// A link is tried.
    LinkTried {
        /// Whose.
        agent: usize,
        /// In which life.
        life: u64,
        /// To whom.
        owner: usize,
        /// Which attempt.
        attempt: u64,
    },
    /// A feed is tried.
    FeedTried {
        /// Whose.
        agent: usize,
        /// In which life.
        life: u64,
        /// Of whom.
        owner: usize,
        /// Which attempt.
        attempt: u64,
    },
    /// Something comes over a connection of an agent.
    AgentHears {
        /// Who.
        agent: usize,
        /// In which life.
        life: u64,
        /// Over which connection.
        connection: u64,
        /// What.
        happening: Happening,
    },
    /// An owner's process starts.
    OwnerStarts(usize),
    /// An owner reads its limits file.
    OwnerReads(usize),
    /// An operator tells an owner to do something.
    OwnerAsked {
        /// Whom.
        owner: usize,
        /// In which life.
        life: u64,
        /// What.
        does: Does,
        /// What it is done to is drawn from this.
        draw: u64,
    },
    /// A message comes over a connection of an owner.
    OwnerHears {
        /// Who.
        owner: usize,
        /// In which life.
        life: u64,
        /// Over which connection.
        connection: u64,
        /// What.
        message: Bytes,
    },
    /// A subscription comes over a feed's connection.
    Subscribes {
        /// At whom.
        owner: usize,
        /// In which life.
        life: u64,
        /// Over which connection.
        connection: u64,
        /// What.
        topic: Topic,
    },
    /// The end of an owner's turn, if it is still the one that is due.
    OwnerTurn {
        /// Whose.
        owner: usize,
        /// In which life.
        life: u64,
    },
    /// The log says something to an owner.
    OwnerLog {
        /// To whom.
        owner: usize,
        /// In which life.
        life: u64,
        /// What.
        events: Vec<LogEvent>,
    },
    /// The journal of an owner takes a turn.
    JournalTurn {
        /// Whose.
        owner: usize,
        /// In which life.
        life: u64,
    },
    /// The shared log takes what an owner appends.
    SharedAppends {
        /// Whose.
        owner: usize,
        /// In which life.
        life: u64,
    },
    /// The shared log delivers to an owner.
    SharedDelivers {
        /// To whom.
        owner: usize,
        /// In which life.
        life: u64,
    },
    /// The shared log answers an owner.
    SharedAnswers {
        /// Whom.
        owner: usize,
        /// In which life.
        life: u64,
        /// What.
        answers: Vec<LogEvent>,
    },
    /// A snapshot has been written, or could not be.
    SnapshotWritten {
        /// Whose.
        owner: usize,
        /// In which life.
        life: u64,
        /// Of which partition.
        partition: u32,
    },
    /// An owner is told that a partition is its own.
    Assigned {
        /// Who.
        owner: usize,
        /// In which life.
        life: u64,
        /// Which.
        partition: u32,
    },
    /// An owner is told that a partition is another's.
    Revoked {
        /// Who.
        owner: usize,
        /// In which life.
        life: u64,
        /// Which.
        partition: u32,
    },
    /// An owner that is gone is missed.
    OwnerMissed {
        /// Who.
        owner: usize,
        /// In which life.
        life: u64,
    },
    /// A partition was restored.
    Restored {
        /// By whom.
        owner: usize,
        /// In which life.
        life: u64,
        /// Which.
        partition: u32,
        /// As it was asked.
        attempt: u64,
        /// The limits that were known.
        known: Box<Known>,
    },
    /// An agent's process goes on after it stood still.
    AgentGoesOn(usize),
    /// The same of an owner's.
    OwnerGoesOn(usize),
    /// State is held against the second engine's.
    Checked,
    /// The end.
    End,
}
