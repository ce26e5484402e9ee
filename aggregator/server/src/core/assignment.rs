//! Partitions that come and go: a fleet shares them, and each aggregator rules those assigned to it.
//!
//! ```text
//! Elsewhere ── Assigned ──> Restoring ── Restored ──> Returning ── Following ──> CatchingUp ──> Ruling
//!     ^                                                                                          │
//!     └──────────────────────────── Revoked, at any moment ──────────────────────────────────────┘
//! ```
//!
//! Restoring is done beside the loop, because a large state takes longer than the other partitions may wait.
//! Knows nothing of how partitions are shared out. What stays true: nothing has to be fenced, because rulings
//! are a function of the log: an aggregator that learns late that it lost a partition states the same as the
//! new one. A revoked partition leaves nothing behind: its log is followed no more, and may be recreated.

use std::collections::BTreeSet;

use tollgate_limits::versions::LimitsBook;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::wire::link::{MEMBERS_MAX, Member};

use super::candidates::Candidates;
use super::event::Effect;
use super::partition::event::{PartitionEffect, PartitionStep};
use super::partition::{Partition, Stage};
use super::recordings::Recordings;
use super::ruler::Ruler;
use super::snapshots::Snapshots;
use super::state_digests::StateDigests;
use super::usage::Usage;

/// The result of restoring a partition.
#[derive(Debug)]
pub enum Restored {
    /// The newest intact snapshot.
    Snapshot(Box<Ruler>),
    /// There is no snapshot: the partition is ruled from the log's beginning.
    Nothing,
    /// The newest snapshot needs a limits version that was not read yet when restoring began.
    NeedsLimits(u64),
}

/// What restoring needs from the core: the limits that snapshots refer to.
#[derive(Clone, Debug)]
pub struct Known {
    /// The versions.
    pub book: LimitsBook,
    /// The offset up to which the limits were read.
    pub limits_next: u64,
    /// Only a snapshot that ends before this offset is of use: later ones are not of this log.
    pub before: Option<u64>,
}

/// This process's place in a fleet.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// Whether partitions come and go.
    pub shared: bool,
    /// Whether partitions have been assigned to this process, be it an empty set, since it had lost its last one. A group
    /// that takes the last one away assigns again, be it an empty set; a process that has lost the group's session waits
    /// for that assignment, and nobody may rule meanwhile.
    pub joined: bool,
    /// The other members of the fleet.
    pub members: Vec<Member>,
    /// Partitions that other groups rule as well.
    pub ruled_too: BTreeSet<u32>,
    /// Partitions that were assigned to this process and lie beyond the configured number.
    pub surplus: BTreeSet<u32>,
}

impl Membership {
    /// Sets the other members, of which agents are given as many as a welcome may list.
    pub fn set_members(&mut self, mut members: Vec<Member>) {
        if MEMBERS_MAX < members.len() {
            tracing::warn!(
                members = members.len(),
                "more members than the {MEMBERS_MAX} that agents can read: agents are not given the others' addresses"
            );
            members.truncate(MEMBERS_MAX);
        }
        self.members = members;
    }
}

impl Partition {
    /// This process is to rule the partition.
    pub(super) fn assigned(&mut self, limits_known: bool, step: &mut PartitionStep<'_>) {
        if self.stage != Stage::Elsewhere {
            return;
        }
        self.give_away(step.context.settings.partitions);
        let _inside = self.recovery.begin(self.index);
        let attempt = self.recovery.next_attempt();
        // Without limits nothing can be restored; restoring begins with the first limits version.
        self.stage = Stage::Restoring {
            attempt,
            limits: Some(0),
        };
        tracing::info!("assigned");
        if limits_known {
            self.restore(attempt, step);
        }
    }

    /// Another aggregator rules the partition from now on.
    pub(super) fn revoked(&mut self, step: &mut PartitionStep<'_>) {
        if self.stage == Stage::Elsewhere {
            return;
        }
        self.give_away(step.context.settings.partitions);
        self.totals.forget();
        step.push(PartitionEffect::ForgetIdentity);
        step.push(PartitionEffect::Forget);
        self.unfollow(step);
        tracing::info!(partition = self.index, "revoked");
    }

    /// Resumes a partition that waited for a limits version that is known by now.
    pub(super) fn limits_read(&mut self, step: &mut PartitionStep<'_>) {
        let known = step.context.limits.next;
        match self.stage {
            Stage::Restoring {
                attempt,
                limits: Some(version),
            } if version < known => self.restore(attempt, step),
            Stage::Waiting { version } if version < known => self.follow_again(step),
            _ => {}
        }
    }

    /// Restores the partition from the newest snapshot that was found at start and not tried yet, and follows the log
    /// from the snapshot's end; without a snapshot, from the beginning.
    pub(super) fn restore_found(&mut self, step: &mut PartitionStep<'_>) {
        let _inside = self.recovery.begin(self.index);
        let (partitions, book) = (step.context.settings.partitions, &step.context.limits.book);
        let mut skipped = 0;
        while let Some(chunks) = self.recovery.found.pop_front() {
            match Ruler::restore(self.index, partitions, &chunks, book) {
                Ok(ruler) => {
                    let upto = ruler.applied_upto();
                    tracing::info!(upto, skipped, "restored from a snapshot");
                    self.adopt(ruler);
                    break;
                }
                Err(fault) => {
                    skipped += 1;
                    tracing::warn!(%fault, "a snapshot is skipped");
                }
            }
        }
        self.follow_again(step);
    }

    /// Takes a restored state, which has yet to be verified against the log: see `following`.
    fn adopt(&mut self, ruler: Ruler) {
        let upto = ruler.applied_upto();
        self.position.restore(upto);
        self.recovery.restored_upto = upto;
        self.ruler = ruler;
    }

    /// The snapshot up to `upto` is of no use: forgets its state, and restores an older one.
    pub(super) fn restore_older(&mut self, upto: u64, step: &mut PartitionStep<'_>) {
        self.forget_ruled(step);
        if step.context.shared {
            self.recovery.before = Some(upto);
            self.restore_again(step);
        } else {
            self.restore_found(step);
        }
    }

    /// Restores the partition again, from the newest useful snapshot that exists now.
    pub(super) fn restore_again(&mut self, step: &mut PartitionStep<'_>) {
        let attempt = self.recovery.next_attempt();
        self.restore(attempt, step);
    }

    fn restore(&mut self, attempt: u64, step: &mut PartitionStep<'_>) {
        let _inside = self.recovery.begin(self.index);
        self.stage = Stage::Restoring {
            attempt,
            limits: None,
        };
        let limits = step.context.limits;
        let known = Box::new(Known {
            book: limits.book.clone(),
            limits_next: limits.next,
            before: self.recovery.before,
        });
        step.ask(Effect::Restore {
            partition: self.index,
            attempt,
            known,
        });
    }

    /// An attempt to restore the partition has ended.
    pub(super) fn restored(
        &mut self,
        of_attempt: u64,
        restored: Restored,
        step: &mut PartitionStep<'_>,
    ) {
        match self.stage {
            Stage::Restoring { attempt, .. } if attempt == of_attempt => {}
            // It was revoked meanwhile.
            _ => return,
        }
        match restored {
            Restored::NeedsLimits(version) => {
                self.stage = Stage::Restoring {
                    attempt: of_attempt,
                    limits: Some(version),
                };
                return self.limits_read(step);
            }
            Restored::Snapshot(ruler) => {
                step.counters().restored += 1;
                self.adopt(*ruler);
            }
            Restored::Nothing => {}
        }
        let next = self.position.next;
        tracing::info!(next, "catching up");
        self.follow_again(step);
    }

    /// Forgets what the partition has ruled, and what followed from that: it was not part of this log.
    pub(super) fn forget_ruled(&mut self, step: &mut PartitionStep<'_>) {
        self.recovery.generation_before = self.generation_met();
        self.ruler = Ruler::new(self.index, step.context.settings.partitions);
        self.position.restart();
        self.announcing = false;
        self.forget_on_the_way();
        self.recordings = Recordings::default();
        self.totals.forget();
        self.snapshots = Snapshots::default();
        self.state_digests = StateDigests::default();
        self.usage = Usage::default();
        self.candidates = Candidates::default();
        step.push(PartitionEffect::Forget);
    }

    /// How many of this partition's totals `target` has applied is not known any more.
    pub(super) fn forget_target(&mut self, target: u32, step: &PartitionStep<'_>) {
        let count = step.context.settings.partitions;
        let is_its = |resource: &str| partition_of_resource(resource, count) == target;
        self.totals.forget_applied(is_its);
    }
}
