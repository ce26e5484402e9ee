//! Checks that limits had their effect in a demonstration: compares what was let through of each pair with what its
//! limits and one denial delay allow.
//!
//! The check itself is the model's. The log tells of each call whether it was guarded, and how far its stamp was
//! behind: the call leaves its window that much earlier. Under a global limit a resource is checked as a whole,
//! with two delays: a domain's copies reach the resource's partition as totals. Uses nothing else of the log.

use std::collections::{BTreeMap, HashMap};

use tollgate_model::effect::{EffectParams, InForce, OfferedCall, effect_violations};
use tollgate_model::{DomainLimits, Limits};

use super::player::{CallAnswer, PlayerLine};
use super::schedule::Schedule;
use super::verdict::names_of;

/// How far the stamp of a call may be behind the call: agents stamp by a clock that they read once a millisecond.
const CLOCK_STEP_US: u64 = 1_000;

/// A call of one agent: resource, domain, and its outcome.
pub(super) type PairCall<'a> = (&'a str, &'a str, OfferedCall);

/// What the log has about a copy that was let through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    /// The agent's stamp, in microseconds.
    pub stamp_us: u64,
    /// Whether the agent had no current watermark.
    pub is_unguarded: bool,
}

/// The calls of one agent before an instant. `logged` is called with resource, domain, and how many copies of the
/// pair the agent had let through before.
pub(super) fn calls<'a>(
    schedule: &'a Schedule,
    seen: &[PlayerLine],
    before_us: u64,
    logged: impl Fn(&str, &str, usize) -> Option<Logged>,
) -> Vec<PairCall<'a>> {
    let mut calls = Vec::new();
    let mut through: HashMap<(&str, &str), usize> = HashMap::new();
    for one in seen {
        let PlayerLine::Call {
            index,
            wall_us,
            answer,
            ..
        } = one
        else {
            continue;
        };
        if before_us <= *wall_us {
            continue;
        }
        let (resource, domain) = names_of(schedule, *index);
        let copies = schedule.calls.get(*index).map_or(1, |call| call.copies);
        let is_let_through = *answer == CallAnswer::LetThrough;
        let copies_before = through.entry((resource, domain)).or_default();
        let logged = logged(resource, domain, *copies_before).filter(|_| is_let_through);
        let call = OfferedCall {
            at_us: *wall_us,
            copies: u64::from(copies),
            is_let_through,
            is_unguarded: logged.is_some_and(|of| of.is_unguarded),
            late_us: logged.map_or(0, |of| wall_us.saturating_sub(of.stamp_us)),
        };
        if is_let_through {
            *copies_before += copies as usize;
        }
        calls.push((resource, domain, call));
    }
    calls
}

/// The result of the check.
#[derive(Debug, Default)]
pub(super) struct EffectCheck {
    /// What was let through against the limits, a sentence each.
    pub violations: Vec<String>,
    /// Copies that were let through and that the check covers.
    pub judged: u64,
    /// Copies that it does not cover: by the log their agent had no current watermark, or they were stamped so late
    /// that a window of a second cannot be checked.
    pub unjudged: u64,
}

/// How far a copy's stamp may be behind its call to be checked in a window of a second, in microseconds; the model
/// allows up to an eighth of any window.
const JUDGED_LATE_US: u64 = 125_000;

impl EffectCheck {
    fn count(&mut self, call: &OfferedCall) {
        if !call.is_let_through {
            return;
        }
        let is_judged = !call.is_unguarded && call.late_us <= JUDGED_LATE_US;
        match is_judged {
            true => self.judged += call.copies,
            false => self.unjudged += call.copies,
        }
    }
}

/// Finds what was let through against the limits.
pub(super) fn violations<'a>(
    limits: &Limits,
    calls: impl Iterator<Item = PairCall<'a>>,
    delay_us: u64,
    agents: u64,
) -> EffectCheck {
    let mut found = EffectCheck::default();
    let mut by_pair: BTreeMap<(&str, Option<&str>), Vec<OfferedCall>> = BTreeMap::new();
    for (resource, domain, call) in calls {
        found.count(&call);
        by_pair
            .entry((resource, Some(domain)))
            .or_default()
            .push(call);
        by_pair.entry((resource, None)).or_default().push(call);
    }
    for ((resource, domain), calls) in by_pair {
        let Some(of_resource) = limits.resources.get(resource) else {
            continue;
        };
        let (in_force, hops) = match domain {
            Some(domain) => (of_resource.of(domain), 1),
            None => (whole(of_resource.global), 2),
        };
        let in_force = InForce {
            from_us: 0,
            limits: in_force,
            starts_anew: false,
        };
        let params = EffectParams {
            delay_us: hops * delay_us + CLOCK_STEP_US,
            agents,
            call_max: calls.iter().map(|call| call.copies).max().unwrap_or(0),
        };
        for of in effect_violations(&[in_force], &calls, params) {
            found.violations.push(format!(
                "{resource} {}: {:?} let {} through from {} to {}, allowed {}",
                domain.unwrap_or("as a whole"),
                of.constraint,
                of.let_through,
                of.from_us,
                of.to_us,
                of.allowed
            ));
        }
    }
    found
}

/// A global limit, as the limits of a whole resource.
fn whole(global: Option<u64>) -> DomainLimits {
    DomainLimits {
        hard: global,
        ..DomainLimits::default()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_model::ResourceLimits;

    use super::*;

    fn call(at_us: u64) -> OfferedCall {
        OfferedCall {
            at_us,
            copies: 1,
            is_let_through: true,
            is_unguarded: false,
            late_us: 0,
        }
    }

    #[test]
    fn calls_outside_the_check_are_counted() {
        let mut of_resource = ResourceLimits::default();
        of_resource.default.hard = Some(10);
        let mut limits = Limits::default();
        limits.resources.insert("r".into(), of_resource);
        // All are let through, twice the limit. The first are unguarded, the next a second late, then refused.
        let calls = (0..20).map(|n| {
            let call = OfferedCall {
                is_unguarded: n < 12,
                late_us: if (12..15).contains(&n) { 1_000_000 } else { 0 },
                is_let_through: n < 18,
                ..call(n * 10_000)
            };
            ("r", "acme", call)
        });
        let found = violations(&limits, calls, 0, 1);
        assert_eq!((found.judged, found.unjudged), (3, 15));
        assert_eq!(found.violations, [""; 0]);
    }

    fn found(hard: Option<u64>, global: Option<u64>, domains: &[&str]) -> Vec<String> {
        let of_resource = ResourceLimits {
            default: DomainLimits {
                hard,
                ..DomainLimits::default()
            },
            global,
            ..ResourceLimits::default()
        };
        let mut limits = Limits::default();
        limits.resources.insert("r".into(), of_resource);
        // A hundred calls, evenly spaced over a second, all let through.
        let calls = (0..100).map(|n| ("r", domains[n % domains.len()], call(n as u64 * 10_000)));
        violations(&limits, calls, 20_000, 2).violations
    }

    #[test]
    fn excess_above_a_limit_and_delay_is_found_by_pair() {
        // 20 ms and the clock's step allow 3 calls at most, and one call of each agent.
        assert!(found(Some(95), None, &["acme"]).is_empty());
        let violations = found(Some(94), None, &["acme"]);
        assert_eq!(violations.len(), 1);
        assert!(violations[0].starts_with("r acme: "), "{violations:?}");
    }

    #[test]
    fn a_global_limit_is_checked_over_all_domains() {
        assert!(found(None, None, &["acme", "beta"]).is_empty());
        // Two delays: 41 ms allow 5 calls.
        assert!(found(None, Some(93), &["acme", "beta"]).is_empty());
        let violations = found(None, Some(92), &["acme", "beta"]);
        assert_eq!(violations.len(), 1);
        assert!(
            violations[0].starts_with("r as a whole: "),
            "{violations:?}"
        );
    }
}
