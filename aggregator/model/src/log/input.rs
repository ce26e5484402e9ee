//! Inputs of the model of one partition, and its answers.
//!
//! Plain data under the model's own names: an adapter elsewhere fills the inputs from decoded records, so
//! that the model depends on no wire format. What stays true: a record has one outcome for each of its
//! entries, in the record's order.

use crate::scope::ScopeName;
use std::collections::BTreeMap;

use crate::limits::Limits;
use crate::stream::{Denial, EntryOutcome};
use crate::verdict::End;

/// One record of a partition, in log order.
#[derive(Clone, Debug)]
pub enum LogInput<'a> {
    /// A batch of an agent.
    Hits(HitsRecord<'a>),
    /// An aggregator's tick.
    Tick {
        /// The record's offset.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
    },
    /// Aggregators' totals for globally limited resources.
    Totals {
        /// The record's offset.
        offset: u64,
        /// The totals, in the record's order.
        totals: Vec<Total<'a>>,
    },
    /// A limits activation with the texts of the versions that it brings.
    Limits {
        /// The record's offset.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
        /// The versions up to the one that the activation names. Known versions are ignored.
        versions: Vec<(u64, Limits)>,
    },
    /// A version that a limits activation brings and that differs from the one before it by the limits of single pairs
    /// alone. A known version is ignored.
    Rows {
        /// The offset of the activation.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
        /// The version.
        version: u64,
        /// Its limits.
        limits: Limits,
        /// Resource and domain of these pairs, each once.
        pairs: Vec<(String, String)>,
    },
    /// An amendment that a limits activation brings. A known amendment is ignored.
    Amendment {
        /// The offset of the activation.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
        /// The amendment's number among the versions.
        version: u64,
        /// The operator's act.
        act: Act,
    },
}

/// What an operator does by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reset: the pair is treated as if it had never had a hit.
    Reset {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
    },
    /// Pardon: a pair's denial is lifted, and no other is announced until the instant at which its
    /// limits would have opened it.
    Pardon {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
    },
    /// Refund: granted hits are taken back.
    Refund {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
        /// The number of hits.
        hits: u64,
    },
    /// Ban: a domain is denied whatever it does.
    Ban {
        /// The resource; `None` means all resources.
        resource: Option<String>,
        /// The domain.
        domain: String,
        /// For a ban on all resources: the resources whose pairs with the domain are ruled here.
        here: Vec<String>,
        /// The end of the ban.
        end: End,
    },
    /// Unban: a ban is taken back.
    Unban {
        /// The resource, as in the ban.
        resource: Option<String>,
        /// The domain.
        domain: String,
        /// As in the ban.
        here: Vec<String>,
    },
}

/// A batch of hits of one agent. A batch without hits still uses up its sequence number.
#[derive(Clone, Debug)]
pub struct HitsRecord<'a> {
    /// The record's offset.
    pub offset: u64,
    /// When the log appended it, in microseconds.
    pub appended_us: u64,
    /// The agent's name.
    pub agent: &'a str,
    /// The agent's random epoch.
    pub epoch: u128,
    /// The batch's number in this partition.
    pub seq: u64,
    /// The agent's send stamp, in microseconds.
    pub sent_us: u64,
    /// The hits.
    pub entries: Vec<HitEntry<'a>>,
}

/// Copies of one pair at one instant.
#[derive(Clone, Copy, Debug)]
pub struct HitEntry<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The domain on whose behalf.
    pub domain: &'a str,
    /// The agent's stamp, in microseconds, before any correction.
    pub at_us: u64,
    /// The number of copies: those of a call, times the number of calls.
    pub n: u64,
    /// The kind of copies.
    pub kind: EntryKind,
    /// Whether the agent that let them through had received no current watermark.
    pub unguarded: bool,
}

/// What an entry's copies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Copies that were let through, or a cost that became known afterwards (a charge).
    Hit,
    /// Copies that were let through at an estimated cost. A later settlement refers to the copies counted here.
    Estimate,
    /// The settlement of an estimate that cost less.
    Refund {
        /// The stamp of the estimate, in microseconds, before any correction.
        made_us: u64,
        /// The estimated cost.
        estimated: u64,
        /// The actual cost.
        actual: u64,
    },
}

/// The hits that one hits record adds to one globally limited resource.
#[derive(Clone, Debug)]
pub struct Total<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The partition of the hits record.
    pub source_partition: u32,
    /// The offset of the hits record.
    pub source_offset: u64,
    /// The copies, in the record's order.
    pub parts: Vec<TotalPart>,
}

/// Copies in one millisecond that a domain was granted, or that each of its constraints counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TotalPart {
    /// Milliseconds since the epoch.
    pub ms: u64,
    /// Whether the agents that let them through had received no current watermark.
    pub unguarded: bool,
    /// The number of copies.
    pub copies: u64,
}

/// The log position of a cause within the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelPosition {
    /// The record's offset.
    pub offset: u64,
    /// The index of the entry or total in the record; 0 for a limits activation.
    pub entry: u32,
}

/// One statement about a scope: a denial, or the lift of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeChange {
    /// The scope.
    pub scope: ScopeName,
    /// The log position of its cause.
    pub position: ModelPosition,
    /// The denial; `None` means a lift.
    pub denied: Option<Denial>,
}

/// Why an entry was only counted and not ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRuled {
    /// Its batch was received before.
    Duplicate,
    /// Its batch is older than the window in which duplicates are recognised.
    OlderThanWindow,
    /// It was stamped more than 10 minutes before its append.
    TooOld,
    /// Its resource has no limits.
    Unconfigured,
    /// It would have been a new pair at the cap.
    AtCap,
}

/// The result for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryRuling {
    /// It was ruled.
    Ruled {
        /// The hits' instant: the stamp after all corrections, in microseconds.
        at_us: u64,
        /// The copies that the ideal limiter would have granted.
        outcome: EntryOutcome,
    },
    /// It was only counted.
    NotRuled(NotRuled),
}

/// The result for one total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalRuling {
    /// It was ruled.
    Ruled {
        /// Hits under the global limit.
        granted: u64,
        /// Hits above it.
        excess: u64,
        /// Hits that are no longer in the current second.
        late: u64,
    },
    /// It is after the last applied one, but its resource has no global limit here.
    Unlimited,
    /// It is not after the last applied total of its resource and source partition.
    OutOfOrder,
}

/// The results of one record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOutcome {
    /// The result for each entry of a hits record.
    pub entries: Vec<EntryRuling>,
    /// The result for each total.
    pub totals: Vec<TotalRuling>,
    /// The statements that the record caused, by log position; those of one position by scope.
    pub changes: Vec<ScopeChange>,
    /// The total that an aggregator appends for each globally limited resource of a hits record that was ruled:
    /// granted and counted copies by millisecond and guard mark; empty if there were none.
    pub totals_due: BTreeMap<String, BTreeMap<(u64, bool), u64>>,
    /// By how much the agent's stamps were moved, in microseconds.
    pub moved_us: i64,
    /// Whether a tick was counted.
    pub tick_counted: bool,
    /// Why the whole record of an agent was not ruled, judged by its sequence.
    pub unruled: Option<NotRuled>,
}
