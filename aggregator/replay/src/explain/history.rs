//! What is remembered of a followed pair: its entries, its bursts, the statements about it.
//!
//! Plain data. Knows nothing of logs and engines. What stays true: instants of entries are those
//! that were ruled, after all corrections.

use std::collections::VecDeque;

use super::view::ConstraintView;
use tollgate_engine::rules::tiers::Phase;
use tollgate_limits::RateClass;
use tollgate_shared::log_position::Code;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::statement::{Denial, Statement, StatementKind};

/// How long after the end of a denial reports of refused calls may come that belong to it: couriers send
/// at once, and again until their connection is back.
pub const LATE: Span = Span::from_secs(10);

/// Adds a value; at the bound the oldest one goes, and is returned.
pub fn push<T>(into: &mut VecDeque<T>, bound: usize, value: T) -> Option<T> {
    let is_full = bound <= into.len();
    let oldest = if is_full { into.pop_front() } else { None };
    into.push_back(value);
    oldest
}

/// Up to when there was more than is remembered of a pair: the newest instant of what was dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unremembered {
    /// Of its entries.
    pub entries_upto: Option<Timestamp>,
    /// Of reports of calls that agents refused.
    pub reports_upto: Option<Timestamp>,
}

/// One entry of the pair.
#[derive(Clone, Debug)]
pub struct ExplainedEntry {
    /// Its offset and entry index.
    pub position: (u64, u32),
    /// The agent.
    pub agent: Box<str>,
    /// The agent's stamp.
    pub stamp: Timestamp,
    /// The stamp after all corrections.
    pub at: Timestamp,
    /// When the log appended it.
    pub appended: Timestamp,
    /// How many hits it has; 0 if it gives some back.
    pub copies: u64,
    /// The limits version under which it was ruled.
    pub version: u64,
    /// How it was ruled.
    pub fate: EntryFate,
    /// When the pair is open again after it; `None` if it stayed open.
    pub until: Option<Timestamp>,
}

/// How an entry was ruled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryFate {
    /// It was ruled.
    Ruled {
        /// Hits granted.
        granted: u64,
        /// Hits of excess.
        excess: u64,
        /// Hits that came too late to be granted or excess.
        late: u64,
        /// Granted hits by tier.
        by_tier: Vec<u64>,
        /// Hits in each tier's window after it.
        in_tiers: Vec<u64>,
        /// Tiers that the entry entered.
        entered: Vec<usize>,
        /// How much of each other constraint was used after it, as in pictures.
        used: Vec<u64>,
        /// By how much that changed: hits that count; of a settlement, hits that no longer do.
        counted: u64,
        /// Of a settlement: the instant of its estimate.
        made: Option<Timestamp>,
    },
    /// Its batch was a duplicate.
    Duplicate,
    /// Its stamp is too far before its append time.
    TooOld,
    /// Nothing limits its resource, and nobody has banned its domain.
    Free,
}

/// An entry entered a tier.
#[derive(Clone, Debug)]
pub struct Burst {
    /// The tier, from 1.
    pub tier: usize,
    /// When.
    pub at: Timestamp,
    /// The log position of the entry.
    pub position: (u64, u32),
    /// The agent of the entry.
    pub agent: Box<str>,
}

/// Hits that an operator took back: the pair's newest.
#[derive(Clone, Copy, Debug)]
pub struct TakenBack {
    /// The log position of the act.
    pub position: (u64, u32),
    /// How many.
    pub hits: u64,
}

/// The state of a tier.
#[derive(Clone, Debug)]
pub struct TierNow {
    /// Its phase.
    pub phase: Phase,
    /// When it was entered.
    pub entered: Option<Timestamp>,
    /// Hits in its window: each instant with a number of hits.
    pub window: Vec<(Timestamp, u64)>,
}

/// A statement about the pair, and the state at that time.
#[derive(Clone, Debug)]
pub struct PairStatement {
    /// The statement; its log position is the real one, not that of the reduced batch.
    pub statement: Statement,
    /// Whether the entry of that position is known. No call of the pair caused the statement otherwise, and it is not
    /// recorded: see [`super::numbers`].
    pub is_numbered: bool,
    /// Whether it was stated before what was read; its instants are those of the snapshot then.
    pub is_older: bool,
    /// The pair's time.
    pub since: Timestamp,
    /// When the record that caused it was appended.
    pub appended: Timestamp,
    /// The limits of the pair.
    pub class: RateClass,
    /// Its tiers.
    pub tiers: Vec<TierNow>,
    /// Of a denial by the hard limit or a window: the hits in it, each instant with a number of hits.
    pub window: Vec<(Timestamp, u64)>,
    /// Its other constraints.
    pub constraints: Vec<ConstraintView>,
}

impl PairStatement {
    /// The statement, with whether its entry is known.
    pub fn numbered(&self) -> NumberedStatement<'_> {
        NumberedStatement(&self.statement, self.is_numbered)
    }
}

/// A statement, and whether the entry of its log position is known.
pub(super) struct NumberedStatement<'a>(pub &'a Statement, pub bool);

impl NumberedStatement<'_> {
    /// Its code, if its entry is known.
    pub fn code(&self, partition: u32) -> Option<String> {
        let code = Code::new(partition, self.0.position);
        self.1.then(|| code.to_string())
    }

    /// Whether it is the statement with this offset and entry.
    pub fn is_at(&self, position: (u64, u32)) -> bool {
        self.1 && key(self.0) == position
    }

    /// Whether it is, or may turn out to be once its entry is known.
    pub fn may_be_at(&self, position: (u64, u32)) -> bool {
        self.0.position.offset == position.0 && (self.is_at(position) || !self.1)
    }
}

/// The offset and entry of a statement.
pub fn key(statement: &Statement) -> (u64, u32) {
    (statement.position.offset, statement.position.entry)
}

/// The denial that a statement announces, if it is one.
pub fn denial_of(statement: &Statement) -> Option<Denial> {
    match statement.kind {
        StatementKind::Denied(denial) => Some(denial),
        StatementKind::Lifted => None,
    }
}
