//! An agent in the world: its process, its clocks, its connections, and the services that call it.
//!
//! The process is the shipped code (`tollgate_agent::simulation`); links and feeds are kept here as the
//! agent's socket tasks keep the real ones: tried again with growing pauses, made anew on demand.

use std::collections::{BTreeMap, VecDeque};

use tollgate_agent::simulation::{Happening, Identity, SimulatedAgent};
use tollgate_agent::{Agent, Rate};
use tollgate_shared::epoch::{EpochSecret, SECRET_BYTES};
use tollgate_shared::place::Place;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::FromAggregator;

use super::agent_holds::Holding;
use super::clock::Clock;
use super::copy_limits::COPIES;
use super::costs::Pending;
use super::documents::RESOURCES;
use super::guards::CurrentNews;
use super::leases::Leases;
use super::plan::{AgentPlan, Edge, Plan};
use super::random::Random;
use super::world::{Event, World};

/// How often the network thread looks at the time.
pub(super) const TICK_US: u64 = 20_000;

/// How stale the cached clock may be: the flusher's longest pause.
pub(super) const STALE_US: u64 = 3_000;

/// A connection to an owner, or the lack of one.
#[derive(Debug, Default)]
pub struct Wire {
    /// The connection; 0: none.
    pub connection: u64,
    /// The attempt that is under way; others are stale.
    pub(super) attempt: u64,
    pub(super) pause_us: u64,
    pub(super) answered: bool,
}

/// What an agent wants of a feed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub(super) wanted: bool,
    pub(super) topics: Vec<(u32, Topic)>,
}

/// A record that was sent to be appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) partition: u32,
    /// Of its bytes.
    pub(super) hash: u64,
    /// When it was sent first.
    pub(super) first_us: u64,
}

/// The host of an agent.
pub struct AgentHost {
    pub(super) plan: AgentPlan,
    pub(super) index: usize,
    pub(super) owners: usize,
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
    pub(super) started_mono_us: u64,
    /// Until then it stands still.
    pub frozen_until_us: u64,
    /// What came meanwhile.
    pub(super) waiting: VecDeque<Event>,
    /// Calls, times so many.
    pub times: u64,
    pub(super) links: Vec<Wire>,
    pub(super) feeds: Vec<Wire>,
    pub(super) followed: Vec<Followed>,
    pub(super) flushed_us: u64,
    pub(super) flush_pause_us: u64,
    pub(super) flush_due: bool,
    /// What was sent under an id.
    pub(super) sent: BTreeMap<u64, Batch>,
    /// By pair: the refusal that was justified last, what had been heard then, and until when it is.
    pub(super) justified: BTreeMap<(usize, usize), (Refused, u64)>,
    /// Messages that wait for a cut to end.
    pub(super) held: Vec<(Edge, u64, Happening)>,
    /// What its services hold.
    pub holding: Holding,
    /// What they have estimated and not settled.
    pub(super) estimates: Vec<Pending>,
    pub(super) random: Random,
    pub(super) was_dead: bool,
    pub(super) gaps: u64,
    pub(super) silences: u64,
    pub(super) silent_topics: u64,
    pub(super) links_lost: u64,
    pub(super) sent_again: u64,
    pub(super) dropped_queue: u64,
    pub(super) dropped_courier: u64,
    pub(super) snapshots: u64,
    pub(super) saw: bool,
    /// Whether no news of copies had come within their lease, by resource.
    pub(super) lapsed: [bool; COPIES.len()],
    /// The newest hello that its process said to each owner, and when: earlier ones it takes no answer to.
    pub(super) hellos: BTreeMap<usize, (u64, u64)>,
    /// How long the slowest answer to one took: by so much frames may seem late to it.
    pub(super) slowest_answer_us: u64,
    /// By owner the life of whose process answered a hello of the calm, and when it did so first.
    pub(super) welcomed: BTreeMap<usize, (u64, u64)>,
    /// What its denials hold by.
    pub(super) leases: Leases,
    /// By what its calls are guarded.
    pub(super) current_news: CurrentNews,
    /// When it heard a frame last.
    pub(super) feed_heard_us: u64,
    /// Up to where it has heard of a resource and partition, and when that was seen to be news last.
    pub(super) news: BTreeMap<(usize, u32), (Place, u64)>,
    /// Until when it had heard none for long, the last time.
    pub(super) deaf_until_us: Option<u64>,
}

/// A refusal's code, and what had been heard then.
pub(super) type Refused = (String, Option<Place>);

impl AgentHost {
    /// The host of a plan's agent, with nothing running.
    pub fn new(plan: &Plan, index: usize) -> Self {
        let agent = plan.agents[index].clone();
        Self {
            clock: Clock::new(agent.drift_ppm, plan.wall_us(agent.wall_off_us)),
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
            holding: Holding::new(plan.seed, index),
            estimates: Vec::new(),
            random: Random::of(plan.seed, "agent", index as u64),
            was_dead: false,
            gaps: 0,
            silences: 0,
            silent_topics: 0,
            links_lost: 0,
            sent_again: 0,
            dropped_queue: 0,
            dropped_courier: 0,
            snapshots: 0,
            saw: false,
            lapsed: [false; COPIES.len()],
            hellos: BTreeMap::new(),
            slowest_answer_us: 0,
            welcomed: BTreeMap::new(),
            leases: Leases::default(),
            current_news: CurrentNews::default(),
            feed_heard_us: 0,
            deaf_until_us: None,
            news: BTreeMap::new(),
        }
    }

    fn start(&mut self, now_us: u64) {
        self.life += 1;
        let random = &mut self.random;
        let mut secret = [0; SECRET_BYTES];
        // As many draws as ever, so that seeds mean what they meant.
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
        (self.flushed_us, self.flush_due, self.flush_pause_us) = (0, false, STALE_US);
        self.sent.clear();
        self.justified.clear();
        self.held.clear();
        self.estimates.clear();
        (self.gaps, self.silences, self.links_lost, self.sent_again) = (0, 0, 0, 0);
        self.silent_topics = 0;
        (self.dropped_queue, self.dropped_courier) = (0, 0);
        (self.snapshots, self.saw, self.leases) = (0, false, Leases::default());
        (self.hellos, self.slowest_answer_us) = (BTreeMap::new(), 0);
        self.welcomed.clear();
        self.current_news = CurrentNews::default();
        self.news.clear();
        (self.feed_heard_us, self.deaf_until_us) = (now_us, None);
    }

    pub(super) fn set_clocks(&self, now_us: u64) {
        if let Some(process) = &self.process {
            let since_us = self.clock.mono_us(now_us) - self.started_mono_us;
            process.set_clocks(since_us, self.wall(now_us));
        }
    }

    fn wall(&self, now_us: u64) -> Timestamp {
        self.clock.wall(now_us)
    }

    /// Why no denial of a resource's partition holds any more, where a lease is as long as this.
    pub(super) fn is_out_of_lease(
        &self,
        resource: &str,
        partition: u32,
        lease_us: u64,
        now_us: u64,
    ) -> Option<String> {
        let Some(renewed_us) = self.leases.renewed_us(resource, partition) else {
            return Some(format!("nothing was ever heard of partition {partition}"));
        };
        let is_out = lease_us < now_us - renewed_us;
        is_out.then(|| {
            format!("the last news of partition {partition} came at {renewed_us} us, and hold {lease_us} us")
        })
    }

    /// Takes note of what it has heard more of than when it was looked at last: that renews leases.
    pub(super) fn note_news(&mut self, partitions: u32, now_us: u64) {
        let Some(process) = &self.process else {
            return;
        };
        for (r, resource) in RESOURCES.iter().enumerate() {
            for partition in 0..partitions {
                let Some(upto) = process.heard_upto(resource, partition) else {
                    continue;
                };
                let known = self.news.get(&(r, partition));
                if known.is_none_or(|(known, _)| *known != upto) {
                    self.news.insert((r, partition), (upto, now_us));
                }
            }
        }
    }

    /// Takes note of a hello that was answered: by whom, and when it was said.
    pub(super) fn note_answer(
        &mut self,
        happening: &Happening,
        now_us: u64,
    ) -> Option<(usize, u64)> {
        let Happening::LinkSaid { peer, message } = happening else {
            return None;
        };
        let Ok(FromAggregator::Welcome { nonce, .. }) = FromAggregator::decode(message) else {
            return None;
        };
        let (_, asked_us) = self
            .hellos
            .get(peer)
            .copied()
            .filter(|(of, _)| *of == nonce)?;
        self.hellos.remove(peer);
        self.slowest_answer_us = self.slowest_answer_us.max(now_us - asked_us);
        Some((*peer, asked_us))
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
        self.holder_dies(agent);
        self.watch.cover.see("agent died");
        self.trace.event(self.now_us, &[4, agent as u64, life], || {
            format!("agent {agent}.{life} dies")
        });
        for owner in &mut self.owners {
            owner.forget_agent(agent);
        }
    }

    /// Lets a process do something, with its clocks right, and sees to what it wants then.
    pub(super) fn with_agent(&mut self, agent: usize, act: impl FnOnce(&mut SimulatedAgent)) {
        let host = &mut self.agents[agent];
        host.set_clocks(self.now_us);
        if let Some(process) = &mut host.process {
            act(process);
            self.after_agent(agent);
        }
    }

    pub(super) fn after_agent(&mut self, agent: usize) {
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
}
