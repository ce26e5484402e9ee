//! Resources whose limits are doubted: any call marks them and the listener takes the marks, without a lock.
//!
//! ```text
//! call      sets the mark of the resource, then the mark of all
//! listener  takes the mark of all, then the marks of the resources whose turn it is
//! ```
//!
//! Knows nothing of limits. What stays true: a doubt is taken, or is still there to be taken.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Whether one resource's limits are doubted.
#[derive(Debug, Default)]
pub(crate) struct Doubt(AtomicBool);

/// Whether any resource's limits are doubted, so that the listener need not look at every resource.
#[derive(Debug, Default)]
pub(crate) struct Doubts(AtomicBool);

impl Doubts {
    /// Marks the limits of one resource as doubted.
    pub(crate) fn mark(&self, one: &Doubt) {
        // The mark is hardly ever new.
        if !one.0.load(Ordering::Relaxed) {
            one.0.store(true, Ordering::Relaxed);
            self.0.swap(true, Ordering::Release);
        }
    }

    /// Returns the resources of `all` that are doubted and due; the others stay doubted. One thread only.
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
            // Not a plain store: it would hide a mark that a call has set since, and with it the call's mark of the
            // resource, which then would never be taken.
            self.0.swap(true, Ordering::AcqRel);
        }
        doubted
    }
}
