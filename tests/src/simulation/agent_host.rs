//! An agent in the simulated world: its process, its clocks, its connections, and the services that call it.
//!
//! The process is the shipped code (`tollgate_agent::simulation`). Links and feeds behave like those of the agent's
//! socket tasks: reconnected with growing pauses, and recreated on demand.

use std::collections::{BTreeMap, VecDeque};

use tollgate_agent::simulation::{Identity, SimulatedAgent, SocketEvent};
use tollgate_agent::{Agent, Rate};
use tollgate_shared::epoch::{EpochSecret, SECRET_BYTES};
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::FromAggregator;

use super::agent_holds::Holding;
use super::agent_transport::Wiring;
use super::clock::Clock;
use super::copy_limits::COPIES;
use super::costs::Pending;
use super::documents::RESOURCES;
use super::plan::{AgentPlan, Edge, Plan};
use super::random::Random;
use super::received::Received;
use super::world::{Event, World};

/// How often the network thread checks the time.
pub(super) const TICK_US: u64 = 20_000;

/// How stale the cached clock may be: the flusher's longest pause.
pub(super) const STALE_US: u64 = 3_000;

/// A connection to an aggregator, or the lack of one.
#[derive(Debug, Default)]
pub struct Wire {
    /// The connection; 0 means none.
    pub connection: u64,
    /// The attempt that is under way; events of other attempts are stale.
    pub(super) attempt: u64,
    pub(super) pause_us: u64,
    pub(super) answered: bool,
}

/// The agent's state for one feed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) wanted: bool,
    pub(super) topics: Vec<(u32, Topic)>,
}

/// A record that was sent to be appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) partition: u32,
    pub(super) hash: u64,
    /// When it was first sent.
    pub(super) first_us: u64,
}

/// The host of an agent.
#[derive(Default)]
pub struct AgentHost {
    pub(super) plan: AgentPlan,
    pub(super) index: usize,
    pub(super) owners: usize,
    /// The number of this life, from 1.
    pub life: u64,
    /// The process; `None` means dead.
    pub process: Option<SimulatedAgent>,
    /// The process's handles for rates.
    pub rates: Vec<Rate>,
    pub epoch: u128,
    pub clock: Clock,
    pub(super) started_mono_us: u64,
    /// Until when the host is frozen.
    pub frozen_until_us: u64,
    /// Events that arrived while it was frozen.
    pub(super) waiting: VecDeque<Event>,
    /// Multiplier of the number of calls.
    pub times: u64,
    pub(super) links: Vec<Wire>,
    pub(super) feeds: Vec<Wire>,
    pub(super) followed: Vec<Followed>,
    pub(super) flushed_us: u64,
    pub(super) flush_due: bool,
    /// Records sent, by id.
    pub(super) sent: BTreeMap<u64, Batch>,
    /// Messages that wait for the end of a network cut.
    pub(super) held: Vec<(Edge, u64, SocketEvent)>,
    pub holding: Holding,
    /// Estimates that are not settled yet.
    pub(super) estimates: Vec<Pending>,
    pub(super) random: Random,
    pub(super) was_dead: bool,
    /// How much of the process's statistics was covered already, by situation.
    pub(super) counted: BTreeMap<&'static str, u64>,
    /// Whether the process was not blind.
    pub(super) saw: bool,
    /// Whether the lease of copies had run out, by resource.
    pub(super) lapsed: [bool; COPIES.len()],
    /// The newest hello that its process sent to each aggregator, and when. The process
    /// accepts no answer to earlier ones.
    pub(super) hellos: BTreeMap<usize, (u64, u64)>,
    /// By aggregator: since when messages to it have waited for the end of a cut.
    pub(super) waits_us: BTreeMap<usize, u64>,
    /// What its process has received.
    pub(super) received: Received,
    /// Since when statements have reached it in time.
    pub(super) in_time_us: Option<u64>,
}

impl AgentHost {
    /// The host of a plan's agent, with nothing running.
    pub fn new(plan: &Plan, index: usize) -> Self {
        let agent = plan.agents[index].clone();
        Self {
            clock: Clock::new(agent.drift_ppm, plan.wall_us(agent.wall_off_us)),
            plan: agent,
            index,
            owners: plan.owners,
            times: 1,
            holding: Holding::new(plan.seed, index),
            random: Random::of(plan.seed, "agent", index as u64),
            ..Self::default()
        }
    }

    fn start(&mut self, now_us: u64) {
        self.life += 1;
        let random = &mut self.random;
        let mut secret = [0; SECRET_BYTES];
        // The same number of draws as ever, so that seeds keep their meaning.
        for bytes in secret.chunks_exact_mut(16) {
            bytes[..8].copy_from_slice(&random.draw().to_be_bytes());
        }
        let secret = EpochSecret::new(secret);
        self.epoch = secret.epoch();
        let identity = Identity {
            name: format!("agent-{}", self.index),
            secret,
            seed: random.draw(),
            nonce: random.draw() >> 32,
        };
        let builder = Agent::builder()
            .denials_max(self.plan.denials_max)
            .resources_max(RESOURCES.len() + COPIES.len())
            .recorder_bytes(self.plan.recorder_bytes)
            .queue_bytes(self.plan.queue_bytes)
            .on_hold(self.holding.on_hold());
        self.started_mono_us = self.clock.mono_us(now_us);
        let process = SimulatedAgent::new(builder, &identity, self.owners, self.clock.wall(now_us));
        self.rates = RESOURCES.map(|name| process.agent().rate(name)).to_vec();
        if self.uses_copies() {
            self.holding.copies = COPIES.map(|name| process.agent().copies(name)).to_vec();
        }
        self.process = Some(process);
        let wires = || (0..self.owners).map(|_| Wire::default()).collect();
        (self.links, self.feeds) = (wires(), wires());
        self.followed = (0..self.owners).map(|_| Followed::default()).collect();
        (self.flushed_us, self.flush_due) = (0, false);
        self.sent.clear();
        self.held.clear();
        self.estimates.clear();
        self.counted.clear();
        self.saw = false;
        self.hellos.clear();
        self.waits_us.clear();
        (self.received, self.in_time_us) = (Received::default(), None);
    }

    pub(super) fn set_clocks(&self, now_us: u64) {
        if let Some(process) = &self.process {
            let since_us = self.clock.mono_us(now_us) - self.started_mono_us;
            process.set_clocks(since_us, self.clock.wall(now_us));
        }
    }

    /// Notes an answer to the newest hello.
    pub(super) fn note_answer(&mut self, event: &SocketEvent, now_us: u64) {
        let SocketEvent::LinkMessage { peer, message } = event else {
            return;
        };
        if let Ok(FromAggregator::Welcome { nonce, .. }) = FromAggregator::decode(message)
            && let Some((_, asked_us)) = self.hellos.get(peer).filter(|(of, _)| *of == nonce)
        {
            self.received.round_trips.insert(*peer, now_us - asked_us);
            self.hellos.remove(peer);
        }
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
        let (was_dead, drifts) = (host.was_dead, host.plan.drift_ppm != 0);
        self.see_if("agent returned", was_dead);
        self.see_if("clock drifts", drifts);
        self.watch.accounts.life(epoch);
        self.event(&[3, agent as u64, life], || {
            format!("agent {agent}.{life} starts")
        });
        for owner in 0..self.owners.len() {
            self.try_wire(Wiring::Link, agent, owner, 0);
        }
        let (every, offset) = (self.agents[agent].plan.every_us, self.random.below(5_000));
        self.at_agent(agent, self.now_us + offset + every, move |world| {
            world.calls(agent);
        });
        self.at_agent(agent, self.now_us + TICK_US, move |world| {
            world.agent_tick(agent);
        });
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
        self.holder_dies(agent);
        self.see("agent died");
        self.event(&[4, agent as u64, life], || {
            format!("agent {agent}.{life} dies")
        });
        for owner in &mut self.owners {
            owner.connections.retain(|_, one| one.agent != agent);
        }
    }

    /// Calls `act` on a process with its clocks set, and then does what the process asks for.
    pub(super) fn with_agent(&mut self, agent: usize, act: impl FnOnce(&mut SimulatedAgent)) {
        let host = &mut self.agents[agent];
        host.set_clocks(self.now_us);
        let Some(process) = &mut host.process else {
            return;
        };
        act(process);
        for request in process.take_requests() {
            self.grant(agent, request);
        }
        for owner in 0..self.owners.len() {
            self.send_messages(agent, owner);
        }
    }
}
