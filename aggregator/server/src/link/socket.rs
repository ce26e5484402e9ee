//! The link's port: passes agents' messages to the core, and the core's answers to agents.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_shared::wire::link::Answered;
use tollgate_zmtp::message;

use super::RefusedBatches;
use super::conversation::AgentConversation;
use super::flights::{FlightBounds, Flights, Whose};
use crate::core::event::{AgentRoom, Event, Peer, Request};
use crate::edge::bounds::ANSWERS_BYTES;
use crate::edge::{Connection, Edge, Port, PortCounters, Queued};
use crate::security::{Access, PortKind};

/// Bytes of answers that may wait for one agent. Snapshots stop far below it, and an agent for which a quarter of a
/// MiB waits is not read, so that only answers to messages under way can add to it.
pub(super) const ANSWERS_MAX: usize = 16 << 20;

/// The link's counters.
#[derive(Debug, Default)]
pub struct LinkCounters {
    /// Messages of agents that could not be decoded.
    pub garbage: AtomicU64,
    /// Batches that were refused.
    pub refused: RefusedBatches,
    /// Answers that were dropped because their agents did not take them.
    pub answers_dropped: AtomicU64,
    /// Bytes of appends under way to the log.
    pub appends_bytes: AtomicU64,
    /// Times that an address reached its bound on bytes under way.
    pub addresses_held: AtomicU64,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is queued.
    Sent,
    /// It is queued, and so much waits for the agent now that no more parts of a snapshot are to be made for it until
    /// [`AgentRoom::Free`].
    Full,
    /// The agent is gone.
    Gone,
}

/// Sends answers to agents.
#[derive(Debug)]
pub struct Answers {
    link: Arc<Link>,
    /// Connections to which something is to be written.
    touched: Vec<Arc<Connection>>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) edge: Arc<Edge>,
    pub(super) counters: Arc<LinkCounters>,
    pub(super) partitions: u32,
    pub(super) events: mpsc::Sender<Event>,
    flights: Mutex<Flights>,
    /// Agents that were reported to the core as full, and whether they still are.
    full: Mutex<HashMap<u64, bool>>,
}

impl Answers {
    /// The core reads an agent's request, which is no longer under way then.
    pub fn request_read(&self, peer: &Peer, request: &Request) {
        if let (Request::Ask { resources, .. }, Some(number)) = (request, number(peer)) {
            let mut flights = self.link.lock_flights();
            let awake = flights.ask_read(number, names_bytes(resources));
            self.link.tell_bytes(&flights);
            drop(flights);
            self.link.wake(awake);
        }
    }

    /// Sends an answer, or drops and counts it if the agent is gone or takes nothing. It leaves with all others before
    /// the next [`Self::wake`].
    pub fn send(&mut self, peer: &Peer, bytes: &[u8]) -> Sent {
        let Some(number) = number(peer) else {
            return Sent::Gone;
        };
        let link = &self.link;
        if let Some(answered) = Answered::of(bytes) {
            link.answered(number, answered);
        }
        let dropped = || {
            link.counters
                .answers_dropped
                .fetch_add(1, Ordering::Relaxed)
        };
        let Some(connection) = link.edge.connection(number) else {
            dropped();
            return Sent::Gone;
        };
        match connection.queue(&link.edge, message(&[bytes]), ANSWERS_MAX) {
            // The connection's task writes it out: the ruling thread makes no system calls.
            Queued::First => self.touched.push(Arc::clone(&connection)),
            Queued::Behind => {}
            Queued::LeftOut => drop(dropped()),
        }
        if ANSWERS_BYTES < connection.waiting()
            && link.lock_full().insert(number, true) != Some(true)
        {
            // If it ended meanwhile, nobody would take the entry back, and the core would wait for its room for ever.
            if link.edge.connection(number).is_none() {
                link.lock_full().remove(&number);
                return Sent::Gone;
            }
            connection.wake();
            return Sent::Full;
        }
        Sent::Sent
    }

    /// Wakes the connections to which something was sent.
    pub fn wake(&mut self) {
        self.touched
            .drain(..)
            .for_each(|connection| connection.wake());
    }
}

impl Link {
    pub(super) fn lock_flights(&self) -> MutexGuard<'_, Flights> {
        self.flights
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    pub(super) fn lock_full(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        self.full
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    fn answered(&self, number: u64, answered: Answered) {
        let mut flights = self.lock_flights();
        let awake = flights.answered(number, answered);
        self.tell_bytes(&flights);
        drop(flights);
        self.wake(awake);
    }

    pub(super) fn wake(&self, connections: Vec<u64>) {
        for one in connections {
            if let Some(connection) = self.edge.connection(one) {
                connection.wake();
            }
        }
    }

    /// The connections of an address are not read for now: counts and logs it.
    pub(super) fn held(&self, address: IpAddr) {
        let held = &self.counters.addresses_held;
        held.fetch_add(1, Ordering::Relaxed);
        let allowed = self.edge.bounds.appends_bytes_of_address;
        self.edge.lines.held(address, allowed);
    }

    pub(super) fn tell_bytes(&self, flights: &Flights) {
        let bytes = flights.bytes() as u64;
        self.counters.appends_bytes.store(bytes, Ordering::Relaxed);
    }
}

pub(super) fn names_bytes(names: &[Box<str>]) -> usize {
    let bytes = names.iter().map(|name| name.len() + size_of::<Box<str>>());
    bytes.sum()
}

/// The core's name for a connection: its number.
pub(super) fn peer(connection: &Connection) -> Peer {
    Peer(Bytes::copy_from_slice(&connection.number.to_be_bytes()))
}

pub(super) fn whose(connection: &Connection) -> Whose {
    (connection.number, connection.network)
}

/// The number of a peer's connection.
fn number(peer: &Peer) -> Option<u64> {
    peer.0[..].try_into().ok().map(u64::from_be_bytes)
}

/// Serves the link on a listener that is bound. Events go to `events`; while that is full no agent is
/// read, which is backpressure for them.
///
/// The link has its own thread for all its connections: a runtime of several threads would wake a second one for most
/// messages, to look for further work.
///
/// # Errors
///
/// If the listener or a thread cannot be set up.
pub fn serve(
    listener: (TcpListener, Access),
    partitions: u32,
    events: mpsc::Sender<Event>,
    edge: Arc<Edge>,
    counters: Arc<LinkCounters>,
) -> std::io::Result<Answers> {
    let (listener, access) = listener;
    let bounds = edge.bounds;
    let link = Arc::new(Link {
        edge: Arc::clone(&edge),
        counters,
        partitions,
        events,
        flights: Mutex::new(Flights::new(FlightBounds {
            of_connection: bounds.appends_bytes_each,
            of_address: bounds.appends_bytes_of_address,
            of_all: bounds.appends_bytes,
        })),
        full: Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    {
        let _within = runtime.enter();
        crate::edge::serve(listener, edge, access, AgentsPort(Arc::clone(&link)))?;
    }
    let events = link.events.clone();
    std::thread::Builder::new()
        .name("tollgate-link".to_owned())
        // Until nobody receives events any more.
        .spawn(move || runtime.block_on(events.closed()))?;
    Ok(Answers {
        link,
        touched: Vec::new(),
    })
}

#[derive(Clone)]
struct AgentsPort(Arc<Link>);

impl Port for AgentsPort {
    type Conversation = AgentConversation;

    const NAME: &'static str = "agents";
    const KIND: PortKind = PortKind::Link;

    fn counters(edge: &Edge) -> &PortCounters {
        &edge.agents
    }

    fn open(&self, connection: &Arc<Connection>) -> AgentConversation {
        AgentConversation::new(Arc::clone(&self.0), Arc::clone(connection))
    }

    fn close(&self, connection: &Arc<Connection>) {
        self.0.lock_flights().gone(whose(connection));
        self.0.edge.hearing.forget(connection.number);
        if self.0.lock_full().remove(&connection.number).is_some() {
            // Otherwise the core would wait for the agent for ever.
            let gone = Event::Room(peer(connection), AgentRoom::Gone);
            let events = self.0.events.clone();
            tokio::spawn(async move { events.send(gone).await });
        }
    }
}
