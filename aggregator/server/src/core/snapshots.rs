//! Snapshots of engines: the bound on recovery. Step 4 of the order in `rule`.
//!
//! ```text
//! due ── freeze at X ──> everything caused up to X acknowledged ── save ──> saved, or tried again
//! start ── limits read ── newest snapshot that restores ── follow from X, which proves it
//! ```
//!
//! Knows nothing of files. What stays true: a snapshot at X is handed out only when evidence and totals
//! that records up to X caused are in the log; one that does not restore, or is not of this log, is passed
//! over, and without any the log is read from its beginning.

use tollgate_engine::engine::Frozen;
use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;

use super::Core;
use super::candidates::Candidates;
use super::event::{Effect, Now};
use super::partition::{Partition, Stage};
use super::recordings::Recordings;
use super::ruler::Ruler;
use super::testimonies::Testimonies;
use super::usage::Usage;
use tollgate_log::Stream;

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
    /// Taken, and waiting for what it caused to be acknowledged.
    frozen: Option<(u64, Moment)>,
    /// Since when one is being saved, if one is.
    saving: Option<Span>,
    /// How long the last one took, that was saved.
    took: Span,
    /// When the last one was saved.
    saved_at: Option<Span>,
}

impl Core {
    /// Restores every partition that has a snapshot, and begins to follow all of them. Done once, when
    /// the limits are known that snapshots refer to.
    pub(super) fn follow_hits(&mut self) {
        if std::mem::replace(&mut self.following_hits, true) {
            return;
        }
        if self.shared {
            return self.restore_waiting();
        }
        let count = self.settings.partitions;
        for index in 0..count {
            self.restore_found(index);
        }
        let restored = self.partitions.iter().filter(|p| p.unproved).count();
        if 0 < restored {
            tracing::info!(
                restored,
                partitions = count,
                "partitions restored from snapshots"
            );
        }
    }

    /// Restores a partition from the newest snapshot that was found and not tried yet, and follows it
    /// from where that ends; with none, from the beginning.
    pub(super) fn restore_found(&mut self, index: u32) {
        let count = self.settings.partitions;
        while let Some(chunks) = self.settings.start.take_snapshot(index) {
            match Ruler::restore(index, count, &chunks, &self.limits.book) {
                Ok(ruler) => {
                    self.adopt(index, ruler);
                    break;
                }
                Err(fault) => {
                    tracing::warn!(partition = index, %fault, "a snapshot is passed over");
                }
            }
        }
        self.follow_again(index);
    }

    /// Takes a restored state, which the log is still to prove: see `following`.
    pub(super) fn adopt(&mut self, index: u32, ruler: Ruler) {
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            let upto = ruler.applied_upto();
            partition.next = upto.unwrap_or(0);
            partition.last = None;
            partition.unproved = upto.is_some();
            partition.restored_upto = upto;
            partition.ruler = ruler;
        }
    }

    /// Rules a partition from its beginning: the log ends before what was ruled.
    pub(super) fn begin_anew(&mut self, index: u32) {
        self.forget_ruled(index);
        // What was begun is not there any more: who was the one to begin it is so again.
        self.identities.forget((Stream::Hits, index));
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.stage = Stage::Returning;
            self.follow(Stream::Hits, index, 0);
        }
    }

    /// Forgets what a partition has ruled, and what followed from it: it was no part of the log.
    pub(super) fn forget_ruled(&mut self, index: u32) {
        let count = self.settings.partitions;
        self.announcer.forget(index);
        self.totals.forget_source(index);
        let is_its = |resource: &str| partition_of_resource(resource, count) == index;
        self.totals.forget_applied(index, is_its);
        self.bridges.forget(index, is_its);
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.generation_before = partition.generation_met();
            partition.ruler = Ruler::new(index, count);
            partition.next = 0;
            partition.last = None;
            partition.unproved = false;
            partition.announcing = false;
            partition.forget_on_the_way();
            partition.recordings = Recordings::default();
            partition.snapshots = Snapshots::default();
            partition.testimonies = Testimonies::default();
            partition.usage = Usage::default();
            partition.candidates = Candidates::default();
        }
    }

    pub(super) fn snapshots_turn(&mut self, now: Now) {
        let Some(policy) = self.settings.snapshots else {
            return;
        };
        for index in 0..self.partitions.len() {
            self.save_if_acknowledged(now, index);
            let count = self.settings.partitions;
            let Some(partition) = self.partitions.get_mut(index) else {
                return;
            };
            if partition.is_due(now.clock, policy, count) {
                partition.freeze(now.clock, policy);
            }
        }
    }

    fn save_if_acknowledged(&mut self, now: Now, index: usize) {
        let Some(partition) = self.partitions.get_mut(index) else {
            return;
        };
        let Some(upto) = partition.snapshots.frozen.as_ref().map(|(upto, _)| *upto) else {
            return;
        };
        let behind = |oldest: Option<u64>| oldest.is_none_or(|oldest| upto < oldest);
        let acknowledged =
            behind(partition.recordings.oldest()) && behind(self.totals.oldest_of(partition.index));
        if !acknowledged && !planted(Bug::SnapshotEarly) {
            return;
        }
        if let Some((upto, moment)) = partition.snapshots.frozen.take() {
            partition.snapshots.saving = Some(now.clock);
            self.effects.push(Effect::SaveSnapshot {
                partition: partition.index,
                upto,
                moment,
            });
        }
    }

    pub(super) fn snapshot_saved(&mut self, now: Now, index: u32, saved: bool) {
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            let since = partition.snapshots.saving.take();
            if saved {
                partition.snapshots.saved_at = Some(now.clock);
                // One of before the partition was let go is nobody's.
                if let Some(since) = since {
                    partition.snapshots.took = now.clock.saturating_sub(since);
                    // The newest is of this log now.
                    partition.restore_before = None;
                }
            } else if since.is_some() {
                partition.snapshots.is_wanted();
            }
        }
        if saved {
            self.counters.snapshots_saved += 1;
        } else {
            self.counters.snapshots_failed += 1;
        }
    }
}

impl Snapshots {
    /// Lets go of the one that waits for the log.
    pub fn drop_waiting(&mut self) {
        if self.frozen.take().is_some() {
            self.is_wanted();
        }
    }

    /// What was ruled before is in none yet: another one is due, though nothing follows.
    fn is_wanted(&mut self) {
        self.entries = self.entries.max(1);
    }

    /// How long saving the last one took.
    pub fn took(&self) -> Span {
        self.took
    }

    /// How long ago the last one was saved, or this process started; zero where it has all hits that were ruled,
    /// since no other is due before the next.
    pub fn age(&self, clock: Span) -> Span {
        let is_in_it = self.entries == 0 && self.frozen.is_none() && self.saving.is_none();
        match is_in_it {
            true => Span::ZERO,
            false => clock.saturating_sub(self.saved_at.unwrap_or_default()),
        }
    }
}

impl Partition {
    fn is_due(&mut self, clock: Span, policy: Policy, count: u32) -> bool {
        let index = u64::from(self.index);
        let snapshots = &mut self.snapshots;
        // The first ones are spread over the time between two, so that not all come at once.
        let due_at = *snapshots.due_at.get_or_insert_with(|| {
            let share = policy.every.as_micros() / u64::from(count.max(1)) * (index + 1);
            clock.saturating_add(Span::from_micros(share))
        });
        let worth_it = 0 < snapshots.entries || IDLE_RECORDS_MAX <= snapshots.records;
        self.announcing
            && !self.ruler.has_more()
            && snapshots.frozen.is_none()
            && snapshots.saving.is_none()
            && !self.testimonies.are_doubted(self.appended)
            && worth_it
            && (due_at <= clock || policy.entries_max <= snapshots.entries)
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
    fn a_partition_is_as_old_as_its_snapshot_once_hits_are_ruled_that_are_in_none() {
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
        // That one fails, and nothing follows.
        snapshots.saving = None;
        snapshots.is_wanted();
        assert_eq!(snapshots.age(clock), Span::from_secs(30));
    }
}
