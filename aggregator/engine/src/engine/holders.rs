//! The copy-limited resources of a partition, and the agents that hold their copies.
//!
//! ```text
//! web-1, epoch 7   alive          its holds count
//!                  gone           silent for the timeout, in counted ticks, or longer if ticks paused: its holds
//!                                 stop counting, and are kept for ten minutes of ticks, in case it returns
//!                  over           its successor or the epoch itself said so: none of its holds is kept
//!                  forgotten      not even the fact that it was over is kept
//! ```
//!
//! A resource whose limits are gone is kept without limits while agents hold copies of it, or some are staged: if a later
//! version limits it again, its copies count at once, and are not granted twice. Where its namespace refuses resources
//! that limits do not name, it takes no more copies meanwhile. None of its copies is too old meanwhile.
//!
//! Here is what changes several resources at once: an agent goes, an epoch ends, a tick, a limits version.
//! Knows nothing of records. What stays true: a gone agent or an epoch that is over holds nothing; every
//! agent that has holds also sends heartbeats, so that each is gone some time after its last record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::verdict::EndedBy;

use super::holds::ended;
use super::rulings::{AgentChange, AgentNews};
use super::scopes::{DeniedScopes, StatementSink};
use crate::copies::silence::{LastHeartbeat, Silence, grace_after, ticks_of};
use crate::copies::{Copies, CopyLimits, Effects, NameKey};
use crate::pairs::{Identities, mix};
use tollgate_limits::Limits;

/// Counted ticks for which gone agents are kept and ended epochs are remembered: ten minutes, as long as
/// sequences are.
const KEPT_TICKS: u64 = 1_200;

/// An agent's process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AgentProcess {
    pub name: Arc<str>,
    pub epoch: u128,
}

/// One resource whose copies are counted.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub name: Arc<str>,
    pub copies: Copies,
    pub standing: Standing,
    pub denied: DeniedScopes,
}

/// What the limits in force say of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether they limit it. If not, its copies are only counted, until none is left.
    pub is_limited: bool,
    /// Whether its denials are stated: false if nothing limits it, or its namespace ignores what is configured.
    pub stated: bool,
}

/// All copy-limited resources and agents of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    /// By name.
    held: Vec<Held>,
    pub silence: Silence<AgentProcess>,
    /// Epochs that are over, each with the tick at which it ended.
    over: BTreeMap<AgentProcess, u64>,
    over_since: BTreeSet<(u64, AgentProcess)>,
    /// Reused for every record.
    out: Effects,
}

/// What a record shows about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SenderStatus {
    /// The agent was gone.
    pub returned: bool,
    /// Another epoch of the same name is alive too.
    pub twin: bool,
}

impl Standing {
    fn of(resource: &str, limits: &Limits) -> Self {
        let is_limited = limits.copies(resource).is_some();
        Self {
            is_limited,
            stated: is_limited && !limits.namespace_of(resource).ignore_configured,
        }
    }
}

/// The limits on a resource's copies; without bound if nothing limits it.
pub(super) fn copy_limits(resource: &str, limits: &Limits) -> Arc<CopyLimits> {
    let unlimited = || CopyLimits::builder(u64::MAX).build();
    let of = limits.copies(resource);
    Arc::new(of.map_or_else(unlimited, CopyLimits::from))
}

impl Held {
    /// A resource without denials.
    pub fn new(name: Arc<str>, copies: Copies, limits: &Limits) -> Self {
        Self {
            standing: Standing::of(&name, limits),
            name,
            copies,
            denied: DeniedScopes::default(),
        }
    }

    /// Whether it has to be kept: limits name it, or copies of it are held or staged.
    fn is_kept(&self) -> bool {
        self.standing.is_limited || 0 < self.copies.kept()
    }

    /// States what has changed about the scopes in `out`.
    pub fn follow(&mut self, out: &Effects, sink: &mut StatementSink<'_>) {
        for (scope, _) in out.scopes() {
            self.denied
                .follow(&self.name, &self.copies, self.standing.stated, scope, sink);
        }
    }
}

impl Holders {
    /// A copy of the present state; it shares the memory of holds.
    pub fn freeze(&mut self) -> Self {
        let held = self.held.iter_mut().map(|held| Held {
            name: Arc::clone(&held.name),
            copies: held.copies.freeze(),
            standing: held.standing,
            denied: held.denied.clone(),
        });
        Self {
            held: held.collect(),
            silence: self.silence.clone(),
            over: self.over.clone(),
            over_since: self.over_since.clone(),
            out: Effects::default(),
        }
    }

    /// The index of a resource, which is added if necessary; valid until the next version or tick. `None` if it is
    /// not limited by copies, and none are kept of it.
    pub fn open(
        &mut self,
        name: &str,
        limits: &Limits,
        key: NameKey,
        log_time: Option<Timestamp>,
    ) -> Option<usize> {
        let index = match self.find(name) {
            Ok(index) => return Some(index),
            Err(index) => index,
        };
        limits.copies(name)?;
        let mut copies = Copies::new(copy_limits(name, limits), key);
        if let Some(now) = log_time {
            copies.tick(now, &mut Effects::new());
        }
        let held = Held::new(name.into(), copies, limits);
        self.held.insert(index, held);
        Some(index)
    }

    /// The index of a resource, or the one at which it would be inserted.
    pub fn find(&self, name: &str) -> Result<usize, usize> {
        self.held.binary_search_by(|held| (*held.name).cmp(name))
    }

    /// A resource, and a cleared buffer for the effects of operations on it.
    pub fn at(&mut self, index: usize) -> Option<(&mut Held, &mut Effects)> {
        self.out.clear();
        Some((self.held.get_mut(index)?, &mut self.out))
    }

    /// All resources, by name.
    pub fn all(&self) -> &[Held] {
        &self.held
    }

    /// Adds a resource from a snapshot; false if it is here already.
    pub fn put(&mut self, held: Held) -> bool {
        match self.find(&held.name) {
            Ok(_) => false,
            Err(index) => {
                self.held.insert(index, held);
                true
            }
        }
    }

    /// Number of agents that send heartbeats, are gone or over, and are not forgotten.
    pub fn agents(&self) -> u64 {
        (self.silence.len() + self.over.len()) as u64
    }

    /// Makes room for one more agent at the bound: forgets the agent that has been gone for longest, else
    /// the epoch that has been over for longest. Neither holds anything, so this causes no statement; if one
    /// returns, it is counted as a new one. False if all of them live.
    pub fn make_room(&mut self, agents_max: u64) -> bool {
        while agents_max <= self.agents() {
            if let Some(process) = self.silence.longest_gone().cloned() {
                self.silence.over(&process);
                for held in &mut self.held {
                    if let Some(agent) = held.copies.known_agent(&process.name, process.epoch) {
                        self.out.clear();
                        held.copies.forget(agent, &mut self.out);
                    }
                }
            } else if let Some((_, process)) = self.over_since.pop_first() {
                self.over.remove(&process);
            } else {
                return false;
            }
        }
        true
    }

    /// Whether an agent is known and not forgotten.
    pub fn knows(&self, process: &AgentProcess) -> bool {
        self.silence.knows(process) || self.over.contains_key(process)
    }

    /// Whether an epoch is over.
    pub fn is_over(&self, process: &AgentProcess) -> bool {
        self.over.contains_key(process)
    }

    /// Epochs that are over, ascending, each with the tick at which it ended.
    pub fn over(&self) -> impl ExactSizeIterator<Item = (&AgentProcess, u64)> {
        self.over.iter().map(|(process, since)| (process, *since))
    }

    /// Adds an epoch that is over from a snapshot.
    pub fn put_over(&mut self, process: AgentProcess, since: u64) {
        self.over_since.insert((since, process.clone()));
        self.over.insert(process, since);
    }

    /// Notes that a record of an agent was applied.
    pub fn alive(&mut self, process: &AgentProcess, sink: &mut StatementSink<'_>) -> SenderStatus {
        let twin = self.has_twin(process);
        let returned = self.silence.heartbeat(process);
        if returned {
            sink.news(process, AgentChange::Returned);
        }
        if twin {
            sink.news(process, AgentChange::Twin);
        }
        SenderStatus { returned, twin }
    }

    /// Whether another epoch of the same name has sent a heartbeat since this one did. After a restart the
    /// predecessor sends none; of two live agents with one name each sends one between two of the other.
    fn has_twin(&self, process: &AgentProcess) -> bool {
        let Some(before) = self.silence.last_heartbeat_of(process) else {
            return false;
        };
        let first = AgentProcess {
            name: process.name.clone(),
            epoch: 0,
        };
        let from = self.silence.present_from(&first);
        from.take_while(|(other, _)| other.name == process.name)
            .any(|(other, last)| other.epoch != process.epoch && before < last)
    }

    /// Ends an epoch: its copies come back, and its staged copies stay staged.
    pub fn end_epoch(&mut self, process: &AgentProcess, sink: &mut StatementSink<'_>) {
        if self.over.contains_key(process) {
            return;
        }
        self.silence.over(process);
        self.put_over(process.clone(), self.silence.ticks());
        let copies = self.forget(process, sink);
        sink.news(process, AgentChange::Over { copies });
    }

    /// Counts a tick: agents that have been silent for too long are gone, transfers end, holds grow too old.
    /// `before` is the time of the tick that was counted before it.
    pub fn tick(
        &mut self,
        before: Option<Timestamp>,
        now: Timestamp,
        limits: &Limits,
        sink: &mut StatementSink<'_>,
    ) {
        let timeout = ticks_of(limits.engine().agent_timeout);
        if let Some(before) = before {
            self.silence.paused(grace_after(before, now));
        }
        let passed = self.silence.tick(timeout, KEPT_TICKS);
        for process in &passed.gone {
            let copies = self.each_of(process, sink, |copies, agent, out| {
                copies.agent_gone(agent, out)
            });
            sink.news(process, AgentChange::Gone { copies });
        }
        for process in &passed.forgotten {
            self.forget(process, sink);
        }
        let ticks = self.silence.ticks();
        while let Some((since, process)) = self.over_since.first()
            && since.saturating_add(KEPT_TICKS) <= ticks
        {
            self.over.remove(process);
            self.over_since.pop_first();
        }
        for held in &mut self.held {
            self.out.clear();
            held.copies.tick(now, &mut self.out);
            held.notify_ended(&self.out, sink);
            held.follow(&self.out, sink);
            sink.next();
        }
        self.held.retain(Held::is_kept);
    }

    /// Brings a version into force: resources that it limits go on under it, others are kept while copies of them are.
    pub fn new_limits(&mut self, before: &Limits, limits: &Limits, sink: &mut StatementSink<'_>) {
        let timeout = |limits: &Limits| ticks_of(limits.engine().agent_timeout);
        self.silence.new_timeout(timeout(before), timeout(limits));
        for held in &mut self.held {
            if before.copies(&held.name) != limits.copies(&held.name) {
                held.copies.new_limits(copy_limits(&held.name, limits));
            }
            held.standing = Standing::of(&held.name, limits);
            match held.standing.is_limited {
                true => {
                    let stated = held.standing.stated;
                    held.denied.again(&held.name, &held.copies, stated, sink);
                }
                false => held.denied.lift_all(&held.name, sink),
            }
        }
        self.held.retain(Held::is_kept);
    }

    /// States every denial in force again.
    pub fn state_again(&mut self, sink: &mut StatementSink<'_>) {
        for held in &mut self.held {
            held.denied.state_again(&held.name, sink);
        }
    }

    /// A digest of the content alone. How many ticks were counted from the beginning is not content.
    pub fn digest(&self, identities: &Identities) -> u128 {
        let wide = |digest: u128, part: u128| mix(mix(digest, part as u64), (part >> 64) as u64);
        let now = self.silence.ticks();
        let ticks_since = |at: u64| now.saturating_sub(at);
        let mut digest = 0;
        for held in &self.held {
            digest = wide(digest, identities.of_resource(&held.name).of("").0);
            digest = wide(digest, held.copies.digest());
            digest = wide(digest, held.denied.digest());
        }
        let present: Vec<_> = self.silence.present().collect();
        digest = mix(digest, present.len() as u64);
        for (process, LastHeartbeat { at, grace }) in present {
            digest = wide(digest, identities.of_agent(&process.name, process.epoch).0);
            digest = mix(mix(digest, ticks_since(at)), grace);
        }
        let lists = [
            self.silence.gone().collect::<Vec<_>>(),
            self.over().collect(),
        ];
        for list in lists {
            digest = mix(digest, list.len() as u64);
            for (process, ticks) in list {
                digest = wide(digest, identities.of_agent(&process.name, process.epoch).0);
                digest = mix(digest, ticks_since(ticks));
            }
        }
        digest
    }

    fn forget(&mut self, process: &AgentProcess, sink: &mut StatementSink<'_>) -> u64 {
        self.each_of(process, sink, |copies, agent, out| {
            copies.forget(agent, out)
        })
    }

    /// Applies `act` to all resources in which an epoch is known; returns the copies that came back.
    fn each_of(
        &mut self,
        process: &AgentProcess,
        sink: &mut StatementSink<'_>,
        mut act: impl FnMut(&mut Copies, crate::copies::AgentIx, &mut Effects) -> u64,
    ) -> u64 {
        let mut released = 0;
        for held in &mut self.held {
            // Each resource takes a log position, whether or not it knows the epoch: an epoch that has
            // released everything is known until the next restore, and positions must not depend on that.
            if let Some(agent) = held.copies.known_agent(&process.name, process.epoch) {
                self.out.clear();
                released += act(&mut held.copies, agent, &mut self.out);
                held.follow(&self.out, sink);
            }
            sink.next();
        }
        released
    }
}

impl Held {
    /// Adds verdicts for the agents of holds that ended by age.
    fn notify_ended(&self, out: &Effects, sink: &mut StatementSink<'_>) {
        for one in out.ended() {
            let Some((name, epoch)) = self.copies.name_of(one.hold.agent) else {
                continue;
            };
            sink.rulings.copies.ended_by_age += 1;
            let status = ended(one.hold.number, EndedBy::Age);
            sink.verdict(&name.into(), epoch, &self.name, status);
            sink.next();
        }
    }
}

impl StatementSink<'_> {
    /// Reports a change of an agent.
    fn news(&mut self, process: &AgentProcess, change: AgentChange) {
        self.rulings.agents.push(AgentNews {
            agent: process.name.clone(),
            epoch: process.epoch,
            change,
        });
    }
}
