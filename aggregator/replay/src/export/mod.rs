//! An export: a range of a log in one portable file with digests, which can be read like a log.
//!
//! ```text
//! file     "TGEXPORT", version (u32), then blocks; integers are little-endian
//! block    kind u8 (1 description, 2 records, 3 chunk of a snapshot, 4 end)
//!          stream u8 (0 hits, 1 limits, 2 denials), u16 of zero, partition u32
//!          first u64, last u64       records: offsets; chunk: up to which offset, number of the chunk;
//!                                    end: how many blocks there are before it
//!          raw bytes u32, stored bytes u32
//!          the stored bytes          deflated (zlib)
//!          BLAKE3                    32 bytes: of the block up to here; in the end block, of that and of
//!                                    every earlier block's BLAKE3, in the order of the file
//! records  raw: offset u64, append time u64 (ms since the epoch), length u32, the record
//! ```
//!
//! Blocks of one stream and partition are in order. The description, as JSON, comes just before the end. If
//! a range does not begin at its partition's beginning, the file has a snapshot of the engine at the range's
//! beginning, so that a reader needs nothing else. Knows nothing of audits. What stays true: a file that was
//! cut or altered is refused, with the position of the fault, before anything of it is used.

mod read;
mod write;

use serde::{Deserialize, Serialize};

use tollgate_log::Stream;

pub use read::ExportSource;
pub use write::{ExportError, Exported, Writer, export};

const MAGIC: [u8; 8] = *b"TGEXPORT";
const VERSION: u32 = 1;

/// The length of a block's header, and of its digest.
const HEADER_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;

/// The most bytes that a block has before compression, so that readers need little memory.
const RAW_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// The description of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The schema of this object.
    pub schema: String,
    /// The log that was exported.
    pub log: String,
    /// How many partitions that log's hits have.
    pub partitions: u32,
    /// The hits in the export, by partition.
    pub hits: Vec<Slice>,
}

/// The hits of one partition in an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The partition.
    pub partition: u32,
    /// The first offset.
    pub first: u64,
    /// The first offset after the slice.
    pub next: u64,
}

/// The kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Description,
    Records,
    Chunk,
    End,
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: BlockKind,
    stream: Stream,
    partition: u32,
    first: u64,
    last: u64,
    raw: u32,
    stored: u32,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = match self.kind {
            BlockKind::Description => 1,
            BlockKind::Records => 2,
            BlockKind::Chunk => 3,
            BlockKind::End => 4,
        };
        bytes[1] = match self.stream {
            Stream::Hits => 0,
            Stream::Limits => 1,
            Stream::Denials => 2,
        };
        bytes[4..8].copy_from_slice(&self.partition.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.last.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.raw.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.stored.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| bytes[at + n]));
        let long = |at| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Self {
            kind: match bytes[0] {
                1 => BlockKind::Description,
                2 => BlockKind::Records,
                3 => BlockKind::Chunk,
                4 => BlockKind::End,
                _ => return None,
            },
            stream: match bytes[1] {
                0 => Stream::Hits,
                1 => Stream::Limits,
                2 => Stream::Denials,
                _ => return None,
            },
            partition: word(4),
            first: long(8),
            last: long(16),
            raw: word(24),
            stored: word(28),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tollgate_shared::time::Timestamp;

    use super::*;
    use crate::source::{ReadStep, Source, SourceError};
    use tollgate_log::Delivered;

    fn record(offset: u64, bytes: &'static [u8]) -> Delivered {
        Delivered {
            offset,
            appended: Timestamp::from_millis(1_700_000_000_000 + offset),
            bytes: bytes::Bytes::from_static(bytes),
        }
    }

    fn written(path: &std::path::Path) {
        let writer = Writer::create(std::fs::File::create(path).unwrap()).unwrap();
        writer
            .records(Stream::Hits, 1, &[record(5, b"five"), record(7, b"seven")])
            .unwrap();
        writer.records(Stream::Hits, 1, &[record(8, b"")]).unwrap();
        writer.snapshot(1, 4, &[vec![1, 2], vec![3]]).unwrap();
        let description = Description {
            schema: "tollgate.export/1".to_owned(),
            log: "a log".to_owned(),
            partitions: 2,
            hits: vec![Slice {
                partition: 1,
                first: 5,
                next: 9,
            }],
        };
        writer.finish(&description).unwrap();
    }

    #[test]
    fn an_export_is_read_from_any_offset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        written(&path);
        let source = ExportSource::open(&path).unwrap();
        assert_eq!(source.partitions(), 2);
        assert_eq!(source.hits_end(1), Some(9));
        assert_eq!(source.snapshots(1), [4]);
        assert_eq!(source.snapshot(1, 4).unwrap(), [vec![1, 2], vec![3]]);
        let read = |from| {
            let mut cursor = source.open(Stream::Hits, 1, from).unwrap();
            let mut offsets = Vec::new();
            loop {
                match cursor.read().unwrap() {
                    ReadStep::Records(records) => offsets.extend(records.iter().map(|r| r.offset)),
                    ReadStep::Gone { .. } => {}
                    ReadStep::End => return offsets,
                }
            }
        };
        assert_eq!(read(0), [5, 7, 8]);
        assert_eq!(read(6), [7, 8]);
        assert_eq!(read(9), [0u64; 0]);
        let mut cursor = source.open(Stream::Hits, 1, 5).unwrap();
        let ReadStep::Records(records) = cursor.read().unwrap() else {
            panic!("records");
        };
        assert_eq!(records[1], record(7, b"seven"));
    }

    #[test]
    fn any_altered_byte_and_any_cut_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        written(&path);
        let good = std::fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            let mut file = std::fs::File::create(&path).unwrap();
            file.write_all(bytes).unwrap();
            match ExportSource::open(&path).map(|_| ()) {
                Err(SourceError::Bad(why)) => why,
                other => panic!("{other:?}"),
            }
        };
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let why = refused(&bytes);
            assert!(why.contains("byte"), "{why}");
            let why = refused(&good[..at]);
            assert!(why.contains("byte"), "{why}");
        }
        let mut longer = good.clone();
        longer.push(0);
        assert!(refused(&longer).contains("byte"));
    }
}
