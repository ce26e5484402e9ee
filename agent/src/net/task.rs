//! Tasks of the network thread. A panic of a task is a panic of the thread.
//!
//! Tokio catches the panic of a task, and goes on without it. Without its link, an agent would wait for answers for
//! ever. So the driver gets the panic and resumes it, which ends the agent: see [`crate::threads`]. Knows nothing of what
//! the tasks do. A panic within a lookup of the system's resolver is an error of that lookup.

use std::any::Any;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError};

use super::DriverEvent;

/// A task of the current runtime. Dropping this ends the task at its next await.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Task {
    /// Starts the task. Like the task itself, this keeps the driver's channel open until the task has ended.
    pub(super) fn start(
        events: mpsc::Sender<DriverEvent>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self(watched(work, move || Some(events)))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task that ends by itself, and that does not keep the driver's channel open.
pub(super) fn start_beside(
    events: mpsc::WeakSender<DriverEvent>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    watched(work, move || events.upgrade());
}

/// Starts a task whose panic goes to the driver, if that has a channel.
fn watched(
    work: impl Future<Output = ()> + Send + 'static,
    events: impl FnOnce() -> Option<mpsc::Sender<DriverEvent>> + Send + 'static,
) -> AbortHandle {
    let task = tokio::spawn(work);
    let handle = task.abort_handle();
    tokio::spawn(async move {
        if let Some(panic) = Panic::of(task.await)
            && let Some(events) = events()
        {
            // If this fails, the driver has ended.
            let _ = events.send(DriverEvent::Panicked(panic)).await;
        }
    });
    handle
}

/// The payload of a task's panic.
#[derive(Debug)]
pub(crate) struct Panic(Box<dyn Any + Send>);

impl Panic {
    fn of(ended: Result<(), JoinError>) -> Option<Self> {
        ended.err()?.try_into_panic().ok().map(Self)
    }

    /// Resumes the panic.
    pub(super) fn resume(self) -> ! {
        std::panic::resume_unwind(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn expect_panic(events: &mut mpsc::Receiver<DriverEvent>, expected: &str) {
        match events.recv().await {
            Some(DriverEvent::Panicked(Panic(panic))) => {
                assert_eq!(crate::callback::text_of(&*panic), expected);
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn the_driver_gets_a_panic_and_no_other_end() {
        let (sender, mut events) = mpsc::channel(4);
        start_beside(sender.downgrade(), async {});
        drop(Task::start(sender.clone(), std::future::pending()));
        let _task = Task::start(sender.clone(), async { panic!("of a link") });
        expect_panic(&mut events, "of a link").await;
        start_beside(sender.downgrade(), async { panic!("of a name") });
        expect_panic(&mut events, "of a name").await;
        drop(sender);
        assert!(
            events.recv().await.is_none(),
            "no task keeps the channel open"
        );
    }

    /// The task has the last sender of its own.
    #[tokio::test]
    async fn a_panic_of_the_last_task_is_not_lost() {
        let (sender, mut events) = mpsc::channel(4);
        let own = sender.clone();
        let _task = Task::start(sender, async move {
            drop(own);
            panic!("of the last")
        });
        expect_panic(&mut events, "of the last").await;
    }
}
