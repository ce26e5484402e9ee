//! One connection, as other threads see it: its wire, its queue, and how it is ended.
//!
//! ```text
//! any thread ──> queue ──> wire                  any thread ──> order to end ──> the task that serves it
//! ```
//!
//! Any thread may queue frames and write them out; the task in `served` is the only reader. What stays true:
//! bytes that wait are counted in the edge's totals for as long as the connection lives.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollgate_tls::Certificate;
use tollgate_zmtp::{Event, PeerLimits, SocketType};

use super::Edge;
use super::bounds::Bounds;
use super::ended::Ended;
use super::outbox::Outbox;
use super::pending::network;
use super::wire::Wire;
use crate::security::TokenGrant;

/// Handles what a peer sends over a connection.
pub(crate) trait Conversation: Send + 'static {
    /// The socket type of this side.
    const ROLE: SocketType;
    /// What the peer may send.
    const LIMITS: PeerLimits;

    /// The peer was admitted, with this grant if grants are required.
    fn admitted(&mut self, grant: Option<Arc<TokenGrant>>);

    /// Takes what the peer sent: a message, a subscription or its cancellation.
    fn take(&mut self, event: Event) -> Result<(), Ended>;

    /// Everything that was read at once was taken.
    fn read_through(&mut self) {}

    /// Whether it can take more. While it cannot, the connection is not read; the code that changes this wakes the
    /// connection, except for what [`Self::catch_up`] waits for.
    fn may_take(&self) -> bool;

    /// Waits until there is room for what was taken. The future may be dropped at any time.
    fn catch_up(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether there is something for [`Self::catch_up`] to wait for.
    fn is_behind(&self) -> bool;

    /// Whether a peer that understands no pings may be silent for ever.
    fn may_be_silent(&self) -> bool;

    /// Takes note that `waiting` bytes wait for the peer.
    fn sent(&mut self, waiting: usize);

    /// Whether the peer has stated its purpose. Before that it counts like a peer in its handshake.
    fn has_begun(&self) -> bool;

    /// The name that the peer states, for the operator.
    fn name(&self) -> Option<&str> {
        None
    }

    /// The peer's messages are read while at most this many bytes wait for it.
    fn read_while(&self, bounds: &Bounds) -> usize;
}

/// The grant with which a connection was admitted.
#[derive(Clone, Debug)]
pub struct Basis {
    /// What it allows.
    pub grant: Arc<TokenGrant>,
    /// The certificate that proved the grant; `None`: the peer showed a token.
    pub certificate: Option<Certificate>,
}

/// A connection, as other threads see it.
#[derive(Debug)]
pub struct Connection {
    /// Its number, which is unique in this process.
    pub number: u64,
    /// The address that it came from; of IPv6 its /64.
    pub(crate) network: IpAddr,
    /// The span of its log lines.
    pub(crate) span: tracing::Span,
    pub(super) wire: Wire,
    pub(super) basis: OnceLock<Basis>,
    /// The detail of a TLS error that ended it.
    detail: OnceLock<String>,
    outbox: Mutex<Outbox>,
    pub(super) wake: Notify,
    ordered: Mutex<Option<Ended>>,
    /// Its part of the edge's totals.
    pub(super) waiting: AtomicUsize,
    pub(super) unfinished: AtomicUsize,
}

/// What became of a frame that was to be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It is the only one: the caller has to write it out.
    First,
    /// It waits behind other frames.
    Behind,
    /// It found no room.
    LeftOut,
}

impl Connection {
    pub(super) fn new(
        number: u64,
        address: IpAddr,
        span: tracing::Span,
        stream: TcpStream,
    ) -> Self {
        Self {
            number,
            network: network(address),
            span,
            wire: Wire::new(stream),
            basis: OnceLock::new(),
            detail: OnceLock::new(),
            outbox: Mutex::default(),
            wake: Notify::new(),
            ordered: Mutex::default(),
            waiting: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
        }
    }

    /// The grant of its admission; `None` before that, and where no grant is required.
    pub(crate) fn basis(&self) -> Option<&Basis> {
        self.basis.get()
    }

    /// The detail of a TLS error that ended it.
    pub(super) fn detail(&self) -> Option<&str> {
        self.detail.get().map(String::as_str)
    }

    /// Waits until the connection is ordered to end.
    pub(super) async fn until_ordered(&self) -> Ended {
        loop {
            if let Some(ended) = self.ordered() {
                return ended;
            }
            self.wake.notified().await;
        }
    }

    /// How an error of the wire ends the connection.
    ///
    /// The operating system ends a connection whose peer takes nothing of the system's buffer; this process sees that
    /// only by the error.
    pub(super) fn ended_by(&self, fault: &io::Error, stall: Duration) -> Ended {
        match fault.kind() {
            io::ErrorKind::InvalidData => {
                let _ = self.detail.set(fault.to_string());
                Ended::Tls
            }
            io::ErrorKind::TimedOut => Ended::Stalled {
                found: self.waiting(),
                allowed: stall,
            },
            _ => Ended::Gone,
        }
    }

    pub(super) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Bytes that wait for the peer.
    pub(crate) fn waiting(&self) -> usize {
        self.outbox().waiting()
    }

    /// Queues a frame if at most `room` bytes wait including it, or no other frame waits.
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

    /// Writes what the peer takes now, and wakes the task for the rest.
    pub(crate) fn write_out(&self, edge: &Edge) {
        match self.flush(edge) {
            Ok(true) => {}
            Ok(false) => self.wake.notify_one(),
            // The system reports an error once; later calls see only that the connection is closed.
            Err(fault) => {
                if self.order(self.ended_by(&fault, edge.bounds.stall)) {
                    self.release(edge);
                }
            }
        }
    }

    /// Wakes the task, because something changed.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Orders the connection to end; returns false if it had ended already.
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

    pub(super) fn ordered(&self) -> Option<Ended> {
        *self
            .ordered
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    pub(super) fn flush(&self, edge: &Edge) -> io::Result<bool> {
        let mut outbox = self.outbox();
        let now = Instant::now();
        let is_empty = outbox.flush(now, |pieces| self.wire.try_write(pieces));
        self.account(edge, &outbox);
        drop(outbox);
        // TLS may have taken bytes that the socket has not.
        Ok(is_empty? && self.wire.flush()?)
    }

    /// Writes the last frames to a peer whose connection was ordered to end, and which is no longer counted.
    /// Returns whether nothing is left.
    pub(super) fn write_last(&self) -> io::Result<bool> {
        let mut outbox = self.outbox();
        let is_empty = outbox.flush(Instant::now(), |pieces| self.wire.try_write(pieces))?;
        drop(outbox);
        Ok(is_empty && self.wire.flush()?)
    }

    /// Updates the edge's total by the queue, as long as the connection lives.
    fn account(&self, edge: &Edge, outbox: &Outbox) {
        let now = match self.ordered() {
            None => outbox.waiting(),
            Some(_) => 0,
        };
        let before = self.waiting.swap(now, Ordering::Relaxed);
        edge.queued.add(before, now);
    }

    /// Frees its part of the totals.
    pub(super) fn release(&self, edge: &Edge) {
        edge.queued.add(self.waiting.swap(0, Ordering::Relaxed), 0);
        edge.unfinished
            .add(self.unfinished.swap(0, Ordering::Relaxed), 0);
    }
}
