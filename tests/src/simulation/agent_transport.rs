//! The connections of agents: links and feeds as the agent's socket tasks keep the real ones, reconnected with
//! growing pauses and recreated on demand; and the messages on them.
//!
//! What stays true: a message on a connection that is gone never arrives.

use bytes::Bytes;
use tollgate_agent::simulation::{SocketEvent, SocketRequest};
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::heartbeat::RECONNECT_PAUSE_MAX;
use tollgate_shared::wire::link::{FromAgent, FromAggregator};

use super::net::Sent;
use super::plan::{Edge, Way};
use super::sent_content::content_of;
use super::trace::hash_of;
use super::world::World;

use super::agent_host::{AgentHost, Batch, Followed, Wire};

/// Pauses between attempts to connect, equal to the agent's own: each is longer by half, and shortened at random by
/// up to a half.
const PAUSE_FIRST_US: u64 = 50_000;
const PAUSE_LONGEST_US: u64 = RECONNECT_PAUSE_MAX.as_micros();

/// In the quiescent phase no pause ends later than this after its beginning: the phase is too short for longer ones.
const PAUSE_QUIESCENT_US: u64 = 1_000_000;

/// How long a connection may take to be made.
const CONNECT_WITHIN_US: u64 = 2_000_000;

/// What an agent keeps to each aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wiring {
    Link,
    Feed,
}

impl AgentHost {
    fn wire(&mut self, wiring: Wiring, owner: usize) -> &mut Wire {
        match wiring {
            Wiring::Link => &mut self.links[owner],
            Wiring::Feed => &mut self.feeds[owner],
        }
    }
}

impl World {
    pub(super) fn grant(&mut self, agent: usize, request: SocketRequest) {
        match request {
            SocketRequest::ReopenLink { peer } => self.link_ends(agent, peer),
            SocketRequest::OpenFeed { peer, topics, .. } => {
                let host = &mut self.agents[agent];
                let followed = Followed {
                    wanted: true,
                    topics,
                };
                let before = std::mem::replace(&mut host.followed[peer], followed);
                let cover = &mut self.watch.cover;
                cover.see_if("feed opened anew", before.wanted);
                self.feed_ends(agent, peer);
                self.try_wire(Wiring::Feed, agent, peer, 0);
            }
            SocketRequest::Subscribe {
                peer,
                resource,
                topic,
            } => {
                let host = &mut self.agents[agent];
                let followed = &mut host.followed[peer];
                if !followed.topics.contains(&(resource, topic)) {
                    followed.topics.push((resource, topic));
                }
                let connection = host.feeds[peer].connection;
                if connection != 0 {
                    self.send_subscription(agent, peer, connection, topic);
                    let event = SocketEvent::Subscribed { peer, resource };
                    self.at_agent(agent, self.now_us + 1, move |world| {
                        world.agent_receives(agent, connection, event);
                    });
                }
            }
        }
    }

    /// Hands the messages of a link to the network. If the way is cut, they wait where they are.
    pub(super) fn send_messages(&mut self, agent: usize, owner: usize) {
        let edge = Way::Up.between(agent, owner);
        let connection = self.agents[agent].links[owner].connection;
        if connection == 0 {
            return;
        }
        if self.net.is_cut(edge) && self.net.weather(edge).losing_cuts == 0 {
            self.see("message held by a cut");
            let waiting = self.agents[agent]
                .process
                .as_mut()
                .map_or(0, |process| process.messages_waiting(owner));
            self.see_if("queue of a link full", 256 <= waiting);
            if 0 < waiting {
                let waits_us = self.agents[agent].waits_us.entry(owner);
                waits_us.or_insert(self.now_us);
            }
            return;
        }
        loop {
            let Some(process) = &mut self.agents[agent].process else {
                return;
            };
            let Some(message) = process.next_message(owner) else {
                self.agents[agent].waits_us.remove(&owner);
                return;
            };
            self.note_sent((agent, owner), &message);
            let sent = self.net.send(edge, self.now_us);
            self.arrive(sent, |at_us, world| {
                let message = message.clone();
                world.at_owner(owner, at_us, move |world| {
                    world.owner_receives(owner, connection, &message);
                });
            });
        }
    }

    pub(super) fn note_sent(&mut self, (agent, owner): (usize, usize), message: &Bytes) {
        self.event(&[5, agent as u64, hash_of(message)], || {
            format!("agent {agent} says {}", describe(message))
        });
        let decoded = FromAgent::decode(message);
        if let Ok(FromAgent::Hello { nonce, .. }) = decoded {
            let host = &mut self.agents[agent];
            let asked_us = host.waits_us.get(&owner).copied();
            host.hellos
                .insert(owner, (nonce, asked_us.unwrap_or(self.now_us)));
        }
        if let Ok(FromAgent::Append {
            id,
            partition,
            record,
        }) = decoded
        {
            let batch = Batch {
                partition,
                hash: content_of(record),
                first_us: self.now_us,
            };
            let known = *self.agents[agent].sent.entry(id).or_insert(batch);
            if (known.partition, known.hash) != (batch.partition, batch.hash) {
                let what = format!(
                    "agent {agent}, id {id}: partition {partition}, hash {:016x}, expected partition {}, hash {:016x}",
                    batch.hash, known.partition, known.hash
                );
                self.violated(5, "a record's content never changes", what);
            }
        }
    }

    /// Notes the outcome of a message, and schedules its arrivals.
    pub(super) fn arrive(&mut self, sent: Sent, mut arrives: impl FnMut(u64, &mut Self)) {
        match sent {
            Sent::Arrives {
                at_us,
                again_us,
                late,
                reordered,
            } => {
                if late {
                    self.see("message delayed");
                }
                if reordered {
                    self.see("message reordered");
                }
                arrives(at_us, self);
                if let Some(again_us) = again_us {
                    self.see("message duplicated");
                    arrives(again_us, self);
                }
            }
            Sent::Held => self.see("message held by a cut"),
            Sent::Lost => self.see("message lost"),
        }
    }

    /// Sends to an agent over one of its connections. A message held by a cut arrives after the end of the cut.
    pub(super) fn send_to_agent(&mut self, edge: Edge, connection: u64, event: SocketEvent) {
        let agent = edge.agent;
        let sent = self.net.send(edge, self.now_us);
        if sent == Sent::Held {
            self.see("message held by a cut");
            let held = &mut self.agents[agent].held;
            // As many as sockets buffer; the publisher drops further ones.
            if held.len() < 1_000 {
                held.push((edge, connection, event));
            }
            return;
        }
        self.arrive(sent, |at_us, world| {
            let event = event.clone();
            world.at_agent(agent, at_us, move |world| {
                world.agent_receives(agent, connection, event);
            });
        });
    }

    pub(super) fn release_held(&mut self, edge: Edge) {
        if self.net.is_cut(edge) {
            return;
        }
        if edge.way == Way::Up && self.agents[edge.agent].process.is_some() {
            self.send_messages(edge.agent, edge.owner);
        }
        let held = std::mem::take(&mut self.agents[edge.agent].held);
        let (now, later): (Vec<_>, Vec<_>) = held.into_iter().partition(|(of, ..)| *of == edge);
        self.agents[edge.agent].held = later;
        for (edge, connection, event) in now {
            self.send_to_agent(edge, connection, event);
        }
    }

    /// Tries to connect after a time.
    pub(super) fn try_wire(&mut self, wiring: Wiring, agent: usize, owner: usize, after_us: u64) {
        let host = &mut self.agents[agent];
        let life = host.life;
        let wire = host.wire(wiring, owner);
        wire.attempt += 1;
        let attempt = wire.attempt;
        self.after(after_us, move |world| {
            let wire = world.agents[agent].wire(wiring, owner);
            let is_due = wire.attempt == attempt && wire.connection == 0;
            let host = &world.agents[agent];
            if !is_due || host.life != life || host.process.is_none() {
                return;
            }
            match wiring {
                Wiring::Link => world.link_tried(agent, owner),
                Wiring::Feed => world.feed_tried(agent, owner),
            }
        });
    }

    /// The number of a new connection, or another attempt later. A link needs both its ways.
    fn connect(
        &mut self,
        wiring: Wiring,
        (agent, owner): (usize, usize),
        ways: &[Way],
    ) -> Option<u64> {
        let edges = ways.iter().map(|way| way.between(agent, owner));
        let cut = edges.clone().any(|edge| self.net.is_cut(edge));
        if cut || !self.owners[owner].is_up() {
            let wire = self.agents[agent].wire(wiring, owner);
            wire.pause_us = longer(wire.pause_us);
            let pause_us = wire.pause_us;
            let spent_us = if cut { CONNECT_WITHIN_US } else { 0 };
            let shortened_us = self.shortened(pause_us);
            self.try_wire(wiring, agent, owner, spent_us + shortened_us);
            return None;
        }
        self.connections += 1;
        let connection = self.connections;
        self.agents[agent].wire(wiring, owner).connection = connection;
        edges.for_each(|edge| self.net.connected(edge, self.now_us));
        self.owners[owner].connected(connection, agent, wiring);
        Some(connection)
    }

    fn link_tried(&mut self, agent: usize, owner: usize) {
        let ways = [Way::Up, Way::Down];
        let Some(connection) = self.connect(Wiring::Link, (agent, owner), &ways) else {
            return;
        };
        self.agents[agent].links[owner].answered = false;
        self.event(&[6, agent as u64, owner as u64, connection], || {
            format!("agent {agent} has link {connection} to owner {owner}")
        });
        self.with_agent(agent, |process| {
            process.handle(SocketEvent::LinkUp { peer: owner })
        });
    }

    /// Notes that a link is gone, and tries another.
    pub(super) fn link_ends(&mut self, agent: usize, owner: usize) {
        let host = &mut self.agents[agent];
        if host.process.is_none() || host.links[owner].connection == 0 {
            return;
        }
        let link = &mut host.links[owner];
        let connection = std::mem::replace(&mut link.connection, 0);
        link.pause_us = if link.answered {
            PAUSE_FIRST_US
        } else {
            longer(link.pause_us)
        };
        let pause_us = link.pause_us;
        self.owners[owner].connections.remove(&connection);
        self.event(&[7, agent as u64, owner as u64, connection], || {
            format!("agent {agent} loses link {connection} to owner {owner}")
        });
        self.with_agent(agent, |process| {
            process.handle(SocketEvent::LinkDown { peer: owner })
        });
        let shortened_us = self.shortened(pause_us);
        self.try_wire(Wiring::Link, agent, owner, shortened_us);
    }

    /// A pause shortened by chance, and by the quiescent phase.
    fn shortened(&mut self, pause_us: u64) -> u64 {
        let drawn_us = self.random.between(pause_us / 2, pause_us);
        let quiescence_us = self.plan.quiescence_us().saturating_sub(self.now_us);
        drawn_us.min(quiescence_us + PAUSE_QUIESCENT_US)
    }

    fn feed_tried(&mut self, agent: usize, owner: usize) {
        if !self.agents[agent].followed[owner].wanted {
            return;
        }
        let Some(connection) = self.connect(Wiring::Feed, (agent, owner), &[Way::Feed]) else {
            return;
        };
        self.agents[agent].feeds[owner].pause_us = PAUSE_FIRST_US;
        let topics = self.agents[agent].followed[owner].topics.clone();
        self.send_subscription(agent, owner, connection, Topic::CONTROL);
        if self.agents[agent].uses_copies()
            && let Some(process) = &self.agents[agent].process
        {
            let own = process.topic();
            self.send_subscription(agent, owner, connection, own);
        }
        for (_, topic) in &topics {
            self.send_subscription(agent, owner, connection, *topic);
        }
        self.agents[agent].received.feed_opens(owner);
        let subscribed = topics.iter().map(|(resource, _)| *resource).collect();
        self.event(&[8, agent as u64, owner as u64, connection], || {
            format!("agent {agent} has feed {connection} of owner {owner}")
        });
        self.with_agent(agent, |process| {
            process.handle(SocketEvent::FeedUp {
                peer: owner,
                subscribed,
            });
        });
    }

    pub(super) fn send_subscription(
        &mut self,
        agent: usize,
        owner: usize,
        connection: u64,
        topic: Topic,
    ) {
        // A subscription travels the other way on the feed's connection, and is no faster than a message.
        let edge = Way::Up.between(agent, owner);
        let at_us = match self.net.send(edge, self.now_us) {
            Sent::Arrives { at_us, .. } => at_us,
            // TCP retransmits it.
            Sent::Held | Sent::Lost => self.now_us + 200_000,
        };
        self.at_owner(owner, at_us, move |world| {
            world.subscribes(owner, connection, topic);
        });
    }

    /// Notes that a feed's connection is gone.
    pub(super) fn feed_ends(&mut self, agent: usize, owner: usize) {
        let host = &mut self.agents[agent];
        let connection = std::mem::replace(&mut host.feeds[owner].connection, 0);
        if connection == 0 || host.process.is_none() {
            return;
        }
        self.owners[owner].connections.remove(&connection);
        self.with_agent(agent, |process| {
            process.handle(SocketEvent::FeedDown { peer: owner })
        });
        self.try_wire(Wiring::Feed, agent, owner, PAUSE_FIRST_US);
    }

    /// Handles an event of a connection, unless another connection has replaced that since.
    pub(super) fn agent_receives(&mut self, agent: usize, connection: u64, event: SocketEvent) {
        let host = &mut self.agents[agent];
        let present = match &event {
            SocketEvent::LinkUp { peer }
            | SocketEvent::LinkMessage { peer, .. }
            | SocketEvent::LinkDown { peer } => &host.links[*peer],
            SocketEvent::FeedUp { peer, .. }
            | SocketEvent::Subscribed { peer, .. }
            | SocketEvent::FeedFrame { peer, .. }
            | SocketEvent::FeedDown { peer } => &host.feeds[*peer],
        };
        if present.connection != connection {
            return;
        }
        match &event {
            SocketEvent::LinkMessage { peer, message } => {
                host.links[*peer].answered = true;
                self.event(&[9, agent as u64, hash_of(message)], || {
                    format!("agent {agent} is told {}", describe_answer(message))
                });
                self.check_answer(agent, message);
            }
            SocketEvent::FeedFrame { frame, .. } => {
                self.event(&[10, agent as u64, hash_of(frame)], || {
                    format!(
                        "agent {agent} hears {}",
                        super::owner_effects::describe_frame(frame)
                    )
                });
            }
            SocketEvent::LinkDown { peer } => return self.link_ends(agent, *peer),
            SocketEvent::FeedDown { peer } => return self.feed_ends(agent, *peer),
            _ => {}
        }
        self.agents[agent].note_answer(&event, self.now_us);
        self.hand_over(agent, event);
    }
}

fn longer(pause_us: u64) -> u64 {
    (pause_us * 3 / 2).clamp(PAUSE_FIRST_US, PAUSE_LONGEST_US)
}

fn describe(message: &[u8]) -> String {
    match FromAgent::decode(message) {
        Ok(FromAgent::Append {
            id,
            partition,
            record,
        }) => format!(
            "append {id} to partition {partition}, {} bytes",
            record.len()
        ),
        Ok(FromAgent::Hello { nonce, .. }) => format!("hello {nonce}"),
        Ok(FromAgent::Ask { nonce, resources }) => format!("ask {nonce} for {resources:?}"),
        Err(error) => error.to_string(),
    }
}

fn describe_answer(message: &[u8]) -> String {
    match FromAggregator::decode(message) {
        Ok(FromAggregator::Snapshot(snapshot)) => format!(
            "snapshot {} at {:?}",
            snapshot.nonce,
            snapshot
                .topics
                .iter()
                .map(|topic| (&*topic.resource, topic.sequence, topic.statements.len()))
                .collect::<Vec<_>>()
        ),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}
