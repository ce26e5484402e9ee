//! A journal's files: segments, snapshots, the description. Records are read in order and whole, exactly as in
//! the bytes; a writer that opens the journal keeps every existing record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_log::journal::core::Core;
use tollgate_log::journal::frame::{self, SegmentHeader, Tag};
use tollgate_log::journal::reader::JournalRead;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_log::journal::{JournalConfig, JournalReader};
use tollgate_log::{Delivered, Stream};
use tollgate_shared::time::Timestamp;

use crate::memory_disk::MemoryDisk;
use crate::{Memory, choice};

/// A chunk of a file is read at once, at most a quarter of a MiB; a record of 20 bytes takes 48 in memory, in a
/// list that doubles.
const MEMORY: Memory = Memory {
    base: 16 << 10,
    per_byte: 16,
};

const DIR: &str = "/journal";
const BOOT: &str = "this-boot";

/// `[kind of input][bytes…]`
pub fn run(bytes: &[u8]) {
    let (mode, bytes) = choice(bytes);
    let disk = Arc::new(MemoryDisk::default());
    match mode & 3 {
        0 => {
            describe(
                &disk,
                b"tollgate-journal 1\npartitions 1\ngeneration 1\nend\n",
            );
            disk.put(segment(0), bytes);
            both_ways(&disk, mode, Some(bytes));
        }
        1 => {
            describe(
                &disk,
                b"tollgate-journal 1\npartitions 1\ngeneration 1\nend\n",
            );
            built(&disk, bytes);
            both_ways(&disk, mode, None);
        }
        2 => snapshot(&disk, bytes),
        _ => {
            describe(&disk, bytes);
            disk.put(segment(0), &sound_segment(0, &[b"a record"]));
            both_ways(&disk, mode, None);
        }
    }
}

fn describe(disk: &MemoryDisk, description: &[u8]) {
    disk.put(Path::new(DIR).join("journal"), description);
}

fn segment(base: u64) -> PathBuf {
    Path::new(DIR).join(format!("hits-00000/{base:020}.seg"))
}

fn tag() -> Tag {
    Tag::of(Stream::Hits, 0)
}

fn header(base: u64) -> SegmentHeader {
    SegmentHeader {
        tag: tag(),
        base,
        floor_ms: 0,
    }
}

/// Segments with correct checksums: `[first offset][what][length][bytes…]…`, where a `what` of 255 begins the
/// next segment, 254 adds raw bytes, and any other is an append time.
fn built(disk: &MemoryDisk, bytes: &[u8]) {
    let (base, mut rest) = choice(bytes);
    // Includes offsets up to the greatest number.
    let mut base = match base {
        250.. => u64::MAX - u64::from(255 - base),
        _ => u64::from(base),
    };
    let mut next = base;
    let mut file = header(base).encode().to_vec();
    while let [what, length, behind @ ..] = rest {
        let (payload, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        match *what {
            255 => {
                disk.put(segment(base), &file);
                base = next;
                file = header(base).encode().to_vec();
            }
            254 => file.extend_from_slice(payload),
            ms => {
                frame::encode(&mut file, tag(), next, u64::from(ms), payload);
                next = next.saturating_add(1);
            }
        }
        rest = behind;
    }
    disk.put(segment(base), &file);
}

fn sound_segment(base: u64, records: &[&[u8]]) -> Vec<u8> {
    let mut file = header(base).encode().to_vec();
    for (offset, record) in (base..).zip(records) {
        frame::encode(&mut file, tag(), offset, 1_000 + offset, record);
    }
    file
}

/// Reads the journal, opens it for writing, and reads it again.
fn both_ways(disk: &Arc<MemoryDisk>, mode: u8, only: Option<&[u8]>) {
    let Some((before, was_sound)) = read(disk) else {
        return;
    };
    if let Some(file) = only {
        says_the_same(file, &before, was_sound);
    }
    let clean = mode & 4 != 0;
    let killed = mode & 8 == 0;
    if !clean {
        let marker: &[u8] = match (killed, mode & 16 == 0) {
            (true, _) => b"written this-boot\n",
            (false, true) => b"written another-boot\n",
            (false, false) => b"synced another-boot\n",
        };
        disk.put(Path::new(DIR).join("running"), marker);
    }
    let there = disk.all();
    let config = JournalConfig {
        partitions: 1,
        ..JournalConfig::new(DIR)
    };
    let now = Timestamp::from_millis(2_000);
    let opened = Core::open(config, Arc::clone(disk) as _, Some(BOOT), now);
    let Ok((core, report)) = opened else {
        if clean || killed {
            let has_records = |was: &Vec<u8>| frame::SEGMENT_HEADER_BYTES < was.len();
            let files = there.iter().filter(|(_, was)| has_records(was));
            let now = disk.all();
            files.for_each(|(path, was)| assert_eq!(now.get(path), Some(was), "damage is left"));
        }
        return;
    };
    let (after, is_sound) = read(disk).expect("what was opened can be read");
    assert!(
        before.starts_with(&after),
        "nothing comes that was not there"
    );
    if clean || killed {
        assert_eq!(after.len(), before.len(), "and every record is kept");
    }
    let next = report
        .ends
        .iter()
        .find(|(stream, ..)| *stream == Stream::Hits);
    let next = next.expect("the partition's end").2;
    if let (Some(last), true) = (after.last(), is_sound) {
        assert_eq!(last.offset + 1, next);
    }
    core.close().expect("memory");
}

/// The records, and whether reading reached the end; `None` means that this is not a journal.
fn read(disk: &Arc<MemoryDisk>) -> Option<(Vec<Delivered>, bool)> {
    let bytes: usize = disk.all().values().map(Vec::len).sum();
    MEMORY.holds(bytes, || {
        let journal = JournalReader::open(DIR, Arc::clone(disk) as _).ok()?;
        let mut reader = journal.read(Stream::Hits, 0, 0);
        let mut records: Vec<Delivered> = Vec::new();
        loop {
            match reader.read() {
                Ok(JournalRead::Records(more)) => {
                    assert!(!more.is_empty());
                    for record in more {
                        if let Some(last) = records.last() {
                            assert_eq!(record.offset, last.offset + 1, "one after the other");
                        }
                        records.push(record);
                    }
                }
                Ok(JournalRead::Gone { wanted, first }) => assert!(wanted < first),
                Ok(JournalRead::End) => return Some((records, true)),
                Err(fault) => {
                    assert!(!fault.to_string().is_empty());
                    return Some((records, false));
                }
            }
        }
    })
}

/// The records that were read of a file, encoded again, are the beginning of the file.
fn says_the_same(file: &[u8], records: &[Delivered], was_sound: bool) {
    if !was_sound || file.len() < frame::SEGMENT_HEADER_BYTES {
        return;
    }
    let mut written = file[..frame::SEGMENT_HEADER_BYTES].to_vec();
    for record in records {
        let ms = record.appended.as_millis();
        frame::encode(&mut written, tag(), record.offset, ms, &record.bytes);
    }
    assert!(file.starts_with(&written), "records are the file's bytes");
}

/// A snapshot's file: saving its chunks yields the same file.
fn snapshot(disk: &Arc<MemoryDisk>, bytes: &[u8]) {
    let snapshots = Snapshots::beside(Path::new(DIR), Arc::clone(disk) as _);
    let path = snapshots.file(0, 7);
    disk.put(&path, bytes);
    match MEMORY.holds(bytes.len(), || snapshots.read(0, 7)) {
        Ok(chunks) => {
            let saved = snapshots.save(0, 7, |sink| chunks.into_iter().for_each(sink));
            saved.expect("memory");
            assert_eq!(disk.all().get(&path).map(Vec::as_slice), Some(bytes));
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

/// Segments of two records, torn and whole; segments to build; a snapshot; a description.
pub fn seeds() -> Vec<Vec<u8>> {
    let behind = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    let file = sound_segment(0, &[b"one", b"another record"]);
    let torn = &file[..file.len() - 5];
    let description = "tollgate-journal 1\npartitions 1\ngeneration 2\nbegins hits 0 1\nend\n";
    vec![
        behind(0, &file),
        behind(0, torn),
        behind(4, torn),
        behind(8, torn),
        behind(1, b"\x00\x05\x03one\x06\x02it\xff\x00\x07\x03end\xfe\x02??"),
        behind(9, b"\x07\x05\x03one\xff\x00\xff\x00\x07\x03end"),
        behind(1, b"\xfe\x05\x03one\x06\x02it"),
        behind(2, b"TGSF\x01\x03\0\0\0abc\0\0\0\0\x01\0\0\0d"),
        behind(3, description.as_bytes()),
    ]
}
