//! Checks of everybody's state: periodically, and when all faults are over.
//!
//! In the quiescent phase everything must become right within a stated time: aggregators have caught up and report
//! it, their digests equal the second engine's, everything that was recorded is in the log once, the log has all
//! decision records, and every deny list agrees with the replay, for rates and copies: an agent refuses exactly the
//! scopes whose denials are in force.

use tollgate_server::core::recordings::Waiting;
use tollgate_server::core::view::{Query, Reply};
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::Scope;

use super::copy_limits::COPIES;
use super::documents::DOMAINS;
use super::held::is_member;
use super::plan::QUIET_US;
use super::statements::end_of;
use super::trace::hash_of;
use super::world::World;

/// How often state is compared with the second engine's.
const CHECK_EVERY_US: u64 = 200_000;

/// Agents must have received a denial that was stated this long before the end. The slowest way is a frame lost at
/// the begin of the quiescent phase: a silence, a feed that is reopened, a snapshot.
pub(super) const ARRIVES_WITHIN_US: u64 = 1_000_000;

/// How far into the quiescent phase every agent has received all denials without an end.
const ALL_ARRIVED_US: u64 = 8_500_000;

/// How long before its end a denial may be over for an agent: the lateness of frames, and some more.
const EARLY_US: u64 = 60_000;

/// How far an aggregator's estimate of log time may be ahead of a log whose clock was set back: the estimate
/// advances from the newest tick, and log time stands still until the next tick is accepted.
const TICKED_WITHIN_US: u64 = 300_000;

/// How long a decision record may be under way in the quiescent phase. After the log's clock was set back, log time
/// may continue only at the very end, and copies held long before are released then.
const RECORDED_WITHIN_US: u64 = 200_000;

/// How long an agent may still have something to send after it returned copies: a heartbeat follows the last of
/// them within half a second, and is under way for some milliseconds.
const GIVEN_BACK_WITHIN_US: u64 = 600_000;

/// How many totals of a partition may wait beyond an aggregator's bound: it checks the bound before a delivery,
/// which has 64 records here, each with totals of a few resources.
const TOTALS_BESIDE_MAX: usize = 512;

impl World {
    pub(super) fn check_state(&mut self) {
        for owner in 0..self.owners.len() {
            self.check_digests(owner);
            let core = self.owners[owner].core.as_ref();
            let max = self.plan.waiting_max;
            let beyond = |waiting: &Waiting| {
                is_beyond(waiting, max, self.watch.statements_most(waiting.partition))
            };
            if let Some(beyond) = core.and_then(|core| core.waiting().find(beyond)) {
                let stated = self.watch.statements_most(beyond.partition);
                let what = format!(
                    "owner {owner}: {beyond:?}, expected {max} at most, and beside them {TOTALS_BESIDE_MAX} \
                     totals and {stated} statements"
                );
                self.violated(7, "what waits is bounded", what);
            }
        }
        self.check_holdings();
        for agent in 0..self.agents.len() {
            self.check_received(agent);
            let (since_us, is_in_time) = (self.agents[agent].in_time_us, self.is_in_time(agent));
            self.agents[agent].in_time_us = is_in_time.then(|| since_us.unwrap_or(self.now_us));
            if self.plan.quiescence_us() + ALL_ARRIVED_US <= self.now_us {
                self.check_deny_list(agent);
            }
        }
        self.after(CHECK_EVERY_US, |world| world.check_state());
    }

    /// Law 4: an aggregator's state equals the second engine's, wherever it stands.
    fn check_digests(&mut self, owner: usize) {
        let Some(Reply::Digests(view)) = self.ask(owner, Query::Digests) else {
            return;
        };
        for found in view.partitions {
            if found.stage == "stopped" {
                let why = found.why.unwrap_or_default();
                let what = format!("owner {owner}, partition {}: {why}", found.partition);
                return self.violated(4, "no partition stops", what);
            }
            if found.stage == "restoring" {
                continue;
            }
            let Some(at) = found.offset.checked_sub(1) else {
                continue;
            };
            // A log without an identity cannot be told from the log that replaced it.
            if found.generation == 0 && !self.watch.past.is_empty() {
                continue;
            }
            let ruled = self.watch.of_log(found.partition, &found.log_random);
            let Some(digest) = ruled.digests.get(at as usize) else {
                let what = format!(
                    "owner {owner}, partition {}: ruled up to {}, the log has {}",
                    found.partition,
                    found.offset,
                    ruled.digests.len()
                );
                return self.violated(4, "nothing is ruled that is not in the log", what);
            };
            let expected = format!("{digest:032x}");
            if found.digest != expected {
                let what = format!(
                    "owner {owner}, partition {}, offset {}: digest {}, expected {expected}",
                    found.partition, found.offset, found.digest
                );
                return self.violated(4, "two engines agree", what);
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
        self.check_state();
        if let Err(what) = self.watch.count_again() {
            self.violated(6, "every count is the sum of its holds", what);
        }
        for owner in 0..self.owners.len() {
            self.check_owner_at_end(owner);
            self.check_state_digests(owner);
        }
        // Records that the log accepted before it lost others may be lost themselves, with their decision records.
        let lost_us = self.watch.accounts.lost_us;
        let upto_us = self.now_us - RECORDED_WITHIN_US;
        let caused_us = lost_us.map_or(0, |lost_us| upto_us.min(lost_us + 1))..upto_us;
        if let Some(missing) = self.watch.unannounced(&caused_us) {
            self.violated(5, "the log has all evidence", missing);
        }
        // Totals that were asked for before a loss of records may be lost with them.
        let asked_us = lost_us.map_or(0, |lost_us| lost_us + 1)..self.now_us - QUIET_US;
        if let Some(overdue) = self.watch.total_overdue(asked_us) {
            self.violated(5, "each total counts once", overdue);
        }
        if let Some(what) = self.watch.without_effect() {
            self.violated(8, "what is let through is bounded", what);
        }
        if let Some(what) = self.without_effect_in_quiescence() {
            self.violated(8, "what is let through in the calm is bounded", what);
        }
        let scopes: usize = { self.watch.ruled.iter() }
            .map(|ruled| ruled.model.effect_scopes())
            .sum();
        self.watch
            .cover
            .add("checked: a scope's effect", scopes as u64);
        let given = |of_group: &Vec<Option<usize>>| of_group.iter().all(Option::is_some);
        if self.plan.fleet && !self.assigned.iter().all(given) {
            let what = format!("owners by group and partition: {:?}", self.assigned);
            self.violated(7, "every partition is ruled at the end", what);
        }
        let without_room = self.log.on_disk(|disk| disk.without_room);
        self.watch.cover.add("disk full", without_room);
        let failed_syncs = self.log.on_disk(|disk| disk.failed_syncs);
        self.watch.cover.add("sync failed", failed_syncs);
        for agent in 0..self.agents.len() {
            self.check_agent_at_end(agent);
        }
        let (decisions, refusals) = (self.decisions, self.refusals);
        self.event(&[40, decisions, refusals], || {
            format!("the end: {decisions} calls, {refusals} refused")
        });
    }

    fn check_owner_at_end(&mut self, owner: usize) {
        let Some(Reply::Readiness(readiness)) = self.ask(owner, Query::Readiness) else {
            let what = format!(
                "owner {owner} runs no process, life {}",
                self.owners[owner].life
            );
            return self.violated(7, "owners are up at the end", what);
        };
        if !readiness.ready {
            let what = format!("owner {owner}: {:?}", readiness.why);
            return self.violated(7, "owners are ready at the end", what);
        }
        let latest = self.watch.latest_version();
        if let Some(Reply::Digests(view)) = self.ask(owner, Query::Digests) {
            let rules = |partition: u32| {
                let mut ruling = view.partitions.iter().filter(|one| one.stage == "ruling");
                ruling.any(|one| one.partition == partition)
            };
            let ours = |partition: &u32| !self.plan.fleet || self.is_assigned(owner, *partition);
            let mut ours = (0..self.plan.partitions).filter(ours);
            if let Some(partition) = ours.find(|partition| !rules(*partition)) {
                let what = format!("owner {owner} does not rule partition {partition}: {view:?}");
                return self.violated(7, "every partition is ruled at the end", what);
            }
            for found in view.partitions {
                if self.plan.fleet && !self.is_assigned(owner, found.partition) {
                    continue;
                }
                let ruled = &self.watch.ruled[found.partition as usize];
                let behind = (ruled.digests.len() as u64).abs_diff(found.offset);
                // Ticks are still appended.
                if 8 < behind || found.version != latest {
                    let what = format!(
                        "owner {owner}, partition {}: {behind} records behind, version {} of {latest}",
                        found.partition, found.version
                    );
                    return self.violated(7, "owners have caught up at the end", what);
                }
            }
        }
        let since_us = self.now_us - RECORDED_WITHIN_US;
        let stated = self
            .watch
            .ruled
            .iter()
            .map(|one| one.stated_since(since_us));
        let stated: u64 = stated.sum();
        if let Some(Reply::Counters(counted)) = self.ask(owner, Query::Counters)
            && let gauges = counted.gauges
            && (0 < gauges.totals_waiting || stated < gauges.denials_waiting)
        {
            let what = format!(
                "owner {owner}: {} totals, {} statements",
                gauges.totals_waiting, gauges.denials_waiting
            );
            self.violated(7, "nothing waits at the end", what);
        }
        if self.watch.latest_text() != Some(&self.owners[owner].file) {
            let what = format!(
                "owner {owner} has a file of hash {:016x}, version {latest} rules, its text of hash {:016x}",
                hash_of(self.owners[owner].file.as_bytes()),
                hash_of(self.watch.latest_text().unwrap_or_default().as_bytes())
            );
            self.violated(7, "the limits file rules at the end", what);
        }
    }

    /// Law 4, as aggregators see it: state digests of other groups agree with their own.
    fn check_state_digests(&mut self, owner: usize) {
        if let Some(Reply::Counters(counted)) = self.ask(owner, Query::Counters) {
            let counters = counted.counters;
            let cover = &mut self.watch.cover;
            cover.add("states of two owners compared", counters.states_compared);
            cover.add("partition held back", counters.held_back);
            if 0 < counters.states_differing {
                let what = format!("owner {owner}: {} differ", counters.states_differing);
                self.violated(4, "state digests agree", what);
            }
        }
    }

    fn check_agent_at_end(&mut self, agent: usize) {
        let host = &self.agents[agent];
        let Some(process) = &host.process else {
            let life = host.life;
            let what = format!("agent {agent}.{life} has ended, expected one more life");
            return self.violated(7, "agents are up at the end", what);
        };
        let stats = process.agent().stats();
        if stats.blind_for.is_some() {
            let what = format!("agent {agent}: {stats:?}");
            return self.violated(7, "everybody sees at the end", what);
        }
        // An agent that acts more rarely than the quiet time lasts may not have returned its copies.
        let holds = host.holding.awaits() || 0 < host.holding.held_of_all();
        let gave_back_us = host.holding.changed_us + GIVEN_BACK_WITHIN_US;
        if !process.is_idle() && !holds && gave_back_us < self.now_us {
            let what = format!("agent {agent}: {stats:?}");
            return self.violated(7, "everything is acknowledged at the end", what);
        }
        self.watch
            .cover
            .see_if("recorder full", 0 < stats.hits_dropped_recorder);
        self.watch
            .cover
            .see_if("deny list full", 0 < stats.denials_without_room);
        let accounted =
            stats.hits_acknowledged + stats.hits_dropped_queue + stats.hits_dropped_courier;
        if stats.hits_accepted != accounted {
            let what = format!("agent {agent}: {stats:?}");
            return self.violated(5, "every call is accounted for", what);
        }
        if stats.hits_dropped() == 0 {
            let epoch = host.epoch;
            let is_whole = !self.watch.accounts.life(epoch).has_lost();
            let what = "checked: all calls of a life are in the log";
            self.see_if(what, is_whole);
            if let Some(missing) = self.watch.accounts.missing(epoch) {
                let what = format!("agent {agent}: {missing}");
                return self.violated(5, "each entry counts once", what);
            }
        } else if let Some(ruled) = self.watch.accounts.ruled_of(host.epoch) {
            // Every call has at least one copy.
            let what = "checked: what was acknowledged counts although some was dropped";
            self.see(what);
            if ruled < stats.hits_acknowledged {
                let what = format!(
                    "agent {agent}: {} calls were acknowledged, {ruled} copies are in the log",
                    stats.hits_acknowledged
                );
                return self.violated(5, "each entry counts once", what);
            }
        }
        self.agents[agent].set_clocks(self.now_us);
        self.check_refused_at_end(agent);
    }

    /// Law 7: every denial in force is in the deny list; that of a group, for each member.
    pub(super) fn check_deny_list(&mut self, agent: usize) {
        let host = &self.agents[agent];
        let stats = host.process.as_ref().map(|process| process.agent().stats());
        if stats.is_none_or(|stats| 0 < stats.denials_without_room) {
            return;
        }
        host.set_clocks(self.now_us);
        let mut checked = [0, 0];
        for ruled in &self.watch.ruled {
            for ((resource, scope), stated) in &ruled.stated {
                let denied = stated
                    .last()
                    .and_then(|one| Some((one.position, end_of(one)?)));
                let is_due = |(position, end): &(LogPosition, Timestamp)| {
                    self.should_be_in_force(agent, (ruled.index, *position), *end)
                };
                let Some((position, _)) = denied.filter(is_due) else {
                    continue;
                };
                let domains = match scope {
                    Scope::Pair(domain) => vec![&**domain],
                    Scope::Resource => vec!["nobody"],
                    Scope::Group(group) => {
                        let limits = self.watch.copies.get(&ruled.engine.version().unwrap_or(0));
                        let is_in = |domain: &&str| is_member(limits, (resource, group), domain);
                        DOMAINS.into_iter().filter(is_in).collect()
                    }
                };
                let is_of_copies = COPIES.contains(&&**resource);
                // Services of some agents do not use copies.
                if is_of_copies && !host.uses_copies() {
                    continue;
                }
                checked[usize::from(is_of_copies)] += 1;
                let refuses = |domain: &&str| self.refusal(agent, resource, domain).is_some();
                if let Some(domain) = domains.into_iter().find(|domain| !refuses(domain)) {
                    let what = format!(
                        "agent {agent} does not refuse {resource} for {domain}: {position}"
                    );
                    return self.violated(7, "deny lists agree with the log", what);
                }
            }
        }
        let cover = &mut self.watch.cover;
        cover.add("checked: a denial is in the deny list", checked[0]);
        cover.add("checked: full copies are refused", checked[1]);
    }

    /// Whether a denial was stated while statements reached the agent in time, or has no end, so that the agent should
    /// have received it by now, and is not over.
    fn should_be_in_force(
        &self,
        agent: usize,
        (partition, position): (u32, LogPosition),
        end: Timestamp,
    ) -> bool {
        let ruled = &self.watch.ruled[partition as usize];
        let stream = tollgate_log::Stream::Hits;
        let cause = self.watch.record(stream, partition, position.offset);
        let (Some(cause), Some(since_us)) = (cause, self.agents[agent].in_time_us) else {
            return false;
        };
        // Nobody sends a denial that ends by itself again. During faults an agent may have missed it.
        let since_us = since_us.max(self.plan.quiescence_us());
        let has_no_end = end == Timestamp::MAX;
        let is_due = has_no_end || since_us + QUIET_US < cause.at_us;
        let latest_us = self.now_us - ARRIVES_WITHIN_US;
        let has_arrived = since_us.max(cause.at_us) < latest_us;
        // After the log's clock was set back log time stands still; agents count down the rest of a denial from
        // its arrival, and are earlier.
        let end_us = end.as_micros();
        let left_us = end_us.saturating_sub(cause.appended.as_micros());
        let is_in_force = self.log_now_us(partition) + EARLY_US < end_us
            && self.now_us + EARLY_US + TICKED_WITHIN_US < cause.at_us.saturating_add(left_us);
        // Denials from before a log's newest generation are stated again with it.
        let newest = ruled.log.map_or(0, |log| log.generation);
        let begins = ruled.generations.last().map_or(0, |(begins, _)| *begins);
        let begun = self.watch.record(stream, partition, begins);
        let is_stated_again = begun.is_some_and(|one| one.at_us < latest_us);
        is_due && has_arrived && is_in_force && (position.generation == newest || is_stated_again)
    }

    /// The latest instant that the log's clock may show: append times never decrease, though the clock was set back.
    pub(super) fn log_now_us(&self, partition: u32) -> u64 {
        let last = self.watch.ruled[partition as usize].taken.last();
        let clock_us = self.log_clock.wall(self.now_us).as_micros();
        last.map_or(0, |(_, log_us)| *log_us).max(clock_us) + 1_000
    }
}

/// Whether more waits than an aggregator allows, if one record stated at most `stated`: an aggregator checks
/// the bound before each record.
fn is_beyond(waiting: &Waiting, max: usize, stated: usize) -> bool {
    max + TOTALS_BESIDE_MAX < waiting.totals || max + stated < waiting.decision_records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_records_are_checked_per_partition() {
        let waiting = |totals, decision_records| Waiting {
            partition: 0,
            totals,
            decision_records,
        };
        assert!(!is_beyond(&waiting(10, 10), 10, 0));
        assert!(is_beyond(&waiting(11 + TOTALS_BESIDE_MAX, 0), 10, 7));
        assert!(!is_beyond(&waiting(0, 17), 10, 7));
        assert!(is_beyond(&waiting(0, 18), 10, 7));
    }
}
