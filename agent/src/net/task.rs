//! A task that ends with whoever started it.

use tokio::task::AbortHandle;

/// A task of the current runtime. It is ended where it waits next, when this is dropped.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Task {
    /// Starts it.
    pub(super) fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
