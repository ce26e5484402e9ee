//! Owners' processes between one and the next: those that stop in order, and those that come to their end while
//! they open the journal.
//!
//! Knows nothing of how a journal is opened or closed. What stays true: what a process that stopped in order was
//! asked to append is in the log, and answered, but where nothing comes through to the log.

use tollgate_log::LogEvent;
use tollgate_server::core::event::Event as CoreEvent;

use super::event::Event;
use super::log_host::LogHost;
use super::owner_host::Doom;
use super::world::World;

/// How long it takes until a process that came to its end while it opened the journal is started again.
const AGAIN_AFTER_US: u64 = 300_000;

impl World {
    /// An owner's process is asked to end: it has everything appended that it has accepted, closes the log, and
    /// leaves its group.
    pub(super) fn owner_stops(&mut self, owner: usize, power: bool) {
        let host = &self.owners[owner];
        // Who stands still is asked in vain.
        if !host.is_up() || self.now_us < host.stalled_until_us {
            return;
        }
        let life = host.life;
        let answers = match &self.log {
            LogHost::Journal { .. } => self.journal_closes(owner),
            LogHost::Shared(_) => self.take_appends(owner).map(|(answers, _)| answers),
        };
        // What is delivered now is ruled by whoever comes next; who waits for an answer gets it.
        for answer in answers.unwrap_or_default() {
            self.step(owner, CoreEvent::Log(answer));
        }
        if self.owners[owner].life != life || !self.owners[owner].is_up() {
            return;
        }
        self.watch.cover.see("owner stopped in order");
        self.owners[owner].doom = Some(Doom {
            after_effects: None,
            power,
        });
        self.owner_dies(owner);
        self.after(1_000, Event::OwnerMissed { owner, life });
    }

    /// What the journal answers while it is closed; none: nobody has it open, or the machine stopped in that.
    fn journal_closes(&mut self, owner: usize) -> Option<Vec<LogEvent>> {
        let wall = self.log_clock.wall(self.now_us);
        let commands = std::mem::take(&mut self.owners[owner].commands);
        let LogHost::Journal { core, disk, .. } = &mut self.log else {
            return None;
        };
        let mut journal = core.take()?;
        let mut events = Vec::new();
        journal.turn(commands, wall, &mut |event| events.push(event));
        // Where it fails the next opening sees an end that was not in order.
        let _ = journal.close();
        if disk.has_crashed() {
            self.watch.cover.see("crash in a disk operation");
            self.owner_dies(owner);
            return None;
        }
        events.retain(|event| matches!(event, LogEvent::Appended { .. }));
        self.are_as_known(owner, wall.as_millis(), &events)?;
        Some(events)
    }

    /// The process ends, and so many of those that come next while they open the journal.
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
        self.after(AGAIN_AFTER_US, Event::OwnerStarts(owner));
    }

    /// Whether the journal can be opened is seen by who opens it.
    pub(super) fn may_crash_in_opening(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        let (times, within) = host.crashes_in_opening;
        if 0 < times {
            let operations = host.random.below(within);
            self.log.crash_in(operations);
        }
    }

    /// The process came to its end.
    pub(super) fn crashed_in_opening(&mut self, owner: usize) {
        self.watch.cover.see("crash while a journal opens");
        let host = &mut self.owners[owner];
        host.crashes_in_opening.0 = host.crashes_in_opening.0.saturating_sub(1);
        // It may be that of another fault, which came while nobody was up.
        let doom = host.doom.take();
        let power = doom.map_or(host.opening_power, |doom| doom.power);
        self.trace.event(self.now_us, &[23, owner as u64], || {
            let how = if power { ", its machine with it" } else { "" };
            format!("owner {owner} dies opening the journal{how}")
        });
        self.log.process_ends(power);
        self.after(AGAIN_AFTER_US, Event::OwnerStarts(owner));
    }

    /// The journal is open: who was to come to its end in that did not.
    pub(super) fn has_opened(&mut self, owner: usize) {
        if 0 < self.owners[owner].crashes_in_opening.0 {
            self.log.forget_crash();
        }
    }

    /// The snapshot of a log that is gone is removed; in a plain world it stays, as where a file cannot be removed.
    pub(super) fn drop_snapshot(&mut self, owner: usize, partition: u32, upto: u64) {
        if self.plan.is_plain || self.plan.fleet {
            return;
        }
        self.owners[owner].snapshots.remove(partition, upto);
        if self.log.has_crashed() {
            self.owner_dies(owner);
        }
    }
}
