//! Log lines of one kind, in the log of the service that links the agent: at most one in each interval.
//!
//! Every line that an aggregator, a broker or a network can cause again and again is limited here, and reports in
//! `unsaid` how many were left out. Counters count every event. A peer's text is cut by
//! [`excerpt`](tollgate_shared::log_lines::excerpt). What stays true: a peer can neither fill the service's disk, nor
//! write lines of its own into its log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::Span;

/// The default interval between two lines.
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
    /// At most one line in each interval of this length.
    pub(crate) fn once_in(every: Duration) -> Self {
        Self {
            began: Instant::now(),
            interval: Mutex::new(LineInterval::new(Span::from_std(every))),
        }
    }

    /// Whether a line may be logged now; it then counts as logged. Returns how many were left out since the last one.
    pub(crate) fn may(&self) -> Option<u64> {
        let clock = Span::from_std(self.began.elapsed());
        let mut interval = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        interval.may(clock)
    }
}
