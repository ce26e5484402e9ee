//! Which records of hits wait for a snapshot: the next start has to replay them, so they do not grow too old.
//!
//! Looks at the snapshots' names, and only when a segment is old enough to go. What stays true: a partition without a
//! snapshot keeps all its hits; only the bound on bytes takes them.

use super::super::Stream;
use super::retention::{Bounds, RetainedPartition};
use super::snapshots::Snapshots;

/// Keeps what no snapshot has.
pub(super) struct Awaited {
    /// `None`: nobody saves snapshots of this journal.
    snapshots: Option<Snapshots>,
    is_holding: bool,
}

impl Awaited {
    /// Of a journal with these snapshots, if somebody saves any.
    pub fn new(snapshots: Option<Snapshots>) -> Self {
        Self {
            snapshots,
            is_holding: false,
        }
    }

    /// Marks where the next start begins to read.
    pub fn mark(&self, partitions: &mut [RetainedPartition], now_ms: u64, bounds: Bounds) {
        let Some(snapshots) = &self.snapshots else {
            return;
        };
        let hits = |kept: &&mut RetainedPartition| kept.stream == Stream::Hits;
        let is_old = |kept: &RetainedPartition| {
            let mut segments = kept.closed.iter();
            segments.any(|segment| bounds.are_passed_by(segment, now_ms))
        };
        if !partitions.iter_mut().filter(hits).any(|kept| is_old(kept)) {
            return;
        }
        let newest = snapshots.newest();
        for kept in partitions.iter_mut().filter(hits) {
            // The record at a snapshot's offset is read once more: it verifies the snapshot.
            kept.needed_from = newest.get(&kept.index).copied().unwrap_or(0);
        }
    }

    /// Says once that partitions keep records for longer than the retention.
    pub fn report(&mut self, partitions: usize) {
        let is_holding = 0 < partitions;
        if is_holding && !self.is_holding {
            tracing::warn!(
                partitions,
                "hits older than the retention stay until a snapshot has them; the journal grows meanwhile"
            );
        }
        self.is_holding = is_holding;
    }
}
