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

use super::credentials::Credentials;
use super::socket::{Socket, SocketFault};
use crate::stats::Counters;

/// How long a connection may take to be made, READY included.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Connections of each kind, link and feed, to aggregators that were only heard of.
const MET_MAX: usize = 64;

/// How often a line about a peer that breaks the protocol is logged.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// How often it is said that nobody lets this agent in.
const REFUSED_EVERY: Duration = Duration::from_secs(30);

/// Places for connections, as one connection's task has them.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// `None` for an aggregator that the agent was configured with.
    places: Option<Arc<Semaphore>>,
    counters: Arc<Counters>,
    credentials: Arc<Credentials>,
    line: Arc<Mutex<Option<Instant>>>,
    refused_line: Arc<Mutex<Option<Instant>>>,
}

impl Slots {
    /// For aggregators that the agent was configured with.
    pub(super) fn unbounded(counters: Arc<Counters>, credentials: Arc<Credentials>) -> Self {
        Self {
            places: None,
            counters,
            credentials,
            line: Arc::default(),
            refused_line: Arc::default(),
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
        if fault.is_of_credentials() {
            Counters::add(&self.counters.connections_refused, 1);
            if is_due(&self.refused_line, REFUSED_EVERY) {
                tracing::error!(
                    endpoint,
                    %fault,
                    "no connection to an aggregator, because of credentials; where there is no other, calls are let through"
                );
            }
            return;
        }
        if !fault.is_violation() {
            return tracing::debug!(endpoint, %fault, "a connection is gone");
        }
        Counters::add(&self.counters.connections_ended, 1);
        if is_due(&self.line, LINE_EVERY) {
            tracing::warn!(endpoint, %fault, "ended a connection to an aggregator");
        }
    }
}

/// Whether a line may be logged again, which is then taken as logged.
fn is_due(last: &Mutex<Option<Instant>>, every: Duration) -> bool {
    let mut last = last.lock().unwrap_or_else(|broken| broken.into_inner());
    let now = Instant::now();
    let is_due = last.is_none_or(|last| last + every <= now);
    if is_due {
        *last = Some(now);
    }
    is_due
}

/// A socket that is READY, with these bytes on their way, if somebody answers there in time.
pub(super) async fn connect(
    role: SocketType,
    endpoint: &str,
    slots: &Slots,
    first: &[Bytes],
) -> Option<Socket> {
    let connecting = Socket::connect(role, endpoint, &slots.credentials);
    match timeout(CONNECT_WITHIN, connecting).await {
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
