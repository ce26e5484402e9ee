//! Waiting, whatever runtime the caller has, or none of its own.
//!
//! The agent's network thread keeps the time, so that a caller needs no timer. Where the clock is moved
//! by hand, whoever waits wakes up when it is.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tollgate_shared::time::Span;

/// What keeps the time of those who wait.
#[derive(Clone, Debug)]
pub(crate) enum Timer {
    /// The network thread.
    Runtime(Handle),
    /// Whoever moves the clock.
    #[cfg_attr(
        not(any(test, feature = "testing")),
        allow(dead_code, reason = "only tests move clocks")
    )]
    Hand(Arc<Notify>),
}

impl Timer {
    /// Returns after `span`; a timer by hand may return early, as may one whose agent has ended.
    pub(crate) async fn sleep(&self, span: Span) {
        match self {
            Self::Runtime(handle) => {
                let (over, wait) = oneshot::channel::<()>();
                handle.spawn(async move {
                    tokio::time::sleep(span.to_std()).await;
                    drop(over);
                });
                // It ends when the other half is dropped, after the time or with the runtime.
                let _ = wait.await;
            }
            Self::Hand(moved) => moved.notified().await,
        }
    }
}
