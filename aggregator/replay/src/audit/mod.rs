//! The log as evidence: is what was announced what the log says?
//!
//! ```text
//! hits ──> replay (the engine) ──> what has to have been announced ─┐
//! denials ───────────────────────> what was announced ──────────────┴─> equal, or where not
//!     └──> the slow model, on a sample of pairs ──> does it rule the same?
//! ```
//!
//! ```text
//! ledger     what the replay states against what was announced, statement by statement
//! partition  one partition from its beginning, or from a snapshot, to its end
//! sequences  agents' batches that never came
//! excess     why copies were let through that had no room, by pair
//! testimonies  what owners said of their states
//! sample     the independent model beside the engine, and what reordering cost
//! reorder    what the log's order cost
//! difference what must not be
//! report     differences, excess and remarks, for programs and for people
//! ```
//!
//! Partitions are independent of each other, so they are audited side by side. Knows nothing of command
//! lines. What stays true: a report is given only when everything that was asked for was read; a
//! difference is never a matter of how the machine was loaded when the log was written.

pub mod amended;
mod denials;
mod difference;
mod excess;
mod ledger;
mod partition;
mod reorder;
pub mod report;
pub mod sample;
mod sequences;
mod testimonies;

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
/// Where something cannot be read or cannot be ruled by this build: then there is no report.
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
    let report = AuditReport::of(source.name(), parts, began.elapsed());
    Ok(AuditReport {
        unchecked_keys: unchecked,
        ..report
    })
}

impl PartitionAudit {
    fn tell(&self, progress: &Progress, before: u64) -> u64 {
        progress
            .entries
            .fetch_add(self.entries - before, Ordering::Relaxed);
        self.entries
    }
}
