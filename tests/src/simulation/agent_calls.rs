//! Services that call an agent, its flusher and its timers; and the check that its answers are justified.
//!
//! What stays true: every call is counted, and every refusal is checked unless an identical one was checked before.

use bytes::Bytes;
use tollgate_agent::{Allowed, Cause, Denied, Refused, Scope};
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::statement;

use super::arrivals::lease_us;
use super::copy_limits::COPIES;
use super::documents::{DOMAINS, RESOURCES};
use super::guards::Guard;
use super::plan::{QUIET_US, draw_pair};
use super::sent_content::content_of;
use super::statements::end_of;
use super::watch::Kept;
use super::world::World;

use super::agent_host::{STALE_US, TICK_US};

impl World {
    /// Checks that a record that an aggregator acknowledges is in the log.
    pub(super) fn check_answer(&mut self, agent: usize, message: &Bytes) {
        let Ok(FromAggregator::Appended {
            id,
            partition,
            offset,
        }) = FromAggregator::decode(message)
        else {
            return;
        };
        let Some(batch) = self.agents[agent].sent.get(&id).copied() else {
            return;
        };
        let kept = self
            .watch
            .record(tollgate_log::Stream::Hits, partition, offset);
        let there = kept.is_some_and(|kept| content_of(&kept.bytes) == batch.hash);
        // A record that was appended before the log lost records may be among them.
        let lost_us = self.watch.accounts.lost_us;
        let may_be_lost = lost_us.is_some_and(|lost_us| batch.first_us <= lost_us);
        if (batch.partition != partition || !there) && !may_be_lost {
            let found = kept.map_or("nothing".to_owned(), Kept::to_string);
            let what = format!(
                "agent {agent}, id {id}: partition {partition}, offset {offset} has {found}, expected a record of \
                 hash {:016x} in partition {}",
                batch.hash, batch.partition
            );
            self.violated(5, "what is acknowledged is in the log", what);
        }
    }

    pub(super) fn agent_tick(&mut self, agent: usize) {
        self.with_agent(agent, |process| process.tick());
        self.hear_of_holds(agent);
        self.look_for_awaited(agent);
        self.cover_agent(agent);
        self.at_agent(agent, self.now_us + TICK_US, move |world| {
            world.agent_tick(agent);
        });
        self.schedule_flush(agent);
    }

    pub(super) fn cover_agent(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        let Some(process) = &host.process else {
            return;
        };
        let stats = process.agent().stats();
        let cover = &mut self.watch.cover;
        // The first snapshot of each aggregator is the one at the start.
        let is_asked_anew = (host.owners as u64) < stats.snapshots;
        for (what, now) in [
            ("feed gap", stats.gaps),
            ("feed silent", stats.silences),
            ("topic silent", stats.silent_topics),
            ("link lost", stats.links_lost),
            ("batch sent again", stats.batches_sent_again),
            ("hits dropped at an agent's queue", stats.hits_dropped_queue),
            ("hits given up by a courier", stats.hits_dropped_courier),
            (
                "snapshot asked anew",
                stats.snapshots * u64::from(is_asked_anew),
            ),
        ] {
            let before = host.counted.insert(what, now).unwrap_or(0);
            cover.add(what, now.saturating_sub(before));
        }
        let sees = stats.blind_for.is_none();
        let saw = std::mem::replace(&mut host.saw, sees);
        cover.see_if("lease ran out", saw && !sees);
        for (r, resource) in COPIES.iter().enumerate() {
            let partition = partition_of_resource(resource, self.plan.partitions);
            let reached = host
                .received
                .reached
                .get(&(Box::from(*resource), partition));
            let ends_us = reached.map(|one| one.at_us + lease_us(resource));
            let lapsed = ends_us.is_some_and(|ends_us| ends_us < self.now_us);
            let before = std::mem::replace(&mut host.lapsed[r], lapsed);
            cover.see_if("lease of copies ran out", lapsed && !before);
        }
        if stats.denials_live > host.plan.denials_max as u64 {
            let what = format!("agent {agent} has {} denials", stats.denials_live);
            self.violated(7, "the deny list is bounded", what);
        }
    }

    pub(super) fn schedule_flush(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        if !std::mem::replace(&mut host.flush_due, true) {
            let pause_us = host.random.between(100, STALE_US);
            self.at_agent(agent, self.now_us + pause_us, move |world| {
                world.flush(agent);
            });
        }
    }

    fn flush(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        host.flush_due = false;
        host.flushed_us = self.now_us;
        self.with_agent(agent, |process| {
            process.flush();
            process.take_parcels();
        });
    }

    pub(super) fn calls(&mut self, agent: usize) {
        let host = &mut self.agents[agent];
        let quiet = self.plan.length_us - QUIET_US <= self.now_us;
        host.set_clocks(self.now_us);
        if STALE_US < self.now_us - host.flushed_us
            && let Some(process) = &mut host.process
        {
            // The flusher keeps the cached clock this fresh even without calls.
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
        if !quiet {
            self.settle_estimates(agent);
        }
        let host = &self.agents[agent];
        let every_us = host.plan.every_us;
        self.see_if("burst of calls", 1 < host.times && 0 < calls);
        self.check_quiescence();
        for _ in 0..calls {
            self.call(agent);
        }
        if 0 < calls {
            self.event(&[11, agent as u64, calls, self.refusals], || {
                format!("agent {agent} is called {calls} times")
            });
            self.schedule_flush(agent);
        }
        self.use_copies(agent);
        let next_us = self.agents[agent]
            .random
            .between(every_us / 2, every_us * 3 / 2);
        self.at_agent(agent, self.now_us + next_us, move |world| {
            world.calls(agent);
        });
    }

    /// Makes a call for a pair. Returns the answer, and the greatest and least number of copies asked for.
    fn ask_for(
        &mut self,
        agent: usize,
        (r, d): (usize, usize),
    ) -> (Result<Allowed, Refused>, (u32, u32)) {
        if let Some((answer, copies)) = self.estimates(agent, (r, d)) {
            return (answer, (copies, copies));
        }
        let host = &mut self.agents[agent];
        let (rate, domain) = (&host.rates[r], DOMAINS[d]);
        if !host.random.chance(host.plan.bulk_ppm) {
            return (rate.hit(domain).map_err(Refused::from), (1, 1));
        }
        let copies = host.random.between(2, host.plan.bulk_max) as u32;
        match host.random.below(3) {
            0 => (rate.hit_n(domain, copies), (copies, copies)),
            1 => (rate.hit_up_to(domain, 2..=copies), (2, copies)),
            _ => (rate.hit_up_to(domain, 1..=copies), (1, copies)),
        }
    }

    pub(super) fn call(&mut self, agent: usize) {
        let is_judged = self.judged_since_us() <= self.now_us;
        let (r, d) = match self.plan.calm_pair.filter(|_| is_judged) {
            Some(pair) => pair,
            None => draw_pair(&mut self.agents[agent].random),
        };
        if self.charges(agent, (r, d)) {
            return;
        }
        self.decisions += 1;
        let estimates = self.agents[agent].estimates.len();
        let (answer, (min, asked)) = self.ask_for(agent, (r, d));
        let is_estimated = estimates < self.agents[agent].estimates.len();
        if let Err(Refused::TooMany(too_many)) = &answer {
            return self.refused_too_many((r, d), min, too_many.most());
        }
        match answer {
            Ok(allowed) => {
                if allowed.blind() {
                    self.see("call while blind");
                    let (resource, domain) = (RESOURCES[r], DOMAINS[d]);
                    let is_denied = self.is_denied(resource, domain);
                    let what = "call let through while blind although denied";
                    self.see_if(what, is_denied);
                }
                self.check_not_closed(agent, (r, d), &allowed);
                let guard = self.guard_of_allowed(agent, (r, d), allowed);
                let host = &self.agents[agent];
                let life = self.watch.accounts.life(host.epoch);
                life.let_through((r, d), allowed.copies(), min, guard);
                let copies = (asked, allowed.copies());
                let called_at = self.note_quiescent_call(agent, (r, d), copies, guard);
                if is_estimated {
                    self.estimate_stands_at(agent, called_at);
                }
            }
            Err(Refused::Denied(denied)) => {
                self.note_quiescent_call(agent, (r, d), (asked, 0), Guard::Unknown);
                self.refused(agent, (r, d), &denied);
            }
            Err(error) => self.violated(7, "calls make sense here", error.to_string()),
        }
    }

    /// The version of the limits that an agent knows of a resource.
    fn known_version(&self, agent: usize, r: usize) -> Option<u64> {
        let process = self.agents[agent].process.as_ref();
        process.and_then(|one| one.known_version(RESOURCES[r]))
    }

    /// Law 8, for a call that was let through: the limits that the agent knows do not close the domain.
    fn check_not_closed(&mut self, agent: usize, (r, d): (usize, usize), allowed: &Allowed) {
        let (resource, domain) = (RESOURCES[r], DOMAINS[d]);
        let version = self.known_version(agent, r);
        let is_free = allowed.blind() || allowed.copies() == 0 || self.watch.was_ever_switched();
        if !is_free && self.watch.is_closed_by(version, resource, domain) {
            let what = format!("agent {agent}, limits {version:?}: {resource} for {domain}");
            self.violated(8, "a limit of 0 refuses the first call", what);
        }
    }

    /// Whether a call that was let through at this instant is guarded.
    fn guard_of_allowed(&mut self, agent: usize, pair: (usize, usize), allowed: Allowed) -> Guard {
        // A call that is let through against a denial marks itself as unguarded.
        let is_plain = !allowed.blind() && !self.watch.was_ever_switched();
        let guard = match self.guard_of(agent, pair) {
            Guard::Guarded if !is_plain => Guard::Unknown,
            guard => guard,
        };
        let cover = &mut self.watch.cover;
        cover.see_if("checked: a guarded call", guard == Guard::Guarded);
        cover.see_if("checked: an unguarded call", guard == Guard::Unguarded);
        guard
    }

    /// Law 3, for a call refused as larger than anything that can be granted at once: some known limits must forbid
    /// it, whatever happened before.
    fn refused_too_many(&mut self, (r, d): (usize, usize), copies: u32, most: u64) {
        self.refusals += 1;
        let pair = (RESOURCES[r], DOMAINS[d]);
        if most < u64::from(copies) && self.watch.is_never_granted_at_once(pair, copies, most) {
            return;
        }
        let what = format!("{copies} of {pair:?} at once, although {most} is the most");
        self.violated(3, "what is too many is never granted", what);
    }

    /// Whether a pair is denied in the log, whether or not any agent has received the denial.
    fn is_denied(&self, resource: &str, domain: &str) -> bool {
        let partition = partition_of_pair(resource, domain, self.plan.partitions);
        let ruled = &self.watch.ruled[partition as usize];
        let scope = statement::Scope::Pair(domain.into());
        let stated = ruled.stated.get(&(resource.into(), scope));
        let end = stated.and_then(|stated| end_of(stated.last()?));
        end.is_some_and(|end| self.log_now_us(partition) < end.as_micros())
    }

    /// Law 3: a refusal is justified.
    pub(super) fn refused(&mut self, agent: usize, (r, d): (usize, usize), denied: &Denied) {
        self.refusals += 1;
        if denied.code().is_none() {
            // An agent may refuse on its own a call that the limits which it knows never grant.
            let (resource, domain) = (RESOURCES[r], DOMAINS[d]);
            let version = self.known_version(agent, r);
            if denied.cause() != Cause::Blind
                && self.watch.is_granted_nothing_by(version, resource, domain)
            {
                let is_closed = self.watch.is_closed_by(version, resource, domain);
                self.see_if("call refused by a limit of 0", is_closed);
                return;
            }
            let what = format!("agent {agent} refused by {:?}", denied.cause());
            return self.violated(3, "nobody refuses by policy here", what);
        }
        self.see(match denied.scope() {
            Scope::Resource => "call refused by whole resource",
            _ => "call refused by pair",
        });
        let pair = (RESOURCES[r], DOMAINS[d]);
        self.check_refusal(agent, pair, denied, "a refusal is justified");
    }
}
