//! The task that serves a connection: it reads, waits, admits the peer, and ends the connection.
//!
//! ```text
//! readable ──> decoder ──> conversation (link or feed)        any thread ──> queue ──> writable
//!                             alarm ──> patience: ping, or the end
//! ```
//!
//! The task is the only one that reads. What stays true: at most [`READ_BYTES`] of what was read are kept unhandled;
//! while the conversation can take no more, or the peer does not take its answers, nothing is read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::Interest;
use tokio::time::Instant;
use tollgate_zmtp::{Decoder, Event, Token, error, opening, ping, pong};

use super::Edge;
use super::connection::{Basis, Connection, Conversation};
use super::ended::Ended;
use super::patience::{Due, Patience};
use super::wire::Wire;
use crate::security::{Access, PortKind};

/// Bytes that are read at once.
const READ_BYTES: usize = 32 << 10;

/// How long a peer that is refused has to take the reason.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// An alarm that is later than this is ignored: the process, or the machine, stood still.
const LATE_MAX: Duration = Duration::from_secs(1);

thread_local! {
    /// The buffer for reading: one for each thread instead of one for each connection.
    static SCRATCH: std::cell::RefCell<Box<[u8; READ_BYTES]>> =
        std::cell::RefCell::new(Box::new([0; READ_BYTES]));
}

/// What serving a connection needs beside the conversation.
pub(super) struct Terms<'a> {
    pub edge: &'a Edge,
    pub access: &'a Access,
    pub door: PortKind,
    /// When the connection was accepted: the time for its handshake, including TLS, counts from there.
    pub accepted: Instant,
}

/// Serves a connection to its end.
pub(super) async fn serve<C: Conversation>(
    terms: Terms<'_>,
    connection: &Arc<Connection>,
    conversation: &mut C,
    (is_ready, has_begun): (impl FnOnce(), impl FnOnce()),
) -> Ended {
    let edge = terms.edge;
    let mut served = Served {
        patience: Patience::new(terms.accepted),
        terms,
        connection,
        conversation,
        decoder: Decoder::new(C::ROLE, C::LIMITS),
        is_ready: Some(is_ready),
        has_begun: Some(has_begun),
        unread: Vec::new(),
    };
    served.connection.queue(edge, opening(C::ROLE), usize::MAX);
    let ended = served.run().await;
    connection.order(ended);
    connection.outbox().clear_behind_first();
    connection.release(edge);
    let ended = connection.ordered().unwrap_or(ended);
    if let Some(reason) = ended.told_to_peer() {
        send_reason(connection, reason).await;
    }
    ended
}

/// Sends the reason of a refusal to a peer, if it takes that within a moment.
///
/// What the peer sends meanwhile is read and thrown away: a connection that is closed with unread bytes is reset,
/// and the peer's system then drops what it had received before.
async fn send_reason(connection: &Connection, reason: String) {
    connection.outbox().push(error(&reason));
    let close = async {
        let mut bytes = [0; 4 << 10];
        loop {
            let interest = match connection.write_last() {
                Ok(true) => Interest::READABLE,
                Ok(false) => Interest::READABLE | Interest::WRITABLE,
                Err(_) => return,
            };
            match connection.wire.try_read(&mut bytes) {
                Ok(0) => return,
                // However much it sends, the others have their turn, and its time ends.
                Ok(_) => tokio::task::coop::consume_budget().await,
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => {
                    let ready = connection.wire.ready(interest).await;
                    if ready.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    };
    let _ = tokio::time::timeout(CLOSE_WITHIN, close).await;
    connection.outbox().clear();
}

struct Served<'a, C, R, B> {
    terms: Terms<'a>,
    connection: &'a Arc<Connection>,
    conversation: &'a mut C,
    decoder: Decoder,
    patience: Patience,
    is_ready: Option<R>,
    has_begun: Option<B>,
    /// Bytes that were read and not handled yet.
    unread: Vec<u8>,
}

impl<C: Conversation, R: FnOnce(), B: FnOnce()> Served<'_, C, R, B> {
    async fn run(&mut self) -> Ended {
        let alarm = tokio::time::sleep_until(self.next_look());
        tokio::pin!(alarm);
        let mut was_ready = false;
        loop {
            if !was_ready && self.decoder.is_ready() {
                was_ready = true;
                alarm.as_mut().reset(self.next_look());
            }
            let is_empty = match self.connection.flush(self.terms.edge) {
                Ok(is_empty) => is_empty,
                Err(fault) => return self.ended_by(&fault),
            };
            let waiting = self.connection.waiting();
            self.conversation.sent(waiting);
            let may_read = self.may_read(waiting);
            if may_read {
                match self.take_up().await {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(ended) => return ended,
                }
            }
            let interest = match (may_read, is_empty) {
                (true, true) => Some(Interest::READABLE),
                (true, false) => Some(Interest::READABLE | Interest::WRITABLE),
                (false, false) => Some(Interest::WRITABLE),
                (false, true) => None,
            };
            let is_behind = self.conversation.is_behind();
            tokio::select! {
                // What has arrived is read before a peer is blamed for silence.
                biased;
                () = self.connection.wake.notified() => {
                    if let Some(ended) = self.connection.ordered() {
                        return ended;
                    }
                }
                ready = ready(&self.connection.wire, interest), if interest.is_some() => {
                    let Ok(ready) = ready else {
                        return Ended::Gone;
                    };
                    if may_read && (ready.is_readable() || ready.is_read_closed()) {
                        match self.read() {
                            // There is more: other tasks of this thread have their turn first.
                            Ok(READ_BYTES) => tokio::task::yield_now().await,
                            // TLS returns less than that at a time, however much there is.
                            Ok(_) => tokio::task::coop::consume_budget().await,
                            Err(ended) => return ended,
                        }
                    }
                }
                () = self.conversation.catch_up(), if is_behind => {}
                () = &mut alarm => {
                    let now = Instant::now();
                    // A peer is not blamed for the time in which this process did not run.
                    if !may_read || alarm.deadline() + LATE_MAX < now {
                        self.patience.not_read(now);
                    }
                    if let Err(ended) = self.look(now) {
                        return ended;
                    }
                    alarm.as_mut().reset(self.next_look());
                }
            }
        }
    }

    fn ended_by(&self, fault: &io::Error) -> Ended {
        let stall = self.terms.edge.bounds.stall;
        self.connection.ended_by(fault, stall)
    }

    fn next_look(&self) -> Instant {
        let bounds = &self.terms.edge.bounds;
        self.patience.next(Instant::now(), bounds)
    }

    /// Handles bytes that were read but not handled, and bytes that TLS has decrypted but the task has not read: the
    /// socket shows neither. Returns whether there were any.
    async fn take_up(&mut self) -> Result<bool, Ended> {
        if !self.unread.is_empty() {
            self.handle_unread()?;
            return Ok(true);
        }
        if !self.connection.wire.has_plaintext() {
            return Ok(false);
        }
        self.read()?;
        // Other tasks of this thread have their turn first.
        tokio::task::yield_now().await;
        match self.connection.ordered() {
            Some(ended) => Err(ended),
            None => Ok(true),
        }
    }

    /// Whether more of the peer's bytes are to be read.
    fn may_read(&self, waiting: usize) -> bool {
        self.conversation.may_take()
            && waiting <= self.conversation.read_while(&self.terms.edge.bounds)
    }

    /// Reads once, and handles what was read; returns how many bytes.
    fn read(&mut self) -> Result<usize, Ended> {
        SCRATCH.with_borrow_mut(|scratch| {
            let read = match self.connection.wire.try_read(&mut scratch[..]) {
                Ok(0) => return Err(Ended::Gone),
                Ok(read) => read,
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(fault) => return Err(self.ended_by(&fault)),
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

    /// Handles bytes until all are handled, or no more can be.
    fn handle(&mut self, input: &mut &[u8]) -> Result<(), Ended> {
        let completed = self.take_all(input);
        // What came before a fault is handed on, too.
        self.conversation.read_through();
        let between = self.decoder.is_between_messages();
        self.patience
            .note_received(Instant::now(), completed?, between);
        self.account_unfinished();
        Ok(())
    }

    /// Takes what bytes contain until all are handled, or no more can be. Returns whether they completed anything.
    fn take_all(&mut self, input: &mut &[u8]) -> Result<bool, Ended> {
        let mut completed = false;
        while !input.is_empty() && self.may_read(self.connection.waiting()) {
            let Some(event) = self.decoder.next(input).map_err(Ended::Violation)? else {
                break;
            };
            completed = true;
            match event {
                Event::Ready { pings, token } => {
                    self.admit(token.as_ref())?;
                    self.patience.ready(pings);
                    if let Some(is_ready) = self.is_ready.take() {
                        is_ready();
                    }
                }
                Event::Ping(context) => {
                    self.connection
                        .queue(self.terms.edge, pong(&context), usize::MAX);
                }
                Event::Pong => {}
                message => {
                    self.conversation.take(message)?;
                    self.look_whether_begun();
                }
            }
        }
        Ok(completed)
    }

    fn look_whether_begun(&mut self) {
        if self.has_begun.is_some() && self.conversation.has_begun() {
            if let Some(name) = self.conversation.name() {
                // The peer chooses the name; the debug format escapes it.
                self.connection
                    .span
                    .record("agent", tracing::field::debug(name));
            }
            self.patience.begun();
            let has_begun = self.has_begun.take();
            // A peer that understands no pings may be dead, so its connection makes room like a silent one.
            if let Some(has_begun) = has_begun.filter(|_| self.patience.pings()) {
                has_begun();
            }
        }
    }

    /// Admits the peer, or refuses it.
    fn admit(&mut self, token: Option<&Token>) -> Result<(), Ended> {
        let peer = self.connection.wire.peer();
        let (access, door) = (self.terms.access, self.terms.door);
        let admitted = access.admit(door, token.map(Token::as_bytes), peer.as_ref());
        let grant = admitted.map_err(Ended::Refused)?;
        if let Some(grant) = &grant {
            let certificate = peer.filter(|_| token.is_none());
            let grant = Arc::clone(grant);
            let basis = Basis { grant, certificate };
            let basis = self.connection.basis.get_or_init(|| basis);
            // The handshake may have ended before its CA was removed. A removal from here on finds the basis.
            if let Some(certificate) = &basis.certificate
                && !access.verifies(certificate)
            {
                return Err(Ended::Revoked);
            }
        }
        self.conversation.admitted(grant);
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
        self.terms.edge.unfinished.add(before, now);
        self.terms.edge.bound_unfinished();
    }

    fn look(&mut self, now: Instant) -> Result<(), Ended> {
        let bounds = &self.terms.edge.bounds;
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
            Due::Ping => drop(self.connection.queue(self.terms.edge, ping(), usize::MAX)),
            Due::End(ended) => return Err(ended),
        }
        Ok(())
    }
}

async fn ready(wire: &Wire, interest: Option<Interest>) -> io::Result<tokio::io::Ready> {
    match interest {
        Some(interest) => wire.ready(interest).await,
        None => std::future::pending().await,
    }
}
