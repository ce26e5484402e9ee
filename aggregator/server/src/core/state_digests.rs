//! State digests: aggregators that rule the same partition compare their states.
//!
//! ```text
//! first counted tick of each 10 s of log time, at X ── own digest after X is noted, and appended to the partition
//! digest of another aggregator after X              ── compared with the one that was noted
//! ```
//!
//! Two groups rule every partition twice with the same result, because rulings are a function of the log. If
//! the results differ, the machines or the builds disagree, which nothing else would show. A digest follows the
//! record that it is about, in the same partition: so it reaches all aggregators that rule that partition, now or
//! later, and no others; an aggregator that takes a partition over compares with its predecessor. Knows nothing
//! of how a digest is computed. A partition that lacks records, because they were removed before they could be ruled,
//! takes no part until its state is another aggregator's again: most of a state ends within minutes. What stays true: no ruling depends on a digest; but while digests differ, no
//! snapshot is saved, and a partition that was restored from one and is not announced yet is restored from an
//! older one.

use std::collections::VecDeque;

use tollgate_engine::engine::{DIGEST_FORM, is_digest_due};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::record::RecordPen;
use tollgate_shared::wire::state_digest::StateDigest;

use super::partition::Partition;
use super::partition::appends::AppendPurpose;
use super::partition::event::PartitionStep;
use tollgate_log::Stream;

/// How many own digests are kept. A digest about an older offset arrives more than two minutes late.
const NOTED_MAX: usize = 16;

/// A partition's state after a record.
#[derive(Clone, Copy, Debug)]
struct Noted {
    offset: u64,
    rules: u32,
    digest: u128,
}

/// How long, by log time, no snapshot is taken after a difference: an aggregator could restore from it, and it is
/// unknown which of the two states is right.
const DOUBTFUL_FOR: Span = Span::from_secs(300);

/// How many snapshots are discarded for older ones while a partition catches up. Each costs a replay.
const GIVEN_UP_MAX: u32 = 3;

/// The digests of one partition's recent states.
#[derive(Debug, Default)]
pub struct StateDigests {
    noted: VecDeque<Noted>,
    doubtful_until: Timestamp,
}

impl StateDigests {
    fn note(&mut self, noted: Noted) {
        if self.noted.len() == NOTED_MAX {
            self.noted.pop_front();
        }
        self.noted.push_back(noted);
    }

    fn of(&self, offset: u64) -> Option<Noted> {
        self.noted
            .iter()
            .find(|noted| noted.offset == offset)
            .copied()
    }

    /// Whether a digest of another aggregator differed not long ago, by log time.
    pub fn are_doubtful(&self, at: Timestamp) -> bool {
        at < self.doubtful_until
    }
}

impl Partition {
    /// Records were removed before they could be ruled: from now on the state differs from that of an aggregator that
    /// has ruled them, and neither is to blame.
    pub(super) fn lack_records(&mut self) {
        self.ruler.set_lacks_records(true);
        tracing::warn!(
            partition = self.index,
            "a state without these records is not compared with other aggregators' until it equals one of them"
        );
    }

    /// Notes the digest after a tick if one is due, and appends it where rulings are announced.
    pub(super) fn append_digest(
        &mut self,
        offset: u64,
        log_time_before: Option<Timestamp>,
        step: &mut PartitionStep<'_>,
    ) {
        let (context, settings) = (step.context, step.context.settings);
        let Some(group) = &settings.group else {
            return;
        };
        if !is_digest_due(log_time_before, self.ruler.log_time()) {
            return;
        }
        let in_force = self.ruler.version();
        let version = context.limits.book.get(in_force);
        let noted = Noted {
            offset,
            rules: version.map_or(0, |version| version.limits.rules()),
            digest: self.ruler.state(),
        };
        self.state_digests.note(noted);
        // A partition that catches up states nothing that was not stated at the time. After an activation that ends
        // its key a digest would be refused; the next is due in 10 s.
        let says_something = self.announcing && !self.ruler.lacks_records();
        if !says_something || self.is_ending_its_key(context) {
            return;
        }
        let digest_record = StateDigest {
            offset,
            rules: noted.rules,
            form: DIGEST_FORM,
            digest: noted.digest,
            group,
            aggregator: &settings.aggregator,
            instance: step.context.instance,
        };
        let record =
            RecordPen::new(context.writer(in_force), self.index).state_digest(&digest_record);
        self.append(Stream::Hits, record, AppendPurpose::StateDigest, step);
    }

    /// Compares a digest of another aggregator with the own one.
    pub(super) fn compare_digest(
        &mut self,
        stated: &StateDigest<'_>,
        step: &mut PartitionStep<'_>,
    ) {
        let is_own = stated.instance == step.context.instance;
        if is_own || stated.form != DIGEST_FORM {
            return;
        }
        let Some(noted) = self.state_digests.of(stated.offset) else {
            return;
        };
        let is_equal = noted.digest == stated.digest;
        if noted.rules != stated.rules || (self.ruler.lacks_records() && !is_equal) {
            return;
        }
        if self.ruler.lacks_records() {
            self.ruler.set_lacks_records(false);
            let offset = stated.offset;
            tracing::info!(
                partition = self.index,
                offset,
                "the records that were missing make no difference any more"
            );
        }
        step.counters().states_compared += 1;
        if is_equal {
            return;
        }
        step.counters().states_differing += 1;
        tracing::error!(
            partition = self.index,
            offset = stated.offset,
            rules = stated.rules,
            ours = format!("{:032x}", noted.digest),
            theirs = format!("{:032x}", stated.digest),
            group = stated.group,
            owner = stated.aggregator,
            "two aggregators that rule a partition came to different states: their machines or builds disagree"
        );
        self.doubt(step);
    }

    /// Handles a difference: no snapshot is saved for a while, and a partition that catches up from a snapshot
    /// restores an older one, since the snapshot may be from the other aggregator.
    fn doubt(&mut self, step: &mut PartitionStep<'_>) {
        self.state_digests.doubtful_until = self.position.appended.saturating_add(DOUBTFUL_FOR);
        self.snapshots.drop_waiting();
        let Some(upto) = self.recovery.restored_upto.filter(|_| !self.announcing) else {
            return;
        };
        if GIVEN_UP_MAX <= self.recovery.given_up {
            return;
        }
        self.recovery.given_up += 1;
        self.recovery.restored_upto = None;
        tracing::warn!(
            partition = self.index,
            upto,
            "the snapshot from which the partition was restored is dropped for an older one"
        );
        self.restore_older(upto, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noted_digests_are_bounded_and_the_newest_stay() {
        let mut state_digests = StateDigests::default();
        for offset in 0..100 {
            state_digests.note(Noted {
                offset,
                rules: 1,
                digest: u128::from(offset),
            });
        }
        assert_eq!(state_digests.noted.len(), NOTED_MAX);
        assert!(state_digests.of(83).is_none());
        assert_eq!(state_digests.of(84).map(|noted| noted.digest), Some(84));
    }
}
