//! The schedule of calls: which agent calls which resource, for which domain, and when.
//!
//! Two sources: made-up tenants, some above their limits and some below, drawn from a seed; or an access log
//! (`replayed`). Knows nothing of limits and of processes. What stays true: calls are in order of time, and a seed
//! always gives the same schedule.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

/// One call: when, by which agent, on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScheduledCall {
    /// Microseconds after the start.
    pub at_us: u64,
    /// Index of the agent that makes it.
    pub agent: u32,
    /// Index into [`Schedule::resources`].
    pub resource: u32,
    /// Index into [`Schedule::domains`].
    pub domain: u32,
    /// Copies that it asks for, all or none.
    pub copies: u32,
}

/// All calls of a demonstration, in order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Names of resources.
    pub resources: Vec<String>,
    /// Names of domains.
    pub domains: Vec<String>,
    /// The calls.
    pub calls: Vec<ScheduledCall>,
}

/// A tenant of the made-up traffic, with its rate and its active times.
struct Tenant {
    resource: &'static str,
    domain: &'static str,
    /// Calls per second while it is active.
    rate: f64,
    /// It is active for the first number of seconds in every period of the second number.
    awake_s: (f64, f64),
    /// Copies of each call.
    copies: u32,
    gaps: Gaps,
}

/// The gaps between a tenant's calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gaps {
    /// Exponential: the many users behind one tenant call independently.
    Random,
    /// Equal: a worker that paces itself.
    Even,
}

/// A tenant that is always active.
const fn steady(resource: &'static str, domain: &'static str, rate: f64) -> Tenant {
    Tenant {
        resource,
        domain,
        rate,
        awake_s: (1.0, 1.0),
        copies: 1,
        gaps: Gaps::Random,
    }
}

/// A tenant that is always active, with evenly spaced calls.
const fn even(resource: &'static str, domain: &'static str, rate: f64) -> Tenant {
    Tenant {
        gaps: Gaps::Even,
        ..steady(resource, domain, rate)
    }
}

/// A tenant that is always active, with calls for several copies each.
const fn weighted(resource: &'static str, domain: &'static str, rate: f64, copies: u32) -> Tenant {
    Tenant {
        copies,
        ..even(resource, domain, rate)
    }
}

/// A tenant that is active for a part of every period.
const fn pulsing(
    resource: &'static str,
    domain: &'static str,
    rate: f64,
    awake_s: (f64, f64),
) -> Tenant {
    Tenant {
        resource,
        domain,
        rate,
        awake_s,
        copies: 1,
        gaps: Gaps::Random,
    }
}

/// Tenants above some limits and below others, in several patterns.
///
/// `worker` paces itself just below its limit, and bursts far above it under the same name; `small`,
/// `middle` and `large` ask for ten times their limit in calls of several copies.
const TENANTS: [Tenant; 23] = [
    steady("demo.search", "quiet", 5.0),
    steady("demo.search", "steady", 30.0),
    steady("demo.search", "premium", 200.0),
    steady("demo.search", "greedy", 300.0),
    pulsing("demo.search", "bursty", 400.0, (0.5, 4.0)),
    steady("demo.read", "acme", 60.0),
    steady("demo.read", "globex", 80.0),
    steady("demo.read", "initech", 100.0),
    steady("demo.read", "umbrella", 20.0),
    pulsing("demo.read", "hooli", 150.0, (1.0, 2.0)),
    pulsing("demo.read", "soylent", 300.0, (0.5, 3.0)),
    steady("demo.login", "alice", 0.5),
    steady("demo.login", "bob", 2.0),
    pulsing("demo.login", "guesser", 60.0, (2.0, 6.0)),
    steady("demo.export", "north", 60.0),
    pulsing("demo.export", "south", 60.0, (2.0, 3.0)),
    pulsing("demo.export", "east", 60.0, (1.0, 2.0)),
    steady("demo.export", "west", 20.0),
    even("demo.jobs", "worker", 99.0),
    pulsing("demo.jobs", "worker", 1_000.0, (2.0, 5.0)),
    weighted("demo.batch", "small", 1_000.0 / 7.0, 7),
    weighted("demo.batch", "middle", 1_000.0 / 33.0, 33),
    weighted("demo.batch", "large", 1_000.0 / 60.0, 60),
];

impl Schedule {
    /// The made-up tenants' calls for a number of seconds, distributed over a number of agents.
    pub fn made_up(seed: u64, seconds: u64, agents: u32) -> Self {
        let mut schedule = Self::default();
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        let end = seconds as f64;
        for tenant in &TENANTS {
            let resource = index_of(&mut schedule.resources, tenant.resource);
            let domain = index_of(&mut schedule.domains, tenant.domain);
            let mut at = 0.0;
            loop {
                at += match tenant.gaps {
                    Gaps::Random => -draw.unit().ln() / tenant.rate,
                    Gaps::Even => 1.0 / tenant.rate,
                };
                let (awake, period) = tenant.awake_s;
                let asleep_from = (at / period).floor() * period + awake;
                if asleep_from <= at {
                    at = (at / period).floor() * period + period;
                }
                if end <= at {
                    break;
                }
                let agent = draw.below(agents);
                schedule.calls.push(ScheduledCall {
                    at_us: (at * 1e6) as u64,
                    agent,
                    resource,
                    domain,
                    copies: tenant.copies,
                });
            }
        }
        schedule.calls.sort_unstable();
        schedule
    }

    /// Calls above the limits of given resources, for a fleet whose limits are given: for each resource one domain
    /// made for this run, at the given rate per second.
    pub fn against(
        resources: &[(String, f64)],
        run: &str,
        seed: u64,
        seconds: u64,
        agents: u32,
    ) -> Self {
        let mut schedule = Self::default();
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        for (number, (name, rate)) in resources.iter().enumerate() {
            let resource = index_of(&mut schedule.resources, name);
            let domain = index_of(&mut schedule.domains, &format!("demo-{run}-{number}"));
            let mut at = 0.0;
            loop {
                at += -draw.unit().ln() / rate;
                if seconds as f64 <= at {
                    break;
                }
                let agent = draw.below(agents);
                schedule.calls.push(ScheduledCall {
                    at_us: (at * 1e6) as u64,
                    agent,
                    resource,
                    domain,
                    copies: 1,
                });
            }
        }
        schedule.calls.sort_unstable();
        schedule
    }

    /// The same schedule with only the calls of one agent.
    pub fn of_agent(&self, agent: u32) -> Self {
        let calls = self
            .calls
            .iter()
            .copied()
            .filter(|call| call.agent == agent)
            .collect();
        Self {
            resources: self.resources.clone(),
            domains: self.domains.clone(),
            calls,
        }
    }
}

fn index_of(names: &mut Vec<String>, name: &str) -> u32 {
    let index = names
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
    index as u32
}

struct Draw(ChaCha8Rng);

impl Draw {
    /// A number above 0 and up to 1.
    fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_schedule() {
        let one = Schedule::made_up(7, 5, 2);
        assert_eq!(one, Schedule::made_up(7, 5, 2));
        assert_ne!(one, Schedule::made_up(8, 5, 2));
        assert!(one.calls.is_sorted());
        let agents: Vec<usize> = (0..2)
            .map(|agent| one.of_agent(agent).calls.len())
            .collect();
        assert_eq!(agents.iter().sum::<usize>(), one.calls.len());
        assert!(agents.iter().all(|calls| 1_000 < *calls));
    }
}
