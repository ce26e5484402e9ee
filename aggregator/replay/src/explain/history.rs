//! What is remembered of a pair that is followed: its entries, its bursts, what was said of it.
//!
//! Plain data. Knows nothing of logs and engines. What stays true: instants of entries are those that were
//! ruled, after all corrections.

use super::view::ConstraintView;
use tollgate_engine::rules::tiers::Phase;
use tollgate_limits::RateClass;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::{Denial, Says, Statement};

/// One entry of the pair.
#[derive(Clone, Debug)]
pub struct ExplainedEntry {
    /// Offset and entry.
    pub place: (u64, u32),
    /// The agent.
    pub agent: Box<str>,
    /// As the agent stamped it.
    pub stamp: Timestamp,
    /// After all corrections.
    pub at: Timestamp,
    /// When the log took it.
    pub appended: Timestamp,
    /// Hits in it.
    pub copies: u64,
    /// What became of them.
    pub fate: EntryFate,
    /// When the pair was open again after it; none: it was open.
    pub until: Option<Timestamp>,
}

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryFate {
    /// It was ruled.
    Ruled {
        /// Hits granted.
        granted: u64,
        /// Hits of excess.
        excess: u64,
        /// Hits too late to say.
        late: u64,
        /// Granted hits by tier.
        by_tier: Vec<u64>,
        /// Tiers that it entered.
        entered: Vec<usize>,
        /// How much of each other constraint was used after it, as pictures have them.
        used: Vec<u64>,
    },
    /// Its batch had come before.
    Duplicate,
    /// It was stamped too long before its append.
    TooOld,
    /// Nothing limits its resource.
    Free,
}

/// A tier was entered.
#[derive(Clone, Debug)]
pub struct Burst {
    /// The tier, from 1.
    pub tier: usize,
    /// When.
    pub at: Timestamp,
    /// By which entry.
    pub place: (u64, u32),
    /// Of whom.
    pub agent: Box<str>,
}

/// How a tier stood.
#[derive(Clone, Debug)]
pub struct TierNow {
    /// Its phase.
    pub phase: Phase,
    /// When it was entered.
    pub entered: Option<Timestamp>,
    /// Hits in its window: their instants, each with how many.
    pub window: Vec<(Timestamp, u64)>,
}

/// A statement about the pair, and how things stood.
#[derive(Clone, Debug)]
pub struct PairStatement {
    /// What was said; its place is the one in the log.
    pub statement: Statement,
    /// The pair's time.
    pub since: Timestamp,
    /// When the log took what caused it.
    pub appended: Timestamp,
    /// The limits of the pair.
    pub class: RateClass,
    /// Its tiers.
    pub tiers: Vec<TierNow>,
    /// Its other constraints.
    pub constraints: Vec<ConstraintView>,
}

/// Calls that an agent refused.
#[derive(Clone, Debug)]
pub struct RefusedCalls {
    /// The agent.
    pub agent: Box<str>,
    /// Calls.
    pub calls: u64,
    /// Copies that they asked for.
    pub copies: u64,
    /// The first one.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
}

/// Offset and entry of a statement.
pub fn key(statement: &Statement) -> (u64, u32) {
    (statement.place.offset, statement.place.entry)
}

/// The denial that a statement says, if it is one.
pub fn denial_of(statement: &Statement) -> Option<Denial> {
    match statement.says {
        Says::Denied(denial) => Some(denial),
        Says::Open => None,
    }
}
