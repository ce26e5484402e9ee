//! The snapshots beside a log, compared with the replay's state.
//!
//! ```text
//! the replay has read up to X ── the state of a snapshot up to X ──> equal, or a difference
//!                                it ends with another record, of another log ──> a remark
//! ```
//!
//! Snapshots of a topic that was recreated may lie beside the new one. Knows nothing of what is in a state. What stays
//! true: a snapshot of this log whose state differs is a difference.

use tollgate_engine::engine::Engine;

use super::report::{Difference, DifferenceKind, PartitionAudit};
use crate::replay::Replay;
use crate::source::Source;
use crate::start::ends_with;
use tollgate_log::Delivered;

/// The snapshots of a partition that the replay has not reached: the offset of the last record in each, the first one
/// last.
#[derive(Debug)]
pub(super) struct AuditedSnapshots(Vec<u64>);

impl AuditedSnapshots {
    /// Those from the offset `next` on.
    pub(super) fn new(source: &dyn Source, index: u32, next: u64) -> Self {
        let mut uptos = source.snapshots(index);
        uptos.retain(|upto| next <= *upto);
        uptos.reverse();
        Self(uptos)
    }

    /// Compares the next snapshot if the replay, which has just read `last`, has reached its end.
    pub(super) fn compare(
        &mut self,
        last: &Delivered,
        (source, replay): (&dyn Source, &Replay),
        part: &mut PartitionAudit,
    ) {
        let Some(upto) = self.0.pop_if(|upto| *upto <= last.offset) else {
            return;
        };
        let (index, count) = (part.partition, source.partitions());
        let mut differs = |text: String| {
            let place = (index, "hits", upto);
            part.differs(Difference::of_record(DifferenceKind::Snapshot, place, text));
        };
        let chunks = match source.snapshot(index, upto) {
            Ok(chunks) => chunks,
            Err(error) => return differs(format!("the snapshot cannot be read: {error}")),
        };
        let found = match Engine::restore(index, count, &chunks, &**replay.book()) {
            Ok(found) => found,
            Err(fault) => return differs(format!("the snapshot is damaged: {fault}")),
        };
        let (found_digest, expected) = (found.digest(), replay.engine().digest());
        let is_of_log = last.offset != upto || ends_with(&found, last);
        if found_digest == expected {
            part.snapshots += 1;
        } else if !is_of_log && found.log() != replay.engine().log() {
            let text = "snapshots of another log of this name, which was recreated or lost its end: not compared";
            part.remark("another_log_snapshots", 1, upto, text);
        } else {
            differs(format!(
                "the snapshot has another state than the replay: digest {found_digest:032x}, expected {expected:032x}"
            ));
        }
    }
}
