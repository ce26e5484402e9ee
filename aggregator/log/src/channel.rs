//! The channel by which a log sends its events to its owner.
//!
//! Each sending may wake the owner. So events that belong together are sent at once, and the owner still takes them one by
//! one. Knows nothing of what events mean. What stays true: events keep their order; what waits is bounded by the number
//! of sendings, and the owner holds at most one of them that it has not used up.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use super::LogEvent;

/// A channel for this many sendings.
pub fn channel(sendings_max: usize) -> (LogSender, LogReceiver) {
    let (sender, inbox) = mpsc::channel(sendings_max);
    let receiver = LogReceiver {
        inbox,
        waiting: VecDeque::new(),
    };
    (LogSender(sender), receiver)
}

/// A log's end.
#[derive(Clone, Debug)]
pub struct LogSender(mpsc::Sender<Vec<LogEvent>>);

impl LogSender {
    /// Sends an event; waits while the channel is full. If the owner is gone, nobody receives it.
    pub fn send(&self, event: LogEvent) {
        self.send_all(vec![event]);
    }

    /// Sends events at once, in this order; as [`Self::send`].
    pub fn send_all(&self, events: Vec<LogEvent>) {
        // An error means that the owner is gone.
        let _ = self.0.blocking_send(events);
    }
}

/// The owner's end.
#[derive(Debug)]
pub struct LogReceiver {
    inbox: mpsc::Receiver<Vec<LogEvent>>,
    waiting: VecDeque<LogEvent>,
}

impl LogReceiver {
    /// The next event; `None` once the log is gone and everything was taken. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<LogEvent> {
        while self.waiting.is_empty() {
            self.waiting = self.inbox.recv().await?.into();
        }
        self.waiting.pop_front()
    }

    /// The next event, for a thread that may wait.
    pub fn blocking_recv(&mut self) -> Option<LogEvent> {
        while self.waiting.is_empty() {
            self.waiting = self.inbox.blocking_recv()?.into();
        }
        self.waiting.pop_front()
    }

    /// The next event, if there is one already.
    pub fn try_recv(&mut self) -> Option<LogEvent> {
        while self.waiting.is_empty() {
            self.waiting = self.inbox.try_recv().ok()?.into();
        }
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_one_by_one_in_the_order_in_which_they_were_sent() {
        let (sender, mut receiver) = channel(4);
        assert_eq!(receiver.try_recv(), None);
        let down = |why: &str| LogEvent::Down { why: why.into() };
        sender.send(down("a"));
        sender.send_all(Vec::new());
        sender.send_all(vec![down("b"), LogEvent::Up]);
        drop(sender);
        assert_eq!(receiver.blocking_recv(), Some(down("a")));
        assert_eq!(receiver.try_recv(), Some(down("b")));
        assert_eq!(receiver.blocking_recv(), Some(LogEvent::Up));
        assert_eq!(
            (receiver.blocking_recv(), receiver.try_recv()),
            (None, None)
        );
    }
}
