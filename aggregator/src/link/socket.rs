//! The ROUTER socket of the link: two tasks, one that reads and one that answers.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_shared::wire::Writer;
use zeromq::{
    RouterRecvHalf, RouterSendHalf, Socket as _, SocketRecv as _, SocketSend as _, ZmqMessage,
};

use super::{Admitted, RefusedBatches, Session, encode};
use crate::core::event::{Event, Peer};
use crate::serve::wall;

/// Answers that may wait for the socket. An agent has at most some hundreds under way.
const ANSWERS_MAX: usize = 65_536;

/// How long the socket may hold up the answer of one agent before it is dropped: the others wait
/// behind it. It only ever waits for a peer whose queue of 100,000 messages is full.
const ANSWER_PATIENCE: Duration = Duration::from_millis(10);

/// Sessions that are remembered.
const SESSIONS_MAX: usize = 65_536;

/// What the link counts.
#[derive(Debug, Default)]
pub struct LinkCounters {
    /// Messages of agents that could not be read.
    pub garbage: AtomicU64,
    /// Batches that were not let through to the log.
    pub refused: RefusedBatches,
    /// Answers that were dropped because nobody took them.
    pub answers_dropped: AtomicU64,
}

/// Where answers go.
#[derive(Clone, Debug)]
pub struct Answers {
    sender: mpsc::Sender<(Peer, Vec<u8>)>,
    counters: Arc<LinkCounters>,
}

impl Answers {
    /// Sends an answer, or drops and counts it where too many wait.
    pub fn send(&self, peer: Peer, message: Vec<u8>) {
        if self.sender.try_send((peer, message)).is_err() {
            self.counters
                .answers_dropped
                .fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Serves the link on a listener that is bound. Events go to `events`; while that is full no agent is
/// read, so that they feel the pressure.
///
/// # Errors
///
/// Where the listener cannot be taken over.
pub async fn serve(
    listener: TcpListener,
    partitions: u32,
    events: mpsc::Sender<Event>,
    counters: Arc<LinkCounters>,
) -> std::io::Result<Answers> {
    let mut socket = zeromq::RouterSocket::new();
    socket
        .bind_listener(listener)
        .await
        .map_err(std::io::Error::other)?;
    let (sending, receiving) = socket.split();
    let (sender, answers) = mpsc::channel(ANSWERS_MAX);
    let handle = Answers {
        sender,
        counters: Arc::clone(&counters),
    };
    tokio::spawn(read(receiving, partitions, events, handle.clone()));
    tokio::spawn(answer(sending, answers, counters));
    Ok(handle)
}

async fn read(
    mut socket: RouterRecvHalf,
    partitions: u32,
    events: mpsc::Sender<Event>,
    answers: Answers,
) {
    let mut writer = Writer::new();
    let mut sessions = Sessions::default();
    while let Ok(message) = socket.recv().await {
        let Some((peer, payload)) = parts(message) else {
            answers.counters.garbage.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let session = sessions.of(&peer, partitions);
        match session.admit(&payload, wall()) {
            Admitted::Request(request) => {
                if events.send(Event::Agent { peer, request }).await.is_err() {
                    return;
                }
            }
            Admitted::Refused { answer, fault } => {
                answers.counters.refused.count(&fault);
                answers.send(peer, encode(&answer, &mut writer));
            }
            Admitted::Garbage => {
                answers.counters.garbage.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The sessions of connections. The socket does not say when one ends, so the oldest half goes when there
/// are too many; an agent's next hello, within a second, begins its session again.
#[derive(Default)]
struct Sessions {
    newer: HashMap<Peer, Session>,
    older: HashMap<Peer, Session>,
}

impl Sessions {
    fn of(&mut self, peer: &Peer, partitions: u32) -> &mut Session {
        if SESSIONS_MAX / 2 <= self.newer.len() && !self.newer.contains_key(peer) {
            self.older = std::mem::take(&mut self.newer);
        }
        let mut known = || self.older.remove(peer);
        self.newer
            .entry(peer.clone())
            .or_insert_with(|| known().unwrap_or(Session::new(partitions)))
    }
}

/// The identity that the socket puts in front, and the message; an empty frame between them, as REQ
/// sockets send it, is allowed.
fn parts(message: ZmqMessage) -> Option<(Peer, Bytes)> {
    let mut frames = message.into_vecdeque();
    let peer = Peer(frames.pop_front()?);
    let payload = frames.pop_back()?;
    frames
        .iter()
        .all(Bytes::is_empty)
        .then_some((peer, payload))
}

async fn answer(
    mut socket: RouterSendHalf,
    mut answers: mpsc::Receiver<(Peer, Vec<u8>)>,
    counters: Arc<LinkCounters>,
) {
    while let Some((Peer(peer), message)) = answers.recv().await {
        let mut frames = ZmqMessage::from(peer);
        frames.push_back(message.into());
        // An error says that the agent is gone; it comes back with a new connection and asks again.
        let sent = tokio::time::timeout(ANSWER_PATIENCE, socket.send(frames)).await;
        if !matches!(sent, Ok(Ok(()))) {
            counters.answers_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
