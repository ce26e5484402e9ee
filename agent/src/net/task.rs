//! Tasks of the network thread, whose panics are its own.
//!
//! Tokio catches a task's panic and goes on without the task, which nobody notices: of a link that is gone in this way an
//! agent would wait for answers for ever. So the driver is told and panics in turn, which ends the agent: see
//! [`crate::threads`]. Knows nothing of what the tasks do.

use std::any::Any;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::DriverEvent;

/// A task of the current runtime. Dropping this ends the task at its next await.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Task {
    /// Starts the task.
    pub(super) fn start(
        events: mpsc::WeakSender<DriverEvent>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self(start(events, work))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task that ends by itself. The driver's channel is not kept open for it.
pub(super) fn start(
    events: mpsc::WeakSender<DriverEvent>,
    work: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    let task = tokio::spawn(work);
    let handle = task.abort_handle();
    tokio::spawn(async move {
        let ended = task.await;
        if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok())
            && let Some(events) = events.upgrade()
        {
            // The driver has ended otherwise.
            let _ = events.send(DriverEvent::Panicked(Panic(panic))).await;
        }
    });
    handle
}

/// What a task panicked with.
#[derive(Debug)]
pub(crate) struct Panic(Box<dyn Any + Send>);

impl Panic {
    /// Panics with the same.
    pub(super) fn go_on(self) -> ! {
        std::panic::resume_unwind(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_driver_hears_of_a_panic_and_of_nothing_else() {
        let (sender, mut events) = mpsc::channel(4);
        start(sender.downgrade(), async {});
        drop(Task::start(sender.downgrade(), std::future::pending()));
        let panics = Task::start(sender.downgrade(), async { panic!("a fault of ours") });
        match events.recv().await {
            Some(DriverEvent::Panicked(Panic(panic))) => {
                assert_eq!(crate::callback::text_of(&*panic), "a fault of ours");
            }
            other => panic!("{other:?}"),
        }
        drop(panics);
        drop(sender);
        assert!(
            events.recv().await.is_none(),
            "no task keeps the channel open"
        );
    }
}
