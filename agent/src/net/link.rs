//! The link to one aggregator: a DEALER socket that is reopened whenever it fails.
//!
//! The first error ends the connection, as does the driver if no answers arrive. Knows nothing of messages.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tollgate_zmtp::{SocketType, message};

use super::DriverEvent;
use super::backoff::Backoff;
use super::inbox::Inbox;
use super::slots::{Slots, connect};
use super::socket::{Socket, SocketFault};
use super::task::Task;

/// The most messages that may wait for the socket.
const ORDERS_MAX: usize = 256;

/// The driver's end of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) messages: mpsc::Sender<Bytes>,
    reopen: mpsc::Sender<()>,
    down: Down,
    _task: Task,
}

/// Since when a link has not been READY; `None` while it is.
#[derive(Clone, Debug)]
struct Down(Arc<Mutex<Option<Instant>>>);

impl Down {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

impl Link {
    /// Starts a link's task on the current runtime.
    pub(super) fn start(peer: usize, endpoint: String, slots: Slots, events: Inbox) -> Self {
        let (messages, orders) = mpsc::channel(ORDERS_MAX);
        let (reopen, reopens) = mpsc::channel(1);
        let down = Down(Arc::new(Mutex::new(Some(Instant::now()))));
        let watched = events.sender();
        let kept = keep(
            (peer, endpoint),
            (orders, reopens),
            slots,
            events,
            down.clone(),
        );
        Self {
            messages,
            reopen,
            down,
            _task: Task::start(watched, kept),
        }
    }

    /// Since when it has not been READY, counted from its start; `None` while it is.
    pub(super) fn down_since(&self) -> Option<Instant> {
        *self.down.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reopens the socket.
    pub(super) fn reopen(&self) {
        // One request is as good as two.
        let _ = self.reopen.try_send(());
    }
}

async fn keep(
    (peer, endpoint): (usize, String),
    (mut orders, mut reopens): (mpsc::Receiver<Bytes>, mpsc::Receiver<()>),
    slots: Slots,
    events: Inbox,
    down: Down,
) {
    let mut backoff = Backoff::new();
    while !orders.is_closed() {
        let slot = slots.take().await;
        if let Some(socket) = connect(SocketType::Dealer, &endpoint, &slots, &[]).await {
            down.set(None);
            // Waiting messages were meant for the previous connection; their senders send them again if still needed.
            while orders.try_recv().is_ok() {}
            while reopens.try_recv().is_ok() {}
            if !events.send(DriverEvent::LinkUp { peer }).await {
                return;
            }
            let mut answered = false;
            let ended = converse(
                peer,
                socket,
                (&mut orders, &mut reopens),
                &events,
                &mut answered,
            );
            slots.note(&endpoint, ended.await);
            down.set(Some(Instant::now()));
            if !events.send(DriverEvent::LinkDown { peer }).await {
                return;
            }
            if answered {
                backoff.worked();
            }
        }
        drop(slot);
        tokio::time::sleep(backoff.pause(rand::random())).await;
    }
}

/// Carries messages both ways until something fails, or the driver ends it.
async fn converse(
    peer: usize,
    mut socket: Socket,
    (orders, reopens): (&mut mpsc::Receiver<Bytes>, &mut mpsc::Receiver<()>),
    events: &Inbox,
    answered: &mut bool,
) -> Result<(), SocketFault> {
    loop {
        let has_room = socket.has_room();
        tokio::select! {
            received = socket.next() => {
                let Some(message) = received?.pop() else {
                    continue;
                };
                *answered = true;
                if !events.send(DriverEvent::LinkMessage { peer, message }).await {
                    return Ok(());
                }
            }
            order = orders.recv(), if has_room => match order {
                Some(order) => {
                    socket.send(message(&[&order]));
                    // Everything else that waits goes with it: one system call for a whole flush.
                    while socket.has_room()
                        && let Ok(order) = orders.try_recv()
                    {
                        socket.send(message(&[&order]));
                    }
                }
                None => return Ok(()),
            },
            _ = reopens.recv() => return Ok(()),
        }
    }
}
