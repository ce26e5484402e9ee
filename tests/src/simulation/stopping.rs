//! Ends of aggregators' processes: orderly shutdowns, and processes that end while they open the journal.
//!
//! Knows nothing of how a journal is opened or closed. What stays true: after an orderly shutdown every append that
//! the process accepted is in the log and answered, unless the log is cut off.

use tollgate_log::LogEvent;
use tollgate_server::core::event::Event as CoreEvent;

use super::log_host::LogHost;
use super::owner_host::Doom;
use super::world::World;

/// How long it takes until a process that ended while it opened the journal is started again.
const AGAIN_AFTER_US: u64 = 300_000;

impl World {
    /// Shuts an aggregator's process down in order: it completes the appends that it has accepted, closes
    /// the log, and leaves its group.
    pub(super) fn owner_stops(&mut self, owner: usize, power: bool) {
        let host = &self.owners[owner];
        // A frozen process does not react.
        if !host.is_up() || self.now_us < host.stalled_until_us {
            return;
        }
        let life = host.life;
        let answers = match &self.log {
            LogHost::Journal { .. } => self.journal_closes(owner),
            LogHost::Shared(_) => self.take_appends(owner).map(|(answers, _)| answers),
        };
        // The next process rules what is delivered now; agents that wait for an answer get it.
        for answer in answers.unwrap_or_default() {
            self.step(owner, CoreEvent::Log(answer));
        }
        if self.owners[owner].life != life || !self.owners[owner].is_up() {
            return;
        }
        self.see("owner stopped in order");
        self.owners[owner].doom = Some(Doom {
            after_effects: None,
            power,
        });
        self.owner_dies(owner);
        self.after(1_000, move |world| world.owner_missed(owner, life));
    }

    /// Closes the journal, and returns its last answers. `None`: no process has it open, or the machine stopped.
    fn journal_closes(&mut self, owner: usize) -> Option<Vec<LogEvent>> {
        let wall = self.log_clock.wall(self.now_us);
        let commands = std::mem::take(&mut self.owners[owner].commands);
        let LogHost::Journal { core, disk, .. } = &mut self.log else {
            return None;
        };
        let mut journal = core.take()?;
        let mut events = Vec::new();
        journal.turn(commands, wall, &mut |event| events.push(event));
        // If closing fails, the next opening finds that the end was not orderly.
        let _ = journal.close();
        if disk.has_crashed() {
            self.see("crash in a disk operation");
            self.owner_dies(owner);
            return None;
        }
        events.retain(|event| matches!(event, LogEvent::Appended { .. }));
        self.are_as_known(owner, wall.as_millis(), &events)?;
        Some(events)
    }

    /// Ends the process, and some of the next ones while they open the journal.
    pub(super) fn owner_is_to_crash_in_opening(
        &mut self,
        owner: usize,
        times: u32,
        within: u64,
        power: bool,
    ) {
        let host = &mut self.owners[owner];
        (host.crashes_in_opening, host.opening_power) = ((times, within), power);
        if host.is_up() {
            host.doom = Some(Doom {
                after_effects: None,
                power,
            });
            self.owner_dies(owner);
        }
        self.after(AGAIN_AFTER_US, move |world| world.owner_starts(owner));
    }

    /// Sets a crash for an opening of the journal, if one is due; the opening process finds out.
    pub(super) fn may_crash_in_opening(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        let (times, within) = host.crashes_in_opening;
        if 0 < times {
            let operations = host.random.below(within);
            self.log.on_disk(|disk| disk.crash_in = Some(operations));
        }
    }

    /// Handles a process that ended while it opened the journal.
    pub(super) fn crashed_in_opening(&mut self, owner: usize) {
        self.see("crash while a journal opens");
        let host = &mut self.owners[owner];
        host.crashes_in_opening.0 = host.crashes_in_opening.0.saturating_sub(1);
        // The doom may belong to another fault, which began while no process was up.
        let doom = host.doom.take();
        let power = doom.map_or(host.opening_power, |doom| doom.power);
        self.event(&[23, owner as u64], || {
            let how = if power { ", its machine with it" } else { "" };
            format!("owner {owner} dies opening the journal{how}")
        });
        self.log.process_ends(power);
        self.after(AGAIN_AFTER_US, move |world| world.owner_starts(owner));
    }

    /// The journal is open: a crash that was set for the opening did not occur.
    pub(super) fn has_opened(&mut self, owner: usize) {
        if 0 < self.owners[owner].crashes_in_opening.0 {
            self.log.on_disk(|disk| disk.crash_in = None);
        }
    }

    /// Removes the snapshot of a log that is gone. In a plain world it stays, as if the file could not be removed.
    pub(super) fn drop_snapshot(&mut self, owner: usize, partition: u32, upto: u64) {
        if self.plan.is_plain || self.plan.fleet {
            return;
        }
        self.snapshots[owner].remove(partition, upto);
        if self.log.has_crashed() {
            self.owner_dies(owner);
        }
    }
}
