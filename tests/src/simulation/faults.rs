//! Faults, and their times.
//!
//! Knows nothing of the effects of a fault, nor of how faults are drawn (`draw_faults`).

use serde::{Deserialize, Serialize};

use super::operators::Does;

/// A direction between an agent and an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// From the agent, over its link.
    Up,
    /// To the agent, over its link.
    Down,
    /// To the agent, over the feed.
    Feed,
}

impl Way {
    /// This direction between an agent and an aggregator.
    pub fn between(self, agent: usize, owner: usize) -> Edge {
        let way = self;
        Edge { agent, owner, way }
    }
}

/// All directions.
pub const WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Feed];

/// One direction between one agent and one aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The agent.
    pub agent: usize,
    /// The aggregator.
    pub owner: usize,
    /// The direction.
    pub way: Way,
}

/// A direction between an aggregator and a shared log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogWay {
    /// The aggregator's appends.
    Appends,
    /// The answers to them.
    Answers,
    /// Deliveries of records.
    Deliveries,
}

/// All directions.
pub const LOG_WAYS: [LogWay; 3] = [LogWay::Appends, LogWay::Answers, LogWay::Deliveries];

/// The host of a wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// An agent's clock.
    Agent(usize),
    /// An aggregator's clock.
    Owner(usize),
    /// The clock that stamps the log's records.
    Log,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Fault {
    /// An edge loses this many of a million messages.
    Loss(Edge, u32),
    /// An edge delivers this many of a million messages twice.
    Duplication(Edge, u32),
    /// Messages of an edge overtake each other by up to this many microseconds.
    Reordering(Edge, u64),
    /// Messages of an edge are late by up to this many microseconds.
    Delay(Edge, u64),
    /// An edge is cut. Its messages arrive after the cut, or never.
    Cut {
        /// The edge.
        edge: Edge,
        /// Whether messages are lost.
        lost: bool,
    },
    /// An aggregator's process is frozen.
    Stall {
        /// The aggregator.
        owner: usize,
    },
    /// An aggregator's process ends, between two effects or within an operation of its disk.
    Crash {
        /// The aggregator.
        owner: usize,
        /// After this many effects, or operations of the disk.
        after: u64,
        /// Whether it ends within a disk operation.
        in_disk: bool,
        /// Whether the machine loses power.
        power: bool,
    },
    /// An aggregator's process shuts down in order on request; another starts when the fault is over.
    Stop {
        /// The aggregator.
        owner: usize,
        /// Whether the machine loses power after the shutdown.
        power: bool,
    },
    /// The process of an aggregator with a journal ends, and the next ones end while they open the journal.
    CrashInOpening {
        /// The aggregator.
        owner: usize,
        /// How many processes end so.
        times: u32,
        /// Each ends within one of this many operations of its disk.
        within: u64,
        /// Whether the machine loses power each time.
        power: bool,
    },
    /// An agent's process ends; another starts when the fault is over.
    Die {
        /// The agent.
        agent: usize,
    },
    /// An agent's process is frozen.
    Freeze {
        /// The agent.
        agent: usize,
    },
    /// An agent's wall clock is wrong during the fault.
    AgentClock {
        /// The agent.
        agent: usize,
        /// The error.
        by_us: i64,
    },
    /// An aggregator's wall clock is wrong during the fault. No ruling depends on it.
    OwnerClock {
        /// The aggregator.
        owner: usize,
        /// The error.
        by_us: i64,
    },
    /// The clock that stamps the log's records is wrong during the fault.
    LogClock {
        /// The error.
        by_us: i64,
    },
    /// A wall clock stops during the fault, and continues from there.
    ClockStops(Whose),
    /// The log's disk has little room left.
    DiskFull {
        /// The room in bytes.
        room_bytes: u64,
    },
    /// The log refuses some appends, and still stores some of those.
    Appends {
        /// Refused of a million appends.
        refused_ppm: u32,
        /// Stored of a million refused appends.
        taken_ppm: u32,
    },
    /// The log's disk cannot make anything durable.
    SyncsFail,
    /// One direction between one aggregator and the shared log is cut.
    LogCut {
        /// The aggregator.
        owner: usize,
        /// The direction.
        way: LogWay,
        /// Whether the aggregator drops waiting requests and treats them as refused.
        lost: bool,
    },
    /// Snapshots cannot be written.
    NoSnapshots,
    /// The log is slow: it answers appends late.
    SlowLog {
        /// By up to this many microseconds.
        by_us: u64,
    },
    /// Appends to the log of a fleet are late, and are lost if their sender is gone by then.
    SlowAppends {
        /// By up to this many microseconds.
        by_us: u64,
    },
    /// The log deletes records older than the newest snapshots, except for some.
    Retention {
        /// The number of older records that are left.
        records: u64,
    },
    /// The topic of the hits is recreated: all its records are gone.
    TopicAnew,
    /// An operator pushes a document to all aggregators at once.
    Push {
        /// The index of the document in the plan.
        document: usize,
    },
    /// An operator asks an aggregator for an act by hand.
    Act {
        /// The aggregator.
        owner: usize,
        /// The kind of act.
        does: Does,
        /// The object of the act is drawn from this number at the time of the act.
        draw: u64,
    },
    /// A partition of a fleet is assigned to another aggregator.
    Move {
        /// The partition.
        partition: u32,
        /// The new aggregator.
        to: usize,
        /// How much later the previous aggregator learns of it.
        late_us: u64,
    },
    /// The services of an agent call far more than usual.
    Burst {
        /// The agent.
        agent: usize,
        /// How many times more.
        times: u64,
    },
}

impl Fault {
    /// The name of the fault's kind, as in the file of a plan.
    pub fn kind(&self) -> String {
        let shown = format!("{self:?}");
        let name = shown.split(|of: char| !of.is_alphanumeric()).next();
        name.unwrap_or_default().to_owned()
    }
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Episode {
    /// Its begin.
    pub from_us: u64,
    /// Its end.
    pub to_us: u64,
    /// The fault.
    pub fault: Fault,
}
