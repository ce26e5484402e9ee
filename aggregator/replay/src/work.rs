//! A task on a log, its progress, and partitions in parallel.
//!
//! Partitions are independent of each other, so each is read by one thread. Knows nothing of the
//! task's purpose.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::Keyring;

use crate::range::Range;
use crate::replay::ReplayError;
use crate::source::Source;

/// The pairs that the model rules.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Model {
    /// All pairs of a small log, a share of them in a large one.
    Auto,
    /// No pairs.
    None,
    /// This share of the pairs, above 0 and at most 1.
    Share(f64),
}

/// A log with at most this many bytes of hits is small: the model reads it in some seconds.
const SMALL_BYTES: u64 = 16 * 1024 * 1024;

/// The share if the log's size is not known.
const SHARE_UNKNOWN: f64 = 0.01;

impl Model {
    /// The share of pairs for a log with `bytes` bytes of hits.
    pub fn share(self, bytes: Option<u64>) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Share(share) => share,
            Self::Auto => match bytes {
                Some(bytes) if bytes <= SMALL_BYTES => 1.0,
                Some(bytes) => SMALL_BYTES as f64 / bytes as f64,
                None => SHARE_UNKNOWN,
            },
        }
    }
}

/// What to read, and how.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which part of the log.
    pub range: Range,
    /// The keys that aggregators sign with.
    pub keys: Keyring,
    /// How many threads to use.
    pub threads: usize,
    /// The pairs that the independent model rules.
    pub model: Model,
}

/// The progress of a task. Worker threads count; a display reads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of hits that were replayed.
    pub bytes: AtomicU64,
    /// Entries of hits that were replayed.
    pub entries: AtomicU64,
}

/// Everything that the reading of one partition needs.
pub(crate) struct Work<'a> {
    pub source: &'a dyn Source,
    pub task: &'a Task,
    pub book: Arc<LimitsBook>,
    pub progress: &'a Progress,
}

/// Runs a task for every partition on several threads; the first error ends it.
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
