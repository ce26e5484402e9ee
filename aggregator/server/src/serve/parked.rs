//! Waits for a future on a thread that has nothing else to do, at most until an instant.
//!
//! A runtime's timers may wake a thread several times on the way to a late instant; this wakes it once. Knows nothing of
//! what it waits for. What stays true: a future that is ready is taken, even if the instant has passed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The future's output; `None` if the instant comes first.
pub fn until<F: Future>(instant: Instant, future: F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = instant.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc;

    #[test]
    fn what_is_ready_is_taken_even_after_the_instant() {
        let (sender, mut receiver) = mpsc::channel(1);
        sender.blocking_send(7).expect("room");
        assert_eq!(until(Instant::now(), receiver.recv()), Some(Some(7)));
        assert_eq!(until(Instant::now(), receiver.recv()), None);
    }

    #[test]
    fn a_waiting_thread_is_woken_by_what_it_waits_for_and_loses_nothing_at_the_instant() {
        let (sender, mut receiver) = mpsc::channel(1);
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(until(soon, receiver.recv()), None);
        let (asked, is_asked) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            is_asked.recv().expect("it waits");
            sender.blocking_send(7).expect("it waits");
        });
        let late = Instant::now() + Duration::from_secs(60);
        {
            let mut receive = pin!(receiver.recv());
            let asking = std::future::poll_fn(|context| {
                let polled = receive.as_mut().poll(context);
                // Only now, so that nothing but the waker brings the answer.
                let _ = asked.send(());
                polled
            });
            assert_eq!(until(late, asking), Some(Some(7)));
            assert!(Instant::now() < late, "woken by nothing but the instant");
        }
        assert_eq!(
            until(late, receiver.recv()),
            Some(None),
            "the sender is gone"
        );
        other.join().expect("it ends");
    }
}
