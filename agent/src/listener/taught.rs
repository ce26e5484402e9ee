//! Whose limits are known: by which logs a version's number means anything.
//!
//! ```text
//! snapshot, partitions 0 1 of log A   limits version 5      known, taught with A
//! snapshot, partitions 0 1 of log A   limits version 4      not known: somebody has read less
//! frame, partition 0 of log B         A is given up         version 5 means nothing any more
//! snapshot, partition 0 of log B      limits version 1      known, taught with B
//! ```
//!
//! A version is an offset in the stream of limits, so that numbers can be compared within one stream
//! only. Public limits do not carry that stream's identity, but the snapshots that bring them name the
//! logs of the partitions that their owner rules, and those share the stream's fate: a journal has all
//! its streams in one directory, and where its end was lost, which may take a version away, all begin
//! the next generation. So:
//!
//! - While the logs stay what they were, an older version changes nothing. Of several aggregators one
//!   may have read less of the stream than another; limits do not go back because it answers.
//! - With a log that is given up, the numbers that were taught with it are void, and everybody is asked
//!   again. What was known goes on ruling until somebody answers, which takes a round trip: to forget
//!   it would open what a closed blind policy keeps shut. Logs that did not teach void nothing: where
//!   partitions come to a new log one after the other, what the first ones taught is of it already.
//! - A snapshot that names a log which is not followed, another fleet's or one given up, teaches
//!   nothing, whatever its version. Should its log be followed later, it is asked for again.
//! - One that names no log, from an aggregator that has nothing to rule yet, is compared by its number
//!   alone; not to hear it would leave a starting agent without limits. It is voided by any change.
//!
//! Not seen is a stream of limits that is made anew beside partitions that are kept. Aggregators could
//! not rule by such a pair either: the pointers in the partitions name versions of the old one.
//!
//! What stays true: of one log, the version that is known only grows.

use std::collections::{HashMap, HashSet};

use tollgate_shared::place::LogId;
use tollgate_shared::wire::frame::Watermark;

/// The logs that what is known of limits was taught with.
#[derive(Debug, Default)]
pub(super) struct CachedLimits {
    logs: HashMap<u32, LogId>,
}

impl CachedLimits {
    /// Whether limits may be learnt from a snapshot that names these logs, of which those are not
    /// followed.
    pub(super) fn take(&mut self, evidence: &[Watermark], foreign: &HashSet<u32>) -> bool {
        if !foreign.is_empty() {
            return false;
        }
        self.logs
            .extend(evidence.iter().map(|one| (one.partition, one.log)));
        true
    }

    /// A partition's log is given up for another; whether versions are void by that.
    pub(super) fn give_up(&mut self, partition: u32) -> bool {
        let is_void = self.logs.is_empty() || self.logs.contains_key(&partition);
        if is_void {
            self.logs.clear();
        }
        is_void
    }

    /// All logs are given up.
    pub(super) fn give_up_all(&mut self) {
        self.logs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::time::Timestamp;

    fn evidence(partitions: &[u32], generation: u32) -> Vec<Watermark> {
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
    fn versions_are_void_once_for_partitions_that_come_to_a_new_log_one_after_the_other() {
        let mut taught = CachedLimits::default();
        let followed = HashSet::new();
        assert!(taught.take(&evidence(&[0, 1, 2, 3], 1), &followed));
        assert!(taught.give_up(0));
        assert!(taught.take(&evidence(&[0, 1], 2), &followed));
        assert!(!taught.give_up(2) && !taught.give_up(3));
        assert!(taught.give_up(1));
    }

    #[test]
    fn who_names_a_log_that_is_not_followed_teaches_nothing() {
        let mut taught = CachedLimits::default();
        assert!(!taught.take(&evidence(&[0, 1], 1), &HashSet::from([1])));
        assert!(taught.take(&evidence(&[2], 1), &HashSet::new()));
        assert!(!taught.give_up(0), "it did not teach");
    }

    #[test]
    fn what_was_taught_with_no_log_is_void_by_any() {
        let mut taught = CachedLimits::default();
        assert!(taught.take(&[], &HashSet::new()));
        assert!(taught.give_up(3));
    }
}
