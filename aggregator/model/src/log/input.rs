//! What the model of a partition is fed, and what it answers.
//!
//! Plain data under the model's own names: an adapter elsewhere fills the inputs from decoded
//! records, so that the model depends on no wire format. What stays true: one outcome for each
//! entry, in the record's order.

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
    /// An owner's tick.
    Tick {
        /// The record's offset.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
    },
    /// Owners' totals for globally limited resources.
    Totals {
        /// The record's offset.
        offset: u64,
        /// The totals, in the record's order.
        totals: Vec<Total<'a>>,
    },
    /// A limits pointer with the texts of the versions that it brings in.
    Limits {
        /// The record's offset.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
        /// The versions up to the one that the pointer names. Known ones are ignored.
        versions: Vec<(u64, Limits)>,
    },
    /// An amendment that a limits pointer brings in. A known one is ignored.
    Amendment {
        /// The pointer's offset.
        offset: u64,
        /// When the log appended it, in microseconds.
        appended_us: u64,
        /// The amendment's number among the versions.
        version: u64,
        /// What it does.
        act: Act,
    },
}

/// What an operator does by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A pair is as if it had never been hit.
    Reset {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
    },
    /// A pair's denial is lifted, and none is stated until its limits would have opened it.
    Pardon {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
    },
    /// Granted hits are taken out again.
    Refund {
        /// The resource.
        resource: String,
        /// The domain.
        domain: String,
        /// How many.
        hits: u64,
    },
    /// A domain is denied whatever it does.
    Ban {
        /// On this resource; none: on every one.
        resource: Option<String>,
        /// The domain.
        domain: String,
        /// Where it is a whole domain: the resources whose pair with it is ruled here.
        here: Vec<String>,
        /// Until when.
        end: End,
    },
    /// A ban is taken back.
    Unban {
        /// As it was banned.
        resource: Option<String>,
        /// The domain.
        domain: String,
        /// As for the ban.
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
    /// On what.
    pub resource: &'a str,
    /// On whose behalf.
    pub domain: &'a str,
    /// The agent's stamp, in microseconds, before any correction.
    pub at_us: u64,
    /// How many copies: those of a call, times its calls.
    pub n: u64,
    /// What they are.
    pub kind: EntryKind,
    /// Whether the agent that let them through had heard no current watermark.
    pub unguarded: bool,
}

/// What an entry's copies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Copies that were let through, or a cost that is known afterwards.
    Hit,
    /// Copies that were let through, whose cost was estimated: a settlement finds what they counted.
    Estimate,
    /// An estimate that cost less.
    Refund {
        /// The stamp it was made under, in microseconds, before any correction.
        made_us: u64,
        /// What was estimated.
        estimated: u64,
        /// What it cost.
        actual: u64,
    },
}

/// What one hits record brought to one globally limited resource.
#[derive(Clone, Debug)]
pub struct Total<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The partition of the hits record.
    pub source_partition: u32,
    /// The offset of the hits record.
    pub source_offset: u64,
    /// The source offset of the total before this one for that resource and source partition.
    pub previous_offset: Option<u64>,
    /// The copies, in the record's order.
    pub parts: Vec<TotalPart>,
}

/// Copies of one millisecond that a domain granted, or that each of its constraints counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TotalPart {
    /// Milliseconds since the epoch.
    pub ms: u64,
    /// Whether the agents that let them through had heard no current watermark.
    pub unguarded: bool,
    /// How many.
    pub copies: u64,
}

/// Where in the partition something was caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelPlace {
    /// The record's offset.
    pub offset: u64,
    /// The index of the entry or total in it; 0 for a limits pointer.
    pub entry: u32,
}

/// One statement about a scope: it is denied, or its denial is lifted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeChange {
    /// The scope.
    pub scope: ScopeName,
    /// What caused it.
    pub place: ModelPlace,
    /// The denial; none is a lift.
    pub denied: Option<Denial>,
}

/// Why an entry was counted and not ruled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRuled {
    /// Its batch has been seen.
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

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryRuling {
    /// It was ruled at this instant, which is its stamp after all corrections.
    Ruled {
        /// The hits' instant, in microseconds.
        at_us: u64,
        /// What the ideal limiter would have granted.
        outcome: EntryOutcome,
    },
    /// It was only counted.
    NotRuled(NotRuled),
}

/// What became of one total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TotalRuling {
    /// It was ruled.
    Ruled {
        /// Hits under the global limit.
        granted: u64,
        /// Hits above it.
        excess: u64,
        /// Hits that had left their second.
        late: u64,
    },
    /// It follows the last applied one, but its resource has no global limit here.
    Unlimited,
    /// It does not follow the last applied one.
    OutOfOrder,
}

/// What a record did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordOutcome {
    /// What became of each entry of a hits record.
    pub entries: Vec<EntryRuling>,
    /// What became of each total.
    pub totals: Vec<TotalRuling>,
    /// The statements it caused, by place; those of one place by scope.
    pub changes: Vec<ScopeChange>,
    /// The total that an owner appends for each globally limited resource in a hits record that
    /// was ruled: granted and counted copies by millisecond and guard mark, none if there were none.
    pub totals_due: BTreeMap<String, BTreeMap<(u64, bool), u64>>,
    /// By how much the agent's stamps were moved, in microseconds.
    pub moved_us: i64,
    /// Whether a tick was counted.
    pub tick_counted: bool,
    /// Why an agent's record was not ruled at all, by its sequence.
    pub unruled: Option<NotRuled>,
}
