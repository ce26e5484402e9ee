//! Random limits on copies, drawn beside those on rates.
//!
//! Few copies and small groups, so that a few services fill them. A later version may leave out a resource, and a still
//! later one name it again. What stays true: a resource is strict or not as in the first version.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use tollgate_model::copies::HoldLimits;

use super::documents::DOMAINS;
use super::random::Random;

/// The resources with limits on copies.
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
    /// A group's limit, and the number of domains that are its members.
    group: Option<(u64, usize)>,
    /// Whether the version does not name the resource.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_left_out: bool,
}

/// The limits on all these resources.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyLimits(Vec<Limit>);

impl CopyLimits {
    /// Draws first limits.
    pub fn draw(random: &mut Random) -> Self {
        Self(COPIES.iter().map(|_| limit(random)).collect())
    }

    /// Draws limits that differ by little.
    pub fn draw_like(&self, random: &mut Random) -> Self {
        let mut all = self.clone();
        for one in &mut all.0 {
            let anew = limit(random);
            match random.below(4) {
                0 => one.limit = anew.limit,
                1 => one.global = anew.global,
                2 => one.group = anew.group,
                _ => one.is_left_out = random.one_in(3),
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

    /// The resources that are named, with their limits.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Limit)> {
        let all = COPIES.into_iter().zip(&self.0);
        all.filter(|(_, one)| !one.is_left_out)
    }

    /// The same limits for the model.
    pub(super) fn of_model(&self) -> impl Iterator<Item = (&'static str, HoldLimits)> {
        self.named().map(|(name, one)| {
            let members = |count: usize| DOMAINS[..count].iter().map(|name| name.to_string());
            let group = one
                .group
                .map(|(limit, count)| (limit, members(count).collect()));
            let limits = HoldLimits {
                domain: one.limit,
                global: one.global,
                max_age_us: one.max_age_ms.map(|ms| ms * 1_000),
                kept_max: usize::MAX,
                domains: BTreeMap::new(),
                groups: group.map(|of| ("few".to_owned(), of)).into_iter().collect(),
            };
            (name, limits)
        })
    }

    /// Writes their text.
    pub fn write(&self, text: &mut String) {
        // Writing to a String does not fail.
        for (name, one) in self.named() {
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
        is_left_out: false,
    }
}
