//! Limits on copies, drawn at random beside those on rates.
//!
//! Few copies and small groups, so that a few services fill them. What stays true: every version limits the
//! same resources, strict or not as the first one said, so that who holds something goes on holding it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::documents::DOMAINS;
use super::random::Random;

/// The resources of which copies are held.
pub const COPIES: [&str; 2] = ["gpu.slot", "seat.pool"];

/// One resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    limit: u64,
    global: Option<u64>,
    strict: bool,
    gives_back: bool,
    max_age_ms: Option<u64>,
    /// A group's limit, and how many of the domains are its members.
    group: Option<(u64, usize)>,
}

/// Limits on all of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyLimits(Vec<Limit>);

impl CopyLimits {
    /// Limits from nothing.
    pub fn draw(random: &mut Random) -> Self {
        Self(COPIES.iter().map(|_| limit(random)).collect())
    }

    /// Limits that differ by little.
    pub fn draw_like(&self, random: &mut Random) -> Self {
        let mut all = self.clone();
        for one in &mut all.0 {
            let anew = limit(random);
            match random.below(4) {
                0 => one.limit = anew.limit,
                1 => one.global = anew.global,
                2 => one.group = anew.group,
                _ => {}
            }
        }
        all
    }

    /// Whether copies of a resource are granted before they are used.
    pub fn is_strict(&self, resource: usize) -> bool {
        self.0[resource].strict
    }

    /// Whether holds of a resource end by their age.
    pub fn ends_by_age(&self, resource: usize) -> bool {
        self.0[resource].max_age_ms.is_some()
    }

    /// Their text.
    pub fn write(&self, text: &mut String) {
        // Writing to a String does not fail.
        for (name, one) in COPIES.iter().zip(&self.0) {
            let reserve = if one.strict { "strict" } else { "optimistic" };
            let excess = if one.gives_back { "give-back" } else { "keep" };
            let _ = writeln!(
                text,
                "[copies.\"{name}\"]\nlimit = {}\nreserve = \"{reserve}\"\non_excess = \"{excess}\"",
                one.limit
            );
            if let Some(global) = one.global {
                let _ = writeln!(text, "global = {global}");
            }
            if let Some(max_age_ms) = one.max_age_ms {
                let _ = writeln!(text, "max_age = \"{max_age_ms}ms\"");
            }
            if let Some((limit, members)) = one.group {
                let members = &DOMAINS[..members];
                let _ = writeln!(
                    text,
                    "groups.few = {{ limit = {limit}, members = {members:?} }}"
                );
            }
        }
    }
}

fn limit(random: &mut Random) -> Limit {
    Limit {
        limit: random.between(1, 12),
        global: random.one_in(2).then(|| random.between(2, 30)),
        strict: random.one_in(4),
        gives_back: random.one_in(4),
        max_age_ms: random.one_in(5).then(|| random.spread(500, 10_000)),
        group: random
            .one_in(2)
            .then(|| (random.between(1, 10), random.between(1, 4) as usize)),
    }
}
