//! What a seed stands for: how large the world is, how it is used, and which faults come when.
//!
//! The faults stand in a list, each with its time, so that shrinking can leave some out. What stays
//! true: a drawn plan is a function of its seed (`draw`), and a plan in a file is what it was; every fault ends before
//! the calm begins.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::documents::{DOMAINS, Document, RESOURCES};
pub use super::faults::{Edge, Episode, Fault, WAYS, Way, Whose};
use super::random::Random;

/// The calm at the end, in which everything has to come right.
pub const CALM_US: u64 = 12_000_000;

/// In the last part of the calm nobody calls any more.
pub const QUIET_US: u64 = 1_500_000;

/// The log that the world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum LogPlan {
    /// The embedded journal of the one owner.
    Journal {
        /// Whether what it acknowledges survives a power cut, or only the end of its process.
        is_synced: bool,
        /// Where its segments end.
        segment_bytes: u64,
    },
    /// A log of its own that several owners read and write, as Kafka is.
    Shared,
}

/// One agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPlan {
    /// Calls a second.
    pub calls_per_s: u64,
    /// How often it is called, in microseconds: each time in a burst.
    pub every_us: u64,
    /// How far its monotonic clock drifts.
    pub drift_ppm: i64,
    /// How far its wall clock is off.
    pub wall_off_us: i64,
    /// Denials that it keeps at most.
    pub denials_max: usize,
    /// Bytes of its recorder's ring.
    pub recorder_bytes: usize,
    /// Bytes of its queue.
    pub queue_bytes: usize,
    /// Of a million calls, those with more than one copy.
    pub bulk_ppm: u32,
    /// How many copies those have at most.
    pub bulk_max: u64,
    /// Of a million calls, those whose cost is told afterwards, and asked for by nobody.
    pub charges_ppm: u32,
    /// Of a million calls, those whose cost is estimated and settled later.
    pub estimates_ppm: u32,
    /// Holds that services take in a second; 0: they use no copies.
    pub holds_per_s: u64,
    /// How long a hold lasts at most.
    pub hold_max_us: u64,
}

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Why it is kept; empty: it is not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub story: String,
    /// The seed.
    pub seed: u64,
    /// Whether the world is as plain as it was when the first plans were kept: documents come to all owners at once,
    /// what is cut off a file is gone at once, and nothing befalls snapshots of a journal's owner.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_plain: bool,
    /// The log.
    pub log: LogPlan,
    /// Owners.
    pub owners: usize,
    /// Whether owners share partitions out, or each rules all of them.
    pub fleet: bool,
    /// Of a fleet: how many groups there are, of which each rules all partitions.
    pub groups: usize,
    /// Partitions.
    pub partitions: u32,
    /// Agents.
    pub agents: Vec<AgentPlan>,
    /// Documents; the first one is in force from the beginning.
    pub documents: Vec<Document>,
    /// How long it lasts, the calm included.
    pub length_us: u64,
    /// How long before a midnight it begins, by all wall clocks.
    pub before_midnight_us: u64,
    /// The pair that everybody calls for while it is judged what limits let through in the calm.
    pub calm_pair: Option<(usize, usize)>,
    /// The faults, by their beginning.
    pub episodes: Vec<Episode>,
    /// When snapshots are taken.
    pub snapshot_every_us: u64,
    /// How many statements, and totals, of a partition may wait for the log at an owner.
    pub waiting_max: usize,
    /// Entries between two snapshots.
    pub snapshot_entries: u64,
    /// The one way of a message, at least and at most.
    pub delay_us: (u64, u64),
    /// Of the owners' clocks.
    pub owner_drift_ppm: Vec<i64>,
    /// How far their wall clocks are off.
    pub owner_wall_off_us: Vec<i64>,
}

impl Plan {
    /// As JSON: a line a field, and in a list of parts a line each, so that people can read and change it.
    pub fn json(&self) -> String {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else {
            return String::new();
        };
        // First of all why it is there.
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

    /// Reads what [`Self::json`] writes.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// When the calm begins.
    pub fn calm_us(&self) -> u64 {
        self.length_us - CALM_US
    }

    /// Where a wall clock begins that is off by so much: what [`super::clock::Clock`] takes.
    pub fn wall_us(&self, off_us: i64) -> i64 {
        off_us.saturating_sub_unsigned(self.before_midnight_us)
    }

    /// The same where owners' wall clocks are right.
    #[must_use]
    pub fn with_right_owners(mut self) -> Self {
        self.owner_wall_off_us.fill(0);
        for episode in &mut self.episodes {
            // They stay, and do nothing: what is drawn and told later stays the same.
            if let Fault::OwnerClock { by_us, .. } = &mut episode.fault {
                *by_us = 0;
            }
        }
        self
    }

    /// Whether nothing goes wrong but that agents die.
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

/// The pair that a call is made on: few pairs get most of them.
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
    fn every_kind_of_fault_is_listed_and_drawn() {
        let drawn = |seed| Plan::draw(seed).episodes.into_iter();
        let kinds: BTreeSet<_> = (0..300).flat_map(drawn).map(|e| e.fault.kind()).collect();
        assert_eq!(kinds, BTreeSet::from(Fault::KINDS));
    }

    #[test]
    fn every_fault_is_over_when_the_calm_begins() {
        for seed in 0..300 {
            let plan = Plan::draw(seed);
            let late = plan
                .episodes
                .iter()
                .find(|e| plan.calm_us() < e.to_us || e.to_us < e.from_us);
            assert!(late.is_none(), "seed {seed}: {late:?}");
        }
    }
}
