//! A task that ends when its handle is dropped.

use tokio::task::AbortHandle;

/// A task of the current runtime. Dropping this ends the task at its next await.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Task {
    /// Starts the task.
    pub(super) fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
