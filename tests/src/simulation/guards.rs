//! Whether calls are guarded, judged by the messages on the wire and not by the agent's own marks.
//!
//! ```text
//! a newer watermark of partition 3, marked as current, sent at 7.0 s and seemingly up to 40 ms late
//! a call at 7.9 s     guarded: its excess is debt
//! a call at 8.2 s     unguarded in any case: its excess is no debt
//! ```
//!
//! Law 8 binds guarded calls only, so an agent that marked all its calls as unguarded would be bound by
//! nothing. Knows nothing of the marks of entries. What stays true: calls that are neither surely guarded nor
//! surely unguarded are not judged.

use tollgate_shared::names::partition_of_pair;

use super::documents::{DOMAINS, RESOURCES};
use super::received::GUARDED_US;
use super::world::World;

/// By how much clocks may drift over that time, plus the age that a call's stamp may have.
const ROUNDED_US: u64 = 20_000;

/// What the simulation knows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Surely guarded.
    Guarded,
    /// Surely unguarded.
    Unguarded,
    /// Either.
    Unknown,
}

impl World {
    /// Whether a call that an agent makes now is guarded.
    pub(super) fn guard_of(&self, agent: usize, (r, d): (usize, usize)) -> Guard {
        let partition = partition_of_pair(RESOURCES[r], DOMAINS[d], self.plan.partitions);
        let host = &self.agents[agent];
        // A host that continues handles everything that waited at one instant: a call before the watermark cannot be
        // told from one after it.
        let goes_on_us = host.frozen_until_us + ROUNDED_US;
        if self.now_us <= goes_on_us {
            return Guard::Unknown;
        }
        let is_calm = self.plan.quiescence_us() <= self.now_us;
        if is_calm && host.received.is_guarded(partition, self.now_us, ROUNDED_US) {
            return Guard::Guarded;
        }
        let current_us = host.received.current_us.get(&partition);
        let is_long_ago = |at_us: &u64| at_us + GUARDED_US + ROUNDED_US < self.now_us;
        match current_us.is_none_or(is_long_ago) {
            true => Guard::Unguarded,
            false => Guard::Unknown,
        }
    }
}
