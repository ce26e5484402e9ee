//! The link's port: passes agents' messages to the core, and the core's answers to agents.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::Answered;
use tollgate_zmtp::{Event as PeerEvent, PeerLimits, SocketType, message};

use super::flights::{FlightBounds, Flights, Whose};
use super::{Admitted, RefusedBatches, Session, encode};
use crate::core::event::{AgentRoom, Event, Peer, Request};
use crate::edge::bounds::{ANSWERS_BYTES, LINK_LIMITS};
use crate::edge::{Bounds, Connection, Conversation, Edge, Ended, Port, PortCounters, Queued};
use crate::security::{Access, AccessRefused, GrantScope, PortKind, TokenGrant};
use tollgate_log::clock::wall;

/// Bytes of answers that may wait for one agent. Snapshots stop far below it, and an agent for which a quarter of a
/// MiB waits is not read, so that only answers to messages under way can add to it.
const ANSWERS_MAX: usize = 16 << 20;

/// The topic key of a fleet without a key.
const TOPIC_KEY: [u8; 16] = [0; 16];

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
struct Link {
    edge: Arc<Edge>,
    counters: Arc<LinkCounters>,
    partitions: u32,
    events: mpsc::Sender<Event>,
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
    fn lock_flights(&self) -> MutexGuard<'_, Flights> {
        self.flights
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    fn lock_full(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
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

    fn wake(&self, connections: Vec<u64>) {
        for one in connections {
            if let Some(connection) = self.edge.connection(one) {
                connection.wake();
            }
        }
    }

    /// The connections of an address are not read for now: counts and logs it.
    fn held(&self, address: IpAddr) {
        let held = &self.counters.addresses_held;
        held.fetch_add(1, Ordering::Relaxed);
        let allowed = self.edge.bounds.appends_bytes_of_address;
        self.edge.lines.held(address, allowed);
    }

    fn tell_bytes(&self, flights: &Flights) {
        let bytes = flights.bytes() as u64;
        self.counters.appends_bytes.store(bytes, Ordering::Relaxed);
    }
}

fn names_bytes(names: &[Box<str>]) -> usize {
    let bytes = names.iter().map(|name| name.len() + size_of::<Box<str>>());
    bytes.sum()
}

/// The core's name for a connection: its number.
fn peer(connection: &Connection) -> Peer {
    Peer(Bytes::copy_from_slice(&connection.number.to_be_bytes()))
}

fn whose(connection: &Connection) -> Whose {
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
        AgentConversation {
            link: Arc::clone(&self.0),
            peer: peer(connection),
            connection: Arc::clone(connection),
            session: Session::new(self.0.partitions),
            gathered: Vec::new(),
            behind: VecDeque::new(),
            writer: Writer::new(),
        }
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

/// Handles what one agent sends over one connection. Its session has the agent and epoch.
struct AgentConversation {
    link: Arc<Link>,
    connection: Arc<Connection>,
    peer: Peer,
    session: Session,
    /// Events of what is being read.
    gathered: Vec<Event>,
    /// Events for which the core has no room yet.
    behind: VecDeque<Event>,
    writer: Writer,
}

impl AgentConversation {
    fn take_message(&mut self, parts: &[Bytes]) -> Result<(), Ended> {
        // REQ sockets send an empty frame before the message, which is allowed.
        let Some((payload, before)) = parts.split_last() else {
            return Ok(());
        };
        let admitted = match before.iter().all(Bytes::is_empty) {
            true => self.session.admit(payload, wall()),
            false => Admitted::Garbage,
        };
        match admitted {
            Admitted::Request(request) => {
                self.allow_topics(&request);
                self.note_flight(&request);
                let peer = self.peer.clone();
                self.gathered.push(Event::Agent { peer, request });
            }
            Admitted::Refused { answer, fault } => {
                self.link.counters.refused.count(&fault);
                let _in_span = self.connection.span.enter();
                let (agent, lines) = (self.session.agent(), &self.link.edge.lines);
                lines.refused(agent, fault.name(), &fault);
                let bytes = encode(&answer, &mut self.writer);
                self.connection
                    .queue(&self.link.edge, message(&[&bytes]), ANSWERS_MAX);
            }
            Admitted::Stranger => return Err(Ended::Refused(AccessRefused::Agent)),
            Admitted::Garbage => {
                self.link.counters.garbage.fetch_add(1, Ordering::Relaxed);
                let found = payload.len();
                return Err(Ended::Garbage { found });
            }
        }
        Ok(())
    }

    /// Allows the feed to publish what is asked for here, under the same grant.
    fn allow_topics(&self, request: &Request) {
        let Some(basis) = self.connection.basis() else {
            return;
        };
        let Some(scope) = GrantScope::of(&basis.grant) else {
            return;
        };
        let topics: Vec<Topic> = match request {
            Request::Hello { .. } => {
                let own = self
                    .session
                    .agent()
                    .map(|agent| Topic::of_agent(&TOPIC_KEY, agent));
                own.into_iter().collect()
            }
            Request::Ask { resources, .. } => resources
                .iter()
                .flat_map(|name| {
                    [
                        Topic::of_resource(&TOPIC_KEY, name),
                        Topic::of_notices(&TOPIC_KEY, name),
                    ]
                })
                .collect(),
            Request::Append { .. } => return,
        };
        let edge = &self.link.edge;
        let link = self.connection.number;
        if edge.hearing.allow(link, &scope, topics) {
            edge.wake_of(&scope);
        }
    }

    fn note_flight(&self, request: &Request) {
        let mut flights = self.link.lock_flights();
        let whose = whose(&self.connection);
        match request {
            Request::Append { id, record, .. } => flights.append(whose, *id, record.len()),
            Request::Hello { .. } => flights.hello(whose),
            Request::Ask { resources, .. } => flights.ask(whose, names_bytes(resources)),
        }
        self.link.tell_bytes(&flights);
    }

    /// Passes what was gathered to the core, or keeps it until there is room.
    fn hand_over(&mut self) {
        match self.link.events.try_reserve_many(self.gathered.len()) {
            Ok(places) => {
                let events = self.gathered.drain(..);
                places
                    .zip(events)
                    .for_each(|(place, event)| place.send(event));
            }
            Err(mpsc::error::TrySendError::Full(())) => self.behind.extend(self.gathered.drain(..)),
            // The core has ended, and so will everything else.
            Err(mpsc::error::TrySendError::Closed(())) => self.gathered.clear(),
        }
    }
}

impl Conversation for AgentConversation {
    const ROLE: SocketType = SocketType::Router;
    const LIMITS: PeerLimits = LINK_LIMITS;

    fn admitted(&mut self, grant: Option<Arc<TokenGrant>>) {
        self.session.set_grant(grant);
    }

    fn take(&mut self, event: PeerEvent) -> Result<(), Ended> {
        match event {
            PeerEvent::Message(parts) => self.take_message(&parts),
            // A ROUTER's decoder lets nothing else through.
            _ => Ok(()),
        }
    }

    /// The core gets all messages of a read at once: one after the other, it would begin with the first, append that
    /// alone to the log, and be woken again for the others.
    fn read_through(&mut self) {
        self.hand_over();
    }

    fn may_take(&self) -> bool {
        if self.is_behind() {
            return false;
        }
        let whose = whose(&self.connection);
        let mut flights = self.link.lock_flights();
        let may_take = flights.may_take(whose);
        if !may_take && flights.is_newly_full(whose) {
            drop(flights);
            self.connection.span.in_scope(|| self.link.held(whose.1));
        }
        may_take
    }

    fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    async fn catch_up(&mut self) {
        let Ok(place) = self.link.events.reserve().await else {
            self.behind.clear();
            return;
        };
        let mut place = Ok(place);
        while let Ok(free) = place
            && let Some(event) = self.behind.pop_front()
        {
            free.send(event);
            place = self.link.events.try_reserve();
        }
    }

    fn may_be_silent(&self) -> bool {
        false
    }

    fn has_begun(&self) -> bool {
        self.session.agent().is_some()
    }

    fn name(&self) -> Option<&str> {
        self.session.agent()
    }

    fn sent(&mut self, waiting: usize) {
        if ANSWERS_BYTES < waiting || self.is_behind() {
            return;
        }
        let mut full = self.link.lock_full();
        if let Some(is_full @ true) = full.get_mut(&self.connection.number) {
            *is_full = false;
            drop(full);
            let peer = self.peer.clone();
            self.gathered.push(Event::Room(peer, AgentRoom::Free));
            self.hand_over();
        }
    }

    fn read_while(&self, _bounds: &Bounds) -> usize {
        ANSWERS_BYTES
    }
}
