//! What was counted since the process began: it outlives the partitions that it was counted in.

use super::candidates;
use super::counters::Counters;
use super::resources::Resources;

/// What was counted. Nothing is decided by it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Numbers.
    pub counters: Counters,
    /// What was ruled, by resource.
    pub resources: Resources,
    /// What candidates would have done, by resource.
    pub(super) candidates: candidates::Ever,
}

impl Tally {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.counters.add(&other.counters);
        self.resources.add(&other.resources);
        self.candidates.add(&other.candidates);
    }
}
