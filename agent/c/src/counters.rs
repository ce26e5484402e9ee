//! An agent's counters by name: those that tell why no limit is applied.
//!
//! By name, so that a counter more changes no layout. What stays true: a name is that of a field of
//! [`tollgate_agent::Stats`], except for `calls_failed`, which is the process's.

use tollgate_agent::Stats;

use crate::forks;

/// The names, as `tollgate.h` lists them.
pub(crate) const NAMES: [&str; 8] = [
    "calls_failed",
    "connections_ended",
    "connections_refused",
    "feeds_opened",
    "holds_unrecorded",
    "links_lost",
    "names_not_resolved",
    "welcomes",
];

/// Reads the counter of this name.
pub(crate) fn named(name: &str) -> Option<fn(&Stats) -> u64> {
    Some(match name {
        "calls_failed" => |_| forks::calls_failed(),
        "connections_ended" => |stats| stats.connections_ended,
        "connections_refused" => |stats| stats.connections_refused,
        "feeds_opened" => |stats| stats.feeds_opened,
        "holds_unrecorded" => |stats| stats.holds_unrecorded,
        "links_lost" => |stats| stats.links_lost,
        "names_not_resolved" => |stats| stats.names_not_resolved,
        "welcomes" => |stats| stats.welcomes,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_is_found_and_in_the_header() {
        let header = include_str!("../tollgate.h");
        for name in NAMES {
            assert!(named(name).is_some(), "{name}");
            assert!(header.contains(&format!(" *   {name} ")), "{name}");
        }
        assert!(named("connections").is_none());
    }
}
