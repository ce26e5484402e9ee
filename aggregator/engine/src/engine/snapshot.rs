//! Snapshots: an engine as bytes, in chunks.
//!
//! ```text
//! chunk   54 47 53 4E  version  kind  number   content of the kind
//! kinds   1 head   2 pairs   3 denials   4 agents   5 last totals   6 copies   7 holders
//!         8 amended   9 candidates' pairs   10 end: digest, sum of all before
//! ```
//!
//! `freeze` takes a copy that shares the memory of pairs and holds with the engine, so that another thread can
//! write the chunks while the engine goes on. Names are only those of denials and last totals. Knows nothing of
//! where chunks are kept. What stays true: a restored engine has the digest of its original, otherwise it is
//! not restored.

mod holders;
mod read;
mod write;

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;

use super::Engine;
use super::amended::Amended;
use super::denials::FrozenDenials;
use super::epochs::Epoch;
use super::holders::Holders;
use super::versions::{VersionStep, Versions};
use crate::pairs::{FrozenTable, Identity};

/// The most bytes that a chunk has: it fits a record of the log with room to spare.
pub const CHUNK_BYTES_MAX: usize = 512 * 1024;

const MAGIC: [u8; 4] = *b"TGSN";
/// Format 1 had no copies, format 2 no amendments, format 3 no candidates, format 4 no excess of holds. Format
/// 5 had no windows, quotas and buckets, and its excess used nothing; format 6 had no pairs that are evicted at
/// the cap; format 7 had no grace of agents after a pause of the ticks; format 8 did not state whether records
/// were missing, and had another digest; format 9 forgot estimates beyond some 4,000; format 10 kept
/// the ban of a rate only where its hits are ruled, and counted each row that was set as a step of the limits. They
/// are refused, and the log is read from its beginning.
const FORMAT: u8 = 11;

mod kind {
    pub const HEAD: u8 = 1;
    pub const PAIRS: u8 = 2;
    pub const DENIALS: u8 = 3;
    pub const AGENTS: u8 = 4;
    pub const LAST_TOTALS: u8 = 5;
    pub const COPIES: u8 = 6;
    pub const HOLDERS: u8 = 7;
    pub const AMENDED: u8 = 8;
    pub const CANDIDATES: u8 = 9;
    pub const END: u8 = 10;
}

/// Why chunks cannot be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotFault {
    /// It does not begin like a chunk.
    #[error("chunk {chunk}: not a chunk of a snapshot")]
    NotAChunk {
        /// Which chunk, from 0.
        chunk: usize,
    },
    /// It was written in another format.
    #[error("chunk {chunk}: format {found}, expected {FORMAT}")]
    Format {
        /// Which chunk, from 0.
        chunk: usize,
        /// The format found.
        found: u8,
    },
    /// It is not the chunk that belongs here.
    #[error("chunk {chunk}: out of order, or one is missing before it")]
    Order {
        /// Which chunk, from 0.
        chunk: usize,
    },
    /// Its content is broken.
    #[error("chunk {chunk}: byte {at}: {field} is broken")]
    Broken {
        /// Which chunk, from 0.
        chunk: usize,
        /// The offset in it.
        at: usize,
        /// What was expected there.
        field: &'static str,
    },
    /// The last chunk is missing.
    #[error("cut off after {chunks} chunks")]
    CutOff {
        /// How many there were.
        chunks: usize,
    },
    /// It was written for another partition.
    #[error("of partition {found} of {found_of}, expected {partition} of {partitions}")]
    Partition {
        /// The partition found.
        found: u32,
        /// Of how many partitions.
        found_of: u32,
        /// The partition expected.
        partition: u32,
        /// Of how many partitions.
        partitions: u32,
    },
    /// A limits version that it needs is not at hand.
    #[error("limits version {version} is not at hand")]
    MissingVersion {
        /// The version.
        version: u64,
    },
    /// The chunks differ from what was written.
    #[error("the chunks do not have the sum that they were written with")]
    Sum,
    /// The digest of what was read differs from the one that was written.
    #[error("digest {found:032x}, expected {expected:032x}")]
    Digest {
        /// The digest of what was read.
        found: u128,
        /// The digest that was written.
        expected: u128,
    },
}

/// A copy of an engine at one moment, which later records do not change. Can be sent to another
/// thread.
pub struct Frozen {
    partition: u32,
    partitions: u32,
    log: Option<LogId>,
    key: LogId,
    began: bool,
    applied_upto: Option<u64>,
    mark: Option<u128>,
    lacks_records: bool,
    log_time: Option<Timestamp>,
    /// Version, ordinal and instant of the steps that are kept, oldest first; the last is the newest.
    steps: Vec<(u64, u32, Timestamp)>,
    /// The version that was brought in last.
    version: u64,
    /// The slots in which room was last made, of pairs and of candidates' pairs.
    room_made: [u64; 2],
    table: FrozenTable,
    candidates: FrozenTable,
    denials: FrozenDenials,
    epochs: Vec<(Identity, Epoch)>,
    /// Epochs that were given up, with the log time of that.
    given_up: Vec<(Identity, Option<Timestamp>)>,
    due: Vec<(Box<str>, u64)>,
    applied: Vec<(Box<str>, u32, u64)>,
    holders: Holders,
    amended: Amended,
    digest: u128,
}

/// A checksum of chunks: it detects damage, and does not authenticate the writer.
#[derive(Default)]
struct ChunkSum(SipHasher13);

impl ChunkSum {
    fn add(&mut self, chunk: &[u8]) {
        self.0.write_u64(chunk.len() as u64);
        self.0.write(chunk);
    }

    fn bytes(&self) -> [u8; 16] {
        self.0.finish128().as_u128().to_le_bytes()
    }
}

impl Frozen {
    /// The offset of the last record that was applied.
    pub fn applied_upto(&self) -> Option<u64> {
        self.applied_upto
    }

    /// The id of its log, if a record had stated it.
    pub fn log(&self) -> Option<LogId> {
        self.log
    }

    /// The digest of the engine at that moment.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// Writes the chunks, one after the other.
    pub fn write(&self, mut chunk: impl FnMut(Vec<u8>)) {
        write::write(self, &mut chunk);
    }
}

impl Engine {
    /// A copy of the present state. It shares the memory of pairs, denials and holds until either side changes
    /// it.
    pub fn freeze(&mut self) -> Frozen {
        let step = |step: &VersionStep| (step.version, step.ordinal, step.at);
        Frozen {
            partition: self.partition,
            partitions: self.partitions,
            log: self.log,
            key: self.identities.key(),
            began: self.began,
            applied_upto: self.applied_upto,
            mark: self.mark,
            lacks_records: self.lacks_records,
            log_time: self.log_time,
            steps: self.steps.iter().map(step).collect(),
            version: self.steps.version().unwrap_or(0),
            room_made: [&self.table, &self.candidates].map(|table| table.alive().room_made()),
            amended: self.amended.clone(),
            denials: self.denials.freeze(self.now()),
            epochs: self.epochs.iter().collect(),
            given_up: self.epochs.given_up().collect(),
            due: self
                .last_totals
                .due()
                .map(|(name, offset)| (name.into(), offset))
                .collect(),
            applied: self
                .last_totals
                .applied()
                .map(|(name, partition, offset)| (name.into(), partition, offset))
                .collect(),
            holders: self.holders.freeze(),
            digest: self.digest(),
            table: self.table.freeze(),
            candidates: self.candidates.freeze(),
        }
    }

    /// All chunks of the present state.
    pub fn snapshot(&mut self) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        self.freeze().write(|chunk| chunks.push(chunk));
        chunks
    }

    /// Restores the engine of a partition from a snapshot. `versions` has the limits under which it was ruled.
    ///
    /// # Errors
    ///
    /// [`SnapshotFault`] for anything but the complete output of [`Frozen::write`].
    pub fn restore<B: AsRef<[u8]>>(
        partition: u32,
        partitions: u32,
        chunks: impl IntoIterator<Item = B>,
        versions: &dyn Versions,
    ) -> Result<Self, SnapshotFault> {
        read::read(Self::new(partition, partitions), chunks, versions)
    }
}
