//! The channel from the sockets' tasks to the driver: bounded in events, and in bytes of messages.
//!
//! A peer decides how much it sends and how fast; while the driver is behind, sockets are not read. What stays true: at
//! most [`BYTES_MAX`] of messages wait for the driver.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::DriverEvent;

/// The most bytes of messages and frames that may wait for the driver: sixteen of the greatest.
const BYTES_MAX: usize = 16 << 20;

/// A message's cost beside its bytes.
const MESSAGE_BYTES: usize = 256;

/// The sockets' end.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    events: mpsc::Sender<DriverEvent>,
    room: InboxRoom,
}

/// The room for bytes that wait.
#[derive(Clone, Debug)]
pub(super) struct InboxRoom(Arc<Semaphore>);

impl InboxRoom {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BYTES_MAX)))
    }

    /// An event was handled.
    pub(super) fn free(&self, bytes: usize) {
        self.0.add_permits(bytes);
    }
}

impl Inbox {
    pub(super) fn new(events: mpsc::Sender<DriverEvent>, room: InboxRoom) -> Self {
        Self { events, room }
    }

    /// The channel itself, for events without bytes.
    pub(super) fn sender(&self) -> mpsc::Sender<DriverEvent> {
        self.events.clone()
    }

    /// Passes an event to the driver, once there is room. Returns whether the driver still takes events.
    pub(super) async fn send(&self, event: DriverEvent) -> bool {
        let bytes = u32::try_from(cost(&event)).unwrap_or(u32::MAX);
        if bytes != 0 {
            match self.room.0.acquire_many(bytes).await {
                Ok(permit) => permit.forget(),
                Err(_) => return false,
            }
        }
        self.events.send(event).await.is_ok()
    }
}

/// The room that an event takes.
pub(super) fn cost(event: &DriverEvent) -> usize {
    match event {
        DriverEvent::LinkMessage { message, .. } => (message.len() + MESSAGE_BYTES).min(BYTES_MAX),
        DriverEvent::FeedFrame { frame, .. } => (frame.len() + MESSAGE_BYTES).min(BYTES_MAX),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_floods_waits_until_the_hub_has_handled_what_came() {
        let (events, mut received) = mpsc::channel(4_096);
        let room = InboxRoom::new();
        let inbox = Inbox::new(events, room.clone());
        let message = Bytes::from(vec![0; 1 << 20]);
        let make_event = || DriverEvent::LinkMessage {
            peer: 0,
            message: message.clone(),
        };
        let soon = std::time::Duration::from_secs(1);
        let mut sent = 0;
        while tokio::time::timeout(soon, inbox.send(make_event()))
            .await
            .is_ok()
        {
            sent += 1;
        }
        assert_eq!(sent, 15, "of a MiB and what it costs beside");
        let handled = received.recv().await.unwrap();
        room.free(cost(&handled));
        let next = tokio::time::timeout(soon, inbox.send(make_event())).await;
        assert_eq!(next, Ok(true));
    }
}
