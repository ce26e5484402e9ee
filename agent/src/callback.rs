//! Calls of the host's own code on the network thread.
//!
//! What stays true: whatever it does, the thread goes on. A panic of it is counted, and logged once a second;
//! where the
//! host aborts on panics nobody can catch one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate_shared::log_lines::excerpt;

use crate::stats::Counters;

/// Calls back.
pub(crate) fn call(counters: &Counters, name: &'static str, callback: impl FnOnce()) {
    // Nothing of the agent's is changed while it runs, so that nothing can be left half done.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
        Counters::add(&counters.callbacks_panicked, 1);
        if let Some(unsaid) = counters.panic_lines.may() {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            // It may tell what an aggregator said.
            let text = excerpt(text.unwrap_or("no text"));
            tracing::error!(callback = name, panic = %text, unsaid, "a callback panicked");
        }
        // What it panicked with may panic in its own drop; what that panics with is let be.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
    }
}
