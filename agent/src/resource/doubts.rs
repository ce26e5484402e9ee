//! Whose limits are doubted: said by any call, taken by the listener, without a lock.
//!
//! ```text
//! call      mark of the resource, then the mark of all
//! listener  mark of all is taken, then the marks of the resources whose turn it is
//! ```
//!
//! Knows nothing of limits. What stays true: a doubt is taken, or is there to be taken.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Whether one resource's limits are doubted.
#[derive(Debug, Default)]
pub(crate) struct Doubt(AtomicBool);

/// Whether those of any are, so that nobody else looks for them.
#[derive(Debug, Default)]
pub(crate) struct Doubts(AtomicBool);

impl Doubts {
    /// The limits that this mark is of are doubted.
    pub(crate) fn say(&self, one: &Doubt) {
        // Hardly ever the first to say so.
        if !one.0.load(Ordering::Relaxed) {
            one.0.store(true, Ordering::Relaxed);
            self.0.swap(true, Ordering::Release);
        }
    }

    /// Of all that `all` gives those that are doubted and due; the others stay doubted. For one thread.
    pub(crate) fn take<T>(
        &self,
        all: impl FnOnce() -> Vec<T>,
        mark: impl Fn(&T) -> &Doubt,
        is_due: impl Fn(&T) -> bool,
    ) -> Vec<T> {
        if !self.0.load(Ordering::Relaxed) || !self.0.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let mut doubted = all();
        doubted.retain(|one| mark(one).0.load(Ordering::Relaxed));
        let marked = doubted.len();
        doubted.retain(is_due);
        for one in &doubted {
            mark(one).0.store(false, Ordering::Relaxed);
        }
        if doubted.len() < marked {
            // Not a plain store: it would hide a mark that a call has set since, and with it the call's mark of
            // the resource, which nobody would look for any more.
            self.0.swap(true, Ordering::AcqRel);
        }
        doubted
    }
}
