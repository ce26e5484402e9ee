//! One agent's side of the link: its messages become events of the core.
//!
//! What the core has no room for waits here, and the connection is not read meanwhile. Knows nothing of answers. What
//! stays true: what is under way of this connection is in the core, or waits here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::Answered;
use tollgate_zmtp::{Event as PeerEvent, PeerLimits, SocketType, message};

use super::socket::{ANSWERS_MAX, Link, names_bytes, peer, whose};
use super::{Admitted, BatchFault, Session, encode};
use crate::core::event::{AgentRoom, Event, Peer, Request};
use crate::edge::bounds::{ANSWERS_BYTES, LINK_LIMITS};
use crate::edge::{Bounds, Connection, Conversation, Ended};
use crate::security::{AccessRefused, GrantScope, TokenGrant};
use tollgate_log::clock::wall;

/// The topic key of a fleet without a key.
const TOPIC_KEY: [u8; 16] = [0; 16];

/// Handles what one agent sends over one connection. Its session has the agent and epoch.
pub(super) struct AgentConversation {
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
    pub(super) fn new(link: Arc<Link>, connection: Arc<Connection>) -> Self {
        Self {
            session: Session::new(link.partitions),
            peer: peer(&connection),
            link,
            connection,
            gathered: Vec::new(),
            behind: VecDeque::new(),
            writer: Writer::new(),
        }
    }

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
            Admitted::Request(request) => self.gather(request),
            Admitted::InPart { request, fault } => {
                self.note_refused(&fault);
                self.gather(request);
            }
            Admitted::Refused { answer, fault } => {
                self.note_refused(&fault);
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

    fn gather(&mut self, request: Request) {
        self.allow_topics(&request);
        self.note_flight(&request);
        let peer = self.peer.clone();
        self.gathered.push(Event::Agent { peer, request });
    }

    fn note_refused(&self, fault: &BatchFault) {
        self.link.counters.refused.count(fault);
        let _in_span = self.connection.span.enter();
        let (agent, lines) = (self.session.agent(), &self.link.edge.lines);
        lines.refused(agent, fault.name(), fault);
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

impl Drop for AgentConversation {
    /// What the core never got is not under way any more, and nobody would answer it.
    fn drop(&mut self) {
        let never = self.behind.drain(..).chain(self.gathered.drain(..));
        let requests = never.filter_map(|event| match event {
            Event::Agent { request, .. } => Some(request),
            _ => None,
        });
        let number = self.connection.number;
        let mut flights = self.link.lock_flights();
        let mut awake = Vec::new();
        for request in requests {
            awake.extend(match request {
                Request::Append { id, .. } => flights.answered(number, Answered::Append(id)),
                Request::Ask { resources, .. } => flights.ask_read(number, names_bytes(&resources)),
                Request::Hello { .. } => flights.answered(number, Answered::Hello),
            });
        }
        self.link.tell_bytes(&flights);
        drop(flights);
        self.link.wake(awake);
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
