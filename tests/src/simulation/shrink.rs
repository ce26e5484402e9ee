//! Shrinks a failing plan to the shortest history that fails in the same way.
//!
//! Faults are left out, first half of them at once, then ever fewer; a fault stays left out if the same check still
//! fails. Each part of the world draws from its own stream, so that the rest of the history stays much the same.
//! What stays true: the result fails by the same check as the seed.

use std::time::{Duration, Instant};

use super::plan::Plan;
use super::trace::Violation;
use super::{Run, run};

/// The result of shrinking.
#[derive(Debug)]
pub struct Shrunk {
    /// The plan with the fewest faults found that still fails.
    pub plan: Plan,
    /// Its violation.
    pub violation: Violation,
    /// The number of runs.
    pub runs: u64,
}

/// Shrinks a failing plan, within the time `patience`.
pub fn shrink(plan: &Plan, violation: &Violation, patience: Duration) -> Shrunk {
    let until = Instant::now() + patience;
    let mut best = Shrunk {
        plan: plan.clone(),
        violation: violation.clone(),
        runs: 0,
    };
    // Faults after the violation cannot matter.
    let at_us = violation.at_us;
    best.plan
        .episodes
        .retain(|episode| episode.from_us <= at_us);
    let mut size = best.plan.episodes.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let mut any = false;
        while from < best.plan.episodes.len() {
            if until <= Instant::now() {
                return best;
            }
            let mut plan = best.plan.clone();
            let to = (from + size).min(plan.episodes.len());
            plan.episodes.drain(from..to);
            best.runs += 1;
            let Run {
                plan,
                violation: found,
                ..
            } = run(plan, false);
            match found {
                Some(found) if found.check == violation.check => {
                    (best.plan, best.violation) = (plan, found);
                    any = true;
                }
                _ => from = to,
            }
        }
        match (size, any) {
            (1, false) => return best,
            (1, true) => {}
            _ => size = size.div_ceil(2).max(1),
        }
        if best.plan.episodes.is_empty() {
            return best;
        }
    }
}
