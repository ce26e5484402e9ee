//! Work that takes milliseconds and that no ruling waits for: answers of thousands of rows are written down,
//! and explanations read from the log, in threads of the least priority.
//!
//! A thread that wakes up beside a busy one of the same priority may wait for the end of that one's slice, some
//! three milliseconds; an append wakes a handful of threads one after another. Beside a thread of the least
//! priority none of them waits. Knows nothing of what is done. What stays true: one thing is done at a time in
//! each thread, and one that panics ends no other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The niceness of the least priority that any process may take.
const LEAST_PRIORITY: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

/// How often a thread that is to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A thread that does one thing after another.
pub(super) struct Background {
    name: &'static str,
    /// `None` means that there is no thread at the moment.
    thread: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
}

impl Background {
    /// A thread of this name, which starts with the first thing to do.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            thread: Mutex::new(None),
        }
    }

    /// Has something done; `None` means that it panicked, or that there is no thread.
    pub async fn run<T: Send + 'static>(
        &'static self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, done) = oneshot::channel();
        let span = tracing::Span::current();
        let job = Box::new(move || {
            let _inside = span.enter();
            if let Ok(result) = catch_unwind(AssertUnwindSafe(job)) {
                // Whoever asked may have gone.
                let _ = sender.send(result);
            }
        });
        self.send(job)?;
        done.await.ok()
    }

    /// Ends the thread once it has done what it has to do, or leaves it after a time. Something more to do would
    /// start another.
    ///
    /// The last thread of a process that leaves gives its memory back. Beside a busy machine one of the least
    /// priority takes seconds for that: four, of half a GiB.
    pub fn end(&'static self, within: Duration) {
        let Some((sender, thread)) = self.lock().take() else {
            return;
        };
        drop(sender);
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < within {
            std::thread::sleep(LOOK_EVERY);
        }
        if thread.is_finished() {
            // What it did that panicked was caught.
            let _ = thread.join();
        }
    }

    fn send(&'static self, job: Job) -> Option<()> {
        let mut thread = self.lock();
        if thread.is_none() {
            *thread = start(self.name);
        }
        let (sender, _) = thread.as_ref()?;
        sender.send(job).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Sender<Job>, JoinHandle<()>)>> {
        let thread = self.thread.lock();
        thread.unwrap_or_else(|broken| broken.into_inner())
    }
}

fn start(name: &'static str) -> Option<(Sender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = channel();
    let thread = std::thread::Builder::new().name(name.to_owned());
    match thread.spawn(move || work(&jobs)) {
        Ok(thread) => Some((sender, thread)),
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
    use std::sync::atomic::{AtomicU32, Ordering};

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

    #[tokio::test]
    async fn a_thread_that_is_ended_does_first_what_it_has_to_do() {
        static ENDING: Background = Background::new("ends");
        static DONE: AtomicU32 = AtomicU32::new(0);
        for _ in 0..1_000 {
            let count = || {
                DONE.fetch_add(1, Ordering::Relaxed);
            };
            ENDING.send(Box::new(count)).expect("a thread");
        }
        ENDING.end(Duration::from_secs(60));
        assert_eq!(DONE.load(Ordering::Relaxed), 1_000);
        assert!(ENDING.lock().is_none());
        assert_eq!(ENDING.run(|| 7).await, Some(7), "another thread");
    }
}
