//! The in-line reading: a limiter that decides before each request, as in the Charon paper.
//!
//! ```text
//! hard 2, global 3; domain d asks for 3: granted 2, limited by hard
//! domain e asks for 3 at the same instant: granted 1, limited by global
//! ```
//!
//! One limiter is one resource with all its domains. `simulate --cases` and the comparison with an ideal
//! limiter use it; the engine itself reads the log (see [`crate::stream`]). There is no excess here, but for
//! costs that are known only afterwards: a request without room is refused and changes nothing. Knows
//! nothing of logs or lateness. What stays true: time never runs backwards; a request with an earlier
//! instant is decided at the latest instant so far.

use std::collections::BTreeMap;

use tollgate_shared::time::Timestamp;

use crate::rules::refund::Settlement;
use crate::rules::request::{self, Grant, LimitedBy, Request};
use crate::rules::{Stamps, State, Until, excess, open_again, refund, tiers, whole};
use tollgate_limits::RateClass;
use tollgate_limits::SECOND;

/// The answer to a request, and the state after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineAnswer {
    /// Copies granted; 0 if refused.
    pub granted: u64,
    /// Whether a granted copy moved into another tier.
    pub burst: bool,
    /// The constraint that kept `granted` below the copies asked for.
    pub limited_by: Option<LimitedBy>,
    /// The current tier; 0 for none.
    pub tier: usize,
    /// The current tier's limit.
    pub tier_limit: u64,
    /// Copies in the current tier's window.
    pub tier_hits: u64,
    /// The domain's granted copies of the last second.
    pub domain_last_second: u64,
    /// All domains' granted copies of the last second.
    pub global_last_second: u64,
    /// When the domain's constraints are open for one more copy.
    pub domain_until: Until,
    /// When the global limit is open for one more copy.
    pub global_until: Until,
    /// When both are open for one more copy.
    pub until: Until,
}

/// One domain of a limiter.
#[derive(Clone, Debug, Default)]
struct Domain {
    state: State,
    /// Its granted copies of the last second, even if no constraint limits them.
    second: Stamps,
}

/// An ideal limiter of one resource.
#[derive(Clone, Debug, Default)]
pub struct Inline {
    global: Option<u64>,
    domains: BTreeMap<Box<str>, Domain>,
    /// Granted copies of all domains.
    second: Stamps,
    latest: Timestamp,
}

impl Inline {
    /// A limiter without requests so far.
    pub fn new(global: Option<u64>) -> Self {
        Self {
            global,
            ..Self::default()
        }
    }

    /// Grants a domain the largest number of copies for which there is room at `now`, or nothing if that
    /// is below the min. `class` has to be the same at each request of a domain.
    pub fn request(
        &mut self,
        class: &RateClass,
        now: Timestamp,
        domain: &str,
        request: Request,
    ) -> InlineAnswer {
        self.latest = self.latest.max(now);
        let now = self.latest;
        let Domain { state, second } =
            self.domains.entry(domain.into()).or_insert_with(|| Domain {
                state: State::of(class),
                second: Stamps::new(),
            });
        let all = (self.global, &mut self.second);
        let grant = ask(class, state, all, now, request, false);
        second.forget(SECOND, now);
        second.take(now, grant.hits);
        let tier = tiers::current(class, state, now);
        let (tier_limit, tier_hits) = tier_counts(class, state, tier, now);
        let global_until = match self.global {
            Some(limit) => whole::open_again(limit, &self.second, now),
            None => Until::Now,
        };
        let global_opens = match global_until {
            Until::Now => now,
            Until::At(opens) => opens,
            Until::Never => Timestamp::MAX,
        };
        InlineAnswer {
            granted: grant.hits,
            burst: grant.burst,
            limited_by: grant.limited_by,
            tier,
            tier_limit,
            tier_hits,
            domain_last_second: second.held(SECOND, now),
            global_last_second: self.second.held(SECOND, now),
            domain_until: open_again::open_again(class, state, now),
            global_until,
            until: open_again::open_again_from(class, state, now, global_opens),
        }
    }

    /// The state of a domain's constraints, if it has made a request.
    pub fn state(&self, domain: &str) -> Option<&State> {
        self.domains.get(domain).map(|domain| &domain.state)
    }
}

/// One request and its answer, for callers that keep the states of pairs elsewhere: `state` is the
/// pair's, and `second` has the granted copies of all domains of its resource. Instants must not fall.
/// `estimated`: a settlement may follow.
pub fn ask(
    class: &RateClass,
    state: &mut State,
    (global, second): (Option<u64>, &mut Stamps),
    now: Timestamp,
    request: Request,
    estimated: bool,
) -> Grant {
    second.forget(SECOND, now);
    let global_room = match global {
        Some(limit) => limit.saturating_sub(second.held(SECOND, now)),
        None => u64::MAX,
    };
    state.forget(class, now);
    let grant = request::request(class, state, now, request, global_room, estimated);
    second.take(now, grant.hits);
    grant
}

/// Copies that have been spent already count whether there is room or not, as excess does; for the same callers.
pub fn charge(
    class: &RateClass,
    state: &mut State,
    second: &mut Stamps,
    now: Timestamp,
    copies: u64,
) {
    second.forget(SECOND, now);
    state.forget(class, now);
    let request = Request { copies, min: 0 };
    let granted = request::request(class, state, now, request, u64::MAX, false).hits;
    let counted = match copies - granted {
        0 => 0,
        excess => excess::count(class, state, (now, now), excess, false),
    };
    second.take(now, granted + counted);
}

/// A settlement that gives back copies of an estimate; for the same callers.
pub fn settle(class: &RateClass, state: &mut State, now: Timestamp, settlement: Settlement) {
    state.forget(class, now);
    if class.refunds {
        refund::settle(class, state, now, settlement);
    }
}

/// The limit of a tier and the copies in its window; (0, 0) for the fake tier zero.
pub fn tier_counts(class: &RateClass, state: &State, tier: usize, now: Timestamp) -> (u64, u64) {
    match tier.checked_sub(1) {
        Some(index) => {
            let tier = &class.tiers()[index];
            (tier.limit, state.tiers[index].window.held(tier.window, now))
        }
        None => (0, 0),
    }
}
