//! Connecting: within a time, within a number, and with a log line about peers that break the protocol.
//!
//! Aggregators name each other, so a peer decides how many addresses an agent learns. The agent always connects to
//! the aggregators in its configuration; of those that it only learnt, it connects to a bounded number at a time,
//! since their file descriptors are the host's.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tollgate_shared::log_lines::excerpt;
use tollgate_zmtp::SocketType;

use super::credentials::Credentials;
use super::names;
use super::socket::{Socket, SocketFault};
use crate::log_lines::LogLines;
use crate::stats::Counters;

/// How long connecting may take, from the lookup of the name to READY.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Connections of each kind, link and feed, to aggregators that the agent only learnt: more than the largest fleet that
/// deploy/SIZING.md plans has. Denials of those beyond do not arrive.
const MET_MAX: usize = 256;

/// Lookups of names at a time for connections of one kind to aggregators that the agent only learnt. Each occupies a
/// thread of the service, and the system's resolver may take half a minute. Aggregators in the configuration have one
/// lookup each.
const MET_LOOKUPS_MAX: usize = 4;

/// How often the agent logs that aggregators deny it access.
const REFUSED_EVERY: Duration = Duration::from_secs(30);

/// Slots for connections, for one connection's task.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    /// `None` for an aggregator in the agent's configuration.
    places: Option<Arc<Semaphore>>,
    lookups: Arc<Semaphore>,
    counters: Arc<Counters>,
    credentials: Arc<Credentials>,
    lines: Arc<SlotLines>,
}

/// Log lines about connections, by kind.
#[derive(Debug)]
struct SlotLines {
    gone: LogLines,
    ended: LogLines,
    refused: LogLines,
    full: LogLines,
}

impl Slots {
    /// For a connection to an aggregator in the agent's configuration.
    pub(super) fn new(counters: Arc<Counters>, credentials: Arc<Credentials>) -> Self {
        Self {
            places: None,
            lookups: Arc::new(Semaphore::new(1)),
            counters,
            credentials,
            lines: Arc::new(SlotLines {
                gone: LogLines::default(),
                ended: LogLines::default(),
                refused: LogLines::once_in(REFUSED_EVERY),
                full: LogLines::once_in(REFUSED_EVERY),
            }),
        }
    }

    /// For another connection to an aggregator in the agent's configuration.
    pub(super) fn another(&self) -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(1)),
            ..self.clone()
        }
    }

    /// For aggregators that the agent only learnt: they share their slots.
    pub(super) fn bounded(&self) -> Self {
        Self {
            places: Some(Arc::new(Semaphore::new(MET_MAX))),
            lookups: Arc::new(Semaphore::new(MET_LOOKUPS_MAX)),
            ..self.clone()
        }
    }

    /// Waits for a slot, which is free again when the returned permit is dropped.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        let places = self.places.as_ref()?;
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Some(place);
        }
        Counters::add(&self.counters.members_waiting, 1);
        if let Some(unsaid) = self.lines.full.may() {
            tracing::warn!(
                unsaid,
                "an aggregator waits for a connection: {MET_MAX} that other aggregators named have one; what only this one \
                 rules is not limited here"
            );
        }
        Arc::clone(places).acquire_owned().await.ok()
    }

    /// Counts and logs how a connection ended.
    pub(super) fn note(&self, endpoint: &str, ended: Result<(), SocketFault>) {
        let Err(fault) = ended else {
            return;
        };
        // Aggregators name each other, so an endpoint may come from a peer.
        let endpoint = excerpt(endpoint);
        if fault.is_of_credentials() {
            Counters::add(&self.counters.connections_refused, 1);
            if let Some(unsaid) = self.lines.refused.may() {
                tracing::error!(
                    %endpoint,
                    %fault,
                    unsaid,
                    "no connection to an aggregator, because of credentials; without another connection, calls are let through"
                );
            }
            return;
        }
        if !fault.is_violation() {
            if matches!(fault, SocketFault::Name(_)) {
                Counters::add(&self.counters.names_not_resolved, 1);
            }
            if let Some(unsaid) = self.lines.gone.may() {
                tracing::debug!(%endpoint, %fault, unsaid, "a connection was lost");
            }
            return;
        }
        Counters::add(&self.counters.connections_ended, 1);
        if let Some(unsaid) = self.lines.ended.may() {
            tracing::warn!(%endpoint, %fault, unsaid, "ended a connection to an aggregator");
        }
    }
}

/// A socket that is READY, with these bytes queued, if the peer answers in time.
pub(super) async fn connect(
    role: SocketType,
    endpoint: &str,
    slots: &Slots,
    first: &[Bytes],
) -> Option<Socket> {
    let until = Instant::now() + CONNECT_WITHIN;
    let addresses = timeout_at(until, names::resolve(endpoint, &slots.lookups)).await;
    let addresses = addresses.unwrap_or_else(|_| {
        let late = "no answer about its name came in time";
        Err(SocketFault::Name(io::Error::other(late)))
    });
    let connecting = async {
        let addresses = addresses?;
        Socket::connect(role, &addresses, &slots.credentials, until).await
    };
    match timeout_at(until, connecting).await {
        Ok(Ok(mut socket)) => {
            first.iter().for_each(|bytes| socket.send(bytes.clone()));
            Some(socket)
        }
        Ok(Err(fault)) => {
            slots.note(endpoint, Err(fault));
            None
        }
        Err(_) => {
            slots.note(endpoint, Err(SocketFault::Late));
            None
        }
    }
}
