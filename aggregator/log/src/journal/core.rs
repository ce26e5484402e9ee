//! The journal's logic: commands and an instant in; reads, writes and events out, turn by turn.
//!
//! Has no thread, no channel and no clock, so that a simulation can drive it as the journal's thread
//! does. One turn takes the commands, writes each partition's appends in one write (and syncs it, where
//! configured), answers tickets, delivers new records from memory to followers that are caught up, and
//! reads a bounded piece from disk for each follower that is behind.
//!
//! What stays true: nothing is answered or delivered before it is as durable as configured; a follower
//! gets each record once and in order, or an event that says why not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tollgate_shared::log_lines::LineInterval;
use tollgate_shared::time::{Span, Timestamp};

use super::super::{Answer, Append, AppendError, LogEvent, Stream, Ticket};
use super::awaited::Awaited;
use super::disk::Disk;
use super::displaced;
use super::end_recorder::EndRecorder;
use super::error::OpenError;
use super::layout;
use super::opening::{self, OpenReport};
use super::partition::{Partition, Terms};
use super::retention::Bounds;
use super::segment::JournalCursor;
use super::slot::{Follower, JournalSlot};
use super::snapshots::Snapshots;
use super::{Ack, JournalConfig, RECORD_BYTES_MAX};

/// How many bytes each follower that is behind reads from disk in one turn, at least: appends wait meanwhile, so it
/// is little. Twice what the turn appends, if that is more, so that followers catch up whatever the rate of writing.
const CATCH_UP_BYTES: usize = super::segment::CHUNK_BYTES;

/// How often the journal closes and removes old segments. Retention is counted in hours, so a second is
/// precise enough.
const TIDY_EVERY_MS: u64 = 1_000;

/// How long a partition whose append failed keeps the whole log `Down` if nobody tries that partition
/// again. The owner retries several times within this time.
const FAILING_MS: u64 = 2_000;

/// How often the log says that a segment or an end cannot be read, written or removed, which is tried each second.
pub(super) const TROUBLE_EVERY: Span = Span::from_secs(60);

/// A command to the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalCommand {
    /// Append a record.
    Append(Append),
    /// Answer that there is no room for a record at the moment.
    Refuse {
        /// Names the append in the answer.
        ticket: Ticket,
    },
    /// Deliver from an offset on.
    Follow {
        /// The stream.
        stream: Stream,
        /// The partition.
        partition: u32,
        /// The first offset to deliver.
        from: u64,
    },
}

/// The journal without a thread.
pub struct Core {
    config: JournalConfig,
    disk: Arc<dyn Disk>,
    slots: Vec<JournalSlot>,
    /// Slots with appends in this turn.
    touched: Vec<usize>,
    /// Partitions whose last append failed, and when it failed, in milliseconds of the clock.
    failing: BTreeMap<usize, u64>,
    /// A segment that is no longer at its path. Nothing is written while there is one.
    displaced: Option<PathBuf>,
    buffer: Vec<u8>,
    ends: EndRecorder,
    awaited: Awaited,
    /// When the journal last looked for old segments, in milliseconds of the clock.
    tidied_ms: u64,
    /// Lines about segments that cannot be begun or removed, and about ends that cannot be recorded.
    trouble_lines: [LineInterval; 3],
    _lock: Box<dyn Send>,
}

impl Core {
    /// Opens the journal, or creates it. `boot` is the id of the machine's current boot, if known.
    ///
    /// # Errors
    ///
    /// Each [`OpenError`]: the directory cannot be used, is in use, does not hold a journal that this
    /// build reads, or is damaged.
    pub fn open(
        config: JournalConfig,
        disk: Arc<dyn Disk>,
        boot: Option<&str>,
        now: Timestamp,
    ) -> Result<(Self, OpenReport), OpenError> {
        let opened = opening::open(&config, &disk, boot, now)?;
        let slots = opened.partitions.into_iter().map(|partition| JournalSlot {
            partition,
            staged: Vec::new(),
            follower: None,
            read_lines: LineInterval::new(TROUBLE_EVERY),
        });
        let snapshots = config
            .until_snapshot
            .then(|| Snapshots::beside(&config.dir, Arc::clone(&disk)));
        let core = Self {
            awaited: Awaited::new(snapshots),
            slots: slots.collect(),
            config,
            disk,
            touched: Vec::new(),
            failing: BTreeMap::new(),
            displaced: None,
            buffer: Vec::new(),
            ends: EndRecorder::new(opened.ends),
            tidied_ms: now.as_millis(),
            trouble_lines: [const { LineInterval::new(TROUBLE_EVERY) }; 3],
            _lock: opened.lock,
        };
        Ok((core, opened.report))
    }

    /// Runs one turn. Returns true while there is work that needs no command: followers that are
    /// behind.
    pub fn turn(
        &mut self,
        commands: impl IntoIterator<Item = JournalCommand>,
        now: Timestamp,
        emit: &mut dyn FnMut(LogEvent),
    ) -> bool {
        let mut appended = 0;
        for command in commands {
            if let JournalCommand::Append(append) = &command {
                appended += append.record.len();
            }
            self.take(command, emit);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for at in touched.drain(..) {
            self.commit(at, now, emit);
        }
        self.touched = touched;
        self.tidy(now.as_millis(), emit);
        let mut more = false;
        let catch_up = CATCH_UP_BYTES.max(2 * appended);
        for slot in &mut self.slots {
            more |= slot.feed(catch_up, now.as_millis(), emit);
        }
        more
    }

    /// Makes everything durable and marks the stop as clean in the directory. The caller has passed
    /// every command through a turn before.
    ///
    /// # Errors
    ///
    /// If something cannot be made durable. The next opening then sees a stop that was not clean.
    pub fn close(mut self) -> Result<(), OpenError> {
        if let Some(segment) = displaced::find(self.partitions()) {
            // The directory may be that of another journal now.
            let fault = displaced::fault(&segment);
            return Err(OpenError::io(&self.config.dir)(fault));
        }
        for slot in &mut self.slots {
            let dir: PathBuf = slot.partition.dir.clone();
            slot.partition.sync().map_err(OpenError::io(dir))?;
        }
        let partitions = self.slots.iter().map(|slot| &slot.partition);
        let recorded = self.ends.close(partitions, &*self.disk, &self.config.dir);
        if let Err(error) = recorded {
            // A full disk, for example. What the file had before is still true.
            let file = layout::ends(&self.config.dir);
            tracing::warn!(file = %file.display(), %error, "the ends of the partitions cannot be recorded");
        }
        let running = layout::running(&self.config.dir);
        self.disk.remove(&running).map_err(OpenError::io(running))?;
        let dir = &self.config.dir;
        self.disk.sync_dir(dir).map_err(OpenError::io(dir))
    }

    fn take(&mut self, command: JournalCommand, emit: &mut dyn FnMut(LogEvent)) {
        match command {
            JournalCommand::Append(Append {
                stream,
                partition,
                ticket,
                record,
            }) => match self.accept(stream, partition, &record) {
                Ok(at) => {
                    if let Some(slot) = self.slots.get_mut(at) {
                        if slot.staged.is_empty() {
                            self.touched.push(at);
                        }
                        slot.staged.push((ticket, record));
                    }
                }
                Err(error) => emit(LogEvent::answer(ticket, Err(error))),
            },
            JournalCommand::Refuse { ticket } => {
                let why = "the journal's queue is full".to_owned();
                emit(LogEvent::answer(ticket, Err(AppendError::NotNow(why))));
            }
            JournalCommand::Follow {
                stream,
                partition,
                from,
            } => self.follow(stream, partition, from, emit),
        }
    }

    fn accept(&self, stream: Stream, partition: u32, record: &[u8]) -> Result<usize, AppendError> {
        let at = self.slot_of(stream, partition).ok_or_else(|| {
            AppendError::Never(format!("{stream:?} has no partition {partition}"))
        })?;
        if RECORD_BYTES_MAX < record.len() {
            return Err(AppendError::Never(format!(
                "a record of {} bytes is above the limit of {RECORD_BYTES_MAX} bytes",
                record.len()
            )));
        }
        Ok(at)
    }

    fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.slots.iter().map(|slot| &slot.partition)
    }

    fn slot_of(&self, stream: Stream, partition: u32) -> Option<usize> {
        let mut before = 0;
        for each in layout::STREAMS {
            let count = layout::partitions_of(each, self.config.partitions);
            if each == stream {
                return (partition < count).then_some((before + partition) as usize);
            }
            before += count;
        }
        None
    }

    fn follow(
        &mut self,
        stream: Stream,
        partition: u32,
        from: u64,
        emit: &mut dyn FnMut(LogEvent),
    ) {
        emit(LogEvent::Following {
            stream,
            partition,
            from,
        });
        let Some(slot) = self
            .slot_of(stream, partition)
            .and_then(|at| self.slots.get_mut(at))
        else {
            emit(LogEvent::Broken {
                stream,
                partition,
                next: from,
                why: format!("{stream:?} has no partition {partition}"),
            });
            return;
        };
        let end = slot.partition.next;
        if end < from {
            emit(LogEvent::Gap {
                stream,
                partition,
                wanted: from,
                next: end,
            });
        }
        slot.follower = Some(Follower {
            cursor: JournalCursor::at(from.min(end)),
            target: Some(end),
            refused_ms: None,
        });
    }

    /// Looks whether the segments are still at their paths, closes those that have grown old, and removes those beyond
    /// their retention, every [`TIDY_EVERY_MS`].
    fn tidy(&mut self, now_ms: u64, emit: &mut dyn FnMut(LogEvent)) {
        // `abs_diff`, so that a clock that was set back does not stop this.
        if now_ms.abs_diff(self.tidied_ms) < TIDY_EVERY_MS {
            return;
        }
        self.tidied_ms = now_ms;
        self.displaced = displaced::find(self.partitions());
        if self.displaced.is_some() {
            return;
        }
        let retention_ms = self.config.retention.as_millis();
        // Counted from 0, as intervals of lines are.
        let clock = Span::from_millis(now_ms);
        let [beginning, removing, recording] = &mut self.trouble_lines;
        for slot in &mut self.slots {
            if let Err(error) =
                slot.partition
                    .roll_if_older(now_ms, retention_ms / 4, self.config.ack)
                && beginning.may(clock).is_some()
            {
                tracing::warn!(%error, dir = %slot.partition.dir.display(), "a segment cannot be begun");
            }
        }
        let mut kept: Vec<_> = self.slots.iter().map(|one| one.partition.kept()).collect();
        let bounds = Bounds {
            retention_ms,
            bytes: self.config.retention_bytes,
        };
        let gone = self.awaited.overdue(&mut kept, now_ms, bounds);
        for ((slot, before), count) in self.slots.iter_mut().zip(&kept).zip(gone) {
            if let Err(error) = slot.partition.remove_first(count)
                && removing.may(clock).is_some()
            {
                tracing::warn!(%error, dir = %slot.partition.dir.display(), "a segment cannot be removed");
            }
            let first = slot.partition.first();
            self.awaited.lost(before, first).map(&mut *emit);
        }
        let partitions = self.slots.iter().map(|slot| &slot.partition);
        let recorded = self.ends.turn(partitions, &self.disk, &self.config.dir);
        if let Err(error) = recorded
            && recording.may(clock).is_some()
        {
            tracing::warn!(%error, "the end of a partition cannot be recorded");
        }
    }

    /// Writes a partition's staged records, answers their tickets, and delivers the records to the
    /// follower.
    fn commit(&mut self, at: usize, now: Timestamp, emit: &mut dyn FnMut(LogEvent)) {
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let terms = Terms {
            // Limits versions are few and needed for ever. Limits activations name them, so a power cut
            // must not lose them, whatever durability is configured for hits.
            ack: match slot.partition.stream {
                Stream::Limits => Ack::Synced,
                Stream::Hits | Stream::Denials => self.config.ack,
            },
            segment_bytes: self.config.segment_bytes,
        };
        let staged = std::mem::take(&mut slot.staged);
        let records = staged.iter().map(|(_, record)| &**record);
        let partition = &mut slot.partition;
        let appended = match &self.displaced {
            Some(segment) => Err(displaced::fault(segment)),
            None => partition.append(records, now.as_millis(), terms, &mut self.buffer),
        };
        match appended {
            Ok(appended) => {
                // Append times never decrease, whatever instants the caller passes.
                let taken = (appended.append_ms == now.as_millis()).then_some(now);
                let offsets = appended.base..;
                let answer = |(offset, (ticket, _)): (u64, &(Ticket, Bytes))| Answer {
                    ticket: *ticket,
                    result: Ok(offset),
                };
                let answers = offsets.zip(&staged).map(answer).collect();
                // Deliver before answering: a ruling waits for the delivery.
                slot.deliver_new(appended, staged, emit);
                let failed = !self.failing.is_empty();
                self.failing.remove(&at);
                // Forget failures of partitions that nobody has tried since: another one accepts appends.
                let now_ms = now.as_millis();
                self.failing
                    .retain(|_, failed_ms| now_ms.abs_diff(*failed_ms) < FAILING_MS);
                if failed && self.failing.is_empty() {
                    emit(LogEvent::Up);
                }
                emit(LogEvent::Appended { answers, taken });
            }
            Err(error) => {
                let why = format!("{}: {error}", slot.partition.dir.display());
                // Send `Down` once, until every failed partition works again.
                if self.failing.is_empty() {
                    emit(LogEvent::Down { why: why.clone() });
                }
                self.failing.insert(at, now.as_millis());
                let error = AppendError::NotNow(why);
                let answer = |(ticket, _)| Answer {
                    ticket,
                    result: Err(error.clone()),
                };
                emit(LogEvent::Appended {
                    answers: staged.into_iter().map(answer).collect(),
                    taken: None,
                });
            }
        }
    }
}
