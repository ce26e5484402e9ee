//! Waiting, with whatever runtime the caller has, or without one.
//!
//! The agent's network thread keeps the time, so that a caller needs no timer. If the clock is moved by hand, waiting
//! calls wake up when it moves.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tollgate_shared::time::Span;

/// The timer of waiting calls.
#[derive(Clone, Debug)]
pub(crate) enum Timer {
    /// The network thread.
    Runtime(Handle),
    /// The test or simulation that moves the clock.
    #[cfg_attr(
        not(any(test, feature = "testing")),
        allow(dead_code, reason = "only tests move clocks")
    )]
    Hand(Arc<Notify>),
}

impl Timer {
    /// Returns after `span`; with a clock moved by hand, or after the agent's end, it may return early.
    pub(crate) async fn sleep(&self, span: Span) {
        match self {
            Self::Runtime(handle) => {
                let (mut over, wait) = oneshot::channel::<()>();
                handle.spawn(async move {
                    tokio::select! {
                        () = tokio::time::sleep(span.to_std()) => {}
                        // Nobody waits any more.
                        () = over.closed() => {}
                    }
                });
                // It ends when the other half is dropped, after the time or with the runtime.
                let _ = wait.await;
            }
            Self::Hand(moved) => moved.notified().await,
        }
    }
}
