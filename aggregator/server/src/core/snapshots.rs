//! Snapshots of engines: the bound on recovery. Step 4 of the order in `rule`.
//!
//! ```text
//! due ── freeze at X ──> everything caused up to X acknowledged ── save ──> saved, or tried again
//! start ── limits read ── newest snapshot that restores ── follow from X, which verifies it
//! ```
//!
//! Knows nothing of files. What stays true: a snapshot at X is saved only when the decision records and totals
//! that records up to X caused are in the log; a snapshot that does not restore, or is not of this log, is passed
//! over, and without any the log is read from its beginning.

use tollgate_engine::engine::Frozen;
use tollgate_shared::time::Span;

use super::event::Effect;
use super::partition::Partition;
use super::partition::event::PartitionStep;

/// When snapshots are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The longest time between two.
    pub every: Span,
    /// The most entries between two.
    pub entries_max: u64,
}

/// A copy of an engine at one moment.
pub struct Moment(pub Box<Frozen>);

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Moment")
            .field(&self.0.applied_upto())
            .finish()
    }
}

/// How long a partition without hits goes without a snapshot, in records: some 40 minutes of ticks,
/// which are replayed in a moment.
const IDLE_RECORDS_MAX: u64 = 10_000;

/// Snapshots of one partition.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// Entries ruled since the last one.
    pub entries: u64,
    /// Records ruled since the last one.
    pub records: u64,
    due_at: Option<Span>,
    /// Taken, and waiting until the log has acknowledged what its records caused.
    frozen: Option<(u64, Moment)>,
    /// Since when a snapshot is being saved, if one is.
    saving: Option<Span>,
    /// How long the last saving took.
    took: Span,
    /// When the last snapshot was saved.
    saved_at: Option<Span>,
}

impl Snapshots {
    /// Discards the snapshot that waits for the log.
    pub fn drop_waiting(&mut self) {
        if self.frozen.take().is_some() {
            self.is_wanted();
        }
    }

    /// Makes another snapshot due, even if no record follows: no snapshot has the latest rulings yet.
    fn is_wanted(&mut self) {
        self.entries = self.entries.max(1);
    }

    /// Whether the interval is over, or has yet to begin, or there were many entries since the last one.
    fn is_time(&self, clock: Span, policy: Policy) -> bool {
        self.due_at.is_none_or(|due_at| due_at <= clock) || policy.entries_max <= self.entries
    }

    /// How long saving the last one took.
    pub fn took(&self) -> Span {
        self.took
    }

    /// The time since the last snapshot was saved, or this process started. Zero if that snapshot has all ruled
    /// hits, since no other is due before the next hit.
    pub fn age(&self, clock: Span) -> Span {
        let is_in_it = self.entries == 0 && self.frozen.is_none() && self.saving.is_none();
        match is_in_it {
            true => Span::ZERO,
            false => clock.saturating_sub(self.saved_at.unwrap_or_default()),
        }
    }
}

impl Partition {
    /// Whether [`take_snapshot`](Self::take_snapshot) could do anything.
    pub(super) fn may_take_snapshot(&self, clock: Span, policy: Policy) -> bool {
        let snapshots = &self.snapshots;
        snapshots.frozen.is_some() || snapshots.is_time(clock, policy)
    }

    /// Saves the snapshot that waits, if the log has everything that its records caused; takes the next one if it
    /// is due.
    pub(super) fn take_snapshot(&mut self, step: &mut PartitionStep<'_>) {
        let settings = step.context.settings;
        let Some(policy) = settings.snapshots else {
            return;
        };
        self.save_if_acknowledged(step);
        if self.is_due(step.clock(), policy, settings.partitions) {
            self.freeze(step.clock(), policy);
        }
    }

    fn save_if_acknowledged(&mut self, step: &mut PartitionStep<'_>) {
        let Some(upto) = self.snapshots.frozen.as_ref().map(|(upto, _)| *upto) else {
            return;
        };
        let behind = |oldest: Option<u64>| oldest.is_none_or(|oldest| upto < oldest);
        let acknowledged = behind(self.recordings.oldest()) && behind(self.totals.oldest());
        if !acknowledged {
            return;
        }
        if let Some((upto, moment)) = self.snapshots.frozen.take() {
            self.snapshots.saving = Some(step.clock());
            step.ask(Effect::SaveSnapshot {
                partition: self.index,
                upto,
                moment,
            });
        }
    }

    /// Writing a snapshot has ended.
    pub(super) fn snapshot_saved(&mut self, saved: bool, step: &mut PartitionStep<'_>) {
        let clock = step.clock();
        let since = self.snapshots.saving.take();
        if saved {
            self.snapshots.saved_at = Some(clock);
            // Without a start time it is a snapshot from before the partition was revoked.
            if let Some(since) = since {
                self.snapshots.took = clock.saturating_sub(since);
                // The newest snapshot is of this log now.
                self.recovery.before = None;
            }
            step.counters().snapshots_saved += 1;
        } else {
            if since.is_some() {
                self.snapshots.is_wanted();
            }
            step.counters().snapshots_failed += 1;
        }
    }

    fn is_due(&mut self, clock: Span, policy: Policy, count: u32) -> bool {
        let index = u64::from(self.index);
        let snapshots = &mut self.snapshots;
        // The first snapshots are spread over the interval, so that they do not all come at once.
        snapshots.due_at.get_or_insert_with(|| {
            let share = policy.every.as_micros() / u64::from(count.max(1)) * (index + 1);
            clock.saturating_add(Span::from_micros(share))
        });
        let worth_it = 0 < snapshots.entries || IDLE_RECORDS_MAX <= snapshots.records;
        self.announcing
            && !self.ruler.has_more()
            && snapshots.frozen.is_none()
            && snapshots.saving.is_none()
            && !self.state_digests.are_doubtful(self.position.appended)
            && worth_it
            && snapshots.is_time(clock, policy)
    }

    fn freeze(&mut self, clock: Span, policy: Policy) {
        let moment = self.ruler.freeze();
        let Some(upto) = moment.0.applied_upto() else {
            return;
        };
        self.snapshots.frozen = Some((upto, moment));
        self.snapshots.entries = 0;
        self.snapshots.records = 0;
        self.snapshots.due_at = Some(clock.saturating_add(policy.every));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partitions_age_counts_from_its_last_snapshot() {
        let clock = Span::from_secs(90);
        let mut snapshots = Snapshots {
            saved_at: Some(Span::from_secs(60)),
            ..Snapshots::default()
        };
        assert_eq!(snapshots.age(clock), Span::ZERO);
        snapshots.entries = 1;
        assert_eq!(snapshots.age(clock), Span::from_secs(30));
        (snapshots.entries, snapshots.saving) = (0, Some(clock));
        assert_eq!(snapshots.age(clock), Span::from_secs(30));
        // Saving fails, and no record follows.
        snapshots.saving = None;
        snapshots.is_wanted();
        assert_eq!(snapshots.age(clock), Span::from_secs(30));
    }
}
