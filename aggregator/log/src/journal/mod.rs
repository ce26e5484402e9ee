//! The embedded journal: the log without a server, as plain files in a directory.
//!
//! Each partition of each stream is a row of segment files (`layout`), each a row of records behind a
//! header (`frame` has the bytes). One thread owns them: it takes commands from a queue, gathers what is
//! there into one write for each partition, syncs it where so configured, answers, and delivers to
//! followers; those that are caught up get the records from memory. What it does in one turn is a
//! plain function of its commands and the clock (`core`), on a file system that can be replaced (`disk`).
//!
//! ```text
//! owner ── append, follow ──▶ queue ──▶ core: write, sync ──▶ events ──▶ owner
//!                          bounded by bytes                 bounded by the channel
//! ```
//!
//! Durability is `written` (what was acknowledged survives the end of the process, not that of the
//! machine) or `synced` (also that). After a power cut under `written` the log is in a new generation,
//! which the owner must state; see [`OpenReport::unbegun`].
//!
//! What stays true: offsets count the records of a partition from 0; append times are whole
//! milliseconds of the clock that was handed in and never decrease in a partition; what was
//! acknowledged is there after any end of the process; damage is reported, never skipped. Knows
//! nothing of what records mean.

pub mod core;
pub mod disk;
pub mod error;
pub mod frame;
mod layout;
mod opening;
mod partition;
pub mod reader;
mod recovery;
mod retention;
mod segment;
pub mod snapshots;
#[cfg(test)]
mod tests;
mod thread;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tollgate_shared::time::Span;

use super::clock::{WallClock, system_clock};
use super::{Log, LogEvent, Stream, Ticket};

pub use self::error::{Corruption, OpenError, ReadError};
pub use self::opening::{LastStop, OpenReport, Torn};
pub use self::reader::{JournalReader, PartitionReader};

/// The most bytes that one record may have: what the wire allows.
pub const RECORD_BYTES_MAX: usize = tollgate_shared::wire::MESSAGE_BYTES_MAX;

/// How many bytes of commands one turn takes before it writes. Enough that a write's fixed cost
/// vanishes, and some 300 us of writing at most, so that an answer does not wait long.
const TURN_BYTES: usize = 1024 * 1024;

/// The most that one turn writes to one partition.
const TURN_WRITE_BYTES_MAX: u64 =
    (TURN_BYTES + RECORD_BYTES_MAX + frame::RECORD_HEADER_BYTES) as u64;

/// How durable a record is when it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Survives the end of the process.
    Written,
    /// Survives a power cut.
    Synced,
}

/// How a journal is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Its directory.
    pub dir: PathBuf,
    /// How many partitions `hits` and `denials` have. Fixed when the journal is made.
    pub partitions: u32,
    /// How durable acknowledgements are.
    pub ack: Ack,
    /// Segments whose last record is older are removed; of `limits` none.
    pub retention: Span,
    /// Above this many bytes in all, the oldest segments are removed; of `limits` none.
    pub retention_bytes: u64,
    /// A segment is closed before it grows above this many bytes.
    pub segment_bytes: u64,
    /// How many bytes of records may wait to be written. Further ones are answered
    /// [`super::AppendError::NotNow`].
    pub queue_bytes_max: usize,
}

impl JournalConfig {
    /// The defaults, in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            partitions: 16,
            ack: Ack::Written,
            retention: Span::from_secs(24 * 60 * 60),
            retention_bytes: 8 * 1024 * 1024 * 1024,
            segment_bytes: 64 * 1024 * 1024,
            // Two seconds of writing at a tenth of a slow disk's rate.
            queue_bytes_max: 64 * 1024 * 1024,
        }
    }
}

/// What a journal stands on. Tests and simulations replace parts of it.
#[derive(Clone)]
pub struct Ground {
    /// The file system.
    pub disk: Arc<dyn disk::Disk>,
    /// Where append times come from.
    pub clock: WallClock,
    /// Names the machine's present boot; nothing where that is not known.
    pub boot: Option<String>,
}

impl Ground {
    /// The machine that this runs on.
    pub fn of_this_machine() -> Self {
        Self {
            disk: Arc::new(disk::OsDisk),
            clock: system_clock(),
            boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .ok()
                .map(|text| text.trim().to_owned()),
        }
    }
}

/// An open journal: the handle of its thread. Dropped without [`Log::close`], it closes all the same,
/// without saying so.
pub struct Journal {
    partitions: u32,
    queue: thread::Queue,
}

impl Journal {
    /// Opens the journal, or makes it, and starts its thread. Events go to `events`; while that channel
    /// is full the journal waits, so the memory it holds is at most that of as many events, each of at
    /// most about 1 MiB.
    ///
    /// # Errors
    ///
    /// Each [`OpenError`]: where the directory cannot be used, is in use, is not a journal that this
    /// build reads, or is damaged.
    pub fn open(
        config: JournalConfig,
        ground: Ground,
        events: mpsc::Sender<LogEvent>,
    ) -> Result<(Self, OpenReport), OpenError> {
        let partitions = config.partitions;
        let queue_bytes_max = config.queue_bytes_max;
        let now = (ground.clock)();
        let (core, report) = core::Core::open(config, ground.disk, ground.boot.as_deref(), now)?;
        let queue = thread::start(core, ground.clock, events, queue_bytes_max)
            .map_err(OpenError::io("journal thread"))?;
        Ok((Self { partitions, queue }, report))
    }
}

impl Log for Journal {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Vec<u8>) {
        self.queue.append(stream, partition, ticket, record);
    }

    fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.queue.follow(stream, partition, from);
    }

    fn close(&mut self) {
        self.queue.close();
    }
}
