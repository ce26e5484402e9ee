//! Checks that a limit limits: was more let through than a constraint and one denial delay explain?
//!
//! ```text
//! windows 1,000 per 1 s, denials received within 5 ms, 8 agents, calls of 1
//! offered     990 a second, evenly, then 10,000 a second
//! allowed     in any second 1,000 + offered within 5 ms (50) + one call of each agent (8)
//! let through 10,900 in some second: a violation
//! ```
//!
//! Its inputs are the calls of one pair with their instants, whether they were let through and whether their
//! agent was guarded, and the constraints over time. It rules nothing and knows nothing of the model of the
//! rules. What stays true: the answer is a function of its inputs, in any order of the calls, and calls of
//! unguarded agents only count as offered.

mod bound;
mod record;
mod spans;

pub(crate) use record::EffectRecords;

use crate::limits::DomainLimits;
use crate::verdict::Cause;

/// The limits of a pair from an instant on.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The instant, in microseconds.
    pub from_us: u64,
    /// The constraints.
    pub limits: DomainLimits,
    /// Whether earlier counts were forgotten at this instant: by a reset, a pardon, a refund by hand, or a lost
    /// log. No span extends over it.
    pub starts_anew: bool,
}

/// A call, or several of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedCall {
    /// The instant, in microseconds; for calls that were let through it is the pair's time when they were ruled.
    pub at_us: u64,
    /// The number of copies.
    pub copies: u64,
    /// Whether they were let through.
    pub is_let_through: bool,
    /// Whether the agent had received no current watermark.
    pub is_unguarded: bool,
    /// How far their stamp was before the pair's time, in microseconds; they leave earlier by as much.
    pub late_us: u64,
}

/// Facts about the agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectParams {
    /// The longest time from a call to the instant at which every agent refuses because of it, in microseconds.
    pub delay_us: u64,
    /// How many agents make calls of the pair.
    pub agents: u64,
    /// The greatest number of copies of one call.
    pub call_max: u64,
}

/// A span in which more was let through than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectViolation {
    /// The constraint.
    pub constraint: Cause,
    /// The first instant of the span, in microseconds.
    pub from_us: u64,
    /// The last instant of the span, in microseconds.
    pub to_us: u64,
    /// Copies that guarded agents let through in it.
    pub let_through: u64,
    /// The greatest number of copies allowed.
    pub allowed: u64,
}

/// For each constraint the worst span in which more was let through than is allowed, if there is one.
///
/// `in_force` ascends; before its first instant no limits are in force.
pub fn effect_violations(
    in_force: &[InForce],
    calls: &[OfferedCall],
    params: EffectParams,
) -> Vec<EffectViolation> {
    let mut sorted = calls.to_vec();
    sorted.sort_by_key(|call| call.at_us);
    let offered = spans::Offered::new(&sorted, params.delay_us);
    let mut worst: Vec<EffectViolation> = Vec::new();
    for run in bound::runs(in_force) {
        let Some(found) = spans::worst(&run, &sorted, &offered, params) else {
            continue;
        };
        let excess = |of: &EffectViolation| of.let_through - of.allowed;
        match worst
            .iter_mut()
            .find(|of| of.constraint == found.constraint)
        {
            Some(known) if excess(known) < excess(&found) => *known = found,
            Some(_) => {}
            None => worst.push(found),
        }
    }
    worst
}
