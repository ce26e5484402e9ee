//! Law 8 by calls as services make them: in the quiescent phase a limit limits what is let
//! through, whatever the log contains.
//!
//! ```text
//! windows = ["40/s"], denials received within 200 ms
//! calls of acme in the quiescent phase     in any second of true time 40, the calls of 200 ms, and one of each agent
//! ```
//!
//! The check at the end of a log (`ending`) takes the copies of a closing for those of one delay, and entries for
//! calls. If an agent ignores denials, or records other entries than it let through, that check sees a long
//! closing, or nothing at all. Here the offered calls are those that services made. Knows nothing of entries,
//! denials or rulings. What stays true: only calls count that were made while no fault was active.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_model::effect::{EffectParams, InForce, OfferedCall, effect_violations};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::amendment::Act;
use tollgate_shared::wire::statement::Scope;

use super::documents::{DOMAINS, Document, RESOURCES};
use super::guards::Guard;
use super::held::SETTLED_AFTER_US;
use super::received::Arrived;
use super::world::World;

/// The time from a call to the instant at which every agent refuses because of it; without faults most denials arrive
/// within 20 ms.
const DELAY_US: u64 = 200_000;

/// How far a stamp may be behind the clock of its host: agents read the clock every three milliseconds.
const ROUNDED_US: u64 = 4_000;

/// The greatest number of calls of a pair that are kept: a pair with more is checked by the first of them.
const CALLS_MAX: usize = 50_000;

/// A pair, as the numbers of its resource and its domain.
type PairIndex = (usize, usize);

/// The calls of the quiescent phase.
#[derive(Debug, Default)]
pub(super) struct QuiescentCalls {
    /// Whether calls that are made now are checked.
    is_judged: bool,
    calls: BTreeMap<PairIndex, PairCalls>,
    /// How many hits agents had dropped at the last look.
    dropped: u64,
}

/// The calls of a pair, and the agents that made them.
#[derive(Debug, Default)]
struct PairCalls {
    calls: Vec<OfferedCall>,
    agents: BTreeSet<usize>,
    /// The greatest number of copies of one call.
    call_max: u64,
}

/// The index of a call among those of its pair.
pub(super) type CalledAt = Option<usize>;

impl QuiescentCalls {
    /// Takes back copies of a call that cost nothing after all.
    pub(super) fn takes_back(&mut self, pair: PairIndex, at: CalledAt, copies: u32) {
        let of = self.calls.get_mut(&pair);
        if let Some(call) = of.zip(at).and_then(|(of, at)| of.calls.get_mut(at)) {
            call.copies = call.copies.saturating_sub(u64::from(copies));
        }
    }
}

impl World {
    /// The instant from which calls of the quiescent phase are checked.
    pub(super) fn judged_since_us(&self) -> u64 {
        self.plan.quiescence_us() + SETTLED_AFTER_US
    }

    /// Decides whether calls made now are checked. If any agent lags, or log time stands still, all earlier calls are
    /// dropped: while it stands still, a denial that is counted from a call's stamp ends at once.
    pub(super) fn check_quiescence(&mut self) {
        let is_settled = self.judged_since_us() <= self.now_us;
        let is_judged = is_settled && self.is_quiescent_for_all() && !self.log_time_stands();
        if !is_judged {
            self.quiescent_calls = QuiescentCalls::default();
            return;
        }
        self.forget_calls_before_a_drop();
        self.quiescent_calls.is_judged = true;
    }

    /// Drops calls made before a hit was dropped: a hit without room in its agent's buffers reaches no
    /// aggregator, so it limits no call.
    fn forget_calls_before_a_drop(&mut self) {
        let processes = self.agents.iter().filter_map(|host| host.process.as_ref());
        let dropped = processes.map(|process| process.agent().stats().hits_dropped());
        let dropped = dropped.sum();
        if self.quiescent_calls.dropped != dropped {
            self.quiescent_calls = QuiescentCalls {
                dropped,
                ..QuiescentCalls::default()
            };
        }
    }

    /// Notes a call for `asked` copies, of which `let_through` were let through.
    pub(super) fn note_quiescent_call(
        &mut self,
        agent: usize,
        pair: PairIndex,
        (asked, let_through): (u32, u32),
        guard: Guard,
    ) -> CalledAt {
        if !self.quiescent_calls.is_judged {
            return None;
        }
        let host = &self.agents[agent];
        let log_us = self.log_clock.wall(self.now_us).as_micros();
        let behind_us = log_us.saturating_sub(host.clock.wall(self.now_us).as_micros());
        let of_pair = self.quiescent_calls.calls.entry(pair).or_default();
        of_pair.agents.insert(agent);
        of_pair.call_max = of_pair.call_max.max(u64::from(asked));
        let calls = &mut of_pair.calls;
        let at = calls.len();
        if CALLS_MAX <= at {
            return None;
        }
        // The copies let through and the refused copies are two separate calls.
        let of = |copies, is_let_through| OfferedCall {
            at_us: log_us,
            copies: u64::from(copies),
            is_let_through,
            is_unguarded: guard != Guard::Guarded,
            late_us: behind_us + ROUNDED_US,
        };
        calls.push(of(let_through, true));
        if let_through < asked {
            calls.push(of(asked - let_through, false));
        }
        Some(at)
    }

    /// Whether statements reach every living agent in time.
    fn is_quiescent_for_all(&self) -> bool {
        let mut all = (0..self.agents.len()).filter(|agent| self.agents[*agent].process.is_some());
        all.all(|agent| self.is_in_time(agent))
    }

    /// Law 8: finds a pair of which more was let through in the quiescent phase than its limits and one delay allow.
    pub(super) fn without_effect_in_quiescence(&mut self) -> Option<String> {
        // At the cap of pairs a new pair is not limited.
        if self.plan.documents.iter().any(Document::is_narrow) {
            return None;
        }
        self.forget_calls_before_a_drop();
        let quiescent_calls = std::mem::take(&mut self.quiescent_calls);
        for ((r, d), of_pair) in quiescent_calls.calls {
            let (resource, domain) = (RESOURCES[r], DOMAINS[d]);
            let partition = partition_of_pair(resource, domain, self.plan.partitions);
            if self.ends_at_another_time(resource, domain) || self.is_pardoned(resource, domain) {
                continue;
            }
            let limits = self.limits_of_quiescence(partition);
            let Some(limits) = limits.and_then(|limits| limits.resources.get(resource)) else {
                continue;
            };
            let in_force = InForce {
                from_us: 0,
                limits: limits.of(domain),
                starts_anew: false,
            };
            let params = EffectParams {
                delay_us: DELAY_US,
                agents: of_pair.agents.len() as u64,
                call_max: of_pair.call_max,
            };
            let found = effect_violations(&[in_force], &of_pair.calls, params);
            if let Some(found) = found.first() {
                return Some(format!("{resource} for {domain}: {found:?}"));
            }
            self.see("checked: a pair's effect in the calm");
        }
        None
    }

    /// The limits that ruled a partition during the whole checked time. `None`: they changed, or there were no limits.
    fn limits_of_quiescence(&self, partition: u32) -> Option<&tollgate_model::Limits> {
        let ruled = &self.watch.ruled[partition as usize];
        let since = ruled
            .taken
            .partition_point(|(at_us, _)| *at_us < self.judged_since_us());
        let begun = ruled.versions.get(since.checked_sub(1)?)?;
        let last = ruled.versions.last()?;
        let limits = self.watch.limits.range(..=begun).next_back();
        (begun == last).then_some(limits?.1)
    }

    /// Whether a denial of a pair ends for some agent at another time than by the log's clock: agents count it down by
    /// their own clocks, from what was left when the log's clock was wrong, or from when a frame seemed to be sent.
    fn ends_at_another_time(&self, resource: &str, domain: &str) -> bool {
        let ahead_us = self.log_clock.wall(self.now_us).as_micros() - self.now_us;
        let is_off = |one: &Arrived| {
            let (latest_us, surely_us) = one.ends_us;
            let end_us = one
                .end
                .map_or(0, |end| end.as_micros().saturating_sub(ahead_us));
            self.judged_since_us() < latest_us.max(end_us)
                && DELAY_US < latest_us.max(end_us) - surely_us.min(end_us)
        };
        let mut all = { self.agents.iter() }
            .flat_map(|host| host.received.statements.values())
            .flatten();
        all.any(|one| {
            let is_it = matches!(&one.scope, Scope::Pair(name) if **name == *domain);
            is_it && *one.resource == *resource && one.end != Some(Timestamp::MAX) && is_off(one)
        })
    }

    /// Whether an operator's pardon lets a pair through whatever it has used.
    fn is_pardoned(&self, resource: &str, domain: &str) -> bool {
        let mut acts = self.watch.made.values();
        acts.any(|made| match &*made.act {
            Act::Pardon {
                resource: of,
                domain: whose,
            } => **of == *resource && **whose == *domain,
            _ => false,
        })
    }
}
