//! One connection, as all see it who have something for it: its wire, its queue, and who ends it.
//!
//! ```text
//! anybody ──> queue ──> wire                 whoever has a reason ──> order ──> the task that serves it
//! ```
//!
//! Any thread may put frames into the queue and write them out; the task in `served` is the only one that reads.
//! What stays true: what waits is accounted in the edge's totals for as long as the connection lives.

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

/// What is said over a connection, and how.
pub(crate) trait Conversation: Send + 'static {
    /// What this side is.
    const ROLE: SocketType;
    /// What the peer may send.
    const LIMITS: PeerLimits;

    /// The peer was let in, under this grant if grants are asked for.
    fn admitted(&mut self, grant: Option<Arc<TokenGrant>>);

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

    /// Whether the peer has said what it is here for. Before, it is as good as one in its handshake.
    fn has_begun(&self) -> bool;

    /// Who the peer says it is, for the operator.
    fn name(&self) -> Option<&str> {
        None
    }

    /// As long as no more bytes wait for the peer, more of what it says is read.
    fn read_while(&self, bounds: &Bounds) -> usize;
}

/// What a connection was let in on.
#[derive(Clone, Debug)]
pub struct Basis {
    /// What it may do.
    pub grant: Arc<TokenGrant>,
    /// The certificate that the grant stands for; `None`: it showed a token.
    pub certificate: Option<Certificate>,
}

/// A connection, as all see it who have something for it.
#[derive(Debug)]
pub struct Connection {
    /// Its number: no other connection of this process has it.
    pub number: u64,
    /// The address that it came from; of IPv6 its /64.
    pub(crate) network: IpAddr,
    /// In what its lines are logged.
    pub(crate) span: tracing::Span,
    pub(super) wire: Wire,
    pub(super) basis: OnceLock<Basis>,
    /// Why it ended, in words of TLS.
    detail: OnceLock<String>,
    outbox: Mutex<Outbox>,
    pub(super) wake: Notify,
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

    /// What it was let in on; `None` before that, and where nobody is asked.
    pub(crate) fn basis(&self) -> Option<&Basis> {
        self.basis.get()
    }

    /// Words of TLS about its end.
    pub(super) fn detail(&self) -> Option<&str> {
        self.detail.get().map(String::as_str)
    }

    /// Waits until somebody has ordered its end.
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
    /// The operating system ends one whose peer takes none of the bytes that the system keeps for it, which this
    /// process does not see otherwise.
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
        match self.flush(edge) {
            Ok(true) => {}
            Ok(false) => self.wake.notify_one(),
            // The system tells an error once: whoever asks again hears only that the connection is closed.
            Err(fault) => {
                if self.order(self.ended_by(&fault, edge.bounds.stall)) {
                    self.release(edge);
                }
            }
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
        // What TLS has taken of it may wait for the socket.
        Ok(is_empty? && self.wire.flush()?)
    }

    /// Writes what is said to a peer whose end is ordered, which is in no total any more.
    pub(super) fn write_last(&self) -> io::Result<()> {
        let mut outbox = self.outbox();
        outbox.flush(Instant::now(), |pieces| self.wire.try_write(pieces))?;
        drop(outbox);
        self.wire.flush().map(|_| ())
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
