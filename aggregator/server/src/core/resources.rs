//! What was ruled of each resource since the process began: for metrics, which never go back.
//!
//! Counted are resources that the limits in force name, each pattern as one, and no domain. Knows nothing of
//! rules. What stays true: so many names are counted at most; what is beyond is counted together.

use std::collections::BTreeMap;

use tollgate_engine::engine::ResourceCounts;
use tollgate_limits::Limits;

/// Resources that are counted each by itself.
const RESOURCES_MAX: usize = 1_000;

/// Under which name all others are counted.
const OTHERS: &str = "(others)";

/// What was ruled of one resource, or of all that one pattern means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByResource {
    /// Calls that agents let through.
    pub calls: u64,
    /// Calls that agents refused.
    pub refused: u64,
    /// Copies let through beyond the limits.
    pub excess: u64,
    /// Times that agents were told of a pair near its limit.
    pub near: u64,
    /// Pairs that came under a version which forgets something of what they had used.
    pub pairs_forgotten: u64,
}

/// All of them, by the names that the limits have.
#[derive(Debug, Default)]
pub struct Resources {
    all: BTreeMap<Box<str>, ByResource>,
}

impl Resources {
    /// What became of the calls of one record: of each resource, and how many were let through.
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

    /// Pairs of a resource were told as near.
    pub fn told(&mut self, limits: &Limits, resource: &str, pairs: u64) {
        if let Some(name) = name_of(limits, resource) {
            self.of(name).near += pairs;
        }
    }

    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (name, counted) in &other.all {
            let of = self.of(name);
            of.calls = of.calls.saturating_add(counted.calls);
            of.refused = of.refused.saturating_add(counted.refused);
            of.excess = of.excess.saturating_add(counted.excess);
            of.near += counted.near;
        }
    }

    /// All, by name.
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

/// The name by which the limits know a resource that is limited by rate.
fn name_of<'l>(limits: &'l Limits, resource: &str) -> Option<&'l str> {
    limits.rate(resource).map(|rate| rate.name())
}
