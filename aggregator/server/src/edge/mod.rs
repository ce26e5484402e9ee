//! The edge: bounds on what any peer may do to this process, on the ports for agents and the feed.
//!
//! ```text
//! listener ──> accept (descriptors, pending) ──> connection (TLS, handshake, frames, queue) ──> link or feed
//! ```
//!
//! Every length, count and time that a peer chooses has a bound here ([`Bounds`]), a documented
//! behaviour at the bound ([`Ended`]), a counter by reason, and a line for the operator, at most one a
//! behaviour at the bound ([`Ended`]), a counter by reason, and a line for the operator, at most one a
//! second. The peer gets no message: its connection ends. Only the refusal of a token is explained to it.
//! Knows nothing of what messages mean.
//!
//! What stays true: where a bound holds for all connections together, the connection that uses most of it
//! ends, and not the newest one.

mod accept;
pub mod bounds;
mod connection;
mod counters;
mod crowds;
mod descriptors;
mod ended;
mod outbox;
mod patience;
mod pending;
mod secure;
mod served;
mod wire;

pub use accept::listen;
pub(crate) use accept::{Port, serve};
pub use bounds::Bounds;
pub use connection::{Basis, Connection};
pub(crate) use connection::{Conversation, Queued};
pub(crate) use counters::OperatorLines;
pub use counters::PortCounters;
pub use descriptors::{check_room_for_journal, raise as raise_descriptors};
pub use ended::Ended;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Semaphore;

use crate::security::{GrantScope, Hearing};
use crowds::Crowds;
use pending::Pending;
pub(crate) use pending::network;

/// What all connections of one process share.
#[derive(Debug)]
pub struct Edge {
    /// The bounds.
    pub bounds: Bounds,
    /// Connections of agents.
    pub agents: PortCounters,
    /// Connections to the feed.
    pub feed: PortCounters,
    /// Times that accepting paused, for want of descriptors or at `listen.connections_max`.
    pub paused: AtomicU64,
    /// Bytes that wait for all connections.
    pub queued: ConnectionTotal,
    /// Bytes of unfinished messages.
    pub unfinished: ConnectionTotal,
    /// Which topics may be heard under grants that do not cover all namespaces and agents.
    pub hearing: Hearing,
    pub(crate) lines: OperatorLines,
    pending: Mutex<Pending>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    slots: Arc<Semaphore>,
    slots_max: usize,
    crowds: Mutex<Crowds>,
    numbers: AtomicU64,
}

/// A sum over all connections.
#[derive(Debug, Default)]
pub struct ConnectionTotal(AtomicUsize);

impl ConnectionTotal {
    /// Its value.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, before: usize, now: usize) {
        if before < now {
            self.0.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

impl Edge {
    /// An edge with these bounds, for a process with descriptors for this number of connections.
    pub fn new(bounds: Bounds, descriptors: usize) -> Self {
        let slots_max = descriptors.min(bounds.connections);
        let slots_max = slots_max.clamp(1, Semaphore::MAX_PERMITS);
        // Handshakes must leave room for connections that have completed theirs.
        let pending_max = bounds.pending.min(slots_max.div_ceil(2));
        Self {
            bounds,
            agents: PortCounters::default(),
            feed: PortCounters::default(),
            paused: AtomicU64::new(0),
            queued: ConnectionTotal::default(),
            unfinished: ConnectionTotal::default(),
            hearing: Hearing::default(),
            lines: OperatorLines::default(),
            pending: Mutex::new(Pending::new(bounds.pending_per_address, pending_max)),
            connections: Mutex::default(),
            slots: Arc::new(Semaphore::new(slots_max)),
            slots_max,
            crowds: Mutex::new(Crowds::new(slots_max.div_ceil(2))),
            numbers: AtomicU64::new(1),
        }
    }

    /// Connections whose handshake is not complete.
    pub fn pending(&self) -> usize {
        self.lock_pending().len()
    }

    /// A connection by its number.
    pub(crate) fn connection(&self, number: u64) -> Option<Arc<Connection>> {
        self.lock_connections().get(&number).cloned()
    }

    /// Ends a connection, if it exists.
    pub(crate) fn end(&self, number: u64, ended: Ended) {
        if let Some(connection) = self.connection(number)
            && connection.order(ended)
        {
            connection.release(self);
        }
    }

    /// Ends the connections whose basis no longer holds; returns how many.
    pub(crate) fn end_where(&self, is_over: impl Fn(&Basis) -> bool, ended: Ended) -> usize {
        // Looking at all may take long, and other threads must not wait for the lock.
        let of_basis: Vec<_> = {
            let connections = self.lock_connections();
            let has_basis = |one: &&Arc<Connection>| one.basis().is_some();
            connections.values().filter(has_basis).cloned().collect()
        };
        let over = of_basis
            .iter()
            .filter(|one| one.basis().is_some_and(&is_over));
        let ordered = over.filter(|one| one.order(ended));
        ordered.map(|one| one.release(self)).count()
    }

    /// Wakes the connections under grants of this scope: more topics may be heard now.
    pub(crate) fn wake_of(&self, scope: &GrantScope) {
        let connections = self.lock_connections();
        let is_of = |one: &&Arc<Connection>| {
            let basis = one.basis();
            basis.is_some_and(|basis| scope.is_of(&basis.grant))
        };
        connections
            .values()
            .filter(is_of)
            .for_each(|one| one.wake());
    }

    fn lock_connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(|broken| broken.into_inner())
    }

    fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.pending
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// A connection of an address arrives; refused if there is no room for it.
    fn enter(&self, number: u64, address: IpAddr) -> Result<(), Ended> {
        let oldest = self.lock_crowds().enter(number, address)?;
        if let Some((oldest, ended)) = oldest {
            self.end(oldest, ended);
        }
        Ok(())
    }

    fn lock_crowds(&self) -> MutexGuard<'_, Crowds> {
        let crowds = self.crowds.lock();
        crowds.unwrap_or_else(|broken| broken.into_inner())
    }

    fn begin_pending(&self, number: u64, address: IpAddr) {
        let oldest = self.lock_pending().begin(number, address);
        if let Some((oldest, ended)) = oldest {
            self.end(oldest, ended);
        }
    }

    fn end_pending(&self, number: u64, address: IpAddr) {
        self.lock_pending().end(number, address);
    }

    fn bound_queues(&self) {
        let allowed = self.bounds.queued_bytes;
        while allowed < self.queued.get() {
            let backlog = |found| Ended::Backlog { found, allowed };
            if !self.end_greatest(|one| &one.waiting, backlog) {
                return;
            }
        }
    }

    fn bound_unfinished(&self) {
        let allowed = self.bounds.unfinished_bytes;
        while allowed < self.unfinished.get() {
            let unfinished = |found| Ended::Unfinished { found, allowed };
            if !self.end_greatest(|one| &one.unfinished, unfinished) {
                return;
            }
        }
    }

    /// Ends the connection that has the most of something; returns false if no connection has any.
    fn end_greatest(
        &self,
        of: impl Fn(&Connection) -> &AtomicUsize,
        why: impl Fn(usize) -> Ended,
    ) -> bool {
        let has = |one: &Connection| of(one).load(Ordering::Relaxed);
        let greatest = {
            let connections = self.lock_connections();
            connections.values().max_by_key(|one| has(one)).cloned()
        };
        let Some(greatest) = greatest.filter(|one| 0 < has(one)) else {
            return false;
        };
        greatest.order(why(has(&greatest)));
        greatest.release(self);
        true
    }
}
