//! How a flusher is told to end, by whoever shuts the agent down or lets go of it.
//!
//! What stays true: what was recorded before the telling is drained by whoever asks before it drains.

use crate::sync::atomic::{AtomicBool, Ordering};

/// How a flusher is told to end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    flush: AtomicBool,
    now: AtomicBool,
}

impl Ending {
    /// Hand over everything, then end.
    pub(crate) fn ask_to_flush(&self) {
        self.flush.store(true, Ordering::Release);
    }

    /// Whether everything is to be handed over: what was recorded before the asking is seen after this.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flush.load(Ordering::Acquire)
    }

    /// End now.
    pub(crate) fn ask_to_end(&self) {
        self.now.store(true, Ordering::Release);
    }

    /// Whether to end now.
    pub(crate) fn is_now(&self) -> bool {
        self.now.load(Ordering::Acquire)
    }
}
