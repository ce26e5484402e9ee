//! Law 3, refusal by refusal, of rates and copies: may the agent refuse by the statement that the refusal names?
//!
//! ```text
//! agent refuses acme at T, naming 3-18250-0-1
//! that statement has arrived: its denial has not ended by T, and no newer statement about acme has arrived
//! everything below @18260 has arrived: the log has no lift of acme between the two
//! a watermark of partition 3 has arrived within the lease
//! ```
//!
//! What aggregators publish is compared with the second engine (`owner_effects`), and that engine with the models. At
//! the end, without faults, an agent is judged by what must have arrived (`check_refused_at_end`). Knows nothing of
//! clocks but how much they drift.

use tollgate_agent::{Cause, Denied, Refused, Scope as DeniedScope};
use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::wire::statement::{Scope, StatementKind};

use super::arrivals::{drift_us, lease_us};
use super::copy_limits::COPIES;
use super::documents::{DOMAINS, RESOURCES};
use super::ending::ARRIVES_WITHIN_US;
use super::held::is_member;
use super::received::Arrived;
use super::world::World;

/// The error of a clock over a lease, and rounding.
const LEASE_ERROR_US: u64 = 60_000;

/// Log times are rounded to a millisecond; one more millisecond as a margin.
pub(super) const ROUNDED_US: u64 = 2_000;

/// What an agent knows of a partition: its log, and up to which position it has received statements.
pub(super) type Known = (Option<LogId>, Option<LogPosition>);

impl World {
    /// What an agent's answer for a domain would be, if it is a refusal; for copies, that of a call for one copy.
    pub(super) fn refusal(&self, agent: usize, resource: &str, domain: &str) -> Option<Refused> {
        let host = &self.agents[agent];
        if let Some(r) = RESOURCES.iter().position(|name| *name == resource) {
            return host.rates[r].peek(domain).err().map(Refused::from);
        }
        let c = COPIES.iter().position(|name| *name == resource)?;
        host.holding.copies.get(c)?.peek(domain).err()
    }

    /// What an agent has received of a resource's partition.
    pub(super) fn known_of(&self, agent: usize, resource: &str, partition: u32) -> Known {
        let process = self.agents[agent].process.as_ref();
        let known = process.map(|one| {
            (
                one.known_log(partition),
                one.received_upto(resource, partition),
            )
        });
        known.unwrap_or_default()
    }

    /// Law 3: the statement that a refusal names justifies it.
    pub(super) fn check_refusal(
        &mut self,
        agent: usize,
        (resource, domain): (&str, &str),
        denied: &Denied,
        check: &'static str,
    ) {
        let Some(code) = denied.code() else {
            return;
        };
        let known = self.known_of(agent, resource, code.partition);
        if let Some(why) = self.unjustified(agent, (resource, domain), denied, known) {
            let what = format!("agent {agent} refuses {resource} for {domain} by {code}: {why}");
            self.violated(3, check, what);
        }
    }

    /// Why an agent may not refuse a domain by the statement that its refusal names. `None`: it may, or names none.
    pub(super) fn unjustified(
        &self,
        agent: usize,
        (resource, domain): (&str, &str),
        denied: &Denied,
        known: Known,
    ) -> Option<String> {
        let code = denied.code()?;
        if denied.cause() == Cause::Blind {
            return Some("it is blind".to_owned());
        }
        let received = &self.agents[agent].received;
        let key = (Box::from(resource), code.partition);
        let Some(reached) = received.reached.get(&key) else {
            return Some(format!(
                "no watermark of partition {} has arrived",
                code.partition
            ));
        };
        if reached.at_us + lease_us(resource) + LEASE_ERROR_US < self.now_us {
            return Some(format!(
                "the last watermark that counts arrived at {} us",
                reached.at_us
            ));
        }
        let is_named = |one: &&Arrived| {
            *one.resource == *resource
                && match (denied.scope(), &one.scope) {
                    (DeniedScope::Pair, Scope::Pair(name)) => **name == *domain,
                    (DeniedScope::Resource, Scope::Resource) => true,
                    // An agent that has not received the newest version goes by an earlier one.
                    (DeniedScope::Group, Scope::Group(name)) => {
                        is_member(self.watch.all_versions(), (resource, name), domain)
                    }
                    _ => false,
                }
        };
        let mut arrived = received.statements.get(&code).into_iter().flatten();
        let Some(named) = arrived.find(is_named) else {
            return Some("this statement has not arrived".to_owned());
        };
        self.outdated(named, (code.partition, code.position), known)
    }

    /// Why a statement that has arrived justifies no refusal any more.
    fn outdated(
        &self,
        named: &Arrived,
        (partition, position): (u32, LogPosition),
        (log, upto): Known,
    ) -> Option<String> {
        if named.log.is_some() && named.log != log {
            return Some(format!("it is of {:?}, the log is {log:?}", named.log));
        }
        let slack_us = ROUNDED_US + drift_us(self.now_us.saturating_sub(named.sent_us));
        let ends_us = named.ends_us.0;
        if ends_us.saturating_add(slack_us) < self.now_us {
            return Some(format!("its denial ended at {ends_us} us"));
        }
        if named.is_superseded {
            return Some("a newer statement has arrived".to_owned());
        }
        let ruled = &self.watch.ruled[partition as usize];
        let key = (named.resource.clone(), named.scope.clone());
        let stated = ruled.stated.get(&key).filter(|_| ruled.log == log)?;
        let mut known = stated.iter().rev();
        let newest = known.find(|one| upto.is_some_and(|upto| one.position < upto))?;
        (newest.kind == StatementKind::Lifted && position < newest.position).then(|| {
            let lifted = newest.position;
            format!("it was lifted at {lifted}, and everything below {upto:?} has arrived")
        })
    }

    /// Checks that an agent refuses at the end only by denials that hold for an agent that has received everything
    /// but the records of the last second.
    pub(super) fn check_refused_at_end(&mut self, agent: usize) {
        for resource in RESOURCES.into_iter().chain(COPIES) {
            for domain in DOMAINS {
                let why = match self.refusal(agent, resource, domain) {
                    None => continue,
                    Some(Refused::Denied(denied)) => {
                        self.open_at_end(agent, (resource, domain), &denied)
                    }
                    Some(other) => Some(other.to_string()),
                };
                if let Some(why) = why {
                    let what = format!("agent {agent} refuses {resource} for {domain}: {why}");
                    return self.violated(7, "nobody refuses at the end what is open", what);
                }
            }
        }
    }

    fn open_at_end(
        &self,
        agent: usize,
        (resource, domain): (&str, &str),
        denied: &Denied,
    ) -> Option<String> {
        let Some(code) = denied.code() else {
            // An agent may refuse on its own what the newest version never grants, and what its own holds fill: if it
            // acts more rarely than the quiet time lasts, it may not have returned its copies.
            let r = COPIES.iter().position(|one| *one == resource);
            let d = DOMAINS.iter().position(|one| *one == domain)?;
            return match (r, denied.cause()) {
                (None, cause)
                    if cause != Cause::Blind
                        && self.watch.is_granted_nothing_now(resource, domain) =>
                {
                    None
                }
                (Some(r), Cause::Full) => self.fits_beside_own_holds(agent, (r, d), 1),
                (_, cause) => Some(format!("{cause:?}")),
            };
        };
        let ruled = &self.watch.ruled[code.partition as usize];
        let upto = ruled.log.map(|log| LogPosition {
            generation: log.generation,
            offset: ruled.first_since(self.now_us - ARRIVES_WITHIN_US),
            entry: 0,
        });
        let why = self.unjustified(agent, (resource, domain), denied, (ruled.log, upto))?;
        Some(format!("{code}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use tollgate_shared::time::{Span, Timestamp};
    use tollgate_shared::wire::statement::{Cause, Denial, Statement};

    use super::super::plan::Plan;
    use super::*;

    /// Worlds with copies at the end of short runs.
    fn ended() -> impl Iterator<Item = World> {
        let is_short = |plan: &Plan| plan.length_us < 20_000_000 && plan.uses_copies();
        (1..).map(Plan::draw).filter(is_short).map(|plan| {
            let mut world = World::new(plan, false);
            world.run();
            assert_eq!(world.violation, None);
            world
        })
    }

    /// The world at the end of a run, and an agent that refuses a rate, or copies, because of a statement.
    fn refused(all: &[&'static str]) -> (World, usize) {
        for world in ended() {
            let names = |agent: usize, resource: &str, domain: &str| {
                let refusal = world.refusal(agent, resource, domain);
                matches!(refusal, Some(Refused::Denied(denied)) if denied.code().is_some())
            };
            let refuses = |agent: &usize| {
                let mut pairs = all.iter().flat_map(|of| DOMAINS.map(|domain| (of, domain)));
                pairs.any(|(of, domain)| names(*agent, of, domain))
            };
            if let Some(agent) = (0..world.agents.len()).find(refuses) {
                return (world, agent);
            }
        }
        unreachable!("there is no last seed")
    }

    #[test]
    fn an_unjustified_refusal_is_found_of_rates_and_copies() {
        for all in [&RESOURCES[..], &COPIES[..]] {
            let (mut world, agent) = refused(all);
            world.check_refused_at_end(agent);
            assert_eq!(world.violation, None);
            // As if no statement had arrived.
            world.agents[agent].received.statements.clear();
            world.check_refused_at_end(agent);
            let found = world.violation.expect("nothing justifies it");
            assert!(found.what.contains("has not arrived"), "{}", found.what);
        }
    }

    #[test]
    fn copies_that_are_denied_and_let_through_are_found() {
        let mut world = ended().next().expect("some are");
        let open = |domain: &&str| world.refusal(0, COPIES[0], domain).is_none();
        let domain = DOMAINS.into_iter().find(open).expect("something is open");
        world.check_deny_list(0);
        assert_eq!(world.violation, None);
        // The agents have received nothing of this.
        let partitions = world.plan.partitions;
        let partition = tollgate_shared::names::partition_of_resource(COPIES[0], partitions);
        let ruled = &mut world.watch.ruled[partition as usize];
        let position = LogPosition {
            generation: ruled.log.map_or(0, |log| log.generation),
            offset: ruled.first_since(world.now_us - 3_000_000),
            entry: 0,
        };
        let denied = Denial {
            end: Timestamp::MAX,
            cause: Cause::Full,
            version: 1,
            limit: 1,
            window: Span::ZERO,
            most: u64::MAX,
        };
        let scope = Scope::Pair(domain.into());
        let key = (COPIES[0].into(), scope.clone());
        ruled.stated.entry(key).or_default().push(Statement {
            scope,
            position,
            kind: StatementKind::Denied(denied),
        });
        world.check_deny_list(0);
        let found = world.violation.expect("it is let through");
        assert_eq!(found.check, "deny lists agree with the log");
    }
}
