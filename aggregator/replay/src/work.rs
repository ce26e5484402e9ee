//! What somebody wants of a log, how far it is, and partitions side by side.
//!
//! Partitions are independent of each other, so each is read by one thread. Knows nothing of what is done with them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::keyring::Keyring;

use crate::range::Range;
use crate::replay::ReplayError;
use crate::source::Source;

/// Which pairs the model is asked about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Model {
    /// All in a small log, a share of them in a large one.
    Auto,
    /// None.
    None,
    /// This share of them, above 0 and at most 1.
    Share(f64),
}

/// A log of so many bytes of hits is small: the model reads it in some seconds.
const SMALL_BYTES: u64 = 16 * 1024 * 1024;

/// The share where nobody knows how large the log is.
const SHARE_UNKNOWN: f64 = 0.01;

impl Model {
    /// The share of pairs of a log with so many bytes of hits.
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

/// What is to be read, and how.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which part of the log.
    pub range: Range,
    /// The keys that owners sign with.
    pub keys: Keyring,
    /// How many threads work.
    pub threads: usize,
    /// Which pairs the independent model is asked about.
    pub model: Model,
}

/// How far that is. Counted while it runs, read by whoever shows it.
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
