//! The link to one aggregator: a DEALER socket that is made anew whenever it fails.
//!
//! The crate's DEALER does not connect again by itself, and goes on saying that it sent; so the first
//! error or a word from the hub, who hears no answers, ends the socket. Knows nothing of messages.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket as _, SocketRecv as _, SocketSend as _, ZmqMessage};

use super::{CONNECT_WITHIN, Event, PAUSE_FIRST, longer, socket_options};

/// Messages that may wait for the socket.
const ORDERS_MAX: usize = 256;

/// How long the socket may hold up a message: its own queue takes 100,000.
const SEND_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The hub's end of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) messages: mpsc::Sender<Bytes>,
    reopen: mpsc::Sender<()>,
}

impl Link {
    /// Starts a link's task on the current runtime.
    pub(super) fn start(peer: usize, endpoint: String, events: mpsc::Sender<Event>) -> Self {
        let (messages, orders) = mpsc::channel(ORDERS_MAX);
        let (reopen, reopens) = mpsc::channel(1);
        tokio::spawn(keep(peer, endpoint, orders, reopens, events));
        Self { messages, reopen }
    }

    /// The socket is to be made anew.
    pub(super) fn reopen(&self) {
        // One telling is as good as two.
        let _ = self.reopen.try_send(());
    }
}

async fn keep(
    peer: usize,
    endpoint: String,
    mut orders: mpsc::Receiver<Bytes>,
    mut reopens: mpsc::Receiver<()>,
    events: mpsc::Sender<Event>,
) {
    let mut pause = PAUSE_FIRST;
    while !orders.is_closed() {
        let mut socket = DealerSocket::with_options(socket_options());
        if matches!(
            timeout(CONNECT_WITHIN, socket.connect(&endpoint)).await,
            Ok(Ok(()))
        ) {
            // What waits was meant for the connection before; whoever still wants it sends it again.
            while orders.try_recv().is_ok() {}
            while reopens.try_recv().is_ok() {}
            if events.send(Event::LinkUp { peer }).await.is_err() {
                return;
            }
            let answered = converse(peer, socket, &mut orders, &mut reopens, &events).await;
            if events.send(Event::LinkDown { peer }).await.is_err() {
                return;
            }
            pause = if answered { PAUSE_FIRST } else { longer(pause) };
        } else {
            pause = longer(pause);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Carries messages both ways until something fails; whether any came.
async fn converse(
    peer: usize,
    socket: DealerSocket,
    orders: &mut mpsc::Receiver<Bytes>,
    reopens: &mut mpsc::Receiver<()>,
    events: &mpsc::Sender<Event>,
) -> bool {
    let (mut sending, mut receiving) = socket.split();
    let mut answered = false;
    loop {
        tokio::select! {
            message = receiving.recv() => {
                let Some(message) = message.ok().and_then(|message| message.into_vec().pop()) else {
                    return answered;
                };
                answered = true;
                if events.send(Event::LinkSaid { peer, message }).await.is_err() {
                    return answered;
                }
            }
            order = orders.recv() => {
                let Some(message) = order else {
                    return answered;
                };
                let sent = timeout(SEND_WITHIN, sending.send(ZmqMessage::from(message))).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return answered;
                }
            }
            _ = reopens.recv() => return answered,
        }
    }
}
