//! The world: hosts, connections and the log on one clock, driven by one queue of events.
//!
//! ```text
//! agents ── calls ──> links ──> aggregators ──> log ──> aggregators ──> feed ──> agents
//! ```
//!
//! Everything that happens is an event with a time; events of one time happen in the order in which they were
//! created. What stays true: a run is a function of its plan; nothing here reads a real clock, uses other
//! randomness than the seed's, or waits.

use std::collections::{BTreeMap, VecDeque};

use tollgate_log::journal::snapshots::Snapshots;

use super::agent_holds::Offered;
use super::agent_host::AgentHost;
use super::arrivals::SendingProcess;
use super::clock::Clock;
pub use super::held::{Death, Returns};
use super::log_host::LogHost;
use super::net::Net;
use super::operators::Operators;
use super::owner_host::OwnerHost;
use super::plan::Plan;
use super::quiescent_effect::QuiescentCalls;
use super::random::Random;
use super::state_topic::StateTopic;
use super::trace::{Trace, Violation};
use super::watch::Watch;

/// A process that handles an event, and so later if it is frozen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frozen {
    Agent(usize),
    Owner(usize),
}

/// An event.
pub struct Event {
    process: Option<Frozen>,
    happens: Box<dyn FnOnce(&mut World)>,
}

/// The world.
pub struct World {
    pub plan: Plan,
    /// True time.
    pub now_us: u64,
    /// Future events by time, and those of one time by number.
    queue: BTreeMap<(u64, u64), Event>,
    /// The number of events that were ever scheduled.
    scheduled: u64,
    pub agents: Vec<AgentHost>,
    /// The aggregators.
    pub owners: Vec<OwnerHost>,
    /// The snapshots of each aggregator, unless it is in a fleet.
    pub(super) snapshots: Vec<Snapshots>,
    pub log: LogHost,
    /// The clock that stamps the log's records.
    pub log_clock: Clock,
    pub net: Net,
    /// The log as ruled beside the aggregators.
    pub watch: Watch,
    pub trace: Trace,
    /// Calls decided.
    pub decisions: u64,
    /// Calls refused because of denials.
    pub refusals: u64,
    /// Connections made.
    pub connections: u64,
    /// Transfers that wait to be seized.
    pub offered: Offered,
    /// Agents that died while they held copies which still count.
    pub deaths: Vec<Death>,
    /// The return of such copies.
    pub returns: Returns,
    /// When log time was last seen to stand still.
    pub log_stood_us: u64,
    /// The processes that publish, by the instance in their messages.
    pub(super) publishers: BTreeMap<u128, SendingProcess>,
    /// Operators' acts that are not answered yet.
    pub(super) operators: Operators,
    pub(super) quiescent_calls: QuiescentCalls,
    /// Draws for parts that belong to no host.
    pub random: Random,
    /// In a fleet: the aggregator to which each partition is assigned, by group.
    pub assigned: Vec<Vec<Option<usize>>>,
    /// In a fleet: the snapshots from which aggregators restore.
    pub(super) state: StateTopic,
    /// In a fleet: whether those snapshots are of the present log.
    pub state_is_of_the_log: bool,
    /// Appends refused at the moment: refused of a million, and stored of a million refused.
    pub appends_refused: (u32, u32),
    /// The number of faults that prevent snapshots; a number, since faults may overlap.
    pub no_snapshots: u32,
    /// By how much the log's answers are late, in microseconds.
    pub answers_late_us: u64,
    /// By how much appends are late, in microseconds.
    pub appends_late_us: u64,
    /// The first violation of a law.
    pub violation: Option<Violation>,
    pub(super) ended: bool,
}

impl World {
    /// The world of a plan.
    pub fn new(plan: Plan, trace: bool) -> Self {
        let seed = plan.seed;
        let log = LogHost::new(&plan);
        let mut world = Self {
            now_us: 0,
            queue: BTreeMap::new(),
            scheduled: 0,
            agents: (0..plan.agents.len())
                .map(|a| AgentHost::new(&plan, a))
                .collect(),
            owners: (0..plan.owners)
                .map(|owner| OwnerHost::new(&plan, owner))
                .collect(),
            snapshots: (0..plan.owners)
                .map(|owner| log.snapshots(&plan, owner))
                .collect(),
            log,
            log_clock: Clock::new(0, plan.wall_us(0)),
            net: Net::new(
                plan.agents.len(),
                plan.owners,
                plan.delay_us,
                Random::of(seed, "net", 0),
            ),
            watch: Watch::new(&plan),
            trace: Trace::new(trace),
            decisions: 0,
            refusals: 0,
            connections: 0,
            offered: Offered::default(),
            deaths: Vec::new(),
            returns: Returns::default(),
            log_stood_us: 0,
            publishers: BTreeMap::new(),
            operators: Operators::default(),
            quiescent_calls: QuiescentCalls::default(),
            random: Random::of(seed, "world", 0),
            assigned: vec![vec![None; plan.partitions as usize]; plan.groups],
            state: StateTopic::default(),
            state_is_of_the_log: true,
            appends_refused: (0, 0),
            no_snapshots: 0,
            answers_late_us: 0,
            appends_late_us: 0,
            violation: None,
            ended: false,
            plan,
        };
        for (index, episode) in world.plan.episodes.clone().iter().enumerate() {
            world.at(episode.from_us, move |world| world.fault_begins(index));
            world.at(episode.to_us, move |world| world.fault_ends(index));
        }
        for owner in 0..world.owners.len() {
            world.at(0, move |world| world.owner_starts(owner));
        }
        for agent in 0..world.agents.len() {
            world.at(1_000, move |world| world.agent_starts(agent));
        }
        world.at(200_000, |world| world.check_state());
        world.at(world.plan.length_us, |world| world.end());
        if 1 < world.owners.len() {
            world.watch.cover.see("more than one owner");
        }
        world
    }

    /// Schedules an event at an instant.
    pub fn at(&mut self, at_us: u64, happens: impl FnOnce(&mut Self) + 'static) {
        self.schedule(at_us, None, happens);
    }

    /// Schedules an event after a time.
    pub fn after(&mut self, us: u64, happens: impl FnOnce(&mut Self) + 'static) {
        self.at(self.now_us + us, happens);
    }

    /// Schedules an event that an agent's present process handles: later if the process is frozen then, and not at all
    /// if it has ended, even if another one runs.
    pub fn at_agent(
        &mut self,
        agent: usize,
        at_us: u64,
        happens: impl FnOnce(&mut Self) + 'static,
    ) {
        let life = self.agents[agent].life;
        self.schedule(at_us, Some(Frozen::Agent(agent)), move |world| {
            let host = &world.agents[agent];
            if host.life == life && host.process.is_some() {
                happens(world);
            }
        });
    }

    /// The same for an aggregator's process.
    pub fn at_owner(
        &mut self,
        owner: usize,
        at_us: u64,
        happens: impl FnOnce(&mut Self) + 'static,
    ) {
        let happens = self.in_this_life(owner, happens);
        self.schedule(at_us, Some(Frozen::Owner(owner)), happens);
    }

    /// Schedules an event of the log for an aggregator's present process. It happens even while that is frozen.
    pub fn at_log_of(
        &mut self,
        owner: usize,
        at_us: u64,
        happens: impl FnOnce(&mut Self) + 'static,
    ) {
        let happens = self.in_this_life(owner, happens);
        self.schedule(at_us, None, happens);
    }

    /// What happens only as long as an aggregator's present process runs.
    fn in_this_life<F: FnOnce(&mut Self) + 'static>(
        &self,
        owner: usize,
        happens: F,
    ) -> impl FnOnce(&mut Self) + use<F> {
        let life = self.owners[owner].life;
        move |world| {
            let host = &world.owners[owner];
            if host.life == life && host.is_up() {
                happens(world);
            }
        }
    }

    /// Schedules an event, which the process that runs then handles, if one is named.
    pub(super) fn schedule(
        &mut self,
        at_us: u64,
        process: Option<Frozen>,
        happens: impl FnOnce(&mut Self) + 'static,
    ) {
        let happens = Box::new(happens);
        let event = Event { process, happens };
        self.scheduled += 1;
        let at = (at_us.max(self.now_us), self.scheduled);
        self.queue.insert(at, event);
    }

    /// Notes an event in the trace: numbers for its hash, and a text for people.
    pub(super) fn event(&mut self, numbers: &[u64], text: impl FnOnce() -> String) {
        self.trace.event(self.now_us, numbers, text);
    }

    /// Counts an occurrence of a situation.
    pub(super) fn see(&mut self, what: &'static str) {
        self.watch.cover.see(what);
    }

    /// The same if `is_so`.
    pub(super) fn see_if(&mut self, what: &'static str, is_so: bool) {
        self.watch.cover.see_if(what, is_so);
    }

    /// Notes a violation of a law; the run ends with the first.
    pub fn violated(&mut self, law: u8, check: &'static str, what: String) {
        self.violated_by(Violation::new(law, check, what));
    }

    /// The same for a violation that was found elsewhere.
    pub fn violated_by(&mut self, mut violation: Violation) {
        violation.at_us = self.now_us;
        if self.violation.is_none() {
            self.event(&[99], || format!("VIOLATED: {violation}"));
            self.violation = Some(violation);
        }
    }

    /// Runs until the end, or until a law is violated.
    pub fn run(&mut self) {
        while self.violation.is_none() && !self.ended {
            let Some(((at_us, _), event)) = self.queue.pop_first() else {
                return;
            };
            self.now_us = at_us;
            self.happen(event);
        }
    }

    /// A frozen process handles waiting events when it continues, in order.
    fn happen(&mut self, event: Event) {
        let now_us = self.now_us;
        if let Some(process) = event.process {
            let (waiting, until_us) = self.frozen(process);
            if now_us < until_us || !waiting.is_empty() {
                return waiting.push_back(event);
            }
        }
        (event.happens)(self);
    }

    /// The events that wait for a process, and until when it is frozen.
    fn frozen(&mut self, process: Frozen) -> (&mut VecDeque<Event>, u64) {
        match process {
            Frozen::Agent(agent) => {
                let host = &mut self.agents[agent];
                (&mut host.waiting, host.frozen_until_us)
            }
            Frozen::Owner(owner) => {
                let host = &mut self.owners[owner];
                (&mut host.waiting, host.stalled_until_us)
            }
        }
    }

    /// A process continues after it was frozen.
    pub(super) fn goes_on(&mut self, process: Frozen) {
        let now_us = self.now_us;
        let (waiting, until_us) = self.frozen(process);
        if until_us <= now_us {
            let waiting = std::mem::take(waiting);
            waiting.into_iter().for_each(|event| (event.happens)(self));
        }
    }
}
