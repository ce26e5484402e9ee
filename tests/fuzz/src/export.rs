//! Exports: a cut or altered file is refused with the position of the fault; a file with correct digests is read in
//! order and within memory, whatever its blocks contain.

use std::cell::RefCell;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use tempfile::TempDir;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::export::{Description, ExportSource, Slice, Writer};
use tollgate_replay::source::{ReadStep, Source as _, SourceError};
use tollgate_shared::time::Timestamp;

use crate::{Memory, choice};

/// The file is read through a buffer of a MiB. Deflate expands a byte to a thousand; every 20 of those are a record,
/// which takes 48 bytes in memory, in lists that double.
const MEMORY: Memory = Memory {
    base: 2 << 20,
    per_byte: 16 << 10,
};

/// A file's first bytes.
const BEGINNING: &[u8] = b"TGEXPORT\x01\0\0\0";

/// Streams and partitions that the target reads.
const READ: [(Stream, u32); 4] = [
    (Stream::Hits, 0),
    (Stream::Hits, 1),
    (Stream::Limits, 0),
    (Stream::Denials, 0),
];

thread_local! {
    static DIR: RefCell<TempDir> = RefCell::new(tempfile::tempdir().expect("a directory"));
}

/// Input: `[kind of input][bytes of a file…]`, or `[kind of input][blocks, to be digested and joined…]`
pub fn run(bytes: &[u8]) {
    let (mode, bytes) = choice(bytes);
    let digested = mode & 1 != 0;
    let file = if digested {
        built(bytes)
    } else {
        bytes.to_vec()
    };
    DIR.with_borrow(|dir| {
        let path = dir.path().join("export");
        std::fs::write(&path, &file).expect("written");
        match MEMORY.holds(file.len(), || ExportSource::open(&path)) {
            Ok(source) => reads(&source, file.len()),
            Err(SourceError::Bad(why)) => assert!(why.contains("byte"), "{why}"),
            Err(other) => panic!("{other}"),
        }
        if !digested {
            cut_short(&path, &file);
        }
    });
}

/// Reads everything that a source has.
fn reads(source: &ExportSource, len: usize) {
    assert!(0 < source.partitions());
    for (stream, partition) in READ {
        for from in [0, 1, 1 << 40] {
            MEMORY.holds(len, || in_order(source, stream, partition, from));
        }
        for upto in source.snapshots(partition) {
            let chunks = MEMORY.holds(len, || source.snapshot(partition, upto));
            chunks.map_or_else(is_placed, |chunks| assert!(!chunks.is_empty()));
        }
        let _ = source.hits_end(partition);
    }
    let _ = (source.hits_bytes(), source.name());
}

fn in_order(source: &ExportSource, stream: Stream, partition: u32, mut from: u64) {
    let mut cursor = match source.open(stream, partition, from) {
        Ok(cursor) => cursor,
        Err(fault) => return is_placed(fault),
    };
    loop {
        match cursor.read() {
            Ok(ReadStep::Records(records)) => {
                assert!(!records.is_empty());
                for record in records {
                    // A record that appears twice is for the audit to report.
                    let next = record.offset.saturating_add(1);
                    assert!(from <= next, "offsets do not fall");
                    from = next;
                }
            }
            Ok(ReadStep::Gone { wanted, next }) => {
                assert!(wanted == from && wanted < next);
                from = next;
            }
            Ok(ReadStep::End) => return,
            Err(fault) => return is_placed(fault),
        }
    }
}

fn is_placed(fault: SourceError) {
    match fault {
        SourceError::Bad(why) => assert!(why.contains("byte"), "{why}"),
        other => panic!("{other}"),
    }
}

/// A valid file becomes invalid when it is cut.
fn cut_short(path: &std::path::Path, file: &[u8]) {
    let is_read = ExportSource::open(path).is_ok();
    if let (true, Some((_, cut))) = (is_read, file.split_last()) {
        std::fs::write(path, cut).expect("written");
        assert!(ExportSource::open(path).is_err(), "it was cut");
    }
}

/// A file with correct digests, made of blocks: `[kind][stream and partition][first][last][flags][length
/// (u16)][bytes…]`. The end block, and a description if it is missing, are appended.
fn built(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = File::begun();
    let mut is_described = false;
    while let [kind, of, first, last, flags, low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (content, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        // Kind four is the end, which is appended last.
        let kind = kind % 4;
        is_described |= kind == 1;
        file.block(
            [kind, of % 4],
            u32::from(of >> 4),
            [*first, *last].map(u64::from),
            *flags,
            content,
        );
    }
    if !is_described {
        let slice = Slice {
            partition: 0,
            first: 0,
            next: 9,
        };
        let description = Description {
            schema: "tollgate.export/1".to_owned(),
            log: "a log".to_owned(),
            partitions: 2,
            hits: vec![slice],
        };
        let json = serde_json::to_vec(&description).expect("written");
        file.block([1, 0], 0, [0, 0], 0, &json);
    }
    let blocks = file.blocks;
    file.block([4, 0], 0, [blocks, 0], 0, &[]);
    file.bytes
}

/// A file that is built from blocks.
struct File {
    bytes: Vec<u8>,
    digests: blake3::Hasher,
    blocks: u64,
}

impl File {
    fn begun() -> Self {
        Self {
            bytes: BEGINNING.to_vec(),
            digests: blake3::Hasher::new(),
            blocks: 0,
        }
    }

    /// Flags: 1 stores the content uncompressed; 2 states a wrong length, given by the rest of the flags.
    fn block(
        &mut self,
        [kind, stream]: [u8; 2],
        partition: u32,
        offsets: [u64; 2],
        flags: u8,
        content: &[u8],
    ) {
        let stored = if flags & 1 == 0 {
            deflated(content)
        } else {
            content.to_vec()
        };
        let raw = match flags & 2 {
            0 => content.len() as u32,
            _ => 1 << (flags >> 3),
        };
        let mut block = vec![kind, stream, 0, 0];
        block.extend_from_slice(&partition.to_le_bytes());
        offsets
            .iter()
            .for_each(|offset| block.extend_from_slice(&offset.to_le_bytes()));
        block.extend_from_slice(&raw.to_le_bytes());
        block.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        block.extend_from_slice(&stored);
        let digest = match kind {
            4 => self.digests.update(&block).finalize(),
            _ => blake3::hash(&block),
        };
        self.digests.update(digest.as_bytes());
        self.bytes.extend_from_slice(&block);
        self.bytes.extend_from_slice(digest.as_bytes());
        self.blocks += 1;
    }
}

fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// A valid export; valid blocks, and some invalid ones.
pub fn seeds() -> Vec<Vec<u8>> {
    let behind = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    let record = |offset: u8, bytes: &[u8]| -> Vec<u8> {
        let mut raw = u64::from(offset).to_le_bytes().to_vec();
        raw.extend_from_slice(&1_000_u64.to_le_bytes());
        raw.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        raw.extend_from_slice(bytes);
        raw
    };
    let block = |kind: u8, of: u8, first: u8, last: u8, flags: u8, content: &[u8]| -> Vec<u8> {
        let [low, high] = (content.len() as u16).to_le_bytes();
        [&[kind, of, first, last, flags, low, high], content].concat()
    };
    let hits = [record(3, b"three"), record(5, b"five")].concat();
    let blocks = [
        block(2, 0, 3, 5, 0, &hits),
        block(2, 0, 6, 6, 0, &record(6, b"")),
        block(3, 0, 2, 0, 0, b"a chunk"),
        block(2, 1, 0, 0, 0, &record(0, b"limits")),
    ];
    let announced = block(2, 0, 3, 5, 2 | 24 << 3, &hits);
    let out_of_order = [
        block(2, 0, 6, 6, 0, &record(6, b"")),
        block(2, 0, 3, 5, 0, &hits),
    ];
    vec![
        behind(0, &written()),
        behind(1, &blocks.concat()),
        behind(1, &announced),
        behind(1, &out_of_order.concat()),
        behind(1, &block(2, 0, 5, 3, 0, &hits)),
    ]
}

fn written() -> Vec<u8> {
    let record = |offset: u64, bytes: &'static [u8]| Delivered {
        offset,
        appended: Timestamp::from_millis(1_700_000_000_000 + offset),
        bytes: bytes::Bytes::from_static(bytes),
    };
    let mut file = Vec::new();
    let writer = Writer::create(&mut file).expect("memory");
    let records = [record(3, b"three"), record(5, b"five")];
    writer.records(Stream::Hits, 1, &records).expect("memory");
    writer
        .snapshot(1, 2, &[vec![1, 2], vec![3]])
        .expect("memory");
    let slice = Slice {
        partition: 1,
        first: 3,
        next: 6,
    };
    let description = Description {
        schema: "tollgate.export/1".to_owned(),
        log: "a log".to_owned(),
        partitions: 2,
        hits: vec![slice],
    };
    writer.finish(&description).expect("memory");
    file
}
