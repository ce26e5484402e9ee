//! The log as evidence: is what was announced what the log says?
//!
//! ```text
//! hits ──> replay (the engine) ──> what has to have been announced ─┐
//! denials ───────────────────────> what was announced ──────────────┴─> equal, or where not
//!     └──> the slow model, on a sample of pairs ──> does it rule the same?
//! ```
//!
//! ```text
//! source     logs that are read: a journal, Kafka, an export
//! replay     records of one partition into an engine of its own
//! ledger     what the replay states against what was announced, statement by statement
//! start      where a partition's replay begins
//! partition  one partition from its beginning, or from a snapshot, to its end
//! sequences  agents' batches that never came
//! excess     why copies were let through that had no room, by pair
//! testimonies  what owners said of their states
//! sample     the independent model beside the engine, and what reordering cost
//! reorder    what the log's order cost
//! difference what must not be
//! report     differences, excess and remarks, for programs and for people
//! export     a range of a log in one portable, digested file
//! ```
//!
//! Partitions are independent of each other, so they are audited side by side. Knows nothing of command
//! lines. What stays true: a report is given only when everything that was asked for was read; a
//! difference is never a matter of how the machine was loaded when the log was written.

pub mod amended;
mod difference;
mod excess;
pub mod export;
mod ledger;
mod partition;
pub mod range;
mod reorder;
pub mod replay;
pub mod report;
pub mod sample;
mod sequences;
pub mod source;
pub(crate) mod start;
mod testimonies;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tollgate_shared::mac::MacKey;

use crate::core::limits_book::LimitsBook;
use range::Range;
use replay::ReplayError;
use report::{Part, Report};
use sample::Model;
use source::Source;

/// What is to be audited.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which part of the log.
    pub range: Range,
    /// The key that owners sign with.
    pub key: MacKey,
    /// How many threads work.
    pub threads: usize,
    /// Which pairs the independent model is asked about.
    pub model: Model,
}

/// How far an audit is. Counted while it runs, read by whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of hits that were replayed.
    pub bytes: AtomicU64,
    /// Entries of hits that were replayed.
    pub entries: AtomicU64,
}

/// Everything that the audit of one partition needs.
pub(crate) struct Work<'a> {
    pub source: &'a dyn Source,
    pub task: &'a Task,
    pub book: Arc<LimitsBook>,
    pub progress: &'a Progress,
}

/// Audits a log.
///
/// # Errors
///
/// Where something cannot be read or cannot be ruled by this build: then there is no report.
pub fn audit(source: &dyn Source, task: &Task, progress: &Progress) -> Result<Report, ReplayError> {
    let began = Instant::now();
    let work = Work {
        source,
        task,
        book: Arc::new(source::limits_of(source)?),
        progress,
    };
    let parts = side_by_side(source.partitions(), task.threads, |index| {
        partition::audit(&work, index)
    })?;
    Ok(Report::of(source.name(), parts, began.elapsed()))
}

/// Does something for every partition on some threads; the first error ends it.
pub(crate) fn side_by_side<T: Send>(
    partitions: u32,
    threads: usize,
    each: impl Fn(u32) -> Result<T, ReplayError> + Sync,
) -> Result<Vec<T>, ReplayError> {
    let (next, failed) = (AtomicU32::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::new());
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if partitions <= index {
                return;
            }
            let result = each(index);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, partitions.max(1) as usize) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

impl Part {
    fn tell(&self, progress: &Progress, before: u64) -> u64 {
        progress
            .entries
            .fetch_add(self.entries - before, Ordering::Relaxed);
        self.entries
    }
}
