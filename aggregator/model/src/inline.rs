//! The in-line reading (section 3.1): a limiter that is asked before each request.
//!
//! ```text
//! hard 2, global 3; domain d asks for 3: granted 2, limited by hard
//! domain e asks for 3 at the same instant: granted 1, limited by global
//! ```
//!
//! One limiter is one resource with all its domains. Knows nothing of logs, lateness or versions.
//! What stays true: a request that is granted nothing has changed nothing. Requests come in time
//! order; an earlier instant is read as the latest seen, since engine time never runs backwards.

use std::collections::BTreeMap;

use crate::hits::Hits;
use crate::limits::{DomainLimits, ResourceLimits};
use crate::rules::{Cause, FOR_EVER_US, Granted, PairState, SECOND_US, Until, first_instant};

/// Which kind of limit kept a request below its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedBy {
    /// The domain's hits a second.
    Hard,
    /// All domains' hits a second.
    Global,
    /// The tiers.
    Tier,
}

/// The answer to a request, and how things stand after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Granted copies; 0 if refused.
    pub granted: u64,
    /// Whether a granted hit moved into another tier (out of none counts).
    pub burst: bool,
    /// What kept `granted` below the copies asked for.
    pub limited_by: Option<LimitedBy>,
    /// The current tier; 0 for none.
    pub tier: usize,
    /// The current tier's limit.
    pub tier_limit: u64,
    /// Hits in the current tier's window.
    pub tier_hits: u64,
    /// The domain's granted hits of the last second.
    pub domain_last_second: u64,
    /// All domains' granted hits of the last second.
    pub global_last_second: u64,
    /// When the domain's tiers and hard limit are open for one more hit.
    pub domain_until: Until,
    /// When the global limit is open for one more hit.
    pub global_until: Until,
}

/// An ideal limiter of one resource that sees every request in time order.
#[derive(Clone, Debug)]
pub struct InlineLimiter {
    limits: ResourceLimits,
    domains: BTreeMap<String, (DomainLimits, PairState)>,
    /// Granted hits of all domains.
    second: Hits,
    latest_us: u64,
}

impl InlineLimiter {
    /// A limiter that has seen nothing yet.
    pub fn new(limits: ResourceLimits) -> Self {
        Self {
            limits,
            domains: BTreeMap::new(),
            second: Hits::default(),
            latest_us: 0,
        }
    }

    /// Grants the largest n ≤ `copies` there is room for at `now_us`, or nothing if that is below
    /// `min`, and says how things stand then.
    pub fn request(&mut self, now_us: u64, domain: &str, copies: u64, min: u64) -> Outcome {
        let granted = self.decide(now_us, domain, copies, min);
        let now_us = self.latest_us;
        let (limits, state) = &self.domains[domain];
        let tier = state.current(limits, now_us);
        Outcome {
            granted: granted.hits,
            burst: granted.burst,
            limited_by: granted.stopped_by.map(|cause| match cause {
                Cause::Hard => LimitedBy::Hard,
                Cause::Global => LimitedBy::Global,
                Cause::Banned => unreachable!("nobody is banned in line"),
                Cause::Tier(_) => LimitedBy::Tier,
            }),
            tier,
            tier_limit: tier.checked_sub(1).map_or(0, |i| limits.tiers[i].limit),
            tier_hits: state.tier_hits(limits, tier, now_us),
            domain_last_second: state.last_second(now_us),
            global_last_second: self.second.count(SECOND_US, now_us),
            domain_until: state.open_again(limits, now_us),
            global_until: self.global_open_again(now_us),
        }
    }

    /// What [`Self::request`] grants, without the description of how things stand.
    pub fn grant(&mut self, now_us: u64, domain: &str, copies: u64, min: u64) -> u64 {
        self.decide(now_us, domain, copies, min).hits
    }

    fn decide(&mut self, now_us: u64, domain: &str, copies: u64, min: u64) -> Granted {
        self.latest_us = self.latest_us.max(now_us);
        let now_us = self.latest_us;
        if !self.domains.contains_key(domain) {
            let limits = self.limits.of(domain);
            let state = PairState::new(&limits);
            self.domains.insert(domain.to_owned(), (limits, state));
        }
        self.second.forget(SECOND_US, now_us);
        let last_second = self.second.count(SECOND_US, now_us);
        let global = self.limits.global;
        let global_room = global.map(|limit| limit.saturating_sub(last_second));
        let (limits, state) = self.domains.get_mut(domain).expect("inserted above");
        state.forget(limits, now_us);
        let granted = state.request(limits, now_us, copies, min, global_room);
        if 0 < granted.hits {
            self.second.take(now_us, granted.hits);
        }
        granted
    }

    fn global_open_again(&self, now_us: u64) -> Until {
        let Some(limit) = self.limits.global else {
            return Until::Now;
        };
        let is_open = |at_us| self.second.count(SECOND_US, at_us) < limit;
        if is_open(now_us) {
            return Until::Now;
        }
        first_instant(now_us, FOR_EVER_US - 1, is_open).map_or(Until::Never, Until::At)
    }
}
