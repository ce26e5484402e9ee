//! `GET /v1/denials`: which domains, groups and resources are denied now, why, and for how long.
//!
//! Knows nothing of how denials come about.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_shared::log_position::Code;
use tollgate_shared::wire::statement::Cause;

use crate::text::{AsText, Keyword};

/// The denials in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenialsView<Row = DenialView, Next = String> {
    /// The schema's name.
    pub schema: Keyword,
    /// The denials, by resource, partition and scope.
    pub denials: Vec<Row>,
    /// How many more there are. If there are more than 10,000 more, this is the number of all denials minus those
    /// that are shown, of which some may have just ended.
    pub omitted: usize,
    /// The last one that is shown, if there are more: the next page begins after it.
    pub next: Option<Next>,
    /// Partitions without an answer: no aggregator that was asked rules them at the moment.
    pub partitions_missing: Vec<u32>,
}

/// One denial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DenialView {
    /// The resource.
    pub resource: AsText<Arc<str>>,
    /// `pair`, `resource` or `group`.
    pub scope: Keyword,
    /// The domain; null if a group or the whole resource is denied.
    pub domain: Option<Box<str>>,
    /// The group; null if the scope is not a group.
    pub group: Option<Box<str>>,
    /// The limit that is exceeded: `tier`, `hard`, `global`, `inaccessible`, ….
    pub cause: AsText<Cause>,
    /// The value of that limit.
    pub limit: u64,
    /// Its window, in microseconds.
    pub window_us: u64,
    /// When it ends by log time; null: never.
    pub end_us: Option<u64>,
    /// The remaining time; null: without end.
    pub remaining_us: Option<u64>,
    /// The denial's code: the log position of its cause.
    pub code: AsText<Code>,
    /// The partition.
    pub partition: u32,
    /// The limits version by which it was ruled.
    pub version: u64,
}
