//! The copies of one partition over a whole log.
//!
//! ```text
//! heartbeat  tick  tick  (the log stands still for a minute)  tick  44 ticks later: gone
//! ```
//!
//! The model measures silence in ticks of the log: while the log stands still, no agent is gone, and when it goes on,
//! agents have some time to return. Knows nothing of the content of agents' records (`records`). What stays true: a process that is gone, or whose
//! epoch is over, holds nothing.

use std::collections::BTreeMap;

use super::holds::{HoldsModel, Process};
use super::input::{
    AgentFate, CopiesAct, CopiesOutcome, DueVerdict, EndReason, ModelStatus, RecordTurn, SentBy,
};
use super::limits::{CopiesVersion, CopyScope, HoldLimits};
use super::standing::{CopyBans, CopyStanding};

/// Number of counted ticks for which processes that are gone and epochs that are over are remembered: ten minutes.
const KEPT_TICKS: u64 = 1_200;

/// Counted ticks that are further apart than this, in microseconds, have paused: agents could reach no aggregator.
const PAUSE_US: u64 = 1_000_000;

/// After a pause, silent processes have twice its length to return, and at most this: the longest pause of an agent
/// between two attempts to connect (15 s), and 5 s to connect.
const RETURN_WITHIN_US: u64 = 20_000_000;

/// One resource, and those of its scopes that are denied because they are full.
#[derive(Clone, Debug)]
pub(super) struct HeldResource {
    pub holds: HoldsModel,
    /// Each scope with the limit under which it was denied.
    pub full: BTreeMap<CopyScope, u64>,
}

/// The copies of one partition.
#[derive(Clone, Debug, Default)]
pub struct CopiesModel {
    pub(super) limits: CopiesVersion,
    version: u64,
    pub(super) resources: BTreeMap<String, HeldResource>,
    pub(super) bans: CopyBans,
    /// The highest sequence of each process among its applied records.
    newest: BTreeMap<Process, u64>,
    /// The number of counted ticks.
    ticks: u64,
    /// Living processes, each with the tick count at its last record.
    met: BTreeMap<Process, u64>,
    /// Living processes that sent nothing since ticks paused or the timeout changed, each with the ticks that it may be
    /// silent beyond the timeout.
    excused: BTreeMap<Process, u64>,
    /// Processes that are gone, each with the tick at which it was gone.
    gone: BTreeMap<Process, u64>,
    /// Epochs that are over, each with the tick of its end.
    over: BTreeMap<Process, u64>,
    /// The last counted tick, in microseconds.
    log_us: u64,
    /// The instant of the newest limits: a ban that ended by then is over, even before a tick that reaches its end.
    limits_us: u64,
}

impl SentBy<'_> {
    pub(super) fn process(&self) -> Process {
        (self.agent.to_owned(), self.epoch)
    }

    /// The instant of an agent's stamp: never later than the millisecond of the append.
    pub(super) fn instant_us(&self, stamp_us: u64) -> u64 {
        let moved_us = stamp_us.saturating_add_signed(self.moved_us);
        moved_us.min(self.end_us())
    }

    pub(super) fn end_us(&self) -> u64 {
        self.appended_us / 1_000 * 1_000 + 999
    }
}

impl CopiesOutcome {
    pub(super) fn state_verdict(
        &mut self,
        (process, resource): (&Process, &str),
        status: Option<ModelStatus>,
    ) {
        self.state_verdict_at(0, (process, resource), status);
    }

    pub(super) fn state_verdict_at(
        &mut self,
        entry: u32,
        (process, resource): (&Process, &str),
        status: Option<ModelStatus>,
    ) {
        self.verdicts.push(DueVerdict {
            process: process.clone(),
            resource: resource.to_owned(),
            entry,
            status,
        });
    }
}

impl CopiesModel {
    /// A partition without records, and therefore without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The version in force; 0 before the first.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The copies of a resource, if an operation ever held or asked for some.
    pub fn resource(&self, name: &str) -> Option<&HoldsModel> {
        self.resources.get(name).map(|held| &held.holds)
    }

    /// Resources of which an operation ever held or asked for copies, by name.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &HoldsModel)> {
        let all = self.resources.iter();
        all.map(|(name, held)| (&**name, &held.holds))
    }

    /// All denied scopes. A domain that is both full and banned is denied as full.
    pub fn denied(&self) -> BTreeMap<(String, CopyScope), CopyStanding> {
        let bans = self.bans.all_bans(self.now_us());
        let banned = bans.map(|((resource, domain), end_us)| {
            let scope = CopyScope::Domain(domain.to_owned());
            ((resource.to_owned(), scope), CopyStanding::Banned(end_us))
        });
        let mut denied: BTreeMap<_, _> = banned.collect();
        for (name, held) in &self.resources {
            let full = held.full.iter();
            let full = full.map(|(scope, limit)| (scope.clone(), CopyStanding::Full(*limit)));
            denied.extend(full.map(|(scope, full)| ((name.clone(), scope), full)));
        }
        denied
    }

    /// The latest instant that a counted tick or a limits version brought.
    pub fn now_us(&self) -> u64 {
        self.log_us.max(self.limits_us)
    }

    /// The state of a resource, if the limits limit its copies, or copies of it are kept from when limits did.
    pub(super) fn open(&mut self, name: &str) -> Option<&mut HeldResource> {
        if self.resources.contains_key(name) {
            return self.resources.get_mut(name);
        }
        let limited = self.limits.resources.get(name)?;
        let now_us = self.log_us;
        let held = { self.resources.entry(name.to_owned()) }.or_insert_with(|| HeldResource {
            holds: HoldsModel {
                now_us,
                ..HoldsModel::new(limited.limits.clone())
            },
            full: BTreeMap::new(),
        });
        Some(held)
    }

    pub(super) fn settle(&mut self) {
        for (name, held) in &mut self.resources {
            held.settle(self.limits.heeds(name), self.limits.denied_max);
        }
    }

    /// Brings a limits version into force at an instant.
    pub fn new_limits(&mut self, version: u64, limits: CopiesVersion, at_us: u64) {
        self.excuse_under(limits.timeout_ticks);
        (self.version, self.limits, self.limits_us) = (version, limits, at_us);
        self.bans.state_all_again(&self.limits, at_us);
        for (name, held) in &mut self.resources {
            let found = self.limits.resources.get(name);
            let limits = found.map(|of| of.limits.clone());
            let kept_max = held.holds.limits.kept_max;
            // Without limits, agents' copies and transfers count on, so that later limits find them.
            held.holds.limits = limits.unwrap_or_else(|| HoldLimits {
                domain: u64::MAX,
                kept_max,
                ..HoldLimits::default()
            });
        }
        self.drop_unused();
        self.settle();
    }

    /// Drops the resources that nothing limits, unless copies of them are kept.
    fn drop_unused(&mut self) {
        let limits = &self.limits;
        self.resources.retain(|name, held| {
            let is_kept = !held.holds.holds.is_empty() || !held.holds.staged.is_empty();
            limits.resources.contains_key(name) || is_kept
        });
    }

    /// Brings the version of an operator's act into force at an instant. `act` is `None` if the
    /// act does not concern copies.
    pub fn act(&mut self, version: u64, act: Option<&CopiesAct<'_>>, at_us: u64) -> CopiesOutcome {
        self.version = version;
        let mut outcome = CopiesOutcome::default();
        match act {
            Some(CopiesAct::Ban {
                resource,
                domain,
                until_us,
            }) => {
                // A ban that is over when its record arrives bans no domain; it ends the ban before it.
                let until_us = until_us.filter(|until_us| at_us < *until_us);
                self.bans.set(*resource, domain, until_us);
                // Where limits have ended, a domain that was banned under them is still banned, until it is not.
                let mut names = self.bans.announced_of(domain, at_us);
                names.extend(self.limits.resources.keys().cloned());
                names.retain(|name| resource.is_none_or(|of| of == *name));
                for name in names {
                    let is_heeded = self.limits.heeds_bans(&name);
                    self.bans.state(&name, domain, is_heeded, at_us);
                }
            }
            Some(act) => self.end_by_operator(act, &mut outcome),
            None => {}
        }
        self.settle();
        outcome
    }

    fn end_by_operator(&mut self, act: &CopiesAct<'_>, outcome: &mut CopiesOutcome) {
        let (CopiesAct::EndHold { resource, .. }
        | CopiesAct::EndHolds { resource, .. }
        | CopiesAct::EndTransfer { resource, .. }) = *act
        else {
            return;
        };
        let Some(held) = self.resources.get_mut(resource) else {
            return;
        };
        let mut meant: Vec<(u64, Process, u64)> = { held.holds.holds.iter() }
            .filter(|hold| match act {
                CopiesAct::EndHold {
                    agent,
                    epoch,
                    number,
                    ..
                } => (&*hold.process.0, hold.process.1, hold.number) == (*agent, *epoch, *number),
                CopiesAct::EndHolds { domain, agent, .. } => {
                    domain.is_none_or(|of| of == hold.domain)
                        && agent.is_none_or(|of| of == hold.process.0)
                }
                _ => false,
            })
            .map(|hold| (hold.start_us, hold.process.clone(), hold.number))
            .collect();
        meant.sort();
        for (_, process, number) in meant {
            if held.holds.end_hold((&process, number)).is_ok() {
                let ended = ModelStatus::ended(number, EndReason::Operator);
                outcome.state_verdict((&process, resource), Some(ended));
            }
        }
        held.holds.staged.retain(|staged| match act {
            CopiesAct::EndTransfer { id, .. } => staged.id != *id,
            CopiesAct::EndHolds {
                domain,
                agent: None,
                ..
            } => domain.is_some_and(|of| of != staged.domain),
            _ => true,
        });
    }

    /// Applies a counted tick. `knows` answers whether the log model remembers sequences of a process.
    pub fn tick(&mut self, now_us: u64, knows: impl Fn(&str, u128) -> bool) -> CopiesOutcome {
        let mut outcome = CopiesOutcome::default();
        self.excuse_after_pause(now_us);
        self.log_us = now_us;
        self.ticks += 1;
        let ticks = self.ticks;
        self.newest.retain(|(name, epoch), _| knows(name, *epoch));
        let timeout = self.limits.timeout_ticks;
        let forgotten: Vec<_> = { self.gone.extract_if(.., |_, at| *at + KEPT_TICKS <= ticks) }
            .map(|(process, _)| process)
            .collect();
        let excused = |process: &Process| self.excused.get(process).copied().unwrap_or(0);
        let gone: Vec<_> = { self.met.iter() }
            .filter(|(process, at)| **at + timeout + excused(process) <= ticks)
            .map(|(process, _)| process.clone())
            .collect();
        for process in gone {
            self.met.remove(&process);
            self.excused.remove(&process);
            let held = self.resources.values_mut();
            let back = held.map(|held| held.holds.gone(&process)).sum();
            outcome
                .agents
                .push((process.clone(), AgentFate::Gone(back)));
            self.gone.insert(process, ticks);
        }
        for process in forgotten {
            for held in self.resources.values_mut() {
                held.holds.forget(&process);
            }
        }
        self.over.retain(|_, since| ticks < *since + KEPT_TICKS);
        for (name, held) in &mut self.resources {
            let (over, aged) = held.holds.transfers_over(now_us);
            outcome.transfers_over.0 += over;
            outcome.transfers_over.1 += aged;
            for (process, number, _) in held.holds.tick(now_us) {
                let ended = ModelStatus::ended(number, EndReason::Age);
                outcome.state_verdict((&process, name), Some(ended));
            }
        }
        self.drop_unused();
        self.settle();
        outcome
    }

    /// Gives living processes time to return, if ticks paused before this one.
    fn excuse_after_pause(&mut self, now_us: u64) {
        let pause_us = now_us - self.log_us;
        if self.ticks == 0 || pause_us <= PAUSE_US {
            return;
        }
        // Half seconds, of which the last may be a part.
        let more = (2 * pause_us).min(RETURN_WITHIN_US).div_ceil(500_000);
        for process in self.met.keys() {
            let before = self.excused.entry(process.clone()).or_default();
            *before = more.max(*before);
        }
    }

    /// Lets living processes be silent until the timeout that they knew, if the new one would end sooner: they learn it
    /// later.
    fn excuse_under(&mut self, timeout: u64) {
        for process in self.met.keys() {
            let before = self.excused.get(process).copied().unwrap_or(0);
            let may_be_silent = self.limits.timeout_ticks + before;
            let more = may_be_silent.saturating_sub(timeout);
            self.excused.insert(process.clone(), more);
        }
    }

    /// Whether a record is in turn: it must be newer than all earlier records of its process.
    pub(super) fn turn_of(&mut self, sender: &SentBy<'_>) -> RecordTurn {
        let newest = self.newest.entry(sender.process()).or_default();
        if sender.sequence <= *newest {
            return RecordTurn::Overtaken;
        }
        *newest = sender.sequence;
        match self.over.contains_key(&sender.process()) {
            true => RecordTurn::EpochOver,
            false => RecordTurn::Applied,
        }
    }

    /// Notes that a record of a process arrived. Returns whether the process had been gone.
    pub(super) fn meet(&mut self, process: &Process, outcome: &mut CopiesOutcome) -> bool {
        let before = self.met.get(process).copied();
        let is_other = |of: &Process| of.0 == process.0 && of.1 != process.1;
        let has_twin = before.is_some_and(|before| {
            let mut all = self.met.iter();
            all.any(|(other, last)| is_other(other) && before < *last)
        });
        self.met.insert(process.clone(), self.ticks);
        self.excused.remove(process);
        let was_gone = self.gone.remove(process).is_some();
        if was_gone {
            outcome.agents.push((process.clone(), AgentFate::Returned));
        }
        if has_twin {
            outcome.agents.push((process.clone(), AgentFate::Twin));
        }
        was_gone
    }

    pub(super) fn end_epoch(&mut self, process: &Process, outcome: &mut CopiesOutcome) {
        if self.over.contains_key(process) {
            return;
        }
        self.met.remove(process);
        self.excused.remove(process);
        self.gone.remove(process);
        self.over.insert(process.clone(), self.ticks);
        let held = self.resources.values_mut();
        let back = held.map(|held| held.holds.forget(process)).sum();
        outcome
            .agents
            .push((process.clone(), AgentFate::Over(back)));
    }
}
