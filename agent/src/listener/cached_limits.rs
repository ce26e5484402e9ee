//! Which public limits are valid: a version's number has a meaning only with certain logs.
//!
//! ```text
//! snapshot, partitions 0 1 of log A   limits version 5      accepted, taught with A
//! snapshot, partitions 0 1 of log A   limits version 4      ignored: that aggregator has read less
//! frame, partition 0 of log B         A is given up         version 5 no longer has a meaning
//! snapshot, partition 0 of log B      limits version 1      accepted, taught with B
//! ```
//!
//! A version is an offset in the stream of limits, so numbers can be compared within one stream only. Public limits
//! do not contain that stream's identity, but the snapshots that bring them name the logs of the partitions that
//! their aggregator rules, and those share the stream's fate: a journal has all its streams in one directory, and if
//! its end was lost, which may remove a version, all its streams begin the next generation. So:
//!
//! - While the logs stay the same, an older version changes nothing. Of several aggregators one may have read less of
//!   the stream than another; limits do not go back because it answers.
//! - When a log is given up, the numbers that were taught with it are void, and the agent asks all aggregators again.
//!   The known limits stay in force until an aggregator answers, which takes a round trip: to forget them would open
//!   what a policy `blind = "closed"` keeps shut. Logs that did not teach void nothing: if partitions change to a new
//!   log one after the other, the first ones already taught limits of the new log.
//! - A snapshot that names a log which is not followed, another fleet's or one given up, teaches nothing, whatever
//!   its version. If its log is followed later, the agent asks again.
//! - A snapshot that names no log, from an aggregator that has nothing to rule yet, is compared by its number alone;
//!   to ignore it would leave a starting agent without limits. Any change of a log voids it.
//!
//! Not detected is a stream of limits that is recreated beside partitions that are kept. Aggregators could not rule
//! with such a pair either: the limits activations in the partitions name versions of the old stream.
//!
//! What stays true: within one log, the known version only grows.

use std::collections::{HashMap, HashSet};

use tollgate_shared::log_position::LogId;
use tollgate_shared::wire::frame::Watermark;

/// The logs with which the known limits were taught.
#[derive(Debug, Default)]
pub(super) struct CachedLimits {
    logs: HashMap<u32, LogId>,
}

impl CachedLimits {
    /// Whether limits may be learnt from a snapshot that names these logs; `foreign` are those that are not followed.
    pub(super) fn take(&mut self, watermarks: &[Watermark], foreign: &HashSet<u32>) -> bool {
        if !foreign.is_empty() {
            return false;
        }
        self.logs
            .extend(watermarks.iter().map(|one| (one.partition, one.log)));
        true
    }

    /// A partition's log is replaced by another. Returns whether that voids the known versions.
    pub(super) fn give_up(&mut self, partition: u32) -> bool {
        let is_void = self.logs.is_empty() || self.logs.contains_key(&partition);
        if is_void {
            self.logs.clear();
        }
        is_void
    }

    /// All logs are replaced.
    pub(super) fn give_up_all(&mut self) {
        self.logs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::time::Timestamp;

    fn watermarks(partitions: &[u32], generation: u32) -> Vec<Watermark> {
        let log = LogId {
            generation,
            random: 7,
        };
        let of = |partition: &u32| Watermark {
            partition: *partition,
            log,
            ruled: 9,
            appended: Timestamp::ZERO,
            current: true,
        };
        partitions.iter().map(of).collect()
    }

    #[test]
    fn a_new_log_voids_versions_once_for_each_partition() {
        let mut cached_limits = CachedLimits::default();
        let followed = HashSet::new();
        assert!(cached_limits.take(&watermarks(&[0, 1, 2, 3], 1), &followed));
        assert!(cached_limits.give_up(0));
        assert!(cached_limits.take(&watermarks(&[0, 1], 2), &followed));
        assert!(!cached_limits.give_up(2) && !cached_limits.give_up(3));
        assert!(cached_limits.give_up(1));
    }

    #[test]
    fn limits_that_name_an_unknown_log_are_not_cached() {
        let mut cached_limits = CachedLimits::default();
        assert!(!cached_limits.take(&watermarks(&[0, 1], 1), &HashSet::from([1])));
        assert!(cached_limits.take(&watermarks(&[2], 1), &HashSet::new()));
        assert!(!cached_limits.give_up(0), "it did not teach");
    }

    #[test]
    fn any_log_voids_limits_that_were_cached_without_one() {
        let mut cached_limits = CachedLimits::default();
        assert!(cached_limits.take(&[], &HashSet::new()));
        assert!(cached_limits.give_up(3));
    }
}
