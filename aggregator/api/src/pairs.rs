//! `GET /v1/pairs`: the state of one pair.
//!
//! Knows nothing of rules.

use serde::{Deserialize, Serialize};

use crate::denials::DenialView;
use crate::text::Keyword;

/// The state of a pair, as an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairView {
    /// The schema's name.
    pub schema: Keyword,
    /// The resource.
    pub resource: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The partition that rules it.
    pub partition: u32,
    /// Whether its resource has limits on rates.
    pub configured: bool,
    /// Whether its resource has limits on copies, of which a pair has no state.
    #[serde(default)]
    pub limited_by_copies: bool,
    /// Whether the engine knows the pair: it was hit not long ago.
    pub known: bool,
    /// The limits version in force in its partition; 0: none.
    pub version: u64,
    /// Its state, if it is known.
    pub state: Option<PairState>,
    /// The denial in force for it, if any.
    pub denial: Option<DenialView>,
    /// Its partition, if that could not answer: this process does not rule it at the moment.
    pub partitions_missing: Vec<u32>,
}

/// The state of a pair at log time, which ticks advance, or at its newest hit if that is later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairState {
    /// Its own time: that of its newest hit.
    pub time_us: u64,
    /// The instant at which everything below is counted.
    pub as_of_us: u64,
    /// The current tier, from 1; 0: none.
    pub tier: u64,
    /// That tier's limit.
    pub tier_limit: u64,
    /// Hits in that tier's window.
    pub tier_hits: u64,
    /// How many more hits that window and the hard limit have room for.
    pub remaining: u64,
    /// Hits of the last second, where there is a hard limit.
    pub last_second: u64,
    /// The hard limit, hits a second; null: none.
    pub hard: Option<u64>,
    /// The hard limit, each window and each quota, in the order in which the engine checks them.
    pub constraints: Vec<ConstraintState>,
    /// Its token bucket; null: none.
    pub bucket: Option<BucketLeft>,
}

/// The usage under a window or a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstraintState {
    /// The constraint's name.
    pub name: String,
    /// Its limit.
    pub limit: u64,
    /// The span over which it counts, in microseconds.
    pub span_us: u64,
    /// The copies that count, debt included.
    pub counted: u64,
}

/// The content of a token bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketLeft {
    /// Whole copies in it; below zero: debt.
    pub level: i64,
    /// The copies in a full bucket.
    pub burst: u64,
}
