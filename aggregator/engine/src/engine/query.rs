//! Looking at an engine without changing it.
//!
//! Knows nothing of who asks. What stays true: every question takes `&self`, and what has ended by
//! log time is not shown.

use std::sync::Arc;

use tollgate_shared::names::EVERYBODY;
use tollgate_shared::place::LogId;
use tollgate_shared::time::Timestamp;

use super::Engine;
use super::denials::LiveDenial;
use super::hits::Rule;
use super::rulings::Stop;
use crate::inline::tier_counts;
use crate::limits::{Limits, RateClass};
use crate::rules::{second, tiers};
use crate::stream::Pair;

/// How a pair stands at its own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairView {
    /// Its time: the greatest instant among its entries.
    pub time: Timestamp,
    /// The version by which it would be ruled next; 0: none.
    pub version: u64,
    /// The current tier; 0: none.
    pub tier: usize,
    /// The current tier's limit.
    pub tier_limit: u64,
    /// Hits in the current tier's window.
    pub tier_hits: u64,
    /// Granted hits of the last second.
    pub last_second: u64,
    /// The hard limit (for everybody: the global one), if there is one.
    pub hard: Option<u64>,
    /// Hits that would be granted at once at its time.
    pub remaining: u64,
    /// Its denial, if one is in force.
    pub denial: Option<LiveDenial>,
}

impl Engine {
    /// The partition that it rules.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// The log's id, once known.
    pub fn log(&self) -> Option<LogId> {
        self.log
    }

    /// The offset of the last applied record.
    pub fn applied_upto(&self) -> Option<u64> {
        self.applied_upto
    }

    /// Log time: the append time of the last counted tick.
    pub fn log_time(&self) -> Option<Timestamp> {
        self.log_time
    }

    /// The latest instant that a counted tick or a version has brought in: what ended by then is
    /// over for everybody.
    pub fn now(&self) -> Timestamp {
        let log = self.log_time.unwrap_or_default();
        log.max(self.steps.newest().at)
    }

    /// Why it has stopped, if it has.
    pub fn stopped(&self) -> Option<Stop> {
        self.stopped
    }

    /// The number of the limits version in force.
    pub fn version(&self) -> Option<u64> {
        self.steps.version()
    }

    /// The limits in force.
    pub fn limits(&self) -> &Arc<Limits> {
        &self.steps.newest().limits
    }

    /// Pairs that are ruled, resources' own ones included.
    pub fn pairs(&self) -> u64 {
        self.table.alive().count()
    }

    /// Pairs in memory: those that are ruled, and those that have left and are not taken back yet.
    /// Not a function of the log.
    pub fn pairs_in_memory(&self) -> usize {
        self.table.in_memory()
    }

    /// Agents' processes whose sequence numbers are remembered.
    pub fn epochs(&self) -> usize {
        self.epochs.len()
    }

    /// The denials in force at [`Engine::now`], in an order that is the same on every machine.
    pub fn live_denials(&self) -> impl Iterator<Item = &LiveDenial> {
        self.denials.after(self.now()).map(|(_, live)| live)
    }

    /// At most how many denials are in force.
    pub fn live_denials_max(&self) -> usize {
        self.denials.len()
    }

    /// How a pair stands; none if it is not known.
    pub fn pair(&self, resource: &str, domain: &str) -> Option<PairView> {
        let identity = self.identities.of_resource(resource).of(domain);
        let mut stored = self.table.peek(identity)?;
        let newest = self.steps.newest();
        let (limits, nothing) = (&newest.limits, RateClass::default());
        let rule = Rule::of(limits, resource);
        let everybody = domain == EVERYBODY;
        let (class, hard) = if everybody {
            self.steps.migrate_whole(&mut stored);
            let global = match rule {
                Rule::Limited { rate, .. } => rate.global(),
                Rule::Refused { .. } | Rule::Free => None,
            };
            (&nothing, global)
        } else {
            self.steps.migrate(&mut stored, resource, domain);
            let class = rule.class_of(limits, &nothing, domain);
            let class = class.map_or(&nothing, |(class, _)| class);
            (class, class.hard)
        };
        let time = stored.pair.now();
        let state = &stored.pair.state;
        let tier = tiers::current(class, state, time);
        let (tier_limit, tier_hits) = tier_counts(class, state, tier, time);
        let hard_room = second::room(hard, state, time);
        Some(PairView {
            time,
            version: newest.version,
            tier,
            tier_limit,
            tier_hits,
            last_second: second::held(state, time),
            hard,
            remaining: match everybody {
                true => hard_room,
                false => tiers::room_for(class, state, time, hard_room),
            },
            denial: self.denials.get(identity, self.now()).cloned(),
        })
    }

    /// The state of a domain's pair, under the version in force, to be looked into; none if it is not
    /// known.
    pub fn look(&self, resource: &str, domain: &str) -> Option<Pair> {
        let identity = self.identities.of_resource(resource).of(domain);
        let mut stored = self.table.peek(identity)?;
        self.steps.migrate(&mut stored, resource, domain);
        Some(stored.pair)
    }

    /// How everybody's use of a globally limited resource stands; none if nothing was totalled.
    pub fn everybody(&self, resource: &str) -> Option<PairView> {
        self.pair(resource, EVERYBODY)
    }
}
