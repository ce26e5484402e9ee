//! A fleet: partitions are divided among aggregators, are assigned and revoked, and are
//! restored from common snapshots.
//!
//! Each of two groups rules all partitions. This stands in for a consumer group; `state_topic` stands in for the
//! `state` topic. The next aggregator of a partition learns of it before, after or while the previous one learns of
//! its loss, so that at times two aggregators rule a partition and at times none does. Knows nothing of rules.

use tollgate_engine::engine::SnapshotFault;
use tollgate_log::Chunks;
use tollgate_server::core::assignment::{Known, Restored};
use tollgate_server::core::event::Event as CoreEvent;
use tollgate_server::core::ruler::Ruler;

use super::random::Random;
use super::state_topic::{By, Cut};
use super::world::World;

impl World {
    fn group_of(&self, owner: usize) -> usize {
        owner % self.plan.groups
    }

    fn assigned_in_group_of(&mut self, owner: usize, partition: u32) -> &mut Option<usize> {
        let group = self.group_of(owner);
        &mut self.assigned[group][partition as usize]
    }

    /// Writes a snapshot to the `state` topic. Returns whether it was written completely; with `is_cut`, the writer
    /// ends in the middle, or the topic stops accepting.
    pub(super) fn write_snapshot(
        &mut self,
        owner: usize,
        partition: u32,
        (upto, chunks): (u64, Chunks),
        is_cut: bool,
    ) -> bool {
        let life = self.owners[owner].life;
        let by = By {
            group: self.group_of(owner),
            partitions: self.plan.partitions,
        };
        let draws = life ^ (owner as u64) << 32 ^ u64::from(partition) << 40 ^ upto.rotate_left(48);
        let cut = is_cut.then(|| {
            let mut random = Random::of(self.plan.seed, "half-written", draws);
            let after = match self.plan.is_plain {
                true => 0,
                false => random.below(3),
            };
            Cut { after, random }
        });
        let is_whole = self.state.write(by, partition, upto, chunks, cut);
        self.see_if("snapshot half-written", !is_whole);
        if let Some(what) = self.state.manifest_alone(partition) {
            self.violated(5, "manifests come after their chunks", what);
        }
        is_whole
    }

    /// Whether a partition is assigned to an aggregator within its group.
    pub(super) fn is_assigned(&self, owner: usize, partition: u32) -> bool {
        self.assigned[self.group_of(owner)][partition as usize] == Some(owner)
    }

    /// An aggregator joins: it is assigned all partitions that no live aggregator rules, and a share of the rest.
    pub(super) fn owner_joins(&mut self, owner: usize) {
        self.step(owner, CoreEvent::Assigned(Vec::new()));
        for partition in 0..self.plan.partitions {
            let before = *self.assigned_in_group_of(owner, partition);
            let unruled = before.is_none_or(|of| of == owner || !self.owners[of].is_up());
            if unruled || self.random.one_in(2) {
                let late_us = self.random.spread(1_000, 2_000_000);
                self.move_partition(partition, owner, late_us);
            }
        }
    }

    /// Assigns a partition to another aggregator; the previous one learns of it `late_us` later.
    pub(super) fn move_partition(&mut self, partition: u32, to: usize, late_us: u64) {
        if !self.owners[to].is_up() {
            return;
        }
        let before = self.assigned_in_group_of(to, partition).replace(to);
        self.event(&[50, u64::from(partition), to as u64], || {
            format!("partition {partition} is given to owner {to}")
        });
        if let Some(before) = before
            && before != to
        {
            self.see("partition given to another owner");
            self.at_owner(before, self.now_us + late_us, move |world| {
                world.revoked_from(before, partition);
            });
        }
        let us = self.random.spread(100, 100_000);
        self.at_owner(to, self.now_us + us, move |world| {
            // The partition may have been assigned to another aggregator meanwhile.
            if world.is_assigned(to, partition) {
                world.step(to, CoreEvent::Assigned(vec![partition]));
            }
        });
    }

    fn revoked_from(&mut self, owner: usize, partition: u32) {
        if !self.is_assigned(owner, partition) {
            self.see("partition let go late");
            self.step(owner, CoreEvent::Revoked(vec![partition]));
            // A group that revokes assigns next, be it nothing.
            self.step(owner, CoreEvent::Assigned(Vec::new()));
        }
    }

    /// The group has missed an aggregator for long enough: its partitions are assigned to others.
    pub(super) fn owner_missed(&mut self, owner: usize, life: u64) {
        if !self.plan.fleet || self.owners[owner].life != life || self.owners[owner].is_up() {
            return;
        }
        let others: Vec<usize> = (0..self.owners.len())
            .filter(|other| self.group_of(*other) == self.group_of(owner))
            .filter(|other| self.owners[*other].is_up())
            .collect();
        for partition in 0..self.plan.partitions {
            if self.is_assigned(owner, partition) {
                match others.is_empty() {
                    true => *self.assigned_in_group_of(owner, partition) = None,
                    false => {
                        let to = *self.random.pick(&others);
                        self.move_partition(partition, to, 0);
                    }
                }
            }
        }
    }

    /// Restores a partition from its newest snapshot that looks whole.
    pub(super) fn restored(&mut self, owner: usize, partition: u32, attempt: u64, known: &Known) {
        let mut restored = Restored::Nothing;
        let kept = self.state.candidates(partition);
        let newest = kept
            .into_iter()
            .find(|found| known.before.is_none_or(|before| found.id.upto < before));
        if let Some(found) = newest {
            let chunks = match self.state.chunks(partition, &found) {
                Ok(chunks) => chunks,
                Err(why) => {
                    let what = format!("owner {owner}, partition {partition}: {why}");
                    return self.violated(5, "snapshots restore", what);
                }
            };
            match Ruler::restore(partition, self.plan.partitions, &chunks, &known.book) {
                Ok(ruler) => {
                    restored = Restored::Snapshot(Box::new(ruler));
                    self.see("partition restored from another's snapshot");
                }
                Err(SnapshotFault::MissingVersion { version }) if known.limits_next <= version => {
                    restored = Restored::NeedsLimits(version);
                }
                Err(fault) => {
                    let what = format!("owner {owner}, partition {partition}: {fault}");
                    return self.violated(5, "snapshots restore", what);
                }
            }
        }
        self.step(
            owner,
            CoreEvent::Restored {
                partition,
                attempt,
                restored,
            },
        );
    }
}
