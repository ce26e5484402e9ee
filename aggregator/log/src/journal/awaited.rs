//! Which records of hits wait for a snapshot: the next start has to replay them, so they do not grow too old.
//!
//! Looks at the snapshots' names, and only when a segment of hits has to go. What stays true: a partition without a
//! snapshot keeps all its hits; only the bound on bytes takes them, and a log line says so.

use std::collections::BTreeMap;
use std::ops::Range;

use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;

use super::super::Stream;
use super::retention::{self, Bounds, RetainedPartition};
use super::snapshots::Snapshots;

/// How often the log says that hits are lost. While snapshots cannot be written, segments go all the time.
const LOST_EVERY: Span = Span::from_secs(60);

/// Keeps what no snapshot has.
pub(super) struct Awaited {
    /// `None`: nobody saves snapshots of this journal.
    snapshots: Option<Snapshots>,
    /// The offset of the newest snapshot of each partition, as of the last look.
    newest: BTreeMap<u32, u64>,
    is_holding: bool,
    lost_lines: LineInterval,
}

impl Awaited {
    /// Of a journal with these snapshots, if somebody saves any.
    pub fn new(snapshots: Option<Snapshots>) -> Self {
        Self {
            snapshots,
            newest: BTreeMap::new(),
            is_holding: false,
            lost_lines: LineInterval::new(LOST_EVERY),
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

    /// Says that a partition lost hits which no snapshot has, if it did: its first record has this offset now.
    pub fn report_removed(&mut self, before: &RetainedPartition, first: u64, clock: Span) {
        let lost = self.lost(before, first);
        if let Some(last) = lost.clone().last()
            && let Some(unsaid) = self.lost_lines.may(clock)
        {
            tracing::warn!(
                partition = before.index,
                from = lost.start,
                upto = last,
                unsaid,
                "hits that no snapshot has are removed, because the journal is above journal.retention_bytes: a start before \
                 the next snapshot does not know what they used"
            );
        }
    }

    /// The offsets that were removed and that no snapshot has.
    fn lost(&self, before: &RetainedPartition, first: u64) -> Range<u64> {
        if self.snapshots.is_none() || before.stream != Stream::Hits {
            return 0..0;
        }
        let unsaved = self.newest.get(&before.index).map_or(0, |upto| upto + 1);
        unsaved.max(before.first)..first
    }
}
