//! The audit: does what aggregators announced follow from the log?
//!
//! ```text
//! hits ──> replay (the engine) ──> what has to have been announced ─┐
//! denials ───────────────────────> what was announced ──────────────┴─> equal, or where not
//!     └──> the slow model, on a sample of pairs ──> does it rule the same?
//! ```
//!
//! ```text
//! ledger     the replay's statements against the recorded ones, statement by statement
//! partition  one partition from its beginning, or from a snapshot, to its end
//! sequences  agents' batches that never arrived
//! excess     why excess copies were let through, by pair
//! snapshots  the snapshots beside the log
//! digests    the state digests of ruling aggregators
//! sample     the independent model beside the engine, and the cost of reordering
//! reorder    the cost of the log's order
//! difference one difference
//! report     differences, excess and remarks, for programs and for people
//! ```
//!
//! Partitions are independent of each other, so they are audited in parallel. Knows nothing of
//! command lines. What stays true: a report names each partition that retention left too little of to audit, and
//! calls nothing equal then; there is no report if anything else was not read; a difference never depends on the load
//! of the machine when the log was written.

pub mod amended;
mod checked;
mod denials;
mod difference;
mod excess;
mod ledger;
mod partition;
mod reorder;
pub mod report;
pub mod sample;
mod sequences;
mod snapshots;
mod state_digests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::replay::ReplayError;
use crate::source::{self, Source};
use crate::tags;
use crate::work::{Progress, Task, Work, side_by_side};
use report::{AuditReport, PartitionAudit};

/// Audits a log.
///
/// # Errors
///
/// If something cannot be read, or cannot be ruled by this build: then there is no report. Retention took too much of
/// each partition.
pub fn audit(
    source: &dyn Source,
    task: &Task,
    progress: &Progress,
) -> Result<AuditReport, ReplayError> {
    let began = Instant::now();
    let work = Work {
        source,
        task,
        book: Arc::new(source::limits_of(source)?),
        progress,
    };
    let unchecked = tags::unchecked(&task.keys, &work.book);
    let parts = side_by_side(source.partitions(), task.threads, |index| {
        partition::audit(&work, index)
    })?;
    let mut wanted = parts.iter().filter(|part| task.range.has(part.partition));
    let is_audited = |part: &PartitionAudit| part.not_audited.is_none();
    if !wanted.any(is_audited)
        && let Some(error) = parts.iter().find_map(|part| part.not_audited.clone())
    {
        return Err(error);
    }
    let report = AuditReport::of(source.name(), parts, began.elapsed());
    Ok(AuditReport {
        unchecked_keys: unchecked,
        ..report
    })
}

impl PartitionAudit {
    fn report_progress(&self, progress: &Progress, before: u64) -> u64 {
        progress
            .entries
            .fetch_add(self.entries - before, Ordering::Relaxed);
        self.entries
    }
}
