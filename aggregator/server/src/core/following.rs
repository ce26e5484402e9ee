//! Where a partition is read from, and whether it is the log that its state is of.
//!
//! ```text
//! snapshot up to X ── follow from X ── record X is the one it ends with ──> ruled on from X + 1
//!                                      another one, or none ──> the next older snapshot, or the beginning
//! read up to X, stopped ── follow from X ── the same; another one, or none ──> the newest snapshot
//! ```
//!
//! A log may lose its end in a power cut and grow again; then an offset has another record than before,
//! and a snapshot beyond the cut is of a future that never was. So a snapshot carries a mark of its last
//! record, whoever keeps it. Knows nothing of files and topics. What stays true: nothing is ruled from a
//! snapshot, or by who had stopped reading, before the log was seen to have the last record, unless that is gone
//! by age.

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::time::Span;

use super::Core;
use super::event::{Effect, Now};
use super::partition::{Partition, Stage};
use tollgate_log::{Delivered, Stream};

/// How often snapshots are looked for that another group may have taken meanwhile.
const LOOK_AGAIN_AFTER: Span = Span::from_secs(5);

/// How long they are waited for: whoever owns the partition there may wait just so, or be stopped.
const HEADLESS_MAX: Span = Span::from_secs(60);

/// What a record is known again by: its bytes, and when the log took it.
pub fn mark_of(delivered: &Delivered) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key("tollgate 2026-11 mark of a record");
    hasher.update(&delivered.appended.as_micros().to_le_bytes());
    hasher.update(&delivered.bytes);
    let mut mark = [0; 16];
    hasher.finalize_xof().fill(&mut mark);
    u128::from_le_bytes(mark)
}

impl Core {
    /// Looks at a record while its partition is unproved; says whether the record is still to be ruled.
    pub(super) fn prove(&mut self, index: u32, delivered: &Delivered) -> bool {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return false;
        };
        if delivered.offset < partition.next {
            return false;
        }
        if partition.next < delivered.offset {
            self.gap_before_proof(index, delivered.offset);
            let proved = |partition: &Partition| !partition.unproved && partition.takes();
            return self.partitions.get(index as usize).is_some_and(proved);
        }
        let is_known = match &partition.last {
            Some(last) => last == delivered,
            None => partition.ruler.mark() == Some(mark_of(delivered)),
        };
        if !is_known && !planted(Bug::SnapshotUnproved) {
            self.refute(index);
            return false;
        }
        let off = match partition.last {
            None => u64::from(planted(Bug::SnapshotOff)),
            Some(_) => 0,
        };
        partition.next = delivered.offset + 1 + off;
        partition.appended = delivered.appended;
        partition.last = Some(delivered.clone());
        self.proved(index);
        false
    }

    /// The record that proves a partition's state is not there: what stands at `next` comes next. Says
    /// whether that was the case.
    fn gap_before_proof(&mut self, index: u32, next: u64) -> bool {
        let generation = self.settings.start.generation;
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return false;
        };
        if !partition.unproved || !partition.takes() {
            return false;
        }
        // Where it went by age, the generation must do: no end was lost since the snapshot was taken.
        let generation = match self.shared {
            true => partition.generation_met(),
            false => generation,
        };
        let of_this_log = partition
            .log()
            .is_some_and(|log| log.generation == generation);
        let wanted = partition.next;
        if next <= wanted || !of_this_log {
            self.refute(index);
            return true;
        }
        if self.shared && wanted + 1 < next && partition.overtaken_at != Some(wanted) {
            partition.overtaken_at = Some(wanted);
            self.restore_newer(index);
            return true;
        }
        partition.next = next;
        partition.last = None;
        if wanted + 1 < next {
            self.counters.gaps += 1;
            tracing::error!(
                partition = index,
                wanted,
                next,
                "records are gone before they could be read"
            );
        }
        self.proved(index);
        true
    }

    /// The generation in which a partition is begun. A journal says it itself; in a fleet's log there is no
    /// other than the first, but where a topic was made anew: above all that was met there, so that
    /// whatever was said of the one before is void, and older, to everybody.
    pub(super) fn generation_to_begin(&self, stream: Stream, partition: u32) -> u32 {
        let first = self.settings.start.generation.max(1);
        let found = self.partitions.get(partition as usize);
        match found.map_or(0, Partition::generation_met) {
            met if self.shared && stream == Stream::Hits => first.max(met.saturating_add(1)),
            _ => first,
        }
    }

    fn proved(&mut self, index: u32) {
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.unproved = false;
        }
        self.settings.start.snapshots.remove(&index);
    }

    /// What a partition has ruled is not of this log. Where that was a snapshot's, it goes, and an older one is
    /// tried; what was read here says nothing of snapshots.
    fn refute(&mut self, index: u32) {
        let Some(partition) = self.partitions.get(index as usize) else {
            return;
        };
        let upto = partition.next;
        if partition.is_reading_again() {
            tracing::error!(
                partition = index,
                upto,
                "the log is another one than was read before, or lost its end: the partition is ruled anew"
            );
            self.counters.gaps += 1;
            self.identities.forget((Stream::Hits, index));
            return self.restore_newer(index);
        }
        tracing::warn!(
            partition = index,
            upto,
            "a snapshot is not of this log, which lost its end or was made anew: it is dropped"
        );
        self.counters.snapshots_refuted += 1;
        self.effects.push(Effect::DropSnapshot {
            partition: index,
            upto,
        });
        self.forget_ruled(index);
        match self.shared {
            true => self.restore_before(index, upto),
            false => self.restore_found(index),
        }
    }

    pub(super) fn caught_up(&mut self, now: Now, stream: Stream, partition: u32, next: u64) {
        match stream {
            Stream::Limits => {
                if next == 0 {
                    self.begin_if_new(now.clock, stream, partition);
                }
                self.limits_caught_up(now);
            }
            Stream::Hits => {
                let Some(found) = self.partitions.get_mut(partition as usize) else {
                    return;
                };
                if found.stage != Stage::CatchingUp {
                    return;
                }
                if found.unproved {
                    // The log ends before the record that the snapshot ends with.
                    return self.refute(partition);
                }
                found.stage = Stage::Ruling;
                tracing::debug!(partition, next, "caught up");
                if found.log().is_none() {
                    self.begin_if_new(now.clock, stream, partition);
                }
            }
            Stream::Denials => {}
        }
    }

    pub(super) fn following(&mut self, stream: Stream, partition: u32, from: u64) {
        if stream != Stream::Hits {
            return;
        }
        if let Some(partition) = self.partitions.get_mut(partition as usize)
            && partition.stage == Stage::Returning
            && partition.next == from
        {
            partition.stage = Stage::CatchingUp;
        }
    }

    pub(super) fn gap(&mut self, now: Now, stream: Stream, partition: u32, wanted: u64, next: u64) {
        if stream == Stream::Hits && self.gap_before_proof(partition, next) {
            return;
        }
        if stream == Stream::Hits
            && wanted == 0
            && (self.is_headless(now, partition, next) || self.looks_once_more(partition))
        {
            return;
        }
        // Hits are read from 0 where no snapshot is of use: then what is gone is missing in every window.
        if stream != Stream::Hits && wanted == 0 && 0 < next {
            tracing::info!(?stream, partition, next, "the log begins here");
        } else {
            self.counters.gaps += 1;
            tracing::error!(
                ?stream,
                partition,
                wanted,
                next,
                "records are gone before they could be read"
            );
        }
        if stream == Stream::Limits && next < wanted {
            return self.limits_made_anew();
        }
        if stream != Stream::Hits {
            return;
        }
        if next < wanted {
            // It was ruled further than it goes now.
            return self.begin_anew(partition);
        }
        let Some(found) = self.partitions.get_mut(partition as usize) else {
            return;
        };
        if !found.takes() {
            return;
        }
        if self.shared && 0 < wanted {
            return self.restore_newer(partition);
        }
        found.next = next;
        found.last = None;
    }

    /// Whether a partition whose beginning is gone is looked for in snapshots once more: one that holds what is gone may
    /// have come since there was none.
    fn looks_once_more(&mut self, index: u32) -> bool {
        let shared = self.shared;
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return false;
        };
        if !shared || !partition.takes() || partition.overtaken_at == Some(0) {
            return false;
        }
        partition.overtaken_at = Some(0);
        self.restore_newer(index);
        true
    }

    /// Whether a partition whose beginning is gone waits for what another group knows of it.
    fn is_headless(&mut self, now: Now, index: u32, first: u64) -> bool {
        if !self.shared || !self.ruled_too.contains(&index) {
            return false;
        }
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return false;
        };
        if !partition.takes() {
            return false;
        }
        let until = now.clock.saturating_add(HEADLESS_MAX);
        if *partition.headless_until.get_or_insert(until) <= now.clock {
            return false;
        }
        // What that one takes from now on is of this log, wherever it ends.
        partition.restore_before = None;
        tracing::warn!(
            partition = index,
            first,
            "the log's beginning is gone and no snapshot is of use; another group rules it: waits for a snapshot of that"
        );
        partition.stage = Stage::Headless {
            first,
            again: now.clock.saturating_add(LOOK_AGAIN_AFTER),
        };
        self.effects.push(Effect::Unfollow {
            stream: Stream::Hits,
            partition: index,
        });
        true
    }

    /// Looks again for snapshots of partitions that wait for one. Where none is left who rules them, or none
    /// came in time, they are ruled from what there is.
    pub(super) fn headless_turn(&mut self, clock: Span) {
        let is_due =
            |stage: &Stage| matches!(stage, Stage::Headless { again, .. } if *again <= clock);
        let due: Vec<u32> = self
            .partitions
            .iter()
            .filter(|partition| is_due(&partition.stage))
            .map(|partition| partition.index)
            .collect();
        for index in due {
            self.restore_again(index);
        }
    }

    /// Records went by age before they were ruled, or what was ruled is not of this log: in a fleet another may have
    /// ruled what is missing, and its snapshot knows what that did. Where none reaches that far, it is gone on with
    /// what there is.
    fn restore_newer(&mut self, index: u32) {
        self.forget_ruled(index);
        self.restore_again(index);
    }

    pub(super) fn broken(&mut self, stream: Stream, index: u32, next: u64, why: String) {
        tracing::error!(
            ?stream,
            partition = index,
            next,
            why,
            "the log cannot be read any further"
        );
        match stream {
            Stream::Limits => self.limits.broken = Some(why),
            Stream::Hits => {
                if let Some(partition) = self.partitions.get_mut(index as usize) {
                    partition.stage = Stage::Stopped { why };
                }
            }
            Stream::Denials => {}
        }
    }
}
