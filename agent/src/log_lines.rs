//! Lines of one kind for the log of the service that links the agent: at most one within a time.
//!
//! Every line that an aggregator, a broker or a network can cause again and again asks here first, and says with
//! `unsaid` how many were left out. Counters count each time; of a peer's words stands what
//! [`excerpt`](tollgate_shared::log_lines::excerpt) leaves. What stays true: whoever answers as an aggregator can
//! neither fill the service's disk, nor write lines of its own into its log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;

/// How often a line is logged at most, where nothing else is said.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Lines of one kind.
#[derive(Debug)]
pub(crate) struct LogLines {
    began: Instant,
    interval: Mutex<LineInterval>,
}

impl Default for LogLines {
    fn default() -> Self {
        Self::once_in(LINE_EVERY)
    }
}

impl LogLines {
    /// At most one line within this time.
    pub(crate) fn once_in(every: Duration) -> Self {
        Self {
            began: Instant::now(),
            interval: Mutex::new(LineInterval::new(Span::from_std(every))),
        }
    }

    /// Whether a line may be logged now, which is then taken as logged; with it, how many were not since the last.
    pub(crate) fn may(&self) -> Option<u64> {
        let clock = Span::from_std(self.began.elapsed());
        let mut interval = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        interval.may(clock)
    }
}
