//! The log of the simulated world: the shipped journal on a disk in memory, or a log shared by several aggregators.
//!
//! The log's deliveries and answers are compared with the records that it accepted: each record once in each
//! pass, in order, with the same bytes. What a journal has kept when it is opened is checked in `log_opening`.

use std::path::Path;
use std::sync::Arc;

use tollgate_log::journal::core::{Core as Journal, JournalCommand};
use tollgate_log::journal::disk::Disk;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_log::journal::{Ack, JournalConfig};
use tollgate_log::{Answer, Append, Delivered, LogEvent, Stream};

use super::disk::{DiskState, SimDisk};
use super::plan::{LogPlan, Plan};
use super::random::Random;
use super::shared_log::SharedLog;
use super::trace::hash_of;
use super::watch::Kept;
use super::world::World;

/// The greatest number of events of the log that may wait for an aggregator, as in the real loop.
pub(super) const LOG_EVENTS_MAX: usize = 64;

/// The journal's directory on its disk.
const JOURNAL_DIR: &str = "journal";

/// How often an idle journal takes a turn.
pub(super) const IDLE_TURN_US: u64 = 1_000_000;

/// The log.
pub enum LogHost {
    /// The journal of the only aggregator.
    Journal {
        /// Its disk.
        disk: SimDisk,
        /// Its configuration.
        config: JournalConfig,
        /// The journal; `None`: no process has it open.
        core: Option<Box<Journal>>,
        /// The number of the machine's boot.
        boot: u64,
        /// Whether the power was cut, since it was last opened, while a process had it open.
        is_cut: bool,
        /// The generation in which it was last opened.
        generation: u32,
    },
    /// The log shared by all aggregators.
    Shared(SharedLog),
}

impl LogHost {
    /// The log of a plan.
    pub fn new(plan: &Plan) -> Self {
        let disk = SimDisk::new(Random::of(plan.seed, "disk", 0));
        disk.state().truncates_late = !plan.is_plain;
        match plan.log {
            LogPlan::Journal {
                is_synced,
                segment_bytes,
            } => Self::Journal {
                disk,
                config: JournalConfig {
                    partitions: plan.partitions,
                    ack: match is_synced {
                        true => Ack::Synced,
                        false => Ack::Written,
                    },
                    segment_bytes,
                    ..JournalConfig::new(JOURNAL_DIR)
                },
                core: None,
                boot: 1,
                is_cut: false,
                generation: 0,
            },
            LogPlan::Shared => Self::Shared(SharedLog::new(plan.partitions)),
        }
    }

    /// Where an aggregator of a plan keeps its snapshots: with a journal, on the journal's disk.
    pub(super) fn snapshots(&self, plan: &Plan, owner: usize) -> Snapshots {
        let disk = match self {
            Self::Journal { disk, .. } if !plan.is_plain => disk.clone(),
            _ => SimDisk::new(Random::of(plan.seed, "snapshots", owner as u64)),
        };
        Snapshots::beside(Path::new(JOURNAL_DIR), Arc::new(disk))
    }

    /// Calls `act` on the disk of a journal. A shared log has none.
    pub(super) fn on_disk<T: Default>(&self, act: impl FnOnce(&mut DiskState) -> T) -> T {
        match self {
            Self::Journal { disk, .. } => act(&mut disk.state()),
            Self::Shared(_) => T::default(),
        }
    }

    /// Whether the machine stopped in an operation of its disk.
    pub(super) fn has_crashed(&self) -> bool {
        self.on_disk(|disk| disk.crashed)
    }

    /// Notes that the process that had the log open is gone.
    pub(super) fn process_ends(&mut self, power: bool) {
        if let Self::Journal {
            disk,
            core,
            boot,
            is_cut,
            ..
        } = self
        {
            *core = None;
            disk.up_again();
            if power {
                *boot += 1;
                disk.cut_power();
                let running = Path::new(JOURNAL_DIR).join("running");
                *is_cut |= disk.read(&running).is_ok();
            }
        }
    }
}

impl World {
    pub(super) fn seen_in_log(
        &mut self,
        stream: Stream,
        partition: u32,
        record: &Delivered,
    ) -> Option<()> {
        let kept = Kept {
            appended: record.appended,
            at_us: self.now_us,
            bytes: record.bytes.clone(),
        };
        match self.watch.take(stream, partition, record.offset, kept) {
            Ok(()) => Some(()),
            Err(violation) => {
                self.violated_by(violation);
                None
            }
        }
    }

    pub(super) fn append(&mut self, owner: usize, append: Append) {
        let host = &mut self.owners[owner];
        let bytes = append.record.clone();
        let at = (append.stream, append.partition, bytes);
        host.tickets.insert(append.ticket, at);
        match self.log {
            LogHost::Journal { .. } => {
                host.commands.push(JournalCommand::Append(append));
                self.journal_turn_soon(owner);
            }
            LogHost::Shared(_) => {
                host.session.appends.push_back(append);
                if !std::mem::replace(&mut host.appends_due, true) {
                    let life = host.life;
                    let us = self.random.spread(50, 3_000);
                    let us = match self.appends_late_us {
                        0 => us,
                        late_us => us + self.random.below(late_us),
                    };
                    let late = 0 < self.appends_late_us;
                    self.see_if("appends late", late);
                    self.after(us, move |world| world.shared_appends(owner, life));
                }
            }
        }
    }

    pub(super) fn follow(&mut self, owner: usize, stream: Stream, partition: u32, from: u64) {
        self.event(&[31, owner as u64, u64::from(partition), from], || {
            format!("owner {owner} follows {stream:?} {partition} from {from}")
        });
        if stream == Stream::Hits {
            let is_again = 1 < self.owners[owner].life && from < self.watch.len(stream, partition);
            self.see_if("records delivered again", is_again);
            let versions = &self.watch.ruled[partition as usize].versions;
            let known = from.checked_sub(1).and_then(|at| versions.get(at as usize));
            let behind = known.is_some_and(|known| 0 < *known && Some(known) != versions.last());
            self.see_if("catch-up across a version", behind);
        }
        let host = &mut self.owners[owner];
        match &self.log {
            LogHost::Journal { .. } => {
                host.commands.push(JournalCommand::Follow {
                    stream,
                    partition,
                    from,
                });
                self.journal_turn_soon(owner);
            }
            LogHost::Shared(log) => {
                log.follow(&mut host.session, stream, partition, from);
                self.shared_delivery_soon(owner);
            }
        }
    }

    fn journal_turn_soon(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        if !std::mem::replace(&mut host.log_due, true) {
            let us = self.random.spread(10, 1_000) + self.random.below(self.answers_late_us);
            let slow = 0 < self.answers_late_us;
            self.see_if("log slow", slow);
            self.journal_turn_in(owner, us);
        }
    }

    pub(super) fn journal_turn_in(&mut self, owner: usize, us: u64) {
        self.at_log_of(owner, self.now_us + us, move |world| {
            world.journal_turn(owner);
        });
    }

    fn journal_turn(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        if LOG_EVENTS_MAX <= host.log_events {
            // The channel is full: the journal waits.
            return self.journal_turn_in(owner, 1_000);
        }
        let wall = self.log_clock.wall(self.now_us);
        let LogHost::Journal { core, disk, .. } = &mut self.log else {
            return;
        };
        let Some(journal) = core else {
            return;
        };
        let idle = !std::mem::replace(&mut host.log_due, false);
        let commands = std::mem::take(&mut host.commands);
        let mut events = Vec::new();
        let more = journal.turn(commands, wall, &mut |event| events.push(event));
        if disk.has_crashed() {
            self.see("crash in a disk operation");
            return self.owner_dies(owner);
        }
        if more {
            self.journal_turn_soon(owner);
        }
        if idle {
            self.journal_turn_in(owner, IDLE_TURN_US);
        }
        self.owner_follows(owner, wall.as_millis(), events);
    }

    /// Checks the log's events for an aggregator against the known records, and then hands them on.
    fn owner_follows(&mut self, owner: usize, now_ms: u64, events: Vec<LogEvent>) {
        if events.is_empty() {
            return;
        }
        if self.are_as_known(owner, now_ms, &events).is_none() {
            return;
        }
        for event in &events {
            let LogEvent::Delivered {
                stream,
                partition,
                records,
            } = event
            else {
                continue;
            };
            for record in records {
                let kept = self.watch.record(*stream, *partition, record.offset);
                let same = kept.is_some_and(|kept| {
                    kept.bytes == record.bytes && kept.appended == record.appended
                });
                if !same {
                    let expected = kept.map_or("nothing".to_owned(), Kept::to_string);
                    let what = format!(
                        "owner {owner}, {stream:?} {partition}, offset {}: hash {:016x}, taken at {} us, expected \
                         {expected}",
                        record.offset,
                        hash_of(&record.bytes),
                        record.appended.as_micros()
                    );
                    return self.violated(5, "what is delivered is what was appended", what);
                }
            }
        }
        self.hand_on(owner, events);
    }

    /// Checks a journal's answers against its requests, and notes the records that it accepted.
    pub(super) fn are_as_known(
        &mut self,
        owner: usize,
        now_ms: u64,
        events: &[LogEvent],
    ) -> Option<()> {
        for Answer { ticket, result } in events.iter().flat_map(LogEvent::answers) {
            let Some((stream, partition, bytes)) = self.owners[owner].tickets.remove(ticket) else {
                let what = format!("owner {owner}: {ticket:?} is answered twice, or never was");
                self.violated(5, "each append is answered once", what);
                return None;
            };
            match result {
                Ok(offset) => {
                    let last = offset
                        .checked_sub(1)
                        .and_then(|before| self.watch.record(stream, partition, before))
                        .map_or(0, |kept| kept.appended.as_millis());
                    let appended = tollgate_shared::time::Timestamp::from_millis(now_ms.max(last));
                    let record = Delivered {
                        offset: *offset,
                        appended,
                        bytes,
                    };
                    self.seen_in_log(stream, partition, &record)?;
                }
                Err(_) => self.watch.append_refused(),
            }
        }
        Some(())
    }

    pub(super) fn hand_on(&mut self, owner: usize, events: Vec<LogEvent>) {
        let host = &mut self.owners[owner];
        if events.is_empty() || !host.is_up() {
            return;
        }
        host.log_events += 1;
        let us = self.random.spread(5, 2_000);
        // In order: answers and deliveries share one channel.
        let at_us = (self.now_us + us).max(host.log_last_us + 1);
        host.log_last_us = at_us;
        self.at_owner(owner, at_us, move |world| {
            world.owner_log(owner, events);
        });
    }
}
