//! Partitions that come and go: a fleet shares them, and each aggregator rules those it was given.
//!
//! ```text
//! Elsewhere ── Assigned ──> Restoring ── Restored ──> Returning ── Following ──> CatchingUp ──> Ruling
//!     ^                                                                                          │
//!     └──────────────────────────── Revoked, at any moment ──────────────────────────────────────┘
//! ```
//!
//! Restoring is done beside the loop, because a large state takes longer than others may wait. Knows
//! nothing of who shares partitions out, and how. What stays true: nothing has to be fenced, because
//! rulings are a function of the log: who is late to hear that a partition is another's says what that
//! one says. What is let go leaves nothing behind: no more is heard of it, and it may be made anew.

use tollgate_shared::names::partition_of_resource;

use super::event::{Effect, Now};
use super::partition::{Partition, Stage};
use super::ruler::Ruler;
use super::{Core, Settings};
use tollgate_limits::versions::LimitsBook;
use tollgate_log::Stream;

/// What came of restoring a partition.
#[derive(Debug)]
pub enum Restored {
    /// The newest snapshot that is whole.
    Snapshot(Box<Ruler>),
    /// There is none: the partition is ruled from the log's beginning.
    Nothing,
    /// The newest one needs a limits version that was not read yet when restoring began.
    NeedsLimits(u64),
}

/// What restoring takes from the core: the limits that snapshots refer to.
#[derive(Clone, Debug)]
pub struct Known {
    /// The versions.
    pub book: LimitsBook,
    /// The offset up to which the limits were read.
    pub limits_next: u64,
    /// Only a snapshot that ends before this offset is of use: those beyond are not of this log.
    pub before: Option<u64>,
}

impl Core {
    /// A core of a fleet: it rules the partitions that it is [assigned](super::event::Event::Assigned),
    /// and none before.
    pub fn shared(settings: Settings) -> (Self, Vec<Effect>) {
        let (mut core, effects) = Self::new(settings);
        core.shared = true;
        for partition in &mut core.partitions {
            partition.stage = Stage::Elsewhere;
        }
        (core, effects)
    }

    /// Takes partitions that this process is to rule.
    pub(super) fn assigned(&mut self, partitions: &[u32]) {
        self.joined = true;
        for &index in partitions {
            let attempt = self.next_attempt();
            let count = self.settings.partitions;
            let Some(partition) = self.partitions.get_mut(index as usize) else {
                tracing::error!(
                    partition = index,
                    expected = count,
                    "the topic of hits has more partitions than it was made with; this one nobody rules"
                );
                self.surplus.insert(index);
                continue;
            };
            if partition.stage != Stage::Elsewhere {
                continue;
            }
            partition.empty(count);
            // Without limits there is nothing to restore by; with the first of them it begins.
            partition.stage = Stage::Restoring {
                attempt,
                limits: Some(0),
            };
            tracing::info!(partition = index, "assigned");
            if self.following_hits {
                self.restore(index, attempt);
            }
        }
    }

    /// Lets go of partitions that another rules from now on.
    pub(super) fn revoked(&mut self, now: Now, partitions: &[u32]) {
        // What was ruled in this turn is said before it is forgotten: it costs nothing and tells sooner.
        let ready = self.ready(now.clock);
        self.announcer
            .publish_pending(now.clock, &ready, &mut self.effects);
        for &index in partitions {
            let count = self.settings.partitions;
            let Some(partition) = self.partitions.get_mut(index as usize) else {
                self.surplus.remove(&index);
                continue;
            };
            if partition.stage == Stage::Elsewhere {
                continue;
            }
            partition.empty(count);
            self.identities.forget((Stream::Hits, index));
            self.announcer.forget(index);
            self.totals.forget_source(index);
            let is_its = |resource: &str| partition_of_resource(resource, count) == index;
            self.totals.forget_applied(index, is_its);
            self.bridges.forget(index, is_its);
            self.effects.push(Effect::Unfollow {
                stream: Stream::Hits,
                partition: index,
            });
            tracing::info!(partition = index, "revoked");
        }
    }

    /// Restores those that waited for limits which are known by now.
    pub(super) fn restore_waiting(&mut self) {
        if !self.following_hits {
            return;
        }
        let limits_next = self.limits.next;
        let waits = |partition: &Partition| match partition.stage {
            Stage::Restoring {
                attempt,
                limits: Some(version),
            } if version < limits_next => Some((partition.index, attempt)),
            _ => None,
        };
        let due: Vec<(u32, u64)> = self.partitions.iter().filter_map(waits).collect();
        for (index, attempt) in due {
            self.restore(index, attempt);
        }
    }

    /// Restores a partition again, because the snapshot up to `upto` is not of this log.
    pub(super) fn restore_before(&mut self, index: u32, upto: u64) {
        let attempt = self.next_attempt();
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.restore_before = Some(upto);
        }
        self.restore(index, attempt);
    }

    /// Restores a partition again, from the newest snapshot that there is now.
    pub(super) fn restore_again(&mut self, index: u32) {
        let attempt = self.next_attempt();
        self.restore(index, attempt);
    }

    fn restore(&mut self, index: u32, attempt: u64) {
        let mut before = None;
        if let Some(partition) = self.partitions.get_mut(index as usize) {
            partition.stage = Stage::Restoring {
                attempt,
                limits: None,
            };
            before = partition.restore_before;
        }
        self.effects.push(Effect::Restore {
            partition: index,
            attempt,
            known: Box::new(Known {
                book: self.limits.book.clone(),
                limits_next: self.limits.next,
                before,
            }),
        });
    }

    pub(super) fn restored(&mut self, index: u32, of_attempt: u64, restored: Restored) {
        let Some(partition) = self.partitions.get_mut(index as usize) else {
            return;
        };
        match partition.stage {
            Stage::Restoring { attempt, .. } if attempt == of_attempt => {}
            // It was revoked meanwhile.
            _ => return,
        }
        match restored {
            Restored::NeedsLimits(version) => {
                partition.stage = Stage::Restoring {
                    attempt: of_attempt,
                    limits: Some(version),
                };
                return self.restore_waiting();
            }
            Restored::Snapshot(ruler) => {
                self.counters.restored += 1;
                self.adopt(index, *ruler);
            }
            Restored::Nothing => {}
        }
        if let Some(partition) = self.partitions.get(index as usize) {
            tracing::info!(partition = index, next = partition.next, "catching up");
        }
        self.follow_again(index);
    }

    fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }
}

impl Partition {
    /// Becomes one that has ruled nothing and is another's.
    fn empty(&mut self, count: u32) {
        *self = Self {
            stage: Stage::Elsewhere,
            generation_before: self.generation_met(),
            ticks: self.ticks.begun_anew(),
            ..Self::new(self.index, count)
        };
    }
}
