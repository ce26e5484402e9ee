//! Where a partition's log is read from, and whether it is the log that the partition's state came from.
//!
//! ```text
//! snapshot up to X ── follow from X ── record X is the one it ends with ──> ruled on from X + 1
//!                                      another record, or none ──> the next older snapshot, or the beginning
//! read up to X, stopped ── follow from X ── the same; another record, or none ──> the newest snapshot
//! ```
//!
//! A log may lose its end in a power cut and grow again; then an offset has another record than before,
//! and a snapshot beyond the cut describes records that the log does not have. So a snapshot carries a mark
//! of its last record, wherever it is kept. Knows nothing of files and topics. What stays true: after restoring
//! a snapshot, or after an interruption of reading, nothing is ruled before the log was seen to have the last
//! record again, unless that record is gone by age.

use tollgate_shared::time::Span;

use super::event::Effect;
use super::partition::event::{PartitionEffect, PartitionStep};
use super::partition::{Partition, Stage};
use tollgate_log::{Delivered, Stream};

/// How often to look for newer snapshots of another group.
const LOOK_AGAIN_AFTER: Span = Span::from_secs(5);

/// How long to wait for such a snapshot: the ruling aggregator of the other group may be waiting likewise, or be
/// stopped.
const TRUNCATED_MAX: Span = Span::from_secs(60);

impl Partition {
    /// Checks a record while the position is unverified. Returns whether the record is still to be ruled.
    pub(super) fn verify(&mut self, delivered: &Delivered, step: &mut PartitionStep<'_>) -> bool {
        if delivered.offset < self.position.next {
            return false;
        }
        if self.position.next < delivered.offset {
            self.gap_before_proof(delivered.offset, step);
            return !self.position.unverified && self.takes();
        }
        let mark = self.ruler.mark();
        if !self.position.is_verified_by(delivered, mark) {
            self.reject(step);
            return false;
        }
        self.position.advance(delivered);
        self.verified();
        false
    }

    /// The record that would verify the partition's state is missing: the record at `next` follows. Returns whether
    /// the position was unverified, so that the gap is dealt with.
    fn gap_before_proof(&mut self, next: u64, step: &mut PartitionStep<'_>) -> bool {
        if !self.position.unverified || !self.takes() {
            return false;
        }
        let shared = step.context.shared;
        // If the record went by age, the generation is the proof: no end was lost since the snapshot was taken.
        let generation = match shared {
            true => self.generation_met(),
            false => step.context.settings.start.generation,
        };
        let of_this_log = self.log().is_some_and(|log| log.generation == generation);
        let wanted = self.position.next;
        if next <= wanted || !of_this_log {
            self.reject(step);
            return true;
        }
        if shared && wanted + 1 < next && self.recovery.overtaken_at != Some(wanted) {
            self.recovery.overtaken_at = Some(wanted);
            self.restore_newer(step);
            return true;
        }
        self.position.skip_to(next);
        if wanted + 1 < next {
            self.lack_records();
            self.forget_on_the_way();
            step.counters().gaps += 1;
            tracing::error!(
                partition = self.index,
                wanted,
                next,
                "records were removed before they could be read"
            );
        }
        self.verified();
        true
    }

    fn verified(&mut self) {
        self.position.unverified = false;
        self.recovery.found.clear();
    }

    /// What the partition has ruled is not of this log. If it came from a snapshot, the snapshot is dropped, and an
    /// older one is tried. If it was read here, no snapshot is to blame.
    fn reject(&mut self, step: &mut PartitionStep<'_>) {
        let upto = self.position.next;
        if self.position.is_reading_again() {
            tracing::error!(
                partition = self.index,
                upto,
                "the log is not the one that was read before, or was truncated: the partition is ruled again from a snapshot or the beginning"
            );
            step.counters().gaps += 1;
            step.push(PartitionEffect::ForgetIdentity);
            return self.restore_newer(step);
        }
        tracing::warn!(
            partition = self.index,
            upto,
            "a snapshot is not of this log, which was truncated or recreated: the snapshot is dropped"
        );
        step.counters().snapshots_refuted += 1;
        step.ask(Effect::DropSnapshot {
            partition: self.index,
            upto,
        });
        self.restore_older(upto, step);
    }

    /// The log has delivered everything that it has.
    pub(super) fn caught_up(&mut self, next: u64, step: &mut PartitionStep<'_>) {
        if self.stage != Stage::CatchingUp {
            return;
        }
        if self.position.unverified {
            // The log ends before the record that the snapshot ends with.
            return self.reject(step);
        }
        self.stage = Stage::Ruling;
        tracing::debug!(partition = self.index, next, "caught up");
        if self.announcing {
            self.recovery.end();
        }
        if self.log().is_none() {
            step.push(PartitionEffect::WantIdentity);
        }
    }

    /// Follows the log from where the partition was ruled to. A fleet's topic may have been recreated meanwhile and
    /// be as long; so in a fleet the last record is read once more, which verifies that the log is the same.
    pub(super) fn follow_again(&mut self, step: &mut PartitionStep<'_>) {
        if let Some(why) = self.why_no_key(self.ruler.version(), step) {
            return self.stop(why);
        }
        self.stage = Stage::Returning;
        if step.context.shared {
            self.position.step_back();
        }
        self.follow(self.position.next, step);
    }

    fn follow(&self, from: u64, step: &mut PartitionStep<'_>) {
        step.ask(Effect::Follow {
            stream: Stream::Hits,
            partition: self.index,
            from,
        });
    }

    pub(super) fn unfollow(&self, step: &mut PartitionStep<'_>) {
        step.ask(Effect::Unfollow {
            stream: Stream::Hits,
            partition: self.index,
        });
    }

    /// The log begins to deliver records.
    pub(super) fn following(&mut self, from: u64) {
        if self.stage == Stage::Returning && self.position.next == from {
            self.stage = Stage::CatchingUp;
        }
    }

    /// Records are gone that were to come next.
    pub(super) fn gap(
        &mut self,
        wanted: u64,
        next: u64,
        ruled_too: bool,
        step: &mut PartitionStep<'_>,
    ) {
        let is_read = !matches!(
            self.stage,
            Stage::Elsewhere | Stage::Restoring { .. } | Stage::Truncated { .. }
        );
        // Otherwise an earlier following reports it. What is restored is verified when the log is followed again.
        if !is_read || self.gap_before_proof(next, step) {
            return;
        }
        let waits = wanted == 0
            && ((ruled_too && self.waits_for_another(next, step)) || self.looks_once_more(step));
        if waits {
            return;
        }
        // Hits are read from 0 only without a useful snapshot: then what is gone is missing in every window.
        step.counters().gaps += 1;
        tracing::error!(
            partition = self.index,
            wanted,
            next,
            "records were removed before they could be read"
        );
        if next < wanted {
            // The log now ends before the records that were ruled.
            return self.begin_anew(step);
        }
        if !self.takes() {
            return;
        }
        if step.context.shared && 0 < wanted {
            return self.restore_newer(step);
        }
        self.lack_records();
        self.forget_on_the_way();
        self.position.skip_to(next);
    }

    /// Whether the snapshots of a partition whose beginning is gone are searched once more. One that covers the
    /// missing records may have been written since the last search.
    fn looks_once_more(&mut self, step: &mut PartitionStep<'_>) -> bool {
        if !step.context.shared || !self.takes() || self.recovery.overtaken_at == Some(0) {
            return false;
        }
        self.recovery.overtaken_at = Some(0);
        self.restore_newer(step);
        true
    }

    /// Whether a partition whose beginning is gone waits for a snapshot of another group.
    fn waits_for_another(&mut self, first: u64, step: &mut PartitionStep<'_>) -> bool {
        if !step.context.shared || !self.takes() {
            return false;
        }
        let clock = step.clock();
        let until = clock.saturating_add(TRUNCATED_MAX);
        if *self.recovery.wait_until.get_or_insert(until) <= clock {
            return false;
        }
        // A snapshot that the other group takes from now on is of this log, wherever it ends.
        self.recovery.before = None;
        tracing::warn!(
            partition = self.index,
            first,
            "the log's beginning was removed and no snapshot is usable; another group rules the partition: waiting for a snapshot of that group"
        );
        self.stage = Stage::Truncated {
            first,
            again: clock.saturating_add(LOOK_AGAIN_AFTER),
        };
        self.unfollow(step);
        true
    }

    /// Whether it waits for a snapshot, and [looks](Self::look_again) for one again.
    pub(super) fn looks_again(&self) -> bool {
        matches!(self.stage, Stage::Truncated { .. })
    }

    /// Looks for snapshots again where the partition waits for one. If no other group rules the partition any more,
    /// or no snapshot came in time, it is ruled from the records that exist.
    pub(super) fn look_again(&mut self, step: &mut PartitionStep<'_>) {
        if matches!(self.stage, Stage::Truncated { again, .. } if again <= step.clock()) {
            self.restore_again(step);
        }
    }

    /// Records went by age before they were ruled, or what was ruled is not of this log. In a fleet another
    /// aggregator may have ruled the missing records, and its snapshot includes their effect. If no snapshot
    /// reaches that far, ruling continues with the records that exist.
    fn restore_newer(&mut self, step: &mut PartitionStep<'_>) {
        self.forget_ruled(step);
        self.restore_again(step);
    }

    /// Rules the partition from its beginning: the log ends before what was ruled.
    fn begin_anew(&mut self, step: &mut PartitionStep<'_>) {
        self.forget_ruled(step);
        // The identity that was read is gone too: the aggregator that has to write it has to do so again.
        step.push(PartitionEffect::ForgetIdentity);
        self.stage = Stage::Returning;
        self.follow(0, step);
    }
}
