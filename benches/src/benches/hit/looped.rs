//! A whole loop: an aggregator in a process of its own, and an agent in this one that has received
//! a given number of denials from it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tollgate_agent::{Agent, Rate};

use crate::harness::agents::{block_on, connected};
use crate::harness::aggregator::Aggregator;
use crate::load::names::domain;

/// The resource whose calls are let through: its limit is never reached.
pub(super) const SEARCH: &str = "api.search";
/// The resource that denies after one call of a domain, for longer than any benchmark runs.
const CLOSED: &str = "api.closed";

/// The resource whose domains are near their limit from half of it on, for a year.
const NEAR: &str = "api.near";
/// How much brings one of its domains near the limit, and leaves more than any benchmark uses.
pub(super) const NEAR_USED: u32 = 2_500_000_000;

const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "100000000/s"
[rate."api.closed"]
tiers = [{ limit = 1, window = "1h", active = "1h" }]
[rate."api.near"]
quota = ["4_000_000_000/year"]
near = "50%"
"#;

/// How long the agent may take to receive the denials.
const RECEIVED_WITHIN: Duration = Duration::from_secs(40);

/// How long recorded hits may take to be acknowledged.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// How many calls that cause denials are made at once: far fewer than the agent's queue holds,
/// since a dropped hit causes no denial.
const CAUSED_AT_ONCE: u32 = 2_000;

/// A working loop.
pub(super) struct Loop {
    pub agent: Agent,
    pub search: Rate,
    pub closed: Rate,
    pub near: Rate,
    pub aggregator: Aggregator,
}

impl Loop {
    /// Starts a loop, and causes denials of this many domains, from number 0 on.
    pub fn start(denials: u32) -> anyhow::Result<Self> {
        let aggregator = Aggregator::start(LIMITS, 16)?;
        let agent = connected("bench", &aggregator.agents)?;
        let looped = Self {
            search: agent.rate(SEARCH),
            closed: agent.rate(CLOSED),
            near: agent.rate(NEAR),
            agent,
            aggregator,
        };
        let begun = Instant::now();
        ensure!(
            block_on(looped.agent.ready(RECEIVED_WITHIN))?,
            "the agent has found no aggregator"
        );
        for number in 0..denials {
            if number.is_multiple_of(CAUSED_AT_ONCE) {
                looped.settle()?;
            }
            let _ = looped.closed.hit(&domain(number));
        }
        while looped.denials() < u64::from(denials) {
            ensure!(
                begun.elapsed() < RECEIVED_WITHIN,
                "{} of {denials} denials received within {RECEIVED_WITHIN:?}; {:?}",
                looped.denials(),
                looped.agent.stats()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        looped.settle()?;
        Ok(looped)
    }

    /// Denials in the agent's list.
    pub fn denials(&self) -> u64 {
        self.agent.stats().denials_live
    }

    /// Waits until everything recorded has been acknowledged, or dropped.
    pub fn settle(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let stats = self.agent.stats();
            let gone =
                stats.hits_acknowledged + stats.hits_dropped_queue + stats.hits_dropped_courier;
            if stats.hits_accepted <= gone {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < SETTLED_WITHIN,
                "not acknowledged: {stats:?}"
            );
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Hits that the recorder has taken so far.
    pub fn recorded(&self) -> u64 {
        self.agent.stats().hits_accepted
    }

    /// The recorded share of `made` calls, in percent, given the recorded count before them.
    pub fn accepted_percent(&self, before: u64, made: u64) -> f64 {
        (self.recorded() - before) as f64 * 100.0 / made.max(1) as f64
    }
}
