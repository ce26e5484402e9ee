//! Partitions that are ready, and their watermarks for the feed.

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

/// Partitions that are ready, in the order of their numbers. Found anew at the end of each turn.
#[derive(Clone, Debug, Default)]
pub struct ReadyPartitions(Vec<Ready>);

impl ReadyPartitions {
    /// What is known of the partition of this number, if it is ready.
    pub fn get(&self, partition: u32) -> Option<&Ready> {
        let found = self
            .0
            .binary_search_by_key(&partition, |ready| ready.watermark.partition);
        self.0.get(found.ok()?)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Ready> {
        self.0.iter()
    }

    /// Their watermarks.
    pub fn watermarks(&self) -> Vec<Watermark> {
        self.iter().map(|ready| ready.watermark).collect()
    }
}

/// The partitions that are ready.
pub(super) fn ready_at(partitions: &[Partition], clock: Span) -> ReadyPartitions {
    let mut ready = Vec::with_capacity(partitions.len());
    ready.extend(partitions.iter().filter_map(|one| one.ready(clock)));
    ReadyPartitions(ready)
}

/// The log's time as of the newest record that any partition has ruled. Where none has, as in an aggregator that rules no
/// partition at the moment, this process's clock.
pub(super) fn log_time_of(partitions: &[Partition], wall: Timestamp) -> Timestamp {
    let appended = partitions.iter().map(|one| one.position.appended);
    let newest = appended.max().filter(|newest| *newest != Timestamp::ZERO);
    newest.unwrap_or(wall)
}

#[cfg(test)]
impl From<Ready> for ReadyPartitions {
    fn from(one: Ready) -> Self {
        Self(vec![one])
    }
}
