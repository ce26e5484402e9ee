//! Threads for TLS handshakes: as many as cores, separate from those that rule or publish.
//!
//! A handshake costs some tenths of a millisecond of CPU time. A thousand agents that return at once would keep the
//! feed's only thread from publishing for the sum of their handshakes, so handshakes have their own threads. What
//! stays true: as many are computed at once as there are cores; those that wait for their peers occupy no thread,
//! and the edge bounds their number.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};

/// The threads.
#[derive(Debug)]
pub struct Handshakes(Option<Runtime>);

impl Handshakes {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// If a thread cannot be created.
    pub fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores)
            .thread_name("tollgate-tls")
            .enable_time()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a handshake on these threads; `None` if they have ended.
    pub async fn run<T: Send + 'static>(
        &self,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let task = self.0.as_ref()?.spawn(handshake);
        // If the caller no longer waits, the handshake is cancelled.
        let mut ends = EndsWithCaller(Some(task));
        match &mut ends.0 {
            Some(task) => task.await.ok(),
            None => None,
        }
    }
}

struct EndsWithCaller<T>(Option<tokio::task::JoinHandle<T>>);

impl<T> Drop for EndsWithCaller<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        // This may be dropped within another runtime, where blocking is not allowed.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
