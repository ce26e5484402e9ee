//! An agent in the world: its process, its clocks, its connections, and the services that call it.
//!
//! The process is the shipped code (`tollgate_agent::simulation`); links and feeds are kept here as the
//! agent's socket tasks keep the real ones: tried again with growing pauses, made anew on demand.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tollgate_agent::simulation::{Happening, Identity, SimulatedAgent, Wish};
use tollgate_agent::{Agent, Cause, Denied, HitError, Rate, Scope};
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::place::Place;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::{FromAgent, FromAggregator};

use super::clock::Clock;
use super::documents::{DOMAINS, RESOURCES};
use super::net::Sent;
use super::plan::{AgentPlan, Edge, Plan, QUIET_US, Way, draw_pair};
use super::random::Random;
use super::trace::hash_of;
use super::world::{Event, World};

/// Pauses between attempts to connect, as the agent's own.
const PAUSE_FIRST_US: u64 = 50_000;
const PAUSE_LONGEST_US: u64 = 1_000_000;

/// How long a connection may take to be made.
const CONNECT_WITHIN_US: u64 = 2_000_000;

/// How often the network thread looks at the time.
const TICK_US: u64 = 20_000;

/// How long denials hold without news, and what an agent's clock may be slow by.
const LEASE_US: u64 = 60_000_000 + 60_000;

/// How stale the cached clock may be: the flusher's longest pause.
const STALE_US: u64 = 1_000;

/// A connection to an owner, or the lack of one.
#[derive(Debug, Default)]
pub struct Wire {
    /// The connection; 0: none.
    pub connection: u64,
    /// The attempt that is under way; others are stale.
    attempt: u64,
    pause_us: u64,
    answered: bool,
}

/// What an agent wants of a feed.
#[derive(Debug, Default)]
struct Followed {
    wanted: bool,
    topics: Vec<(u32, Topic)>,
}

/// The host of an agent.
pub struct AgentHost {
    plan: AgentPlan,
    index: usize,
    owners: usize,
    /// Which life this is, from 1.
    pub life: u64,
    /// The process; none: dead.
    pub process: Option<SimulatedAgent>,
    /// The process's handles.
    pub rates: Vec<Rate>,
    /// Its epoch.
    pub epoch: u128,
    /// The host's clocks.
    pub clock: Clock,
    started_mono_us: u64,
    /// Until then it stands still.
    pub frozen_until_us: u64,
    /// What came meanwhile.
    pub(super) waiting: VecDeque<Event>,
    /// Calls, times so many.
    pub times: u64,
    links: Vec<Wire>,
    feeds: Vec<Wire>,
    followed: Vec<Followed>,
    flushed_us: u64,
    flush_pause_us: u64,
    flush_due: bool,
    /// What was appended under an id: its partition and hash.
    sent: BTreeMap<u64, (u32, u64)>,
    /// By pair: the refusal that was justified last, what had been heard then, and until when it is.
    justified: BTreeMap<(usize, usize), (Refused, u64)>,
    /// Messages that wait for a cut to end.
    held: Vec<(Edge, u64, Happening)>,
    random: Random,
    was_dead: bool,
    gaps: u64,
    silences: u64,
    links_lost: u64,
    sent_again: u64,
    snapshots: u64,
    saw: bool,
    /// When anything was heard last.
    heard_us: u64,
}

type Refused = (String, Option<Place>);

impl AgentHost {
    /// The host of a plan's agent, with nothing running.
    pub fn new(plan: &Plan, index: usize) -> Self {
        let agent = plan.agents[index].clone();
        Self {
            clock: Clock::new(agent.drift_ppm, agent.wall_off_us),
            plan: agent,
            index,
            owners: plan.owners,
            life: 0,
            process: None,
            rates: Vec::new(),
            epoch: 0,
            started_mono_us: 0,
            frozen_until_us: 0,
            waiting: VecDeque::new(),
            times: 1,
            links: Vec::new(),
            feeds: Vec::new(),
            followed: Vec::new(),
            flushed_us: 0,
            flush_pause_us: STALE_US,
            flush_due: false,
            sent: BTreeMap::new(),
            justified: BTreeMap::new(),
            held: Vec::new(),
            random: Random::of(plan.seed, "agent", index as u64),
            was_dead: false,
            gaps: 0,
            silences: 0,
            links_lost: 0,
            sent_again: 0,
            snapshots: 0,
            saw: false,
            heard_us: 0,
        }
    }

    fn start(&mut self, now_us: u64) {
        self.life += 1;
        let random = &mut self.random;
        self.epoch = u128::from(random.draw()) << 64 | u128::from(random.draw());
        let identity = Identity {
            name: format!("agent-{}", self.index),
            epoch: self.epoch,
            seed: random.draw(),
            nonce: random.draw() >> 32,
        };
        let builder = Agent::builder()
            .denials_max(self.plan.denials_max)
            .resources_max(RESOURCES.len())
            .recorder_bytes(self.plan.recorder_bytes)
            .queue_bytes(self.plan.queue_bytes);
        self.started_mono_us = self.clock.mono_us(now_us);
        let process = SimulatedAgent::new(builder, &identity, self.owners, self.clock.wall(now_us));
        self.rates = RESOURCES.map(|name| process.agent().rate(name)).to_vec();
        self.process = Some(process);
        let wires = || (0..self.owners).map(|_| Wire::default()).collect();
        (self.links, self.feeds) = (wires(), wires());
        self.followed = (0..self.owners).map(|_| Followed::default()).collect();
        (self.flushed_us, self.flush_due, self.flush_pause_us) = (0, false, STALE_US);
        self.sent.clear();
        self.justified.clear();
        self.held.clear();
        (self.gaps, self.silences, self.links_lost, self.sent_again) = (0, 0, 0, 0);
        (self.snapshots, self.saw, self.heard_us) = (0, false, now_us);
    }

    fn set_clocks(&self, now_us: u64) {
        if let Some(process) = &self.process {
            let since_us = self.clock.mono_us(now_us) - self.started_mono_us;
            process.set_clocks(since_us, self.wall(now_us));
        }
    }

    fn wall(&self, now_us: u64) -> Timestamp {
        self.clock.wall(now_us)
    }

    /// The name under which the trace knows it.
    pub fn name(&self) -> String {
        format!("agent {}.{}", self.index, self.life)
    }
}

impl World {
    pub(super) fn agent_starts(&mut self, agent: usize) {
        if self.agents[agent].process.is_some() {
            return;
        }
        let host = &mut self.agents[agent];
        host.start(self.now_us);
        let (life, epoch) = (host.life, host.epoch);
        if host.was_dead {
            self.watch.cover.see("agent returned");
        }
        if host.plan.drift_ppm != 0 {
            self.watch.cover.see("clock drifts");
        }
        self.watch.accounts.life(epoch);
        self.trace.event(self.now_us, &[3, agent as u64, life], || {
            format!("agent {agent}.{life} starts")
        });
        for owner in 0..self.owners.len() {
            self.try_link(agent, owner, 0);
        }
        let (every, offset) = (self.agents[agent].plan.every_us, self.random.below(5_000));
        self.after(offset + every, Event::Calls(agent, life));
        self.after(TICK_US, Event::AgentTick(agent, life));
        self.with_agent(agent, |process| process.look_for_new_resources());
    }

    pub(super) fn agent_dies(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        if host.process.take().is_none() {
            return;
        }
        host.was_dead = true;
        host.rates.clear();
        let life = host.life;
        self.watch.cover.see("agent died");
        self.trace.event(self.now_us, &[4, agent as u64, life], || {
            format!("agent {agent}.{life} dies")
        });
        for owner in &mut self.owners {
            owner.forget_agent(agent);
        }
    }

    /// Lets a process do something, with its clocks right, and sees to what it wants then.
    fn with_agent(&mut self, agent: usize, act: impl FnOnce(&mut SimulatedAgent)) {
        let host = &mut self.agents[agent];
        host.set_clocks(self.now_us);
        if let Some(process) = &mut host.process {
            act(process);
            self.after_agent(agent);
        }
    }

    fn after_agent(&mut self, agent: usize) {
        let Some(process) = &mut self.agents[agent].process else {
            return;
        };
        let wishes = process.take_wishes();
        for wish in wishes {
            self.grant(agent, wish);
        }
        for owner in 0..self.owners.len() {
            self.send_messages(agent, owner);
        }
    }

    fn grant(&mut self, agent: usize, wish: Wish) {
        match wish {
            Wish::ReopenLink { peer } => self.link_ends(agent, peer),
            Wish::OpenFeed { peer, topics, .. } => {
                let host = &mut self.agents[agent];
                host.followed[peer] = Followed {
                    wanted: true,
                    topics,
                };
                self.watch.cover.see("feed opened anew");
                self.feed_ends(agent, peer);
                self.try_feed(agent, peer, 0);
            }
            Wish::Subscribe {
                peer,
                resource,
                topic,
            } => {
                let host = &mut self.agents[agent];
                let followed = &mut host.followed[peer];
                if !followed.topics.contains(&(resource, topic)) {
                    followed.topics.push((resource, topic));
                }
                let (connection, life) = (host.feeds[peer].connection, host.life);
                if connection != 0 {
                    self.send_subscription(agent, peer, connection, topic);
                    let happening = Happening::Subscribed { peer, resource };
                    self.after(
                        1,
                        Event::AgentHears {
                            agent,
                            life,
                            connection,
                            happening,
                        },
                    );
                }
            }
        }
    }

    /// Hands what waits for a link to the network, unless the way is cut: then it waits where it is.
    pub(super) fn send_messages(&mut self, agent: usize, owner: usize) {
        let edge = Edge {
            agent,
            owner,
            way: Way::Up,
        };
        let connection = self.agents[agent].links[owner].connection;
        if connection == 0 {
            return;
        }
        if self.net.is_cut(edge) && self.net.weather(edge).losing_cuts == 0 {
            self.watch.cover.see("message held by a cut");
            let waiting = self.agents[agent]
                .process
                .as_mut()
                .map_or(0, |process| process.messages_waiting(owner));
            if 256 <= waiting {
                self.watch.cover.see("queue of a link full");
            }
            return;
        }
        loop {
            let Some(process) = &mut self.agents[agent].process else {
                return;
            };
            let Some(message) = process.next_message(owner) else {
                return;
            };
            self.note_sent(agent, &message);
            let life = self.owners[owner].life;
            let sent = self.net.send(edge, self.now_us);
            self.arrive(sent, |at_us, world| {
                world.at(
                    at_us,
                    Event::OwnerHears {
                        owner,
                        life,
                        connection,
                        message: message.clone(),
                    },
                );
            });
        }
    }

    fn note_sent(&mut self, agent: usize, message: &Bytes) {
        self.trace
            .event(self.now_us, &[5, agent as u64, hash_of(message)], || {
                format!("agent {agent} says {}", describe(message))
            });
        if let Ok(FromAgent::Append {
            id,
            partition,
            record,
        }) = FromAgent::decode(message)
        {
            let sent = (partition, hash_of(record));
            let before = self.agents[agent].sent.insert(id, sent);
            if before.is_some_and(|before| before != sent) {
                self.violated(5, "a record's bytes never change", format!("id {id}"));
            }
        }
    }

    /// What becomes of a message, noted.
    pub(super) fn arrive(&mut self, sent: Sent, mut arrives: impl FnMut(u64, &mut Self)) {
        match sent {
            Sent::Arrives {
                at_us,
                again_us,
                late,
                reordered,
            } => {
                if late {
                    self.watch.cover.see("message delayed");
                }
                if reordered {
                    self.watch.cover.see("message reordered");
                }
                arrives(at_us, self);
                if let Some(again_us) = again_us {
                    self.watch.cover.see("message duplicated");
                    arrives(again_us, self);
                }
            }
            Sent::Held => self.watch.cover.see("message held by a cut"),
            Sent::Lost => self.watch.cover.see("message lost"),
        }
    }

    /// Sends to an agent over one of its connections; what a cut holds comes when it is over.
    pub(super) fn send_to_agent(&mut self, edge: Edge, connection: u64, happening: Happening) {
        let agent = edge.agent;
        let life = self.agents[agent].life;
        let sent = self.net.send(edge, self.now_us);
        if sent == Sent::Held {
            self.watch.cover.see("message held by a cut");
            let held = &mut self.agents[agent].held;
            // As much as sockets hold; beyond it the publisher drops.
            if held.len() < 1_000 {
                held.push((edge, connection, happening));
            }
            return;
        }
        self.arrive(sent, |at_us, world| {
            world.at(
                at_us,
                Event::AgentHears {
                    agent,
                    life,
                    connection,
                    happening: happening.clone(),
                },
            );
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
        for (edge, connection, happening) in now {
            self.send_to_agent(edge, connection, happening);
        }
    }

    fn try_link(&mut self, agent: usize, owner: usize, after_us: u64) {
        let life = self.agents[agent].life;
        let link = &mut self.agents[agent].links[owner];
        link.attempt += 1;
        let attempt = link.attempt;
        self.after(
            after_us,
            Event::LinkTried {
                agent,
                life,
                owner,
                attempt,
            },
        );
    }

    pub(super) fn link_tried(&mut self, agent: usize, life: u64, owner: usize, attempt: u64) {
        let host = &mut self.agents[agent];
        let stale = host.life != life || host.process.is_none();
        if stale || host.links[owner].attempt != attempt || host.links[owner].connection != 0 {
            return;
        }
        let way = |way| Edge { agent, owner, way };
        let cut = self.net.is_cut(way(Way::Up)) || self.net.is_cut(way(Way::Down));
        let pause_us = longer(self.agents[agent].links[owner].pause_us);
        if cut || !self.owners[owner].is_up() {
            self.agents[agent].links[owner].pause_us = pause_us;
            let spent_us = if cut { CONNECT_WITHIN_US } else { 0 };
            return self.try_link(agent, owner, spent_us + pause_us);
        }
        self.connections += 1;
        let connection = self.connections;
        let link = &mut self.agents[agent].links[owner];
        (link.connection, link.answered) = (connection, false);
        self.net.connected(way(Way::Up), self.now_us);
        self.net.connected(way(Way::Down), self.now_us);
        self.owners[owner].link_made(connection, agent);
        self.trace.event(
            self.now_us,
            &[6, agent as u64, owner as u64, connection],
            || format!("agent {agent} has link {connection} to owner {owner}"),
        );
        self.with_agent(agent, |process| {
            process.hear(Happening::LinkUp { peer: owner })
        });
    }

    /// A link is gone; another is tried.
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
        self.owners[owner].connection_ended(connection);
        self.trace.event(
            self.now_us,
            &[7, agent as u64, owner as u64, connection],
            || format!("agent {agent} loses link {connection} to owner {owner}"),
        );
        self.with_agent(agent, |process| {
            process.hear(Happening::LinkDown { peer: owner })
        });
        self.try_link(agent, owner, pause_us);
    }

    fn try_feed(&mut self, agent: usize, owner: usize, after_us: u64) {
        let life = self.agents[agent].life;
        let feed = &mut self.agents[agent].feeds[owner];
        feed.attempt += 1;
        let attempt = feed.attempt;
        self.after(
            after_us,
            Event::FeedTried {
                agent,
                life,
                owner,
                attempt,
            },
        );
    }

    pub(super) fn feed_tried(&mut self, agent: usize, life: u64, owner: usize, attempt: u64) {
        let host = &self.agents[agent];
        let stale = host.life != life || host.process.is_none() || !host.followed[owner].wanted;
        if stale || host.feeds[owner].attempt != attempt || host.feeds[owner].connection != 0 {
            return;
        }
        let edge = Edge {
            agent,
            owner,
            way: Way::Feed,
        };
        let cut = self.net.is_cut(edge);
        let pause_us = longer(self.agents[agent].feeds[owner].pause_us);
        if cut || !self.owners[owner].is_up() {
            self.agents[agent].feeds[owner].pause_us = pause_us;
            let spent_us = if cut { CONNECT_WITHIN_US } else { 0 };
            return self.try_feed(agent, owner, spent_us + pause_us);
        }
        self.connections += 1;
        let connection = self.connections;
        let feed = &mut self.agents[agent].feeds[owner];
        (feed.connection, feed.pause_us) = (connection, PAUSE_FIRST_US);
        self.net.connected(edge, self.now_us);
        self.owners[owner].feed_made(connection, agent);
        let topics = self.agents[agent].followed[owner].topics.clone();
        self.send_subscription(agent, owner, connection, Topic::CONTROL);
        for (_, topic) in &topics {
            self.send_subscription(agent, owner, connection, *topic);
        }
        let subscribed = topics.iter().map(|(resource, _)| *resource).collect();
        self.trace.event(
            self.now_us,
            &[8, agent as u64, owner as u64, connection],
            || format!("agent {agent} has feed {connection} of owner {owner}"),
        );
        self.with_agent(agent, |process| {
            process.hear(Happening::FeedUp {
                peer: owner,
                subscribed,
            });
        });
    }

    fn send_subscription(&mut self, agent: usize, owner: usize, connection: u64, topic: Topic) {
        let life = self.owners[owner].life;
        // It goes the other way over the feed's connection, and is no faster than a message.
        let edge = Edge {
            agent,
            owner,
            way: Way::Up,
        };
        let at_us = match self.net.send(edge, self.now_us) {
            Sent::Arrives { at_us, .. } => at_us,
            // TCP sends it again.
            Sent::Held | Sent::Lost => self.now_us + 200_000,
        };
        self.at(
            at_us,
            Event::Subscribes {
                owner,
                life,
                connection,
                topic,
            },
        );
    }

    /// A feed's connection is gone.
    pub(super) fn feed_ends(&mut self, agent: usize, owner: usize) {
        let host = &mut self.agents[agent];
        let connection = std::mem::replace(&mut host.feeds[owner].connection, 0);
        if connection == 0 || host.process.is_none() {
            return;
        }
        self.owners[owner].connection_ended(connection);
        self.with_agent(agent, |process| {
            process.hear(Happening::FeedDown { peer: owner })
        });
        self.try_feed(agent, owner, PAUSE_FIRST_US);
    }

    pub(super) fn agent_hears(
        &mut self,
        agent: usize,
        life: u64,
        connection: u64,
        happening: Happening,
    ) {
        let host = &mut self.agents[agent];
        if host.life != life || host.process.is_none() {
            return;
        }
        match &happening {
            Happening::LinkSaid { peer, message } => {
                if host.links[*peer].connection != connection {
                    return;
                }
                host.links[*peer].answered = true;
                host.heard_us = self.now_us;
                self.trace
                    .event(self.now_us, &[9, agent as u64, hash_of(message)], || {
                        format!("agent {agent} is told {}", describe_answer(message))
                    });
                let message = message.clone();
                self.check_answer(agent, &message);
            }
            Happening::FeedSaid { peer, frame, .. } => {
                if host.feeds[*peer].connection != connection {
                    return;
                }
                host.heard_us = self.now_us;
                self.trace
                    .event(self.now_us, &[10, agent as u64, hash_of(frame)], || {
                        format!(
                            "agent {agent} hears {}",
                            super::owner_host::describe_frame(frame)
                        )
                    });
            }
            Happening::Subscribed { peer, .. } => {
                if host.feeds[*peer].connection != connection {
                    return;
                }
            }
            Happening::LinkDown { peer } => {
                if host.links[*peer].connection == connection {
                    self.link_ends(agent, *peer);
                }
                return;
            }
            Happening::FeedDown { peer } => {
                if host.feeds[*peer].connection == connection {
                    self.feed_ends(agent, *peer);
                }
                return;
            }
            Happening::LinkUp { .. } | Happening::FeedUp { .. } => {}
        }
        self.with_agent(agent, |process| process.hear(happening));
    }

    /// What is said to be in the log is there.
    fn check_answer(&mut self, agent: usize, message: &Bytes) {
        let Ok(FromAggregator::Appended {
            id,
            partition,
            offset,
        }) = FromAggregator::decode(message)
        else {
            return;
        };
        let Some((sent_to, hash)) = self.agents[agent].sent.get(&id).copied() else {
            return;
        };
        let kept = self
            .watch
            .record(tollgate::log::Stream::Hits, partition, offset);
        let there = kept.is_some_and(|kept| hash_of(&kept.bytes) == hash);
        if (sent_to != partition || !there) && !self.watch.accounts.records_lost {
            self.violated(
                5,
                "what is acknowledged is in the log",
                format!("agent {agent}, id {id}: partition {partition}, offset {offset}"),
            );
        }
    }

    pub(super) fn agent_tick(&mut self, agent: usize, life: u64) {
        if self.agents[agent].life != life || self.agents[agent].process.is_none() {
            return;
        }
        self.with_agent(agent, |process| process.tick());
        self.cover_agent(agent);
        self.after(TICK_US, Event::AgentTick(agent, life));
        self.schedule_flush(agent);
    }

    fn cover_agent(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        let Some(process) = &host.process else {
            return;
        };
        let stats = process.agent().stats();
        let cover = &mut self.watch.cover;
        let mut since = |before: &mut u64, now: u64, what| {
            cover.add(what, now.saturating_sub(*before));
            *before = now;
        };
        since(&mut host.gaps, stats.gaps, "feed gap");
        since(&mut host.silences, stats.silences, "feed silent");
        since(&mut host.links_lost, stats.links_lost, "link lost");
        since(
            &mut host.sent_again,
            stats.batches_sent_again,
            "batch sent again",
        );
        if 1 < stats.snapshots {
            since(&mut host.snapshots, stats.snapshots, "snapshot asked anew");
        }
        let sees = stats.blind_for.is_none();
        if std::mem::replace(&mut host.saw, sees) && !sees {
            cover.see("lease ran out");
        }
        if stats.denials_live > host.plan.denials_max as u64 {
            let what = format!("agent {agent} has {} denials", stats.denials_live);
            self.violated(7, "the deny list is bounded", what);
        }
    }

    fn schedule_flush(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        if !std::mem::replace(&mut host.flush_due, true) {
            let (life, pause_us) = (host.life, host.random.between(100, host.flush_pause_us));
            self.after(pause_us, Event::Flush(agent, life));
        }
    }

    pub(super) fn flush(&mut self, agent: usize, life: u64) {
        let host = &mut self.agents[agent];
        if host.life != life || host.process.is_none() {
            return;
        }
        host.flush_due = false;
        host.flushed_us = self.now_us;
        self.with_agent(agent, |process| {
            process.flush();
            process.take_parcels();
        });
    }

    pub(super) fn calls(&mut self, agent: usize, life: u64) {
        let host = &mut self.agents[agent];
        if host.life != life || host.process.is_none() {
            return;
        }
        let quiet = self.plan.length_us - QUIET_US <= self.now_us;
        host.set_clocks(self.now_us);
        if STALE_US < self.now_us - host.flushed_us
            && let Some(process) = &mut host.process
        {
            // The flusher keeps the cached clock this fresh even where nobody calls.
            process.flush();
            host.flushed_us = self.now_us;
        }
        let per_burst = host.plan.calls_per_s * host.plan.every_us * host.times;
        let mut calls = per_burst / 1_000_000;
        calls += u64::from(host.random.below(1_000_000) < per_burst % 1_000_000);
        let calls = if quiet {
            0
        } else {
            host.random.below(2 * calls + 1)
        };
        let every_us = host.plan.every_us;
        for _ in 0..calls {
            self.call(agent);
        }
        if 0 < calls {
            self.trace.event(
                self.now_us,
                &[11, agent as u64, calls, self.refusals],
                || format!("agent {agent} is called {calls} times"),
            );
            self.schedule_flush(agent);
        }
        let next_us = self.agents[agent]
            .random
            .between(every_us / 2, every_us * 3 / 2);
        self.after(next_us, Event::Calls(agent, life));
    }

    fn call(&mut self, agent: usize) {
        self.decisions += 1;
        let host = &mut self.agents[agent];
        let (r, d) = draw_pair(&mut host.random);
        let (rate, domain) = (&host.rates[r], DOMAINS[d]);
        let answer = if host.random.chance(host.plan.bulk_ppm) {
            let copies = host.random.between(2, 6) as u32;
            match host.random.below(3) {
                0 => rate.hit_n(domain, copies),
                1 => rate.hit_up_to(domain, 2..=copies),
                _ => rate.hit_up_to(domain, 1..=copies),
            }
        } else {
            rate.hit(domain).map_err(HitError::from)
        };
        match answer {
            Ok(allowed) => {
                if allowed.blind() {
                    self.watch.cover.see("call while blind");
                }
                let life = self.watch.accounts.life(host.epoch);
                life.let_through[r][d] += u64::from(allowed.copies());
            }
            Err(HitError::Denied(denied)) => self.refused(agent, (r, d), &denied),
            Err(error) => self.violated(7, "calls make sense here", error.to_string()),
        }
    }

    /// Law 3: a refusal is justified.
    fn refused(&mut self, agent: usize, (r, d): (usize, usize), denied: &Denied) {
        self.refusals += 1;
        let Some(code) = denied.code() else {
            // What no version ever grants an agent may refuse by itself.
            if denied.cause() != Cause::Blind
                && self.watch.is_never_granted(RESOURCES[r], DOMAINS[d])
            {
                return;
            }
            let what = format!("agent {agent} refused by {:?}", denied.cause());
            return self.violated(3, "nobody refuses by policy here", what);
        };
        let host = &self.agents[agent];
        let Some(process) = &host.process else {
            return;
        };
        if LEASE_US < self.now_us - host.heard_us {
            let what = format!(
                "agent {agent} refuses, and last heard something at {} us",
                host.heard_us
            );
            return self.violated(3, "denials hold only while somebody is heard", what);
        }
        let whole = denied.scope() == Scope::Resource;
        let (resource, domain) = (RESOURCES[r], DOMAINS[d]);
        let heard = process.heard_upto(resource, code.partition);
        let key = (code.to_string(), heard);
        if let Some((known, until_us)) = host.justified.get(&(r, d))
            && *known == key
            && self.now_us < *until_us
        {
            return;
        }
        self.watch.cover.see(match whole {
            true => "call refused by whole resource",
            false => "call refused by pair",
        });
        if denied.cause() == Cause::Blind {
            self.violated(3, "nobody refuses by policy here", "blind".to_owned());
        }
        let partitions = self.plan.partitions;
        let expected = match whole {
            true => partition_of_resource(resource, partitions),
            false => partition_of_pair(resource, domain, partitions),
        };
        if expected != code.partition {
            let what = format!("{resource} for {domain}: partition {}", code.partition);
            return self.violated(3, "a refusal names its pair's partition", what);
        }
        let scope_of = if whole { "*" } else { domain };
        match self
            .watch
            .justified_until(code, resource, scope_of, heard, self.now_us)
        {
            Ok(until_us) if self.now_us < until_us => {
                self.agents[agent].justified.insert((r, d), (key, until_us));
            }
            Ok(until_us) => {
                let what = format!(
                    "agent {agent} refuses {resource} for {domain} by {code}, {} us after the denial's \
                     end",
                    self.now_us - until_us
                );
                self.violated(3, "a refusal is justified", what);
            }
            Err(why) => {
                let what = format!(
                    "agent {agent}, which has heard up to {heard:?}, refuses {resource} for {domain} by \
                     {code}: {why}"
                );
                self.violated(3, "a refusal is justified", what);
            }
        }
    }
}

fn longer(pause_us: u64) -> u64 {
    (pause_us * 2).clamp(PAUSE_FIRST_US, PAUSE_LONGEST_US)
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
                .map(|topic| (&*topic.resource, topic.sequence, topic.told.len()))
                .collect::<Vec<_>>()
        ),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}
