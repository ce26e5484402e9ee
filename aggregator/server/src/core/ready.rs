//! Partitions that are ready, and their watermarks for the feed.

use std::collections::BTreeMap;

use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::frame::Watermark;

use super::partition::Partition;

/// What the announcer needs to know of a partition: its log time and how far it has been ruled.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// How far it has been ruled.
    pub watermark: Watermark,
    /// The log's time now.
    pub log_now: Timestamp,
}

/// Partitions that are ready, by their numbers.
pub type ReadyPartitions = BTreeMap<u32, Ready>;

/// The partitions that are ready.
pub(super) fn ready_at(partitions: &[Partition], clock: Span) -> ReadyPartitions {
    let ready = |partition: &Partition| Some((partition.index, partition.ready(clock)?));
    partitions.iter().filter_map(ready).collect()
}

/// Their watermarks.
pub(super) fn watermarks(ready: &ReadyPartitions) -> Vec<Watermark> {
    ready.values().map(|ready| ready.watermark).collect()
}
