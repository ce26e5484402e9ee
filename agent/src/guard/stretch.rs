//! A span of time that one thread moves on and others read, without a lock.
//!
//! Two numbers, so a reader may see one of them newer than the other. What stays true: no reader sees an
//! instant inside that was in neither the span before nor the one after.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The newest span of time in which news of one partition followed each other closely enough. Instants are
/// in microseconds of the agent's monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Stretch {
    since: AtomicU64,
    until: AtomicU64,
}

impl Stretch {
    /// Whether an instant lies inside.
    pub(crate) fn covers(&self, at_us: u64) -> bool {
        // A new stretch is written from its beginning, so that between the two writes it is empty; and read
        // from its end, so that the beginning that is read is at least that of the end.
        let until = self.until.load(Ordering::Acquire);
        let since = self.since.load(Ordering::Acquire);
        since <= at_us && at_us < until
    }

    /// News came now, and hold until then: a stretch that had ended begins anew. For one writer.
    pub(crate) fn extend(&self, now_us: u64, until_us: u64) {
        let before = self.until.load(Ordering::Relaxed);
        if before < now_us {
            self.since.store(now_us, Ordering::Release);
        }
        self.until.store(until_us.max(before), Ordering::Release);
    }
}
