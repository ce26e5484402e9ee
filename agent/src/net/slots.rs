//! Connecting: within a time, within a number, and with a word about who breaks the protocol.
//!
//! Aggregators tell of each other, so whoever answers as one decides how many addresses an agent hears
//! of. Those that the agent was configured with are always connected to; of those that it has only
//! heard of, a bounded number at a time, since their descriptors are the host's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tollgate_zmtp::SocketType;

use super::socket::{Socket, SocketFault};
use crate::stats::Counters;

/// How long a connection may take to be made, READY included.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Connections of each kind, link and feed, to aggregators that were only heard of.
const MET_MAX: usize = 64;

/// How often a line about a peer that breaks the protocol is logged.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Places for connections, as one connection's task has them.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// `None` for an aggregator that the agent was configured with.
    places: Option<Arc<Semaphore>>,
    counters: Arc<Counters>,
    line: Arc<Mutex<Option<Instant>>>,
}

impl Slots {
    /// For aggregators that the agent was configured with.
    pub(super) fn unbounded(counters: Arc<Counters>) -> Self {
        Self {
            places: None,
            counters,
            line: Arc::default(),
        }
    }

    /// For aggregators that were only heard of: they share their places.
    pub(super) fn bounded(&self) -> Self {
        Self {
            places: Some(Arc::new(Semaphore::new(MET_MAX))),
            ..self.clone()
        }
    }

    /// Waits for a place, which is free again when what this returns is dropped.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        match &self.places {
            Some(places) => Arc::clone(places).acquire_owned().await.ok(),
            None => None,
        }
    }

    /// Takes note of how a connection ended.
    pub(super) fn note(&self, endpoint: &str, ended: Result<(), SocketFault>) {
        let Err(fault) = ended else {
            return;
        };
        if !fault.is_violation() {
            return tracing::debug!(endpoint, %fault, "a connection is gone");
        }
        Counters::add(&self.counters.connections_ended, 1);
        let mut line = self
            .line
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let now = Instant::now();
        if line.is_none_or(|last| last + LINE_EVERY <= now) {
            *line = Some(now);
            tracing::warn!(endpoint, %fault, "ended a connection to an aggregator");
        }
    }
}

/// A socket that is READY, with these bytes on their way, if somebody answers there in time.
pub(super) async fn connect(
    role: SocketType,
    endpoint: &str,
    slots: &Slots,
    first: &[Bytes],
) -> Option<Socket> {
    match timeout(CONNECT_WITHIN, Socket::connect(role, endpoint)).await {
        Ok(Ok(mut socket)) => {
            first.iter().for_each(|bytes| socket.send(bytes.clone()));
            Some(socket)
        }
        Ok(Err(fault)) => {
            slots.note(endpoint, Err(fault));
            None
        }
        Err(_) => None,
    }
}
