//! The in-line reading: a limiter that is asked before each request.
//!
//! ```text
//! hard 2, global 3; domain d asks for 3: granted 2, limited by hard
//! domain e asks for 3 at the same instant: granted 1, limited by global
//! ```
//!
//! One limiter is one resource with all its domains. Knows nothing of logs, lateness, debt or versions. What stays
//! true: a request that is granted nothing changes nothing. Requests come in time order; an earlier instant is
//! treated as the latest one so far, since engine time never runs backwards.

use std::collections::BTreeMap;

use crate::hits::Hits;
use crate::instants::{FOR_EVER_US, first_instant};
use crate::limits::{DomainLimits, ResourceLimits, Window};
use crate::rules::{Granted, PairState, SECOND_US};
use crate::verdict::{Cause, Standing, Until};
use crate::window::WindowState;

/// The answer to a request, and the state after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineOutcome {
    /// Granted copies; 0 if refused.
    pub granted: u64,
    /// Whether a granted copy moved into another tier (also into a first one).
    pub burst: bool,
    /// The constraint that kept `granted` below the copies asked for.
    pub limited_by: Option<Cause>,
    /// The counts of the domain's constraints.
    pub standing: Standing,
    /// The current tier's limit.
    pub tier_limit: u64,
    /// The domain's granted copies of the last second.
    pub domain_last_second: u64,
    /// All domains' granted copies of the last second.
    pub global_last_second: u64,
    /// When the domain's own constraints are open for one more copy.
    pub domain_until: Until,
    /// When the global limit is open for one more copy.
    pub global_until: Until,
    /// When both are open.
    pub until: Until,
}

/// The state of one domain.
#[derive(Clone, Debug)]
struct Domain {
    limits: DomainLimits,
    state: PairState,
    /// Granted copies of the last second, whichever limits exist.
    second: Hits,
}

/// An ideal limiter of one resource that sees every request in time order.
#[derive(Clone, Debug)]
pub struct InlineLimiter {
    limits: ResourceLimits,
    domains: BTreeMap<String, Domain>,
    /// Granted copies of all domains, under the global limit.
    global: WindowState,
    /// Granted copies of all domains in the last second, whichever limits exist.
    second: Hits,
    latest_us: u64,
}

impl InlineLimiter {
    /// A limiter that has granted nothing yet. The limits need not be normalised.
    pub fn new(limits: ResourceLimits) -> Self {
        Self {
            limits,
            domains: BTreeMap::new(),
            global: WindowState::default(),
            second: Hits::default(),
            latest_us: 0,
        }
    }

    /// Grants the largest n ≤ `copies` that has room at `now_us`, or nothing if that is below `min`, and
    /// describes the state afterwards.
    pub fn request(&mut self, now_us: u64, domain: &str, copies: u64, min: u64) -> InlineOutcome {
        let granted = self.decide(now_us, domain, copies, min);
        let now_us = self.latest_us;
        let Domain {
            limits,
            state,
            second,
        } = &self.domains[domain];
        let standing = state.standing(limits, now_us);
        let tier = standing.tier.checked_sub(1);
        InlineOutcome {
            granted: granted.copies,
            burst: granted.burst,
            limited_by: granted.stopped_by,
            tier_limit: tier.map_or(0, |i| limits.tiers()[i].limit),
            standing,
            domain_last_second: second.count(SECOND_US, now_us),
            global_last_second: self.second.count(SECOND_US, now_us),
            domain_until: state.open_again(limits, now_us),
            global_until: self.global_open_again(now_us),
            until: state.open_with(limits, now_us, |at_us| self.is_global_open(at_us)),
        }
    }

    /// The same grant as [`Self::request`], without the description of the state.
    pub fn grant(&mut self, now_us: u64, domain: &str, copies: u64, min: u64) -> u64 {
        self.decide(now_us, domain, copies, min).copies
    }

    fn decide(&mut self, now_us: u64, domain: &str, copies: u64, min: u64) -> Granted {
        self.latest_us = self.latest_us.max(now_us);
        let now_us = self.latest_us;
        if !self.domains.contains_key(domain) {
            let limits = self.limits.of(domain);
            let state = PairState::new(&limits, now_us);
            let second = Hits::default();
            let known = Domain {
                limits,
                state,
                second,
            };
            self.domains.insert(domain.to_owned(), known);
        }
        self.second.forget(SECOND_US, now_us);
        let global = self.global_window();
        let global_room = global.map(|global| self.global.room(global, now_us, now_us));
        let known = self.domains.get_mut(domain).expect("inserted above");
        let (limits, state) = (&known.limits, &mut known.state);
        state.advance(limits, now_us);
        let granted = state.request(limits, now_us, copies, min, global_room);
        known.second.forget(SECOND_US, now_us);
        known.second.take(now_us, granted.copies);
        self.second.take(now_us, granted.copies);
        if let Some(global) = global {
            self.global.take(global, now_us, now_us, granted.copies);
        }
        granted
    }

    fn global_open_again(&self, now_us: u64) -> Until {
        let is_open = |at_us| self.is_global_open(at_us);
        if is_open(now_us) {
            return Until::Now;
        }
        first_instant(now_us, FOR_EVER_US - 1, is_open).map_or(Until::Never, Until::At)
    }

    fn is_global_open(&self, at_us: u64) -> bool {
        let global = self.global_window();
        global.is_none_or(|global| 0 < self.global.room(global, at_us, at_us))
    }

    fn global_window(&self) -> Option<Window> {
        self.limits.global.map(|limit| Window {
            limit,
            window_us: SECOND_US,
        })
    }
}
