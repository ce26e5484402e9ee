//! A span of time that one thread moves on and others read, without a lock.
//!
//! It consists of two numbers, so a reader may see one of them newer than the other. What stays true: no reader takes
//! an instant to be inside that was neither in the span before a change nor in the one after it.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The newest span of time in which watermarks of one partition followed each other closely enough. Instants are in
/// microseconds of the agent's monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    since: AtomicU64,
    until: AtomicU64,
}

impl Stretch {
    /// Whether an instant lies inside.
    pub(crate) fn covers(&self, at_us: u64) -> bool {
        // The writer writes the beginning of a new stretch first, so that between the two writes the stretch is
        // empty. The reader reads the end first, so that the beginning that it reads is as new as the end, or newer.
        let until = self.until.load(Ordering::Acquire);
        let since = self.since.load(Ordering::Acquire);
        since <= at_us && at_us < until
    }

    /// A watermark arrived at `now_us` and holds until `until_us`. A stretch that had ended starts again. One writer
    /// only.
    pub(crate) fn extend(&self, now_us: u64, until_us: u64) {
        let before = self.until.load(Ordering::Relaxed);
        if before < now_us {
            self.since.store(now_us, Ordering::Release);
        }
        self.until.store(until_us.max(before), Ordering::Release);
    }
}
