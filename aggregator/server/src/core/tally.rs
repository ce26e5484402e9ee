//! Counts since the process began. They outlive the partitions that made them.

use super::candidates;
use super::counters::Counters;
use super::resources::Resources;

/// The counts. No decision depends on them.
#[derive(Debug, Default)]
pub struct Tally {
    /// Plain counters.
    pub counters: Counters,
    /// Counts of rulings, by resource.
    pub resources: Resources,
    /// What candidates would have done, by resource.
    pub(super) candidates: candidates::Ever,
}

impl Tally {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        self.resources.add(&other.resources);
        self.candidates.add(&other.candidates);
    }
}
