//! Counts of rulings by resource since the process began: for metrics, which never go back.
//!
//! Only resources that the limits in force name are counted, each pattern as one; domains are not. Knows nothing
//! of rules. What stays true: the number of names is bounded; further resources are counted together.

use std::collections::BTreeMap;

use tollgate_engine::engine::ResourceCounts;
use tollgate_limits::Limits;

/// Resources that are counted individually.
const RESOURCES_MAX: usize = 1_000;

/// The name under which all further resources are counted.
const OTHERS: &str = "(others)";

/// The counts of one resource, or of all resources that match one pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByResource {
    /// Calls that agents let through.
    pub calls: u64,
    /// Calls that agents refused.
    pub refused: u64,
    /// Copies let through beyond the limits.
    pub excess: u64,
    /// Notices published about pairs near their limits.
    pub near: u64,
    /// Pairs that came under a version which forgets part of their usage.
    pub pairs_forgotten: u64,
}

impl ByResource {
    fn add(&mut self, other: Self) {
        // A new field that is not added here does not compile.
        let Self {
            calls,
            refused,
            excess,
            near,
            pairs_forgotten,
        } = other;
        self.calls = self.calls.saturating_add(calls);
        self.refused = self.refused.saturating_add(refused);
        self.excess = self.excess.saturating_add(excess);
        self.near += near;
        self.pairs_forgotten += pairs_forgotten;
    }
}

/// The counts of all resources, by their names in the limits.
#[derive(Debug, Default)]
pub struct Resources {
    all: BTreeMap<Box<str>, ByResource>,
}

impl Resources {
    /// Counts the calls of one record: `counts` by resource, and in `calls` how many of each were let through.
    pub fn note(&mut self, limits: &Limits, counts: &[ResourceCounts], calls: &[u64]) {
        for (ResourceCounts { resource, counts }, calls) in counts.iter().zip(calls) {
            if let Some(name) = name_of(limits, resource) {
                let of = self.of(name);
                of.calls = of.calls.saturating_add(*calls);
                of.refused = of.refused.saturating_add(counts.refused_calls);
                of.excess = of.excess.saturating_add(counts.excess);
                of.pairs_forgotten += counts.pairs_forgotten;
            }
        }
    }

    /// Counts notices about pairs of a resource.
    pub fn note_notices(&mut self, limits: &Limits, resource: &str, pairs: u64) {
        if let Some(name) = name_of(limits, resource) {
            self.of(name).near += pairs;
        }
    }

    /// Adds the counts of another partition.
    pub fn add(&mut self, other: &Self) {
        for (name, counted) in &other.all {
            self.of(name).add(*counted);
        }
    }

    /// All counts, by name.
    pub fn all(&self) -> Vec<(Box<str>, ByResource)> {
        { self.all.iter() }
            .map(|(name, of)| (name.clone(), *of))
            .collect()
    }

    fn of(&mut self, name: &str) -> &mut ByResource {
        let name = match self.all.contains_key(name) || self.all.len() < RESOURCES_MAX {
            true => name,
            false => OTHERS,
        };
        self.all.entry(name.into()).or_default()
    }
}

/// The name under which the limits list a resource that is limited by rate.
fn name_of<'l>(limits: &'l Limits, resource: &str) -> Option<&'l str> {
    limits.rate(resource).map(|rate| rate.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_of_another_partition_is_added() {
        let counted = ByResource {
            calls: 1,
            refused: 2,
            excess: 3,
            near: 4,
            pairs_forgotten: 5,
        };
        let mut of_partition = Resources::default();
        of_partition.all.insert("search".into(), counted);
        let mut all = Resources::default();
        all.add(&of_partition);
        all.add(&of_partition);
        let twice = ByResource {
            calls: 2,
            refused: 4,
            excess: 6,
            near: 8,
            pairs_forgotten: 10,
        };
        assert_eq!(all.all(), [("search".into(), twice)]);
    }
}
