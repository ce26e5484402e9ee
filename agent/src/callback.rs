//! Calls of the host's own code on the agent's threads.
//!
//! What stays true: whatever a callback does, the thread goes on. A panic of a callback is counted, and logged at
//! most once a second. If the host aborts on panics, the agent cannot catch them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate_shared::log_lines::excerpt;

use crate::stats::Counters;

/// Runs a callback.
pub(crate) fn call(counters: &Counters, name: &'static str, callback: impl FnOnce()) {
    // None of the agent's state is changed while the callback runs, so a panic leaves nothing half done.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
        Counters::add(&counters.callbacks_panicked, 1);
        if let Some(unsaid) = counters.panic_lines.may() {
            let text = text_of(&*panic);
            // The logger is the host's code, too.
            let log =
                || tracing::error!(callback = name, panic = %text, unsaid, "a callback panicked");
            if let Err(panic) = catch_unwind(AssertUnwindSafe(log)) {
                drop_panic(panic);
            }
        }
        drop_panic(panic);
    }
}

/// The text of a panic, which may contain text from an aggregator.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    excerpt(text.unwrap_or("no text")).to_string()
}

/// Drops a panic's payload, which may panic in its own drop; the payload of that second panic is leaked.
pub(crate) fn drop_panic(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// A logger that panics at each line.
    struct Panics;

    impl Subscriber for Panics {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            panic!("nothing can be written");
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_logger_that_panics_ends_no_thread() {
        let counters = Counters::default();
        tracing::subscriber::with_default(Panics, || {
            call(&counters, "on_hold", || panic!("a fault of the host"));
        });
        assert_eq!(counters.callbacks_panicked.load(Ordering::Relaxed), 1);
    }
}
