//! `GET /v1/top`: the pairs with the greatest counts.
//!
//! Knows nothing of how pairs are counted.

use serde::{Deserialize, Serialize};

use crate::text::Keyword;

/// The pairs with the greatest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopView<Row = TopPair> {
    /// The schema's name.
    pub schema: Keyword,
    /// The measure by which they are ordered.
    pub by: Keyword,
    /// Log time at which counting began; in partitions taken over since then it began later.
    pub from_us: u64,
    /// The log's time up to which hits are counted, also if none came lately.
    pub to_us: u64,
    /// By how much the count of a pair may be too small at most, sampling aside.
    pub short_by_max: u64,
    /// The pairs, the greatest first.
    pub pairs: Vec<Row>,
    /// Partitions without an answer: no aggregator that was asked rules them at the moment.
    pub partitions_missing: Vec<u32>,
}

/// One pair. A null count is too small to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopPair {
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The partition that counted it.
    pub partition: u32,
    /// Hits that agents let through.
    pub hits: Option<u64>,
    /// Calls that agents refused.
    pub refused: Option<u64>,
    /// Hits beyond what an ideal limiter would have let through.
    pub excess: Option<u64>,
}
