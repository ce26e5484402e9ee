//! Which records of hits wait for a snapshot: the next start has to replay them, so they do not grow too old.
//!
//! Looks at the snapshots' names, and only when a segment of hits has to go. What stays true: a partition without a
//! snapshot keeps all its hits; only the bound on bytes takes them, and an event says which.

use std::collections::BTreeMap;

use super::super::{LogEvent, Stream};
use super::retention::{self, Bounds, RetainedPartition};
use super::snapshots::Snapshots;

/// Keeps what no snapshot has.
pub(super) struct Awaited {
    /// `None`: nobody saves snapshots of this journal.
    snapshots: Option<Snapshots>,
    /// The offset of the newest snapshot of each partition, as of the last look.
    newest: BTreeMap<u32, u64>,
    is_holding: bool,
}

impl Awaited {
    /// Of a journal with these snapshots, if somebody saves any.
    pub fn new(snapshots: Option<Snapshots>) -> Self {
        Self {
            snapshots,
            newest: BTreeMap::new(),
            is_holding: false,
        }
    }

    /// How many segments have to go from the beginning of each partition.
    pub fn overdue(
        &mut self,
        partitions: &mut [RetainedPartition],
        now_ms: u64,
        bounds: Bounds,
    ) -> Vec<usize> {
        let mut overdue = retention::overdue(partitions, now_ms, bounds);
        let mut going = partitions.iter().zip(&overdue.gone);
        let takes_hits = going.any(|(kept, gone)| kept.stream == Stream::Hits && 0 < *gone);
        if takes_hits && let Some(snapshots) = &self.snapshots {
            self.newest = snapshots.newest();
            let hits = partitions.iter_mut();
            for kept in hits.filter(|kept| kept.stream == Stream::Hits) {
                // The record at a snapshot's offset is read once more: it verifies the snapshot.
                kept.needed_from = self.newest.get(&kept.index).copied().unwrap_or(0);
            }
            overdue = retention::overdue(partitions, now_ms, bounds);
        }
        self.report_held(overdue.held_back);
        overdue.gone
    }

    /// Says once that partitions keep records for longer than the retention.
    fn report_held(&mut self, partitions: usize) {
        let is_holding = 0 < partitions;
        if is_holding && !self.is_holding {
            tracing::warn!(
                partitions,
                "hits older than the retention stay until a snapshot has them; the journal grows meanwhile"
            );
        }
        self.is_holding = is_holding;
    }

    /// The event that a partition lost hits which no snapshot has, if it did: its first record has this offset now.
    pub fn lost(&self, before: &RetainedPartition, first: u64) -> Option<LogEvent> {
        if self.snapshots.is_none() || before.stream != Stream::Hits {
            return None;
        }
        let unsaved = self.newest.get(&before.index).map_or(0, |upto| upto + 1);
        let lost = unsaved.max(before.first)..first;
        Some(LogEvent::Lost {
            partition: before.index,
            from: lost.start,
            upto: lost.last()?,
        })
    }
}
