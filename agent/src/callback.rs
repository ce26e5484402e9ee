//! Calls of the host's own code on the network thread.
//!
//! What stays true: whatever a callback does, the thread goes on. A panic of a callback is counted, and logged at
//! most once a second. If the host aborts on panics, the agent cannot catch them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate_shared::log_lines::excerpt;

use crate::stats::Counters;

/// Runs a callback.
pub(crate) fn call(counters: &Counters, name: &'static str, callback: impl FnOnce()) {
    // None of the agent's state is changed while the callback runs, so a panic leaves nothing half done.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
        Counters::add(&counters.callbacks_panicked, 1);
        if let Some(unsaid) = counters.panic_lines.may() {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            // The panic's text may contain text from an aggregator.
            let text = excerpt(text.unwrap_or("no text"));
            tracing::error!(callback = name, panic = %text, unsaid, "a callback panicked");
        }
        // The panic's payload may panic in its own drop; the payload of that second panic is leaked.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
    }
}
