//! What goes wrong, and when.
//!
//! Knows nothing of what a fault does, or of how faults are drawn (`draw_faults`).

use serde::{Deserialize, Serialize};

use super::operators::Does;

/// A direction between an agent and an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// What the agent says over its link.
    Up,
    /// What it is answered.
    Down,
    /// The feed.
    Feed,
}

/// All ways.
pub const WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Feed];

/// One way between an agent and an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The agent.
    pub agent: usize,
    /// The owner.
    pub owner: usize,
    /// Which way.
    pub way: Way,
}

/// A direction between an owner and the log that several share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogWay {
    /// What it appends.
    Appends,
    /// What it is answered.
    Answers,
    /// What is delivered to it.
    Deliveries,
}

/// All directions.
pub const LOG_WAYS: [LogWay; 3] = [LogWay::Appends, LogWay::Answers, LogWay::Deliveries];

/// Whose wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// An agent's.
    Agent(usize),
    /// An owner's.
    Owner(usize),
    /// That which the log is stamped by.
    Log,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Fault {
    /// Messages of an edge are lost, so many in a million.
    Loss(Edge, u32),
    /// Messages of an edge come twice.
    Duplication(Edge, u32),
    /// Messages of an edge overtake each other, by so much.
    Reordering(Edge, u64),
    /// Messages of an edge are late by up to so much.
    Delay(Edge, u64),
    /// Nothing comes through an edge; it comes when that is over, or never.
    Cut {
        /// Which.
        edge: Edge,
        /// Whether what was sent is lost.
        lost: bool,
    },
    /// An owner's process stands still.
    Stall {
        /// Which.
        owner: usize,
    },
    /// An owner's process ends, between two steps or within an operation of its disk.
    Crash {
        /// Which.
        owner: usize,
        /// After so many effects, or operations of the disk.
        after: u64,
        /// Within a disk operation.
        in_disk: bool,
        /// The machine goes down with it.
        power: bool,
    },
    /// An owner's process is asked to end, and does so in order; another comes when the fault is over.
    Stop {
        /// Which.
        owner: usize,
        /// The machine goes down when it has ended.
        power: bool,
    },
    /// The process of a journal's owner ends, and those that come next end while they open the journal.
    CrashInOpening {
        /// Which.
        owner: usize,
        /// So many of them.
        times: u32,
        /// Each within one of so many operations of its disk.
        within: u64,
        /// The machine goes down with each.
        power: bool,
    },
    /// An agent's process ends; another comes when the fault is over.
    Die {
        /// Which.
        agent: usize,
    },
    /// An agent's process stands still.
    Freeze {
        /// Which.
        agent: usize,
    },
    /// An agent's wall clock is off while this lasts.
    AgentClock {
        /// Which.
        agent: usize,
        /// By how much.
        by_us: i64,
    },
    /// An owner's wall clock is off while this lasts. Nothing is ruled by it.
    OwnerClock {
        /// Whose.
        owner: usize,
        /// By how much.
        by_us: i64,
    },
    /// The clock that the log is stamped by is off while this lasts.
    LogClock {
        /// By how much.
        by_us: i64,
    },
    /// A wall clock stands still while this lasts, and goes on from there.
    ClockStops(Whose),
    /// The log's disk has so much room left.
    DiskFull {
        /// Bytes.
        room_bytes: u64,
    },
    /// The log refuses appends, so many in a million; of those so many are taken all the same.
    Appends {
        /// Refused.
        refused_ppm: u32,
        /// Of a million refused, taken.
        taken_ppm: u32,
    },
    /// The log's disk cannot make anything durable.
    SyncsFail,
    /// Nothing comes through between one owner and the log that several share, in one direction.
    LogCut {
        /// Which.
        owner: usize,
        /// Which way.
        way: LogWay,
        /// Whether the owner gives up what waits, and takes it for refused.
        lost: bool,
    },
    /// Snapshots cannot be written.
    NoSnapshots,
    /// The log is slow: its answers to appends are late by up to so much.
    SlowLog {
        /// By how much.
        by_us: u64,
    },
    /// Appends to the log of a fleet are late, by up to so much, and lost where who sent them is gone by then.
    SlowAppends {
        /// By how much.
        by_us: u64,
    },
    /// The log lets go of what is older than the newest snapshots, but for so many records.
    Retention {
        /// So many are left all the same.
        records: u64,
    },
    /// The topic of the hits is made anew: nothing of it is left.
    TopicAnew,
    /// An operator hands a document to all owners at once.
    Push {
        /// Which of the plan's documents.
        document: usize,
    },
    /// An operator does something by hand, and tells an owner.
    Act {
        /// Whom.
        owner: usize,
        /// What.
        does: Does,
        /// What it is done to is drawn from this when the time has come.
        draw: u64,
    },
    /// A partition of a fleet is given to another owner.
    Move {
        /// Which.
        partition: u32,
        /// To whom.
        to: usize,
        /// How much later the one before hears of it.
        late_us: u64,
    },
    /// Somebody calls far more than usual.
    Burst {
        /// Which agent.
        agent: usize,
        /// How many times more.
        times: u64,
    },
}

impl Fault {
    /// What kinds there are, by name.
    pub const KINDS: [&str; 28] = [
        "messages lost",
        "messages doubled",
        "messages reordered",
        "messages delayed",
        "cut",
        "owner stalled",
        "owner crashed",
        "owner stopped",
        "owner crashed in opening",
        "agent died",
        "agent froze",
        "clock of an agent off",
        "clock of an owner off",
        "clock of the log off",
        "clock stopped",
        "disk full",
        "appends refused",
        "syncs failing",
        "owner cut off from the log",
        "no snapshots",
        "log slow",
        "appends slow",
        "retention",
        "topic made anew",
        "limits pushed",
        "amendment",
        "partition moved",
        "burst of calls",
    ];

    /// Of which kind it is: one of [`Self::KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Loss(..) => "messages lost",
            Self::Duplication(..) => "messages doubled",
            Self::Reordering(..) => "messages reordered",
            Self::Delay(..) => "messages delayed",
            Self::Cut { .. } => "cut",
            Self::Stall { .. } => "owner stalled",
            Self::Crash { .. } => "owner crashed",
            Self::Stop { .. } => "owner stopped",
            Self::CrashInOpening { .. } => "owner crashed in opening",
            Self::Die { .. } => "agent died",
            Self::Freeze { .. } => "agent froze",
            Self::AgentClock { .. } => "clock of an agent off",
            Self::OwnerClock { .. } => "clock of an owner off",
            Self::LogClock { .. } => "clock of the log off",
            Self::ClockStops(_) => "clock stopped",
            Self::DiskFull { .. } => "disk full",
            Self::Appends { .. } => "appends refused",
            Self::SyncsFail => "syncs failing",
            Self::LogCut { .. } => "owner cut off from the log",
            Self::NoSnapshots => "no snapshots",
            Self::SlowLog { .. } => "log slow",
            Self::SlowAppends { .. } => "appends slow",
            Self::Retention { .. } => "retention",
            Self::TopicAnew => "topic made anew",
            Self::Push { .. } => "limits pushed",
            Self::Act { .. } => "amendment",
            Self::Move { .. } => "partition moved",
            Self::Burst { .. } => "burst of calls",
        }
    }
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Episode {
    /// From.
    pub from_us: u64,
    /// To.
    pub to_us: u64,
    /// What.
    pub fault: Fault,
}
