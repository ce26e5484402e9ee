//! One connection: its socket, its queue, and the task that serves both.
//!
//! ```text
//! readable ──> decoder ──> conversation (link or feed)        anybody ──> queue ──> writable
//!                             alarm ──> patience: ping, or the end
//! ```
//!
//! The task is the only one that reads; any thread may put frames into the queue and write them out.
//! What stays true: of what was read at most [`READ_BYTES`] are kept before they are handled; where the
//! conversation cannot go on, or the peer does not take its answers, nothing is read.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_zmtp::{Decoder, Event, Limits, SocketType, opening, ping, pong};

use super::Edge;
use super::bounds::Bounds;
use super::ended::Ended;
use super::outbox::Outbox;
use super::patience::{Due, Patience};

/// Bytes that are read at once.
const READ_BYTES: usize = 32 << 10;

/// An alarm that is later than this was not heard: the process, or the machine, stood still.
const LATE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// Where bytes are read to: one for each thread instead of one for each connection.
    static SCRATCH: std::cell::RefCell<Box<[u8; READ_BYTES]>> =
        std::cell::RefCell::new(Box::new([0; READ_BYTES]));
}

/// What is said over a connection, and how.
pub(crate) trait Conversation: Send + 'static {
    /// What this side is.
    const ROLE: SocketType;
    /// What the peer may send.
    const LIMITS: Limits;

    /// Takes what the peer said: a message, a subscription or the end of one.
    fn take(&mut self, event: Event) -> Result<(), Ended>;

    /// Whether it can take more. While it cannot, nothing is read; whoever changes that wakes the
    /// connection, but for what [`Self::catch_up`] waits for.
    fn may_take(&self) -> bool;

    /// Waits until what was taken has found room. To be dropped at any time.
    fn catch_up(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether there is something that [`Self::catch_up`] waits for.
    fn is_behind(&self) -> bool;

    /// Whether a peer that understands no pings may say nothing for ever.
    fn may_be_silent(&self) -> bool;

    /// So many bytes wait for the peer.
    fn sent(&mut self, waiting: usize);

    /// Who the peer says it is, for the operator.
    fn name(&self) -> Option<&str> {
        None
    }

    /// As long as no more bytes wait for the peer, more of what it says is read.
    fn read_while(&self, bounds: &Bounds) -> usize;
}

/// A connection, as all see it who have something for it.
#[derive(Debug)]
pub struct Connection {
    /// Its number: no other connection of this process has it.
    pub number: u64,
    stream: TcpStream,
    outbox: Mutex<Outbox>,
    wake: Notify,
    ordered: Mutex<Option<Ended>>,
    /// What it has of the edge's totals.
    pub(super) waiting: AtomicUsize,
    pub(super) unfinished: AtomicUsize,
}

/// What became of a frame that was to wait for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It is the only one: somebody is to write it out.
    First,
    /// It waits behind others.
    Behind,
    /// It found no room.
    LeftOut,
}

impl Connection {
    pub(super) fn new(number: u64, stream: TcpStream) -> Self {
        Self {
            number,
            stream,
            outbox: Mutex::default(),
            wake: Notify::new(),
            ordered: Mutex::default(),
            waiting: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Bytes that wait for the peer.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox().waiting()
    }

    /// Queues a frame if no more than `room` bytes wait with it, or none wait.
    pub(crate) fn queue(&self, edge: &Edge, frame: Bytes, room: usize) -> Queued {
        if self.ordered().is_some() {
            return Queued::LeftOut;
        }
        let mut outbox = self.outbox();
        if outbox.waiting() != 0 && room < outbox.waiting() + frame.len() {
            return Queued::LeftOut;
        }
        let is_first = outbox.push(frame);
        self.account(edge, &outbox);
        drop(outbox);
        edge.bound_queues();
        match is_first {
            true => Queued::First,
            false => Queued::Behind,
        }
    }

    /// Writes what the peer takes now, and wakes the task for what is left.
    pub(crate) fn write_out(&self, edge: &Edge) {
        if !matches!(self.flush(edge), Ok(true)) {
            self.wake.notify_one();
        }
    }

    /// Wakes the task: something is different.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Ends the connection, if it has not ended; whether this did it.
    pub(super) fn order(&self, ended: Ended) -> bool {
        let mut ordered = self
            .ordered
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        if ordered.is_some() {
            return false;
        }
        *ordered = Some(ended);
        drop(ordered);
        self.wake.notify_one();
        true
    }

    fn ordered(&self) -> Option<Ended> {
        *self
            .ordered
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    fn flush(&self, edge: &Edge) -> io::Result<bool> {
        let mut outbox = self.outbox();
        let now = Instant::now();
        let is_empty = outbox.flush(now, |pieces| self.stream.try_write_vectored(pieces));
        self.account(edge, &outbox);
        is_empty
    }

    /// The edge's total goes with the queue's, as long as the connection lives.
    fn account(&self, edge: &Edge, outbox: &Outbox) {
        let now = match self.ordered() {
            None => outbox.waiting(),
            Some(_) => 0,
        };
        let before = self.waiting.swap(now, Ordering::Relaxed);
        edge.queued.add(before, now);
    }

    /// What it had of the totals is free again.
    pub(super) fn release(&self, edge: &Edge) {
        edge.queued.add(self.waiting.swap(0, Ordering::Relaxed), 0);
        edge.unfinished
            .add(self.unfinished.swap(0, Ordering::Relaxed), 0);
    }
}

/// Serves a connection to its end.
pub(super) async fn serve<C: Conversation>(
    edge: &Edge,
    connection: &Arc<Connection>,
    conversation: &mut C,
    is_ready: impl FnOnce(),
) -> Ended {
    let mut served = Served {
        edge,
        connection,
        conversation,
        decoder: Decoder::new(C::ROLE, C::LIMITS),
        patience: Patience::new(Instant::now()),
        is_ready: Some(is_ready),
        unread: Vec::new(),
    };
    served.connection.queue(edge, opening(C::ROLE), usize::MAX);
    let ended = served.run().await;
    connection.order(ended);
    connection.outbox().clear();
    connection.release(edge);
    connection.ordered().unwrap_or(ended)
}

struct Served<'a, C, R> {
    edge: &'a Edge,
    connection: &'a Arc<Connection>,
    conversation: &'a mut C,
    decoder: Decoder,
    patience: Patience,
    is_ready: Option<R>,
    /// Bytes that were read and have not been handled.
    unread: Vec<u8>,
}

impl<C: Conversation, R: FnOnce()> Served<'_, C, R> {
    async fn run(&mut self) -> Ended {
        let alarm = tokio::time::sleep_until(self.patience.next(Instant::now(), &self.edge.bounds));
        tokio::pin!(alarm);
        let mut was_ready = false;
        loop {
            if !was_ready && self.decoder.is_ready() {
                was_ready = true;
                let next = self.patience.next(Instant::now(), &self.edge.bounds);
                alarm.as_mut().reset(next);
            }
            let is_empty = match self.connection.flush(self.edge) {
                Ok(is_empty) => is_empty,
                Err(_) => return Ended::Gone,
            };
            let waiting = self.connection.waiting();
            self.conversation.sent(waiting);
            let may_read = self.may_read(waiting);
            if may_read && !self.unread.is_empty() {
                if let Err(ended) = self.handle_unread() {
                    return ended;
                }
                continue;
            }
            let interest = match (may_read, is_empty) {
                (true, true) => Some(Interest::READABLE),
                (true, false) => Some(Interest::READABLE | Interest::WRITABLE),
                (false, false) => Some(Interest::WRITABLE),
                (false, true) => None,
            };
            let is_behind = self.conversation.is_behind();
            tokio::select! {
                // What has come is read before anybody is blamed for silence.
                biased;
                () = self.connection.wake.notified() => {
                    if let Some(ended) = self.connection.ordered() {
                        return ended;
                    }
                }
                ready = ready(&self.connection.stream, interest), if interest.is_some() => {
                    let Ok(ready) = ready else {
                        return Ended::Gone;
                    };
                    if may_read && (ready.is_readable() || ready.is_read_closed()) {
                        match self.read() {
                            // There is more: others on this thread have their turn before it.
                            Ok(READ_BYTES) => tokio::task::yield_now().await,
                            Ok(_) => {}
                            Err(ended) => return ended,
                        }
                    }
                }
                () = self.conversation.catch_up(), if is_behind => {}
                () = &mut alarm => {
                    let now = Instant::now();
                    // Nor for the time in which this process had no processor.
                    if !may_read || alarm.deadline() + LATE_MAX < now {
                        self.patience.not_read(now);
                    }
                    if let Err(ended) = self.look(now) {
                        return ended;
                    }
                    alarm.as_mut().reset(self.patience.next(now, &self.edge.bounds));
                }
            }
        }
    }

    /// Whether more of the peer's bytes are wanted.
    fn may_read(&self, waiting: usize) -> bool {
        self.conversation.may_take() && waiting <= self.conversation.read_while(&self.edge.bounds)
    }

    /// Reads once, and handles what came; how many bytes.
    fn read(&mut self) -> Result<usize, Ended> {
        SCRATCH.with_borrow_mut(|scratch| {
            let read = match self.connection.stream.try_read(&mut scratch[..]) {
                Ok(0) => return Err(Ended::Gone),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(_) => return Err(Ended::Gone),
            };
            let mut input = &scratch[..read];
            self.handle(&mut input)?;
            self.unread.extend_from_slice(input);
            Ok(read)
        })
    }

    fn handle_unread(&mut self) -> Result<(), Ended> {
        let unread = std::mem::take(&mut self.unread);
        let mut input = &unread[..];
        self.handle(&mut input)?;
        self.unread = input.to_vec();
        Ok(())
    }

    /// Handles bytes until they are all handled, or no more can be.
    fn handle(&mut self, input: &mut &[u8]) -> Result<(), Ended> {
        let mut completed = false;
        while !input.is_empty() && self.may_read(self.connection.waiting()) {
            let Some(event) = self.decoder.next(input).map_err(Ended::Violation)? else {
                break;
            };
            completed = true;
            match event {
                Event::Ready { pings } => {
                    self.patience.ready(pings);
                    if let Some(is_ready) = self.is_ready.take() {
                        is_ready();
                    }
                }
                Event::Ping(context) => {
                    self.connection.queue(self.edge, pong(&context), usize::MAX);
                }
                Event::Pong => {}
                said => self.conversation.take(said)?,
            }
        }
        let between = self.decoder.is_between_messages();
        self.patience.heard(Instant::now(), completed, between);
        self.account_unfinished();
        Ok(())
    }

    fn account_unfinished(&self) {
        let held = if self.decoder.is_ready() {
            self.decoder.held()
        } else {
            0
        };
        let now = match self.connection.ordered() {
            None => held,
            Some(_) => 0,
        };
        let before = self.connection.unfinished.swap(now, Ordering::Relaxed);
        self.edge.unfinished.add(before, now);
        self.edge.bound_unfinished();
    }

    fn look(&mut self, now: Instant) -> Result<(), Ended> {
        let bounds = &self.edge.bounds;
        let outbox = self.connection.outbox();
        let (stalled, waiting) = (outbox.stalled(), outbox.waiting());
        self.patience.took(outbox.took());
        drop(outbox);
        if stalled.is_some_and(|since| since + bounds.stall <= now) {
            return Err(Ended::Stalled {
                found: waiting,
                allowed: bounds.stall,
            });
        }
        let may_be_silent = self.conversation.may_be_silent();
        match self
            .patience
            .look(now, bounds, self.decoder.held(), may_be_silent)
        {
            Due::Nothing => {}
            Due::Ping => drop(self.connection.queue(self.edge, ping(), usize::MAX)),
            Due::End(ended) => return Err(ended),
        }
        Ok(())
    }
}

async fn ready(stream: &TcpStream, interest: Option<Interest>) -> io::Result<tokio::io::Ready> {
    match interest {
        Some(interest) => stream.ready(interest).await,
        None => std::future::pending().await,
    }
}
