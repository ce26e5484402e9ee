//! The embedded journal: the log without a server, as plain files in a directory.
//!
//! Each partition of each stream is a sequence of segment files (`layout`). A segment is a header and a
//! sequence of records (`frame` has the bytes). One thread owns the files: it takes commands from a
//! queue, gathers the waiting ones into one write for each partition, syncs it if so configured, answers,
//! and delivers to followers; followers that are caught up get the records from memory. One turn of the
//! thread is a plain function of its commands and the clock (`core`), on a file system that can be
//! replaced (`disk`).
//!
//! ```text
//! owner ── append, follow ──▶ queue ──▶ core: write, sync ──▶ events ──▶ owner
//!                          bounded by bytes                 bounded by the channel
//! ```
//!
//! Durability is `written` (acknowledged records survive the end of the process, but not a power cut) or
//! `synced` (they survive both). After a power cut under `written` the log has a new generation, which
//! the owner must state; see [`OpenReport::unbegun`].
//!
//! What stays true: offsets count the records of a partition from 0; append times are whole milliseconds
//! of the clock that the owner passed in, and never decrease in a partition (for a clock that is set back see
//! [`LogClock`]); acknowledged records are there after any end of the process; damage, a lost end too, is reported, never skipped. Knows nothing of what records
//! mean.

mod awaited;
pub mod core;
pub mod disk;
mod displaced;
mod end_recorder;
mod ends;
pub mod error;
pub mod frame;
mod layout;
mod opening;
mod partition;
pub mod reader;
mod recovery;
mod retention;
mod segment;
mod slot;
pub mod snapshots;
#[cfg(test)]
mod tests;
mod thread;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tollgate_shared::time::Span;

use super::clock::{LogClock, MonotonicClock, WallClock, monotonic_clock, system_clock};
use super::{Append, Log, LogSender, Stream, Ticket};

pub use self::error::{Corruption, OpenError, ReadError};
pub use self::opening::{LastStop, OpenReport, Torn};
pub use self::reader::{JournalReader, PartitionReader, partitions_of};

/// The greatest length of one record in bytes, which is that of the wire.
pub const RECORD_BYTES_MAX: usize = tollgate_shared::wire::MESSAGE_BYTES_MAX;

/// How many bytes of commands one turn takes before it writes. Enough that a write's fixed cost is
/// negligible, and at most about 300 us of writing, so that an answer does not wait long.
const TURN_BYTES: usize = 1024 * 1024;

/// The most bytes that one turn writes to one partition.
const TURN_WRITE_BYTES_MAX: u64 =
    (TURN_BYTES + RECORD_BYTES_MAX + frame::RECORD_HEADER_BYTES) as u64;

/// How durable a record is when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// It survives the end of the process.
    Written,
    /// It survives a power cut.
    Synced,
}

/// The settings of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Its directory.
    pub dir: PathBuf,
    /// How many partitions `hits` and `denials` have. Fixed when the journal is created.
    pub partitions: u32,
    /// How durable acknowledgements are.
    pub ack: Ack,
    /// Segments whose last record is older than this are removed, except those of `limits`.
    pub retention: Span,
    /// Whether segments of hits stay, however old they are, until a snapshot beside the journal has their records: the
    /// owner saves snapshots, and without these records its next start would not know what was used.
    pub until_snapshot: bool,
    /// While all segments together have more bytes than this, the oldest are removed. Those of `limits` neither count
    /// nor are removed.
    pub retention_bytes: u64,
    /// A segment is closed before it grows above this many bytes.
    pub segment_bytes: u64,
    /// How many bytes of records may wait to be written. Further records are answered with
    /// [`super::AppendError::NotNow`].
    pub queue_bytes_max: usize,
}

/// The least and the greatest length of a segment whose length is chosen by [`JournalConfig::bounded`]. Beginning one
/// costs two syncs, so short ones cost time; long ones are removed late.
const CHOSEN_SEGMENT_BYTES: (u64, u64) = (1024 * 1024, 64 * 1024 * 1024);

impl JournalConfig {
    /// Chooses the length of segments, so that all segments together keep to `retention_bytes`: those that are being
    /// written, one for each partition of each stream, are never removed, and get half of the bytes.
    ///
    /// # Errors
    ///
    /// The least number of bytes for so many partitions, if `retention_bytes` is less.
    pub fn bounded(mut self, retention_bytes: u64) -> Result<Self, u64> {
        let (least, most) = CHOSEN_SEGMENT_BYTES;
        let written = 2 * (2 * u64::from(self.partitions) + 1);
        if retention_bytes / written < least {
            return Err(written * least);
        }
        self.retention_bytes = retention_bytes;
        self.segment_bytes = (retention_bytes / written).min(most);
        Ok(self)
    }

    /// The default settings, in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            partitions: 16,
            ack: Ack::Written,
            retention: Span::from_secs(24 * 60 * 60),
            until_snapshot: false,
            retention_bytes: 8 * 1024 * 1024 * 1024,
            segment_bytes: 64 * 1024 * 1024,
            // Two seconds of writing at a tenth of a slow disk's rate.
            queue_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// What a journal needs of its environment. Tests and simulations replace parts of it.
#[derive(Clone)]
pub struct JournalContext {
    /// The file system.
    pub disk: Arc<dyn disk::Disk>,
    /// The clock that append times come from.
    pub clock: WallClock,
    /// The clock by which append times go on while that one is behind the newest of them.
    pub monotonic: MonotonicClock,
    /// The id of the machine's current boot; `None` if it is not known.
    pub boot: Option<String>,
}

impl JournalContext {
    /// The environment that this machine offers.
    pub fn of_this_machine() -> Self {
        Self {
            disk: Arc::new(disk::OsDisk),
            clock: system_clock(),
            monotonic: monotonic_clock(),
            boot: boot_of_this_machine(),
        }
    }
}

fn boot_of_this_machine() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// An open journal: a handle to its thread. If it is dropped without [`Log::close`], the journal still
/// closes, but sends no event about that.
pub struct Journal {
    partitions: u32,
    queue: thread::Queue,
}

impl Journal {
    /// Opens the journal, or creates it, and starts its thread. The thread sends events to `events`, and
    /// waits while that channel is full. So events take at most as much memory as the channel holds, each
    /// at most about 1 MiB.
    ///
    /// # Errors
    ///
    /// Each [`OpenError`]: the directory cannot be used, is in use, does not hold a journal that this
    /// build reads, or is damaged.
    pub fn open(
        config: JournalConfig,
        context: JournalContext,
        events: LogSender,
    ) -> Result<(Self, OpenReport), OpenError> {
        let partitions = config.partitions;
        let queue_bytes_max = config.queue_bytes_max;
        let now = (context.clock)();
        let (core, report) = core::Core::open(config, context.disk, context.boot.as_deref(), now)?;
        let newest = now.saturating_add(report.clock_behind);
        let clock = LogClock::new(context.clock, context.monotonic, newest);
        let queue = thread::start(core, clock, events, queue_bytes_max)
            .map_err(OpenError::io("journal thread"))?;
        Ok((Self { partitions, queue }, report))
    }
}

impl Log for Journal {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Bytes) {
        self.queue.append(vec![Append {
            stream,
            partition,
            ticket,
            record,
        }]);
    }

    fn append_all(&mut self, appends: Vec<Append>) {
        self.queue.append(appends);
    }

    fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.queue.follow(stream, partition, from);
    }

    fn close(&mut self) {
        self.queue.close();
    }
}
