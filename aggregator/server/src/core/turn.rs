//! The end of a turn: what was ruled goes out, and time is brought into the log.

use tollgate_shared::bugs::{Bug, planted};
use tollgate_shared::time::Span;
use tollgate_shared::wire::record::{OwnersPen, Pointer, Tick};

use super::announce::TOPIC_KEY_UNPROTECTED;
use super::event::Now;
use super::partition::{Partition, Stage, TICK_EVERY};
use super::{Core, Purpose};
use tollgate_log::Stream;

impl Core {
    pub(super) fn turn(&mut self, now: Now) {
        self.begin_lost(now.clock);
        self.begin_partitions(now.clock);
        self.headless_turn(now.clock);
        self.slices_turn(now);
        let ready = self.ready(now.clock);
        if planted(Bug::EvidenceFirst) {
            self.announcer
                .publish_heartbeats(now.clock, &ready, &mut self.effects);
        }
        self.announcer
            .publish_pending(now.clock, &ready, &mut self.effects);
        self.notices_turn(now, &ready);
        self.verdict_frames += self.verdicts.publish(
            self.instance,
            &TOPIC_KEY_UNPROTECTED,
            now.clock,
            &mut self.effects,
        );
        if self.next_heartbeat <= now.clock {
            self.announcer
                .publish_heartbeats(now.clock, &ready, &mut self.effects);
            self.next_heartbeat = now.clock.saturating_add(self.settings.heartbeat);
        }
        self.give_part(now);
        self.send_totals(now);
        self.bridges_turn(now);
        self.proposals_turn(now);
        self.recordings_turn(now.clock);
        self.limits_turn(now);
        self.snapshots_turn(now);
        for index in 0..self.partitions.len() {
            self.tick(now.clock, index);
            self.point(now.clock, index);
        }
        // Later versions come into force while it rules; the first ones are waited for.
        self.started = self.started || self.limits_not_in_force().is_none();
    }

    /// Brings time into a partition: one tick at a time, and none before its identity is known.
    fn tick(&mut self, clock: Span, index: usize) {
        let Some(partition) = self.partitions.get_mut(index) else {
            return;
        };
        let Some(log) = partition.log().filter(|_| partition.stage == Stage::Ruling) else {
            return;
        };
        if !partition.ticks.slot.is_free(clock) {
            return;
        }
        partition.ticks.number += 1;
        partition.ticks.sent = clock;
        let tick = Tick {
            log,
            owner: &self.settings.owner,
            instance: self.instance,
            number: partition.ticks.number,
        };
        let number = partition.index;
        let record = OwnersPen::new(&self.settings.key, number).tick(&tick);
        let ticket = self.append(Stream::Hits, number, record, Purpose::Tick(number));
        self.counters.ticks += 1;
        if let Some(partition) = self.partitions.get_mut(index) {
            partition.ticks.slot.ticket = Some(ticket);
            partition.ticks.slot.not_before = clock.saturating_add(TICK_EVERY);
        }
    }

    /// Appends the pointer to the newest limits version where a partition does not have it yet.
    fn point(&mut self, clock: Span, index: usize) {
        let Some(latest) = self.limits.to_point_at() else {
            return;
        };
        let Some(partition) = self.partitions.get(index) else {
            return;
        };
        let wanted = partition.stage == Stage::Ruling
            && partition.log().is_some()
            && partition.ruler.version() < latest.number
            && partition.pointer.is_free(clock);
        if !wanted {
            return;
        }
        let pointer = Pointer {
            version: latest.number,
            digest: latest.digest,
        };
        let number = partition.index;
        let record = OwnersPen::new(&self.settings.key, number).pointer(&pointer);
        let ticket = self.append(Stream::Hits, number, record, Purpose::Pointer(number));
        self.counters.pointers += 1;
        if let Some(partition) = self.partitions.get_mut(index) {
            partition.pointer.ticket = Some(ticket);
            partition.pointed = pointer.version;
        }
    }

    pub(super) fn wake_at(&self) -> Span {
        let slices = |partition: &Partition| {
            partition.stage == Stage::RulingAgain
                && !partition.recordings.is_full(self.settings.waiting_max)
        };
        if !self.givings.is_empty() || self.partitions.iter().any(slices) {
            return Span::ZERO;
        }
        let tick = |partition: &Partition| {
            let free = partition.stage == Stage::Ruling
                && partition.log().is_some()
                && partition.ticks.slot.ticket.is_none();
            free.then_some(partition.ticks.slot.not_before)
        };
        let ticks = self.partitions.iter().filter_map(tick).min();
        let ours = [ticks, self.announcer.next_step()];
        // Everything else that is tried again waits for a heartbeat: it comes at least each second.
        let wakes = ours.into_iter().flatten();
        wakes.fold(self.next_heartbeat, Span::min)
    }
}
