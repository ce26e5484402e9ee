//! How a flusher is asked to end, by a shutdown of the agent or the drop of its last handle.
//!
//! What stays true: a flusher that sees the request before it drains then drains everything recorded before the
//! request.

use crate::sync::atomic::{AtomicBool, Ordering};

/// The request to end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    flush: AtomicBool,
    now: AtomicBool,
}

impl Ending {
    /// Asks the flusher to hand over everything and then end.
    pub(crate) fn ask_to_flush(&self) {
        self.flush.store(true, Ordering::Release);
    }

    /// Whether to hand over everything: what was recorded before the request is visible after this returns `true`.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flush.load(Ordering::Acquire)
    }

    /// Asks the flusher to end now.
    pub(crate) fn ask_to_end(&self) {
        self.now.store(true, Ordering::Release);
    }

    /// Whether to end now.
    pub(crate) fn is_now(&self) -> bool {
        self.now.load(Ordering::Acquire)
    }
}
