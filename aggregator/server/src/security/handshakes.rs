//! Threads for TLS handshakes: as many as cores, and none of those that rule or publish.
//!
//! A handshake costs some tenths of a millisecond of processor. A thousand agents that come back at once would keep
//! the feed's one thread from publishing for as long as theirs take together, so handshakes have threads of their
//! own. What stays true: as many are worked on at once as there are cores; those that wait for their peers cost no
//! thread, and their number is the edge's to bound.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};

/// The threads.
#[derive(Debug)]
pub struct Handshakes(Option<Runtime>);

impl Handshakes {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// Where no thread is to be had.
    pub fn start() -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores)
            .thread_name("tollgate-tls")
            .enable_time()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a handshake on them; `None` where they are at an end.
    pub async fn run<T: Send + 'static>(
        &self,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let task = self.0.as_ref()?.spawn(handshake);
        // Whoever no longer waits for it wants no handshake.
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
        // It may be dropped within another runtime, where nothing may be waited for.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
