//! Work that takes milliseconds and that no ruling waits for, in threads of the least priority: serialising
//! answers of thousands of rows, and reading explanations from the log.
//!
//! A thread that wakes up beside a busy one of the same priority may wait for the end of that one's time slice,
//! about three milliseconds; an append wakes several threads one after another. Beside a thread of the least
//! priority none of them waits. Knows nothing of what the jobs do. What stays true: each thread does one job at a
//! time; a job that panics ends no other; and a request has its turn until its job is over, also if the caller is gone,
//! so that no more jobs wait than the queues of requests have places.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::queue::Turn;

/// The niceness of the least priority that any process may take.
const LEAST_PRIORITY: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

/// How often [`Background::end`] checks whether the thread has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A thread that does one job after another.
pub(super) struct Background {
    name: &'static str,
    /// `None`: no thread is running at the moment.
    thread: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
}

impl Background {
    /// A thread of this name, which starts with its first job.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            thread: Mutex::new(None),
        }
    }

    /// Runs a job in a request's turn; `None`: the job panicked, or the thread could not be started.
    pub async fn run<T: Send + 'static>(
        &'static self,
        turn: &Turn,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, done) = oneshot::channel();
        let (span, turn) = (tracing::Span::current(), turn.clone());
        let job = Box::new(move || {
            let (_turn, _inside) = (turn, span.enter());
            if sender.is_closed() {
                return;
            }
            if let Ok(result) = catch_unwind(AssertUnwindSafe(job)) {
                // The caller may be gone.
                let _ = sender.send(result);
            }
        });
        self.send(job)?;
        done.await.ok()
    }

    /// Ends the thread once it has finished its jobs, or stops waiting for it after a time. A later job would start
    /// another.
    ///
    /// The last thread of a process that exits frees its memory. On a busy machine a thread of the least priority
    /// takes seconds for that: four for half a GiB.
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
            // Panics of jobs were caught.
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
    // On Linux this concerns the calling thread only. If it is not permitted, answers are written all the same.
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
    use crate::http::queue::Queue;

    static THREAD: Background = Background::new("a-test");
    static QUEUE: Queue = Queue::new(8);

    #[tokio::test]
    async fn one_thread_of_least_priority_survives_a_panic() {
        let priority = || rustix::process::getpriority_process(None).ok();
        let seen = move || (std::thread::current().id(), priority());
        let turn = QUEUE.turn().await.expect("a turn");
        let first = THREAD.run(&turn, seen).await.expect("done");
        let panics = THREAD.run(&turn, || panic!("on purpose"));
        assert_eq!(panics.await, None::<()>);
        let second = THREAD.run(&turn, seen).await.expect("done");
        assert_eq!(first, second);
        assert_eq!(first.1, Some(LEAST_PRIORITY));
        assert_ne!(priority(), Some(LEAST_PRIORITY));
    }

    #[tokio::test]
    async fn a_stopped_thread_finishes_its_queue_first() {
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
        let turn = QUEUE.turn().await.expect("a turn");
        assert_eq!(ENDING.run(&turn, || 7).await, Some(7), "another thread");
    }

    #[tokio::test]
    async fn a_job_whose_caller_is_gone_keeps_its_turn_and_is_not_done() {
        static ALONE: Queue = Queue::new(1);
        static BUSY: Background = Background::new("busy");
        let (go, wait) = channel::<()>();
        BUSY.send(Box::new(move || {
            let _ = wait.recv();
        }))
        .expect("a thread");
        let turn = ALONE.turn().await.expect("a turn");
        let asked = BUSY.run(&turn, || panic!("nobody waits for it"));
        assert!(
            tokio::time::timeout(Duration::from_millis(1), asked)
                .await
                .is_err()
        );
        drop(turn);
        assert!(ALONE.turn().await.is_none(), "its job still waits");
        drop(go);
        BUSY.end(Duration::from_secs(60));
        assert!(ALONE.turn().await.is_some());
    }
}
