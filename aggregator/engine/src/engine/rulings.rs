//! What the engine says about one record of the log.
//!
//! ```text
//! hits record 17    entry 0 fills acme's window    statement at 17@0: denied until …
//!                   entry 1 of globex              nothing to say
//!                   total due: api.search, 2 hits granted, to be appended to that resource's partition
//! ```
//!
//! One buffer, cleared by the caller and filled by each record, so that the common record costs no
//! allocation. Knows nothing of how statements travel. What stays true: statements stand in the
//! order of their places.

use std::sync::Arc;

use tollgate_shared::wire::statement::Statement;

/// What the engine says about the records applied since it was last cleared.
#[derive(Clone, Debug, Default)]
pub struct Rulings {
    /// Denials and lifts, in the order of their places.
    pub statements: Vec<Said>,
    /// Totals that the owner appends to the partitions of their resources, before it commits.
    pub totals_due: Vec<TotalDue>,
    /// What became of hits and refused calls, by resource in the order of the record.
    pub counts: Vec<ResourceCounts>,
    /// What became of totalled hits under the global limits of their resources.
    pub global_counts: Vec<ResourceCounts>,
    /// Agents whose clocks are so wrong that the engine moved their stamps.
    pub corrections: Vec<Correction>,
    /// What became of each record.
    pub fates: Vec<Fate>,
}

/// A statement and the resource that its scope belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The resource.
    pub resource: Arc<str>,
    /// Scope, place, and what is said.
    pub statement: Statement,
}

/// The granted hits of one hits record on one globally limited resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalDue {
    /// The resource; the total goes to its partition.
    pub resource: Box<str>,
    /// The partition of the hits record: the one that was ruled.
    pub source_partition: u32,
    /// The hits record's offset.
    pub source_offset: u64,
    /// The offset of the record totalled before it for this resource, if there was one.
    pub previous_offset: Option<u64>,
    /// Milliseconds since the epoch, ascending, each with the hits granted in it.
    pub granted: Vec<(u64, u32)>,
}

/// What became of one resource's entries in one record. Hits, unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub entries: u64,
    /// Granted: they occupy windows.
    pub granted: u64,
    /// Let through although an ideal limiter would have refused them.
    pub excess: u64,
    /// Too late to say.
    pub late: u64,
    /// Stamped more than 10 minutes before their append: only counted.
    pub too_old: u64,
    /// On a resource without limits that its namespace lets through: only counted.
    pub unconfigured: u64,
    /// Of a new pair at the cap: only counted.
    pub at_cap: u64,
    /// Of a pair that belongs to another partition: only counted.
    pub misrouted: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Copies that those calls asked for.
    pub refused_copies: u64,
}

/// The counts of one resource in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceCounts {
    /// The resource.
    pub resource: Box<str>,
    /// What became of its entries.
    pub counts: Counts,
}

/// An agent's stamps were moved, because its clock is wrong by more than 250 ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The agent's name.
    pub agent: Box<str>,
    /// By how many microseconds its stamps were moved.
    pub moved_us: i64,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was applied.
    Applied,
    /// Its offset had been applied before: nothing was done.
    AlreadyApplied,
    /// A batch that was applied before: its entries were not ruled.
    Duplicate {
        /// Entries of hits in it.
        entries: u32,
    },
    /// A batch older than the window in which duplicates are recognised: its entries were not ruled.
    OlderThanWindow {
        /// Entries of hits in it.
        entries: u32,
    },
    /// A batch of a new agent at the bound on agents: its entries were not ruled.
    TooManyAgents {
        /// Entries of hits in it.
        entries: u32,
    },
    /// A tick in a slot that was counted before: it brought no time in.
    TickIgnored,
    /// A tick or a genesis of another log, or of an older generation of this one: not heeded.
    OfAnotherLog,
    /// A total that does not follow the last applied one of its source.
    TotalOutOfOrder,
    /// A total of a resource that has no global limit here.
    TotalUnlimited,
    /// A total of a new resource at the cap on pairs.
    TotalAtCap,
    /// A pointer to a version that is known.
    PointerKnown,
    /// A record of a kind that this build does not know and may skip.
    UnknownSkipped {
        /// The kind.
        kind: u8,
    },
    /// The partition stands still: see the reason.
    Stopped(Stop),
}

/// Why a partition is ruled no further. A build that guessed would rule otherwise than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A record of a kind that this build does not know and must not skip.
    #[error(
        "record kind {kind} at offset {offset} is unknown to this build and must not be skipped"
    )]
    UnknownKind {
        /// The kind.
        kind: u8,
        /// The record's offset.
        offset: u64,
    },
    /// A pointer to a version whose text is not at hand.
    #[error(
        "limits version {version}, which the pointer at offset {offset} brings in, is not at hand"
    )]
    MissingVersion {
        /// The version.
        version: u64,
        /// The pointer's offset.
        offset: u64,
    },
    /// A version asks for a rule set that this build does not implement.
    #[error("limits version {version} asks for rules {rules}, which this build does not implement")]
    UnknownRules {
        /// The version.
        version: u64,
        /// The number of the rule set.
        rules: u32,
    },
}

impl Rulings {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties it. Keeps its memory.
    pub fn clear(&mut self) {
        self.statements.clear();
        self.totals_due.clear();
        self.counts.clear();
        self.global_counts.clear();
        self.corrections.clear();
        self.fates.clear();
    }

    /// Why the partition stands still, if it does.
    pub fn stopped(&self) -> Option<Stop> {
        self.fates.iter().find_map(|fate| match fate {
            Fate::Stopped(stop) => Some(*stop),
            _ => None,
        })
    }
}
