//! A queue for requests that take long: one at a time, and a bounded number of others wait.
//!
//! Knows nothing of the requests. What stays true: at most one is served at a time, however many wait, so that a
//! machine with two cores has one left for rulings.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

/// A queue for one at a time.
pub(super) struct Queue {
    places: Semaphore,
    turn: Semaphore,
}

/// The turn of one request, until all its clones are dropped: those of the request, and of jobs for it that outlive it
/// because the caller is gone.
#[derive(Clone)]
pub(super) struct Turn {
    _permits: Arc<[SemaphorePermit<'static>; 2]>,
}

impl Queue {
    /// A queue for at most `max` requests, including the one whose turn it is.
    pub const fn new(max: usize) -> Self {
        Self {
            places: Semaphore::const_new(max),
            turn: Semaphore::const_new(1),
        }
    }

    /// Waits for a turn; `None` if too many requests wait.
    pub async fn turn(&'static self) -> Option<Turn> {
        let place = self.places.try_acquire().ok()?;
        let turn = self.turn.acquire().await.ok()?;
        Some(Turn {
            _permits: Arc::new([place, turn]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static QUEUE: Queue = Queue::new(2);

    #[tokio::test]
    async fn one_request_runs_and_a_bounded_number_waits() {
        let first = QUEUE.turn().await.expect("a turn");
        let waits = QUEUE.turn();
        tokio::pin!(waits);
        let ready = std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx)));
        assert!(ready.await.is_pending());
        assert!(QUEUE.turn().await.is_none());
        let job = first.clone();
        drop(first);
        assert!(QUEUE.turn().await.is_none(), "a job goes on");
        drop(job);
        assert!(waits.await.is_some());
        assert!(QUEUE.turn().await.is_some());
    }
}
