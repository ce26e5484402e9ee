//! The plan of a seed: the size of the world, the load on it, and the faults with their times.
//!
//! Faults are in a list, each with its time, so that shrinking can leave some out. What stays true: a
//! drawn plan is a function of its seed (`draw`), and a plan in a file does not change; every fault ends
//! before the quiescent phase begins.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::documents::{DOMAINS, Document, RESOURCES};
pub use super::faults::{Edge, Episode, Fault, WAYS, Way, Whose};
use super::random::Random;

/// The length of the quiescent phase at the end (`calm`), in which everything must become right.
pub const CALM_US: u64 = 12_000_000;

/// The length of the last part of the quiescent phase, without calls.
pub const QUIET_US: u64 = 1_500_000;

/// The log of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LogPlan {
    /// The embedded journal of the only aggregator.
    Journal {
        /// Whether acknowledged records survive a power cut, or only the end of the process.
        is_synced: bool,
        /// The greatest size of a segment.
        segment_bytes: u64,
    },
    /// A separate log that several aggregators read and write, as Kafka is.
    Shared,
}

/// One agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPlan {
    /// Calls a second.
    pub calls_per_s: u64,
    /// The time between two bursts of calls, in microseconds.
    pub every_us: u64,
    /// How far its monotonic clock drifts.
    pub drift_ppm: i64,
    /// The error of its wall clock.
    pub wall_off_us: i64,
    /// The greatest number of denials that it keeps.
    pub denials_max: usize,
    /// Bytes of its recorder's ring.
    pub recorder_bytes: usize,
    /// Bytes of its queue.
    pub queue_bytes: usize,
    /// Of a million calls, those with more than one copy.
    pub bulk_ppm: u32,
    /// The greatest number of copies of those calls.
    pub bulk_max: u64,
    /// Of a million calls, the charges: costs reported afterwards and not checked by a limiter.
    pub charges_ppm: u32,
    /// Of a million calls, the estimates, which are settled later.
    pub estimates_ppm: u32,
    /// Holds that services take in a second; 0 means that they use no copies.
    pub holds_per_s: u64,
    /// The greatest length of a hold.
    pub hold_max_us: u64,
}

/// The whole plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Why it is kept; empty if it is not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    /// The seed.
    pub seed: u64,
    /// Whether the world is as simple as for the first kept plans (an older generator version):
    /// documents reach all aggregators at once, truncated data is gone at once, and snapshots of an
    /// aggregator with a journal have no faults.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_plain: bool,
    /// The log.
    pub log: LogPlan,
    /// The number of aggregators.
    pub owners: usize,
    /// Whether aggregators divide the partitions among themselves, or each rules all of them.
    pub fleet: bool,
    /// The number of groups in a fleet, each of which rules all partitions.
    pub groups: usize,
    /// The number of partitions.
    pub partitions: u32,
    /// Agents.
    pub agents: Vec<AgentPlan>,
    /// Documents; the first one is in force from the beginning.
    pub documents: Vec<Document>,
    /// The length of the run, including the quiescent phase.
    pub length_us: u64,
    /// How long before a midnight the run begins, by all wall clocks.
    pub before_midnight_us: u64,
    /// The pair on which all agents call while the check of limits in the quiescent phase runs.
    pub calm_pair: Option<(usize, usize)>,
    /// The faults, in the order of their beginnings.
    pub episodes: Vec<Episode>,
    /// The time between two snapshots.
    pub snapshot_every_us: u64,
    /// The greatest number of statements, and of totals, of a partition that may wait for the log at an aggregator.
    pub waiting_max: usize,
    /// The number of entries between two snapshots.
    pub snapshot_entries: u64,
    /// The least and greatest time of a message in one direction.
    pub delay_us: (u64, u64),
    /// The drift of the aggregators' clocks.
    pub owner_drift_ppm: Vec<i64>,
    /// The error of their wall clocks.
    pub owner_wall_off_us: Vec<i64>,
}

impl Plan {
    /// The plan as JSON: a line for each field, and for each element of a list, so that
    /// people can read and change it.
    pub fn json(&self) -> String {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else {
            return String::new();
        };
        // The story comes first.
        let (story, others): (Vec<_>, Vec<_>) =
            fields.iter().partition(|(name, _)| *name == "story");
        let line = |(name, value): (&String, &Value)| match value {
            Value::Array(all) if 1 < all.len() && all[0].is_object() => {
                let all: Vec<_> = all.iter().map(Value::to_string).collect();
                format!("\"{name}\":[\n {}]", all.join(",\n "))
            }
            one => format!("\"{name}\":{one}"),
        };
        let lines: Vec<_> = story.into_iter().chain(others).map(line).collect();
        format!("{{{}}}\n", lines.join(",\n"))
    }

    /// Reads the output of [`Self::json`].
    ///
    /// # Errors
    ///
    /// If the text is not a plan.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The instant at which the quiescent phase begins.
    pub fn quiescence_us(&self) -> u64 {
        self.length_us - CALM_US
    }

    /// The beginning of a wall clock with this error, as [`super::clock::Clock`] takes it.
    pub fn wall_us(&self, off_us: i64) -> i64 {
        off_us.saturating_sub_unsigned(self.before_midnight_us)
    }

    /// The same plan with right wall clocks of aggregators.
    #[must_use]
    pub fn with_right_owners(mut self) -> Self {
        self.owner_wall_off_us.fill(0);
        for episode in &mut self.episodes {
            // The faults stay, without an effect, so that everything drawn later and the trace stay the same.
            if let Fault::OwnerClock { by_us, .. } = &mut episode.fault {
                *by_us = 0;
            }
        }
        self
    }

    /// Whether deaths of agents are the only faults.
    pub fn only_deaths(&self) -> bool {
        let mut all = self.episodes.iter();
        all.all(|one| matches!(one.fault, Fault::Die { .. }))
    }

    /// Whether services use copies.
    pub fn uses_copies(&self) -> bool {
        0 < self.agents[0].holds_per_s
    }
}

fn is_false(is_so: &bool) -> bool {
    !is_so
}

/// Draws the pair of a call: few pairs get most of the calls.
pub fn draw_pair(random: &mut Random) -> (usize, usize) {
    let most = |random: &mut Random, count: usize| {
        let one = random.below(count as u64);
        random.below(one + 1) as usize
    };
    (most(random, RESOURCES.len()), most(random, DOMAINS.len()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_fault_is_drawn() {
        let drawn = |seed| Plan::draw(seed).episodes.into_iter();
        let kinds: BTreeSet<_> = (0..300).flat_map(drawn).map(|e| e.fault.kind()).collect();
        let refused = serde_json::from_str::<Fault>("\"none\"").expect_err("no such kind");
        let refused = refused.to_string();
        let (_, listed) = refused.split_once("expected").expect("it lists them");
        let listed = listed.split('`').skip(1).step_by(2).map(str::to_owned);
        assert_eq!(kinds, listed.collect());
    }

    #[test]
    fn every_fault_ends_before_quiescence() {
        for seed in 0..300 {
            let plan = Plan::draw(seed);
            let late = plan
                .episodes
                .iter()
                .find(|e| plan.quiescence_us() < e.to_us || e.to_us < e.from_us);
            assert!(late.is_none(), "seed {seed}: {late:?}");
        }
    }
}
