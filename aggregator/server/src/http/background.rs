//! Work that takes milliseconds and that no ruling waits for: answers of thousands of rows are written down,
//! and explanations read from the log, in threads of the least priority.
//!
//! A thread that wakes up beside a busy one of the same priority may wait for the end of that one's slice, some
//! three milliseconds; an append wakes a handful of threads one after another. Beside a thread of the least
//! priority none of them waits. Knows nothing of what is done. What stays true: one thing is done at a time in
//! each thread, and one that panics ends no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::oneshot;

/// The niceness of the least priority that any process may take.
const LEAST_PRIORITY: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does one thing after another.
pub(super) struct Background {
    name: &'static str,
    /// `None` means that the thread could not be started.
    jobs: OnceLock<Option<Sender<Job>>>,
}

impl Background {
    /// A thread of this name, which starts with the first thing to do.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            jobs: OnceLock::new(),
        }
    }

    /// Has something done; `None` means that it panicked, or that there is no thread.
    pub async fn run<T: Send + 'static>(
        &'static self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, done) = oneshot::channel();
        let job = Box::new(move || {
            if let Ok(result) = catch_unwind(AssertUnwindSafe(job)) {
                // Whoever asked may have gone.
                let _ = sender.send(result);
            }
        });
        let jobs = self.jobs.get_or_init(|| start(self.name));
        jobs.as_ref()?.send(job).ok()?;
        done.await.ok()
    }
}

fn start(name: &'static str) -> Option<Sender<Job>> {
    let (sender, jobs) = channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    match thread.spawn(move || work(&jobs)) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(name, %error, "a thread cannot be started");
            None
        }
    }
}

fn work(jobs: &Receiver<Job>) {
    // On Linux this is said of the thread that says it. Where it may not be, answers are written all the same.
    if let Err(error) = rustix::process::setpriority_process(None, LEAST_PRIORITY) {
        tracing::warn!(%error, "a thread keeps its priority");
    }
    while let Ok(job) = jobs.recv() {
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static THREAD: Background = Background::new("a-test");

    #[tokio::test]
    async fn one_thread_of_the_least_priority_does_all_of_it_and_survives_a_panic() {
        let priority = || rustix::process::getpriority_process(None).ok();
        let seen = move || (std::thread::current().id(), priority());
        let first = THREAD.run(seen).await.expect("done");
        assert_eq!(THREAD.run(|| panic!("on purpose")).await, None::<()>);
        let second = THREAD.run(seen).await.expect("done");
        assert_eq!(first, second);
        assert_eq!(first.1, Some(LEAST_PRIORITY));
        assert_ne!(priority(), Some(LEAST_PRIORITY));
    }
}
