//! The engine's rulings on records of the log.
//!
//! ```text
//! hits record 17    entry 0 fills acme's window    statement at 17@0: denied until …
//!                   entry 1 of globex              no statement
//!                   total due: api.search, 2 hits granted, to be appended to that resource's partition
//! ```
//!
//! One buffer, which the caller clears and each record fills, so that a usual record costs no allocation.
//! Knows nothing of how statements are published. What stays true: statements are in the order of their log
//! positions.

use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::hits::Hit;
use tollgate_shared::wire::record::Total;
use tollgate_shared::wire::statement::Statement;
use tollgate_shared::wire::verdict::HoldStatus;

use crate::stream::Ruled;

/// The engine's rulings on the records applied since the buffer was last cleared.
#[derive(Clone, Debug, Default)]
pub struct Rulings {
    /// Denials and lifts, in the order of their log positions.
    pub statements: Vec<ResourceStatement>,
    /// Totals that the ruling aggregator appends to the partitions of their resources before it commits.
    pub totals_due: Vec<TotalDue>,
    /// Counts of hits and refused calls, by resource in the order of the record.
    pub counts: Vec<ResourceCounts>,
    /// Pairs that candidates would have begun to deny. They are announced to nobody: see
    /// [`CandidateCounts`].
    pub candidates: Vec<CandidateClosed>,
    /// Counts of totalled hits under the global limits of their resources.
    pub global_counts: Vec<ResourceCounts>,
    /// Agents whose clocks are so wrong that the engine moved their stamps.
    pub corrections: Vec<Correction>,
    /// Verdicts for agents on their holds, in the order of their log positions.
    pub verdicts: Vec<VerdictDue>,
    /// Counts of hold operations and of verdicts on heartbeats, by resource in the order of the record.
    pub hold_counts: Vec<ResourceHolds>,
    /// Other counts of copies.
    pub copies: CopiesCounts,
    /// Changes of agents' epochs.
    pub agents: Vec<AgentNews>,
    /// The fate of each record.
    pub fates: Vec<Fate>,
    /// Agents' processes that were given up for others, at the bound on how many are remembered.
    pub epochs_given_up: u64,
    /// Pairs that were evicted before their ten minutes, at the cap, because they remembered nothing any
    /// more.
    pub evicted: u64,
    /// Whether notices about pairs near their limits are wanted; if not, none is looked for.
    /// [`Rulings::clear`] keeps it.
    pub tells_near: bool,
    /// Entries of hits that left their pairs near their limits: the number of each in its record, ascending,
    /// at most [`NEAR_MAX`].
    pub near: Vec<u32>,
    /// Number of such entries beyond that.
    pub near_shed: u64,
    /// Whether a total left a resource near its global limit.
    pub near_everybody: bool,
    /// For each of `counts`: the calls that were let through.
    pub calls: Vec<u64>,
    /// Entries of hits with excess: the number of each in its record, ascending, and how much.
    pub excess: Vec<(u32, u64)>,
}

/// How many entries of one record are noted as near their limits: agents get notices at a rate far below so
/// many for each record.
pub const NEAR_MAX: usize = 256;

/// A statement and the resource that its scope belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceStatement {
    /// The resource.
    pub resource: Arc<str>,
    /// Scope, log position, and what is stated.
    pub statement: Statement,
}

/// A verdict and its addressee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictDue {
    /// The agent's name: the verdict goes to its topic.
    pub agent: Arc<str>,
    /// The epoch that it is for.
    pub epoch: u128,
    /// The resource.
    pub resource: Arc<str>,
    /// The log position of its cause.
    pub position: LogPosition,
    /// How the hold stands. `None`: the agent has to send a list.
    pub status: Option<HoldStatus>,
}

/// Counts of one resource's hold operations in one record. Copies, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldCounts {
    /// Operations; of a heartbeat, verdicts on what it lists.
    pub ops: u64,
    /// Operations that were refused and changed nothing.
    pub refused_ops: u64,
    /// Taken into use before they were granted, and counted.
    pub taken: u64,
    /// How many of them a reserve would not have granted.
    pub excess: u64,
    /// Granted before use.
    pub granted: u64,
    /// Asked for before use, and not granted.
    pub not_granted: u64,
    /// Released.
    pub released: u64,
    /// Staged for another agent.
    pub staged: u64,
    /// Seized from the staging area.
    pub seized: u64,
    /// Of a resource that is not limited by copies: let through, not counted.
    pub unlimited: u64,
}

/// The counts of one resource's hold operations in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceHolds {
    /// The resource.
    pub resource: Box<str>,
    /// The counts of its operations.
    pub counts: HoldCounts,
}

/// Counts of copies beside the operations on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiesCounts {
    /// Heartbeats that were applied.
    pub heartbeats: u64,
    /// How many of them caused a request for a full list.
    pub heartbeats_wanted: u64,
    /// Holds that ended by their age.
    pub ended_by_age: u64,
    /// Holds that an operator ended.
    pub ended_by_operator: u64,
    /// Transfers whose staged copies an operator let go.
    pub transfers_ended_by_operator: u64,
    /// Domains that were not denied because as many as allowed are denied.
    pub denials_at_cap: u64,
}

/// A change of an agent's epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentNews {
    /// The agent's name.
    pub agent: Arc<str>,
    /// The epoch.
    pub epoch: u128,
    /// What happened.
    pub change: AgentChange,
}

/// How an agent's epoch can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentChange {
    /// It was silent for the timeout: its holds stopped counting.
    Gone {
        /// Copies that came back.
        copies: u64,
    },
    /// It was gone, and a record of it arrived.
    Returned,
    /// It is over: its successor named it, or it stated that itself.
    Over {
        /// Copies that came back.
        copies: u64,
    },
    /// Another epoch of the same name is alive too: two agents have one name.
    Twin,
}

/// What one hits record adds to the global limit of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalDue {
    /// The resource; the total goes to its partition.
    pub resource: Box<str>,
    /// The partition of the hits record.
    pub source_partition: u32,
    /// The hits record's offset.
    pub source_offset: u64,
    /// Copies that count, by millisecond, ascending.
    pub counted: Vec<Total>,
}

/// Counts of one resource's entries in one record. Hits, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entries.
    pub entries: u64,
    /// Granted: every constraint had room.
    pub granted: u64,
    /// Let through although some constraint had no room.
    pub excess: u64,
    /// How much of the excess was let through unguarded: never debt.
    pub excess_unguarded: u64,
    /// Too late to rule.
    pub late: u64,
    /// Refunded by settlements.
    pub refunded: u64,
    /// Refunds of settlements that no constraint counted any more.
    pub refunds_not_found: u64,
    /// Stamped more than 10 minutes before their append: only counted.
    pub too_old: u64,
    /// On a resource without limits that its namespace lets through, or that copies limit: only counted.
    pub unconfigured: u64,
    /// Of a new pair at the cap: only counted.
    pub at_cap: u64,
    /// Of a pair that belongs to another partition: only counted.
    pub misrouted: u64,
    /// Pairs that came under a version which forgets some of their use.
    pub pairs_forgotten: u64,
    /// Calls that agents refused.
    pub refused_calls: u64,
    /// Copies that those calls asked for.
    pub refused_copies: u64,
    /// Counts by the resource's candidate, if it has one.
    pub candidate: CandidateCounts,
}

impl Rulings {
    /// Counts a denied pair that came under a version which forgets some of its use.
    pub(super) fn pair_forgotten(&mut self, resource: &str) {
        match self.counts.last_mut() {
            Some(last) if *last.resource == *resource => last.counts.pairs_forgotten += 1,
            _ => {
                self.counts.push(ResourceCounts {
                    resource: resource.into(),
                    counts: Counts {
                        pairs_forgotten: 1,
                        ..Counts::default()
                    },
                });
                self.calls.push(0);
            }
        }
    }
}

/// Adds to a count. Counts saturate: a single entry may add nearly 2⁶⁴.
pub(super) fn add(count: &mut u64, copies: u64) {
    *count = count.saturating_add(copies);
}

impl Counts {
    /// Counts an entry by its ruling.
    pub(super) fn count(&mut self, ruled: Ruled, hit: &Hit<'_>) {
        add(&mut self.granted, ruled.granted);
        add(&mut self.excess, ruled.excess);
        add(&mut self.late, ruled.late);
        if hit.unguarded {
            add(&mut self.excess_unguarded, ruled.excess);
        }
        if hit.is_refund() {
            let asked = u64::from(hit.copies);
            add(&mut self.refunded, ruled.refunded);
            let not_found = asked.saturating_sub(ruled.refunded);
            add(&mut self.refunds_not_found, not_found);
        }
    }
}

/// Counts by a candidate of the hits that were ruled beside it. Calls that agents refused are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CandidateCounts {
    /// Hits that it has room for, and costs that were known only after their calls, which no limits could refuse.
    pub granted: u64,
    /// Hits that it would have refused.
    pub excess: u64,
    /// Hits that arrived too late to rule.
    pub late: u64,
    /// Hits that it would have refused, but the real limits would not have.
    pub newly: u64,
    /// Hits that the real limits would have refused, but it would not have.
    pub no_longer: u64,
    /// How often it would have begun to deny a pair.
    pub closed: u64,
    /// Hits of a new pair at its cap, which it did not rule.
    pub at_cap: u64,
}

/// A candidate would have begun to deny a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateClosed {
    /// The resource.
    pub resource: Arc<str>,
    /// The domain.
    pub domain: Arc<str>,
    /// The entry that caused it.
    pub position: LogPosition,
    /// When it would have begun.
    pub at: Timestamp,
    /// When it would have ended; [`Timestamp::MAX`]: never.
    pub end: Timestamp,
}

/// The counts of one resource in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceCounts {
    /// The resource.
    pub resource: Box<str>,
    /// The counts of its entries.
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

/// The engine's result for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was applied.
    Applied,
    /// Its offset had been applied before: it changed nothing.
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
    /// A batch of an agent that was given up for others, at the bound on agents: its entries were not ruled.
    TooManyAgents {
        /// Entries of hits in it.
        entries: u32,
    },
    /// Hold operations or a heartbeat with a lower sequence than one of its epoch that was applied; the next
    /// full heartbeat corrects it.
    Overtaken {
        /// Operations, or parts of the heartbeat.
        entries: u32,
    },
    /// Hold operations or a heartbeat of an epoch that is over.
    EpochOver {
        /// Operations, or parts of the heartbeat.
        entries: u32,
    },
    /// A tick in a slot that was counted before: it did not advance the time.
    TickIgnored,
    /// A tick or a genesis of another log, or of an older generation of this one: ignored.
    OfAnotherLog,
    /// A total that is not after the last applied one of its source: it counts nothing.
    TotalOutOfOrder,
    /// A total of a resource that has no global limit here.
    TotalUnlimited,
    /// A total of a new resource when no more blocks of memory can be numbered.
    TotalAtCap,
    /// An activation of a version that is known.
    ActivationKnown,
    /// A record of a kind that this build does not know and may skip.
    UnknownSkipped {
        /// The kind.
        kind: u8,
    },
    /// The partition is stopped, for this reason.
    Stopped(Stop),
}

/// Why a partition is no longer ruled. A build that guessed would rule differently from others.
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
    /// An activation of a version whose text is not at hand.
    #[error(
        "limits version {version}, which the limits activation at offset {offset} names, is not known"
    )]
    MissingVersion {
        /// The version.
        version: u64,
        /// The activation's offset.
        offset: u64,
    },
    /// A version requires a rule set that this build does not implement.
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

    /// Clears it, but keeps its memory.
    pub fn clear(&mut self) {
        self.statements.clear();
        self.totals_due.clear();
        self.counts.clear();
        self.global_counts.clear();
        self.candidates.clear();
        self.corrections.clear();
        self.verdicts.clear();
        self.hold_counts.clear();
        self.copies = CopiesCounts::default();
        self.agents.clear();
        self.fates.clear();
        (self.epochs_given_up, self.evicted) = (0, 0);
        self.excess.clear();
        self.near.clear();
        self.near_shed = 0;
        self.near_everybody = false;
        self.calls.clear();
    }

    /// Notes the excess of an entry of hits, and whether it is near.
    pub(super) fn note(&mut self, number: u32, excess: u64, is_near: bool) {
        if 0 < excess {
            self.excess.push((number, excess));
        }
        match is_near {
            true if self.near.len() < NEAR_MAX => self.near.push(number),
            true => self.near_shed += 1,
            false => {}
        }
    }

    /// Why the partition stopped, if it did.
    pub fn stopped(&self) -> Option<Stop> {
        self.fates.iter().find_map(|fate| match fate {
            Fate::Stopped(stop) => Some(*stop),
            _ => None,
        })
    }
}
