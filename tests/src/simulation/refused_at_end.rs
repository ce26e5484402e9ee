//! At the end, when all faults are over: no agent refuses an open scope, of rates or copies, and no agent lets
//! through copies that are denied.
//!
//! ```text
//! @17 denied, @23 open     a second later, without faults: an agent that refuses by @17 lacks a statement due
//! ```
//!
//! Calls show what an agent refuses although it knows better (`refusals`); here it is judged by what it should
//! know, whatever it has received. Does not know how statements reach agents. What stays true: records of the last
//! second are not held against an agent.

use tollgate_agent::{Cause, Refused, Scope as DeniedScope};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::place::{LogId, Place};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::statement::Scope as StatedScope;

use super::agent_holds::PAUSE_US;
use super::copy_limits::COPIES;
use super::documents::{DOMAINS, RESOURCES};
use super::ending::HEARD_WITHIN_US;
use super::held::is_member;
use super::world::World;

/// How far into the quiescent phase every agent has received which copies are full.
const ALL_HEARD_US: u64 = 8_500_000;

/// The coverage counter of the check at the end.
pub(super) const FULL_AT_END: &str = "checked: full copies are refused at the end";

impl World {
    /// The same check as at the end, while no service takes or returns copies and most holds are still in use: at
    /// the end few scopes are full except banned or staged ones.
    pub(super) fn check_full_copies_in_the_pause(&mut self, agent: usize) {
        let into_us = self.now_us.saturating_sub(self.plan.calm_us());
        let host = &self.agents[agent];
        if !(ALL_HEARD_US..PAUSE_US.end).contains(&into_us) || host.process.is_none() {
            return;
        }
        // An agent whose hello the aggregator's present process has not answered receives no statements,
        // and lateness shortens leases.
        let hears_us = self.hears_in_order_since(agent);
        if hears_us.is_none_or(|since_us| self.now_us < since_us + HEARD_WITHIN_US) {
            return;
        }
        let stats = host.process.as_ref().map(|process| process.agent().stats());
        if stats.is_some_and(|stats| stats.denials_without_room == 0) {
            host.set_clocks(self.now_us);
            self.check_full_copies(agent, "checked: full copies are refused in the pause");
        }
    }

    /// Checks that every denial of copies that is in force is in the deny list, for each member of a full group
    /// too. The denials are the second engine's, which `copies_compare` compares with the model's.
    pub(super) fn check_full_copies(&mut self, agent: usize, counter: &'static str) {
        for (resource, copies) in self.agents[agent].holding.copies.iter().enumerate() {
            let partition = partition_of_resource(COPIES[resource], self.plan.partitions);
            let name = COPIES[resource];
            let ruled = &self.watch.ruled[partition as usize];
            let version = ruled.engine.version().unwrap_or(0);
            let of_it = |((of, scope), stated): (&(Box<str>, StatedScope), &Vec<_>)| {
                let (place, end) = *stated.last().filter(|_| **of == *name)?;
                let domains = match scope {
                    StatedScope::Pair(domain) => vec![domain.to_string()],
                    StatedScope::Resource => vec!["nobody".to_owned()],
                    StatedScope::Group(group) => {
                        let limits = self.watch.copies.get(&version);
                        let is_in = |domain: &&str| is_member(limits, (name, group), domain);
                        let members = DOMAINS.into_iter().filter(is_in);
                        members.map(str::to_owned).collect()
                    }
                };
                let end: Timestamp = end?;
                self.should_be_in_force(agent, (partition, place), end.as_micros())
                    .then_some((domains, place))
            };
            let denied = ruled.stated.iter().filter_map(of_it);
            let denied: Vec<_> = denied
                .flat_map(|(all, place)| all.into_iter().map(move |one| (one, place)))
                .collect();
            self.watch.cover.add(counter, denied.len() as u64);
            let mut denied = denied.into_iter();
            if let Some((domain, place)) = denied.find(|(domain, _)| copies.peek(domain).is_ok()) {
                let what = format!("agent {agent} does not refuse {name} for {domain}: {place}");
                return self.violated(7, "deny lists agree with the replay", what);
            }
        }
    }

    /// Checks that an agent refuses at the end only by denials that hold for an agent that
    /// has received everything due.
    pub(super) fn check_refused_at_end(&mut self, agent: usize) {
        let rates = (0..RESOURCES.len()).flat_map(|r| DOMAINS.map(|domain| (r, domain)));
        let copies = 0..self.agents[agent].holding.copies.len();
        let mut copies = copies.flat_map(|r| DOMAINS.map(|domain| (r, domain)));
        let found = { rates }
            .find_map(|(r, domain)| self.rate_refused(agent, r, domain))
            .or_else(|| copies.find_map(|(r, domain)| self.copies_refused(agent, r, domain)));
        if let Some(what) = found {
            let what = format!("agent {agent} refuses {what}");
            self.violated(7, "nobody refuses at the end what is open", what);
        }
    }

    fn rate_refused(&self, agent: usize, r: usize, domain: &str) -> Option<String> {
        let resource = RESOURCES[r];
        let denied = self.agents[agent].rates[r].peek(domain).err()?;
        let Some(code) = denied.code() else {
            // An agent may refuse on its own a call that the newest version never grants.
            let by_itself = denied.cause() != Cause::Blind
                && self.watch.is_granted_nothing_now(resource, domain);
            return (!by_itself).then(|| format!("{resource} for {domain}: {:?}", denied.cause()));
        };
        let scope = match denied.scope() {
            DeniedScope::Resource => "*",
            _ => domain,
        };
        let (known, heard) = self.should_be_known(code.partition);
        let gone = self.watch.is_of_another_log(code, known);
        let until = self
            .watch
            .justified_until(code, resource, scope, (known, heard), self.now_us);
        let why = match until {
            _ if gone.is_some() => gone?,
            Ok(until_us) if self.now_us < until_us => return None,
            Ok(until_us) => format!("it was over at {until_us} us"),
            Err(why) => why,
        };
        Some(format!("{resource} for {domain} by {code}: {why}"))
    }

    fn copies_refused(&self, agent: usize, resource: usize, domain: &str) -> Option<String> {
        let name = COPIES[resource];
        let refused = self.agents[agent].holding.copies[resource].peek(domain);
        let denied = match refused.err()? {
            Refused::Denied(denied) => denied,
            other => return Some(format!("{name} for {domain}: {other}")),
        };
        let Some(code) = denied.code() else {
            // An agent that acts more rarely than the quiet time lasts may not have returned its copies.
            let d = DOMAINS.iter().position(|one| *one == domain)?;
            if denied.cause() != Cause::Full {
                return Some(format!("{name} for {domain}: {:?}", denied.cause()));
            }
            let why = self.fits_beside_own_holds(agent, (resource, d), 1)?;
            return Some(format!("{name} for {domain}: {why}"));
        };
        let (known, heard) = self.should_be_known(code.partition);
        let gone = self.watch.is_of_another_log(code, known);
        let justified =
            self.watch
                .justified_copies(code, name, domain, (known, heard), self.now_us);
        let why = gone.or_else(|| justified.err())?;
        Some(format!("{name} for {domain} by {code}: {why}"))
    }

    /// What every agent should know of a partition by now: its log, and all records below a log position.
    fn should_be_known(&self, partition: u32) -> (Option<LogId>, Option<Place>) {
        let ruled = &self.watch.ruled[partition as usize];
        let known = ruled.log.map(|log| Place {
            generation: log.generation,
            offset: ruled.first_since(self.now_us - HEARD_WITHIN_US),
            entry: 0,
        });
        (ruled.log, known)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Plan;
    use super::super::watch::Watch;
    use super::*;

    /// Runs a world to its end in which an agent is refused something; returns what the check finds after the
    /// reason was removed from the log.
    fn found_without_a_log(refused: impl Fn(&World, usize) -> bool) -> String {
        let is_short = |plan: &Plan| plan.length_us < 20_000_000 && plan.uses_copies();
        for plan in (1..).map(Plan::draw).filter(is_short) {
            let mut world = World::new(plan, false);
            world.run();
            assert_eq!(world.violation, None);
            let mut agents = 0..world.agents.len();
            if let Some(agent) = agents.find(|agent| refused(&world, *agent)) {
                world.check_refused_at_end(agent);
                assert_eq!(world.violation, None);
                world.watch.ruled = Watch::new(&world.plan).ruled;
                world.check_refused_at_end(agent);
                let found = world.violation.expect("nothing justifies it");
                assert_eq!(found.check, "nobody refuses at the end what is open");
                return found.what;
            }
        }
        unreachable!("there is no last seed")
    }

    #[test]
    fn what_is_open_and_refused_at_the_end_is_found_of_rates() {
        let refused = |world: &World, agent: usize| {
            let rates = &world.agents[agent].rates;
            let peek = |domain: &&str| {
                rates.iter().any(|rate| {
                    rate.peek(domain)
                        .is_err_and(|denied| denied.code().is_some())
                })
            };
            DOMAINS.iter().any(peek)
        };
        let found = found_without_a_log(refused);
        assert!(found.contains("nobody knows generation"), "{found}");
    }

    #[test]
    fn what_is_open_and_refused_at_the_end_is_found_of_copies() {
        let refused = |world: &World, agent: usize| {
            let rates = &world.agents[agent].rates;
            let copies = &world.agents[agent].holding.copies;
            let no_rate = DOMAINS
                .iter()
                .all(|d| rates.iter().all(|rate| rate.peek(d).is_ok()));
            let peek = |domain: &&str| copies.iter().any(|of| of.peek(domain).is_err());
            no_rate && DOMAINS.iter().any(peek)
        };
        let found = found_without_a_log(refused);
        assert!(found.contains("nobody knows generation"), "{found}");
    }
    #[test]
    fn copies_that_are_denied_and_let_through_at_the_end_are_found() {
        let is_short = |plan: &Plan| plan.length_us < 20_000_000 && plan.uses_copies();
        let plan = (1..).map(Plan::draw).find(is_short).expect("some are");
        let mut world = World::new(plan, false);
        world.run();
        let copies = world.agents[0].holding.copies.clone();
        let open = (0..COPIES.len()).flat_map(|of| DOMAINS.map(|domain| (of, domain)));
        let mut open = open.filter(|(of, domain)| copies[*of].peek(domain).is_ok());
        let (of, domain) = open.next().expect("something is open");
        world.check_full_copies(0, FULL_AT_END);
        assert_eq!(world.violation, None);
        // The agents have received nothing of this partition.
        let partition = partition_of_resource(COPIES[of], world.plan.partitions);
        let ruled = &mut world.watch.ruled[partition as usize];
        let place = Place {
            generation: ruled.log.map_or(0, |log| log.generation),
            offset: ruled.first_since(world.now_us - 3_000_000),
            entry: 0,
        };
        let key = (COPIES[of].into(), StatedScope::Pair(domain.into()));
        let end = Timestamp::from_micros(u64::MAX);
        let stated = ruled.stated.entry(key).or_default();
        stated.push((place, Some(end)));
        world.check_full_copies(0, FULL_AT_END);
        let found = world.violation.expect("it is let through");
        assert_eq!(found.check, "deny lists agree with the replay");
    }
}
