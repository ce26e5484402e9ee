//! Random limits on copies, drawn beside those on rates.
//!
//! Few copies and small groups, so that a few services fill them. What stays true: every version limits the same
//! resources, strict or not as in the first version, so that holds survive a version.

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

    /// Writes their text.
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

/// The limits on copies in a text, for the model, and the greatest number of domains of a resource that may be
/// stated as full. Documents here write no limits of single domains.
pub(super) fn limits_in(text: &str) -> (BTreeMap<&'static str, HoldLimits>, usize) {
    let document: toml::Table = text.parse().unwrap_or_default();
    let number = |table: &toml::Value, key: &str| {
        let found = table.get(key)?.as_integer()?;
        u64::try_from(found).ok()
    };
    let milliseconds = |table: &toml::Value, key: &str| {
        let found = table.get(key)?.as_str()?.strip_suffix("ms")?;
        found.parse::<u64>().ok()
    };
    let group = |group: &toml::Value| {
        let members = group.get("members").and_then(toml::Value::as_array);
        let names = members.into_iter().flatten();
        let names = names.filter_map(toml::Value::as_str).map(str::to_owned);
        Some((number(group, "limit")?, names.collect()))
    };
    let of = |name: &&'static str| {
        let table = document.get("copies")?.get(*name)?;
        let groups = table.get("groups").and_then(toml::Value::as_table);
        let groups = groups.into_iter().flatten();
        let limits = HoldLimits {
            domain: number(table, "limit")?,
            global: number(table, "global"),
            max_age_us: milliseconds(table, "max_age").map(|ms| ms * 1_000),
            kept_max: usize::MAX,
            domains: BTreeMap::new(),
            groups: groups
                .filter_map(|(name, table)| Some((name.clone(), group(table)?)))
                .collect(),
        };
        Some((*name, limits))
    };
    let engine = document.get("engine");
    let pairs_max = engine.and_then(|engine| number(engine, "pairs_per_partition_max"));
    let denied_max = pairs_max.and_then(|max| usize::try_from(max).ok());
    (
        COPIES.iter().filter_map(of).collect(),
        denied_max.unwrap_or(usize::MAX),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_on_copies_are_read_from_a_text() {
        let text = "[copies.\"gpu.slot\"]\nlimit = 3\nglobal = 9\nmax_age = \"700ms\"\n\
                    groups.few = { limit = 4, members = [\"acme\"] }\n\
                    [copies.\"seat.pool\"]\nlimit = 1\n\
                    [engine]\npairs_per_partition_max = 5\n";
        let (read, denied_max) = limits_in(text);
        let slot = &read["gpu.slot"];
        assert_eq!((slot.domain, slot.global, denied_max), (3, Some(9), 5));
        assert_eq!(slot.max_age_us, Some(700_000));
        assert_eq!(slot.groups["few"].0, 4);
        assert_eq!(slot.groups_of("acme"), ["few"]);
        assert!(slot.groups_of("globex").is_empty());
        let pool = &read["seat.pool"];
        assert_eq!((pool.domain, pool.global, pool.max_age_us), (1, None, None));
        assert!(limits_in("[rate.x]\n").0.is_empty());
    }
}
