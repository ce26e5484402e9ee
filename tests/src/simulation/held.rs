//! Law 6: each hold counts exactly once, and the copies of dead processes become free again.
//!
//! ```text
//! process      hold of 2, hold of 1 ──> 3 copies of its epoch in the log, once its records are there
//! dies         silent for the timeout, in ticks ──> 0 copies          later after a pause of the ticks
//! ```
//!
//! Checks from the agents' side: `copies_compare` compares the log's holds with the model's. Knows nothing of
//! limits. What stays true: checking changes nothing.

use std::collections::BTreeMap;

use tollgate_engine::copies::{HoldState, HoldView};
use tollgate_engine::engine::AgentChange;
use tollgate_model::copies::{CopiesOutcome, CopiesVersion, CopyScope};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::wire::statement::{Scope, Statement};
use tollgate_shared::wire::verdict::{HoldStatus, Verdict};

use super::copy_limits::COPIES;
use super::watch::{Ruled, Watch};
use super::world::World;

/// How long after the faults aggregators may take to catch up, and holders to be received or missed.
pub(super) const SETTLED_AFTER_US: u64 = 7_000_000;

/// How long it takes until silent agents are missed, in a log whose time advances. After its clock was set back,
/// log time stands still, and no agent is missed.
const MISSED_WITHIN_US: u64 = 4_000_000;

/// Ticks this far apart paused: agents that were not heard since may be silent for twice as long, up to a bound.
const PAUSE_US: u64 = 1_000_000;
const EXCUSED_MAX_US: u64 = 20_000_000;

/// How long an operation on a hold may be under way to the log in the quiescent phase.
const ON_ITS_WAY_US: u64 = 600_000;

/// The copies of a dead process are free again within this time, if nothing else is wrong: the timeout of a silent
/// agent is two seconds of log time, and half a second is promised for the ticks that count them and for messages
/// under way. The longest time observed over 10^5 deaths is 2.40 s.
pub const BACK_WITHIN_US: u64 = 2_500_000;

/// An agent's process that died while it held copies.
#[derive(Clone, Debug)]
pub struct Death {
    /// Its agent.
    pub agent: usize,
    /// Its epoch.
    pub epoch: u128,
    /// The instant.
    pub at_us: u64,
}

/// How long it took until the copies of dead processes were free again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// Agents that died while they held copies.
    pub kills: u64,
    /// The longest time, in microseconds, from a death until none of its copies counts.
    pub longest_us: u64,
}

/// The statements about each scope of rates and copies, in order. A banned domain is denied until the ban's end, a
/// full scope until it has room.
pub type Stated = BTreeMap<(Box<str>, Scope), Vec<Statement>>;

/// Whether a domain is in a group in any of these versions.
pub(super) fn is_member<'a>(
    all: impl IntoIterator<Item = &'a CopiesVersion>,
    (resource, group): (&str, &str),
    domain: &str,
) -> bool {
    all.into_iter().any(|version| {
        let limited = version.resources.get(resource);
        let found = limited.and_then(|of| of.limits.groups.get(group));
        found.is_some_and(|(_, members)| members.contains(domain))
    })
}

impl Ruled {
    /// Notes statements, and verdicts on holds.
    pub(super) fn note_rulings(&mut self) {
        self.statements_most = self.rulings.statements.len().max(self.statements_most);
        for one in &self.rulings.statements {
            let key = (Box::from(&*one.resource), one.statement.scope.clone());
            let stated = self.stated.entry(key).or_default();
            stated.push(one.statement.clone());
        }
        for due in &self.rulings.verdicts {
            let verdict = Verdict {
                partition: self.index,
                position: due.position,
                epoch: due.epoch,
                resource: (*due.resource).into(),
                status: due.status.clone(),
            };
            self.verdicts.entry(due.position).or_default().push(verdict);
        }
    }

    /// The true time and the log time until which silent agents may not be missed, because ticks paused. Log time may
    /// stand still meanwhile.
    fn excused_until_us(&self) -> (u64, u64) {
        let mut ticks: Vec<_> = self.ticks.values().flatten().copied().collect();
        ticks.sort_unstable();
        let pauses = ticks.iter().zip(ticks.iter().skip(1));
        let pauses = pauses.map(|(before, after)| {
            let pause_us = after.2.saturating_sub(before.2);
            let excused_us = (2 * pause_us).min(EXCUSED_MAX_US);
            (PAUSE_US < pause_us).then_some((after.1 + excused_us, after.2 + excused_us))
        });
        let ends = pauses.flatten();
        ends.fold((0, 0), |most, end| (most.0.max(end.0), most.1.max(end.1)))
    }

    /// Whether silent agents must have been missed by now, although ticks paused.
    fn excuses_nobody(&self, now_us: u64) -> bool {
        let (until_us, until_log_us) = self.excused_until_us();
        let ticks = self.ticks.values().flatten();
        let log_us = ticks.map(|tick| tick.2).max().unwrap_or(0);
        until_us + MISSED_WITHIN_US <= now_us && until_log_us + MISSED_WITHIN_US <= log_us
    }

    /// The copies of an epoch that count.
    pub fn counted(&self, resource: &str, agent: &str, epoch: u128) -> u64 {
        let found = self.engine.copies().find(|(name, _)| ***name == *resource);
        found.map_or(0, |(_, copies)| {
            let agent = copies.known_agent(agent, epoch);
            agent.map_or(0, |agent| copies.copies_of(agent))
        })
    }
}

impl Watch {
    /// Counts everything again, hold by hold, also in logs that lost records since.
    ///
    /// # Errors
    ///
    /// A wrong count.
    pub(super) fn count_again(&self) -> Result<(), String> {
        let mut all = self.ruled.iter().chain(&self.past);
        all.try_for_each(|ruled| ruled.engine.audit_copies())
            .map_err(|fault| fault.to_string())
    }

    /// The least limit of one domain that any version had for a resource of copies.
    pub(super) fn least_limit(&self, resource: &str) -> Option<u64> {
        let all = self.all_versions();
        let limits = all.filter_map(|version| version.resources.get(resource));
        let anybody = CopyScope::Domain(String::new());
        { limits.filter_map(|of| of.limits.limit_of(&anybody)) }.min()
    }

    /// Whether the newest version limits the copies of a resource.
    pub(super) fn limits_copies_of(&self, resource: &str) -> bool {
        let latest = self.book.latest();
        latest.is_some_and(|version| version.limits.copies(resource).is_some())
    }

    /// Whether strict copies may be used although the log granted none: some version ignores its limits, or has none.
    pub(super) fn may_use_without_grant(&self, resource: &str) -> bool {
        self.ever_ignored.contains(resource) || self.ever_left_out.contains(resource)
    }

    /// The limits on copies of all versions so far.
    pub(super) fn all_versions(&self) -> impl Iterator<Item = &CopiesVersion> {
        self.copies.values().chain(&self.lost_copies)
    }

    /// Whether the second engine gives this verdict.
    pub fn says_verdict(&self, verdict: &Verdict) -> bool {
        let all = self.ruled.iter().chain(&self.past);
        all.filter(|ruled| ruled.index == verdict.partition)
            .filter_map(|ruled| ruled.verdicts.get(&verdict.position))
            .any(|verdicts| verdicts.contains(verdict))
    }

    /// Counts what a record covered of copies.
    pub(super) fn cover_copies(&mut self, partition: u32, outcome: &CopiesOutcome) {
        let ruled = &self.ruled[partition as usize];
        let rulings = &ruled.rulings;
        let cover = &mut self.cover;
        for of in &rulings.hold_counts {
            cover.add("copies beyond a limit", of.counts.excess);
            cover.add("copies seized", of.counts.seized);
        }
        cover.add("hold ended by age", rulings.copies.ended_by_age);
        let by_operator = rulings.copies.ended_by_operator;
        cover.add("hold ended by an operator", by_operator);
        cover.add("list of holds wanted", rulings.copies.heartbeats_wanted);
        for news in &rulings.agents {
            match news.change {
                AgentChange::Gone { copies } => cover.add("copies of the gone back", copies),
                AgentChange::Returned => cover.see("gone agent returned"),
                AgentChange::Over { .. } | AgentChange::Twin => {}
            }
        }
        let (over, aged) = outcome.transfers_over;
        cover.add("transfer ended by tick", over);
        cover.add("transfer ended by age", aged);
        let is_unknown = |of: &HoldStatus| {
            let number = of.number;
            *of == HoldStatus {
                number,
                ..HoldStatus::default()
            }
        };
        let mut statuses = rulings
            .verdicts
            .iter()
            .filter_map(|due| due.status.as_ref());
        cover.see_if("hold not known to the log", statuses.any(is_unknown));
    }
}

impl World {
    /// Notes a death, if the process held anything.
    pub(super) fn holder_dies(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        let held = host.holding.held_of_all();
        host.holding.let_go();
        if 0 < held {
            self.watch.cover.see("agent died holding copies");
            self.returns.kills += 1;
            self.deaths.push(Death {
                agent,
                epoch: host.epoch,
                at_us: self.now_us,
            });
        }
    }

    /// Checks whether the copies of dead processes are free again, and since when.
    fn look_after_the_dead(&mut self) {
        let now_us = self.now_us;
        let mut still = Vec::new();
        for death in std::mem::take(&mut self.deaths) {
            let name = format!("agent-{}", death.agent);
            let counts = |resource: &&str| {
                0 < self
                    .ruled_of(resource)
                    .counted(resource, &name, death.epoch)
            };
            let is_back = !COPIES.iter().any(counts);
            let back_us = now_us - death.at_us;
            if is_back {
                self.returns.longest_us = self.returns.longest_us.max(back_us);
            }
            if BACK_WITHIN_US < back_us && self.plan.only_deaths() {
                let counts = if is_back { "back" } else { "not back" };
                let what = format!(
                    "{name}, epoch {:x}: {counts} {back_us} us after it died, promised within {BACK_WITHIN_US}",
                    death.epoch
                );
                return self.violated(6, "what the dead held is back in the stated time", what);
            }
            if !is_back {
                still.push(death);
            }
        }
        self.deaths = still;
    }

    /// Whether the time of a partition's log stands still until the log's clock, which was set back, has caught up.
    pub(super) fn log_time_stands(&self) -> bool {
        let wall = self.log_clock.wall(self.now_us);
        let ahead = |ruled: &Ruled| ruled.engine.log_time().is_some_and(|log| wall < log);
        self.watch.ruled.iter().any(ahead)
    }

    /// Law 6, periodically: holds of live processes are counted; those of dead ones soon are not.
    pub(super) fn check_holdings(&mut self) {
        if self.log_time_stands() {
            self.log_stood_us = self.now_us;
        }
        let settled = self.plan.quiescence_us() + SETTLED_AFTER_US <= self.now_us
            && self.log_stood_us + MISSED_WITHIN_US <= self.now_us;
        let mut ruled = self.watch.ruled.iter();
        let missed = settled && ruled.all(|ruled| ruled.excuses_nobody(self.now_us));
        self.look_after_the_dead();
        if !settled || self.violation.is_some() {
            return;
        }
        for resource in 0..COPIES.len() {
            self.check_held(resource);
            if missed && let Some(what) = self.held_by_nobody(resource) {
                self.violated(6, "all copies are accounted for", what);
            }
        }
    }

    /// The partition of a resource of copies.
    fn ruled_of(&self, resource: &str) -> &Ruled {
        let partition = partition_of_resource(resource, self.plan.partitions);
        &self.watch.ruled[partition as usize]
    }

    /// A hold that counts although its process has ended.
    fn held_by_nobody(&self, resource: usize) -> Option<String> {
        let name = COPIES[resource];
        let engine = &self.ruled_of(name).engine;
        let (_, copies) = engine.copies().find(|(of, _)| ***of == *name)?;
        let lives = |hold: &HoldView<'_>| {
            let mut agents = self.agents.iter();
            agents.any(|host| host.process.is_some() && host.epoch == hold.epoch)
        };
        let mut live = { copies.oldest_first() }.filter(|hold| hold.state == HoldState::Live);
        let hold = live.find(|hold| !lives(hold))?;
        let (epoch, number, copies) = (hold.epoch, hold.id.number, hold.copies);
        Some(format!(
            "{name}: {copies} copies count as hold {number} of {}, epoch {epoch:x}, which does not live",
            hold.agent
        ))
    }

    fn check_held(&mut self, resource: usize) {
        for agent in 0..self.agents.len() {
            let Some((counted, held)) = self.counted_and_held(agent, resource) else {
                continue;
            };
            self.see("checked: what is held is counted");
            // A hold that ended by its age may still be in use, and does not count; nor do holds under a version that
            // leaves the resource out.
            let name = COPIES[resource];
            let may_be_less = self.ends_by_age(resource) || self.watch.ever_left_out.contains(name);
            if held < counted || counted < held && !may_be_less {
                let what = format!("agent {agent} holds {held} of {name}, {counted} are counted");
                return self.violated(6, "what is held is counted", what);
            }
        }
    }

    fn ends_by_age(&self, resource: usize) -> bool {
        let limits = self.plan.documents[0].copies.as_ref();
        limits.is_some_and(|limits| limits.ends_by_age(resource))
    }

    /// The copies of an agent that the log counts and those that it holds, if nothing is under way.
    fn counted_and_held(&self, agent: usize, resource: usize) -> Option<(u64, u64)> {
        let host = &self.agents[agent];
        let process = host.process.as_ref()?;
        let on_its_way = !process.is_idle()
            || host.holding.awaits()
            || self.now_us < host.holding.changed_us + ON_ITS_WAY_US;
        if on_its_way || self.plan.documents[0].copies.is_none() {
            return None;
        }
        let name = format!("agent-{agent}");
        let ruled = self.ruled_of(COPIES[resource]);
        let counted = ruled.counted(COPIES[resource], &name, host.epoch);
        Some(match self.ends_by_age(resource) {
            true => (counted, host.holding.held(resource)),
            false => (counted, host.holding.counting(resource)),
        })
    }
}

#[cfg(test)]
mod tests;
