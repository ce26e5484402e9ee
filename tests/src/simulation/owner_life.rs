//! The begin and the end of an aggregator's process: it starts on the log as it finds it, and dies at any instant, with
//! or without its machine.
//!
//! Knows nothing of what the process does in between, nor of orderly shutdowns (`stopping`). What stays true: a life
//! has a number of its own, by which events for an earlier life are dropped; all that the process had in memory is
//! gone with it.

use tollgate_agent::simulation::SocketEvent;
use tollgate_server::core::Core;

use super::log_host::{IDLE_TURN_US, LogHost};
use super::owner_host::Doom;
use super::shared_log::Session;
use super::world::World;

/// How long a group waits for an aggregator that is gone.
const SESSION_US: u64 = 1_500_000;

impl World {
    pub(super) fn owner_starts(&mut self, owner: usize) {
        if self.owners[owner].is_up() {
            return;
        }
        self.may_crash_in_opening(owner);
        let Some(mut start) = self.open_log(owner) else {
            return;
        };
        if !self.plan.fleet {
            start.snapshots = self.snapshots[owner].read_all(self.plan.partitions);
            self.snapshots[owner].remove_half_written();
            if self.log.has_crashed() {
                return self.crashed_in_opening(owner);
            }
        }
        self.has_opened(owner);
        let now_us = self.now_us;
        let (drift_ppm, off_us) = (
            self.plan.owner_drift_ppm[owner],
            self.plan.owner_wall_off_us[owner],
        );
        self.see_if("clock of an owner drifts", drift_ppm != 0);
        self.see_if("clock of an owner off", off_us != 0);
        let is_restored = !start.snapshots.is_empty();
        self.see_if("owner took over from a snapshot", is_restored);
        let host = &mut self.owners[owner];
        host.life += 1;
        host.started_mono_us = host.clock.mono_us(now_us);
        host.turn_at_us = u64::MAX;
        host.published.clear();
        (host.log_due, host.appends_due, host.log_events) = (false, false, 0);
        let settings = host.settings(&self.plan, start);
        let (core, effects) = match self.plan.fleet {
            true => Core::shared(settings),
            false => Core::new(settings),
        };
        host.core = Some(core);
        let life = host.life;
        self.event(&[20, owner as u64, life], || {
            format!("owner {owner}.{life} starts")
        });
        self.perform(owner, effects);
        self.owner_reads_file(owner);
        if matches!(self.log, LogHost::Journal { .. }) {
            self.journal_turn_in(owner, IDLE_TURN_US);
        }
        if self.plan.fleet {
            self.owner_joins(owner);
        }
    }

    pub(super) fn owner_is_to_crash(
        &mut self,
        owner: usize,
        after: u64,
        in_disk: bool,
        power: bool,
    ) {
        let after_effects = (!in_disk).then_some(after);
        self.owners[owner].doom = Some(Doom {
            after_effects,
            power,
        });
        if in_disk {
            self.log.on_disk(|disk| disk.crash_in = Some(after / 4));
        }
    }

    /// Ends a fault: a crash that has not occurred is cancelled, and a dead process is started.
    pub(super) fn owner_may_return(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        (host.doom, host.crashes_in_opening.0) = (None, 0);
        self.log.on_disk(|disk| disk.crash_in = None);
        self.owner_starts(owner);
    }

    /// Ends the process at this instant.
    pub(super) fn owner_dies(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        let power = host.doom.take().is_some_and(|doom| doom.power);
        host.core = None;
        host.session = Session::default();
        host.tickets.clear();
        host.commands.clear();
        let writing = std::mem::take(&mut host.writing);
        let life = host.life;
        let connections = std::mem::take(&mut host.connections);
        self.event(&[21, owner as u64, life], || {
            let how = if power { ", its machine with it" } else { "" };
            format!("owner {owner}.{life} dies{how}")
        });
        for (partition, written) in writing {
            if self.plan.fleet {
                self.write_snapshot(owner, partition, written, true);
            }
        }
        self.log.process_ends(power);
        self.after(SESSION_US, move |world| world.owner_missed(owner, life));
        if power {
            // The group is not notified.
            return;
        }
        for (connection, one) in connections {
            self.reset_connection(owner, one.agent, connection, one.topics.is_some());
        }
    }

    pub(super) fn reset_connection(
        &mut self,
        owner: usize,
        agent: usize,
        connection: u64,
        feed: bool,
    ) {
        let event = match feed {
            true => SocketEvent::FeedDown { peer: owner },
            false => SocketEvent::LinkDown { peer: owner },
        };
        let us = self.random.spread(50, 5_000);
        self.at_agent(agent, self.now_us + us, move |world| {
            world.agent_receives(agent, connection, event);
        });
    }
}
