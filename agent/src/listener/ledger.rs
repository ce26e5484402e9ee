//! How far partitions have been ruled, as received without a gap, by topic; and so, whose denials hold.
//!
//! A watermark counts for the topic of its frame. If it is greater than all before it, it renews the lease of that
//! topic and partition, and settles older statements. Knows nothing of denials and frames. What stays true: only a
//! newer watermark renews a lease.

use std::cmp::Ordering;
use std::collections::HashMap;

use tollgate_shared::log_position::{LogId, LogPosition};
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Watermark;

use crate::clock::Mono;
use crate::deny::Lease;
use crate::resource::ResourceId;

/// How long a partition's denials of rates hold without a newer watermark.
pub(crate) const LEASE: Span = Span::from_secs(60);

/// The same for copies, because their holders may be gone after as long.
pub(crate) const LEASE_OF_COPIES: Span = Span::from_secs(2);

/// A log with another identity, and no higher generation, is accepted as a new log after nothing has been received of
/// the old one for this long; until then it counts as another fleet's. A fleet that moved to other topics, or began anew,
/// has such a log, whose generation says nothing about that of the old one.
const GIVE_UP_LOG: Span = Span::from_secs(2);

/// A topic: a resource's, or the control topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TopicKey {
    Control,
    Of(ResourceId),
}

/// The result of comparing a log's identity with the known one of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogComparison {
    /// The log is the known one.
    Same,
    /// The log is new: all statements below this generation are void.
    Recreated(u32),
    /// The log is ignored.
    Foreign,
}

#[derive(Debug, Default)]
struct KnownPartition {
    ruled: Option<LogPosition>,
    lease: Lease,
    /// The shorter lease, for copies; only on the control topic.
    copies_lease: Lease,
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    logs: HashMap<u32, (LogId, Mono)>,
    known: HashMap<(TopicKey, u32), KnownPartition>,
}

impl Ledger {
    /// Records a partition's log.
    pub(crate) fn log(&mut self, watermark: &Watermark, now: Mono) -> LogComparison {
        let found = watermark.log;
        let Some((log, last_stated)) = self.logs.get_mut(&watermark.partition) else {
            self.logs.insert(watermark.partition, (found, now));
            return LogComparison::Same;
        };
        if *log == found {
            *last_stated = now;
            return LogComparison::Same;
        }
        let patience = match found.generation.cmp(&log.generation) {
            Ordering::Greater => Span::ZERO,
            Ordering::Equal | Ordering::Less => GIVE_UP_LOG,
        };
        if now.since(*last_stated) < patience {
            return LogComparison::Foreign;
        }
        // Statements of the old log are void, even if its generation is not lower.
        let below = if log.generation < found.generation {
            found.generation
        } else {
            u32::MAX
        };
        (*log, *last_stated) = (found, now);
        let of_it = self
            .known
            .iter_mut()
            .filter(|((_, partition), _)| *partition == watermark.partition);
        for (_, known) in of_it {
            known.ruled = None;
            known.lease.renew(Mono::ZERO);
            known.copies_lease.renew(Mono::ZERO);
        }
        LogComparison::Recreated(below)
    }

    /// The generation of a partition's log, if it is known.
    pub(crate) fn generation(&self, partition: u32) -> Option<u32> {
        self.logs.get(&partition).map(|(log, _)| log.generation)
    }

    /// A partition's log, if it is known.
    pub(crate) fn log_of(&self, partition: u32) -> Option<LogId> {
        self.logs.get(&partition).map(|(log, _)| *log)
    }

    /// Applies a watermark of a topic, from a frame that was delayed by `late`. Returns whether it is newer.
    pub(crate) fn advance(
        &mut self,
        topic: TopicKey,
        watermarks: &Watermark,
        lease: Span,
        late: Span,
        now: Mono,
    ) -> bool {
        let position = LogPosition::of_record(watermarks.log, watermarks.ruled);
        let known = self.known.entry((topic, watermarks.partition)).or_default();
        if known.ruled.is_some_and(|ruled| position <= ruled) {
            return false;
        }
        known.ruled = Some(position);
        for (renewed, lease) in [
            (&known.lease, lease),
            (&known.copies_lease, LEASE_OF_COPIES),
        ] {
            let until = now.plus(lease.saturating_sub(late));
            renewed.renew(until.max(renewed.until()));
        }
        true
    }

    /// A topic's denials hold no longer than this without a newer watermark: its resource is limited by copies now, and
    /// its leases were renewed for as long as those of a rate.
    pub(crate) fn shorten(&self, topic: TopicKey, now: Mono) {
        let of_it = self.known.iter().filter(|((of, _), _)| *of == topic);
        for (_, known) in of_it {
            let until = now.plus(LEASE_OF_COPIES).min(known.lease.until());
            known.lease.renew(until);
        }
    }

    /// Up to which log position a topic's statements about a partition have been received.
    pub(crate) fn ruled(&self, topic: TopicKey, partition: u32) -> Option<LogPosition> {
        self.known
            .get(&(topic, partition))
            .and_then(|known| known.ruled)
    }

    /// The lease of a topic and partition.
    pub(crate) fn lease(&mut self, topic: TopicKey, partition: u32) -> Lease {
        self.known
            .entry((topic, partition))
            .or_default()
            .lease
            .clone()
    }

    /// The lease of a partition for copies, from the control topic.
    pub(crate) fn copies_lease(&mut self, partition: u32) -> Lease {
        let known = self.known.entry((TopicKey::Control, partition));
        known.or_default().copies_lease.clone()
    }

    /// Ends all leases, if nothing arrives any more.
    pub(crate) fn end_all(&mut self) {
        self.known
            .values()
            .flat_map(|known| [&known.lease, &known.copies_lease])
            .for_each(|lease| lease.renew(Mono::ZERO));
        self.known.clear();
        self.logs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::time::Timestamp;

    const NOW: Mono = Mono(100_000_000);

    fn watermark(generation: u32, random: u64, ruled: u64) -> Watermark {
        let log = LogId { generation, random };
        Watermark {
            partition: 3,
            log,
            ruled,
            appended: Timestamp::ZERO,
            current: true,
        }
    }

    #[test]
    fn only_newer_watermarks_of_its_topic_renew_a_lease() {
        let mut ledger = Ledger::default();
        let topic = TopicKey::Of(ResourceId(1));
        let lease = ledger.lease(topic, 3);
        assert!(ledger.advance(topic, &watermark(1, 1, 10), LEASE, Span::ZERO, NOW));
        assert_eq!(lease.until(), NOW.plus(LEASE));
        let later = NOW.plus(Span::from_secs(5));
        assert!(!ledger.advance(topic, &watermark(1, 1, 10), LEASE, Span::ZERO, later));
        assert!(ledger.advance(
            TopicKey::Control,
            &watermark(1, 1, 12),
            LEASE,
            Span::ZERO,
            later
        ));
        assert_eq!(lease.until(), NOW.plus(LEASE));
        assert!(ledger.advance(topic, &watermark(1, 1, 11), LEASE, Span::ZERO, later));
        assert_eq!(lease.until(), later.plus(LEASE));
    }

    #[test]
    fn a_late_watermark_renews_a_lease_for_less_time() {
        let mut ledger = Ledger::default();
        ledger.advance(
            TopicKey::Control,
            &watermark(1, 1, 10),
            LEASE,
            Span::from_secs(59),
            NOW,
        );
        assert_eq!(
            ledger.lease(TopicKey::Control, 3).until(),
            NOW.plus(Span::from_secs(1))
        );
        let mut ledger = Ledger::default();
        ledger.advance(
            TopicKey::Control,
            &watermark(1, 1, 10),
            LEASE,
            Span::MAX,
            NOW,
        );
        assert!(ledger.lease(TopicKey::Control, 3).until() <= NOW);
    }

    #[test]
    fn a_new_generation_voids_and_an_old_one_is_ignored() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.log(&watermark(2, 1, 0), NOW), LogComparison::Same);
        assert_eq!(ledger.log(&watermark(1, 9, 0), NOW), LogComparison::Foreign);
        let lease = ledger.lease(TopicKey::Control, 3);
        ledger.advance(
            TopicKey::Control,
            &watermark(2, 1, 7),
            LEASE,
            Span::ZERO,
            NOW,
        );
        assert_eq!(
            ledger.log(&watermark(3, 4, 0), NOW),
            LogComparison::Recreated(3)
        );
        assert_eq!(
            (lease.until(), ledger.ruled(TopicKey::Control, 3)),
            (Mono::ZERO, None)
        );
        assert_eq!(ledger.generation(3), Some(3));
    }

    #[test]
    fn a_new_log_of_the_same_generation_replaces_a_lost_one() {
        let mut ledger = Ledger::default();
        ledger.log(&watermark(1, 1, 0), NOW);
        assert_eq!(
            ledger.log(&watermark(1, 2, 0), NOW.plus(Span::from_secs(1))),
            LogComparison::Foreign
        );
        assert_eq!(
            ledger.log(&watermark(1, 1, 0), NOW.plus(Span::from_secs(1))),
            LogComparison::Same
        );
        assert_eq!(
            ledger.log(&watermark(1, 2, 0), NOW.plus(Span::from_secs(2))),
            LogComparison::Foreign
        );
        assert_eq!(
            ledger.log(&watermark(1, 2, 0), NOW.plus(Span::from_secs(3))),
            LogComparison::Recreated(u32::MAX)
        );
    }

    #[test]
    fn a_new_log_replaces_a_lost_one_of_a_higher_generation() {
        let mut ledger = Ledger::default();
        let after = |secs| NOW.plus(Span::from_secs(secs));
        ledger.log(&watermark(3, 1, 0), NOW);
        let new = watermark(1, 2, 0);
        assert_eq!(ledger.log(&new, after(1)), LogComparison::Foreign);
        assert_eq!(
            ledger.log(&new, after(2)),
            LogComparison::Recreated(u32::MAX)
        );
        // The old one was only away for a while.
        let old = watermark(3, 1, 0);
        assert_eq!(ledger.log(&old, after(2)), LogComparison::Recreated(3));
    }
}
