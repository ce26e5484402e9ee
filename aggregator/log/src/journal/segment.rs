//! Reading one segment file, front to back, in bounded batches.
//!
//! Knows nothing of neighbouring segments and writers: the caller passes the byte up to which the
//! file may be read. What stays true: records come out whole, sound and in order, or not at all.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tollgate_shared::time::Timestamp;

use super::super::{Delivered, Stream};
use super::disk::{Disk, DiskFile};
use super::error::{Corruption, ReadError};
use super::frame::{self, Parsed, SEGMENT_HEADER_BYTES, SegmentHeader, Tag};
use super::layout;

/// How many bytes one read asks for, unless a record is longer. Large enough that the cost of a
/// call is negligible beside copying, small enough that a follower's batch stays small.
pub const CHUNK_BYTES: usize = 128 * 1024;

/// Why a batch ended where it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There is more to read.
    More,
    /// Everything up to the given end has been read.
    AtEnd,
    /// The next record begins before the given end and reaches beyond it.
    Torn,
}

/// A position in a segment file from which records are read.
pub struct SegmentReader {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    tag: Tag,
    header: SegmentHeader,
    next: u64,
    position: u64,
}

impl SegmentReader {
    /// Opens a segment for reading and checks its header.
    pub fn open(disk: &dyn Disk, path: &Path, tag: Tag, base: u64) -> Result<Self, ReadError> {
        let file = disk.open_for_reading(path).map_err(read_io(path))?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let read = file.read_at(&mut bytes, 0).map_err(read_io(path))?;
        let corrupt = |what| Corruption {
            file: path.to_owned(),
            position: 0,
            offset: base,
            what,
        };
        let header = SegmentHeader::decode(&bytes[..read]).map_err(corrupt)?;
        if (header.tag, header.base) != (tag, base) {
            return Err(corrupt(
                "the segment's header names another stream or offset than the file's name",
            )
            .into());
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            tag,
            header,
            next: base,
            position: SEGMENT_HEADER_BYTES as u64,
        })
    }

    /// The segment's header.
    pub fn header(&self) -> SegmentHeader {
        self.header
    }

    /// The offset of the record to read next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The byte position at which that record begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file's current length in bytes.
    pub fn size(&self) -> Result<u64, ReadError> {
        self.file.size().map_err(read_io(&self.path))
    }

    /// Moves to the record `offset` reading only headers, as far as `end` bytes allow.
    pub fn skip_to(&mut self, offset: u64, end: u64) -> Result<Ended, ReadError> {
        while self.next < offset {
            let chunk = self.chunk(CHUNK_BYTES, end)?;
            let mut at = 0;
            while self.next < offset && at < chunk.len() {
                match frame::parse(&chunk[at..], self.tag, self.next, true) {
                    Parsed::Frame { payload, .. } => {
                        if end < self.position + payload.end as u64 {
                            return Ok(Ended::Torn);
                        }
                        self.step(payload.end);
                        at += payload.end;
                    }
                    Parsed::Short { needed } if end < self.position + needed as u64 => {
                        return Ok(Ended::Torn);
                    }
                    Parsed::Short { .. } => break,
                    Parsed::Bad(what) => return Err(self.corrupt(what).into()),
                }
            }
            if chunk.is_empty() {
                return Ok(Ended::AtEnd);
            }
        }
        Ok(Ended::More)
    }

    /// Reads about one chunk of records, up to byte `end`, and appends them to `into`.
    pub fn batch(&mut self, end: u64, into: &mut Vec<Delivered>) -> Result<Ended, ReadError> {
        let mut wanted = CHUNK_BYTES;
        loop {
            let chunk = Bytes::from(self.chunk(wanted, end)?);
            if chunk.is_empty() {
                return Ok(Ended::AtEnd);
            }
            let mut at = 0;
            loop {
                match frame::parse(&chunk[at..], self.tag, self.next, false) {
                    Parsed::Frame { append_ms, payload } => {
                        into.push(Delivered {
                            offset: self.next,
                            appended: Timestamp::from_millis(append_ms),
                            bytes: chunk.slice(at + payload.start..at + payload.end),
                        });
                        self.step(payload.end);
                        at += payload.end;
                    }
                    Parsed::Short { .. } if self.position == end => return Ok(Ended::AtEnd),
                    // Return the sound records first; the next batch, which begins at the damage,
                    // reports it.
                    Parsed::Short { .. } | Parsed::Bad(_) if 0 < at => return Ok(Ended::More),
                    Parsed::Short { needed } if end < self.position + needed as u64 => {
                        return Ok(Ended::Torn);
                    }
                    Parsed::Short { needed } => {
                        // The first record is longer than the chunk: read it alone.
                        wanted = needed;
                        break;
                    }
                    Parsed::Bad(what) => return Err(self.corrupt(what).into()),
                }
            }
        }
    }

    /// The description of damage at the record to read next.
    pub fn corrupt(&self, what: &'static str) -> Corruption {
        Corruption {
            file: self.path.clone(),
            position: self.position,
            offset: self.next,
            what,
        }
    }

    fn step(&mut self, frame_bytes: usize) {
        self.next += 1;
        self.position += frame_bytes as u64;
    }

    fn chunk(&self, wanted: usize, end: u64) -> Result<Vec<u8>, ReadError> {
        let left = end.saturating_sub(self.position);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(wanted);
        let mut chunk = vec![0; len];
        let read = self
            .file
            .read_at(&mut chunk, self.position)
            .map_err(read_io(&self.path))?;
        if read < len {
            return Err(self
                .corrupt("the file is shorter than what was written")
                .into());
        }
        Ok(chunk)
    }
}

/// The greatest offset that a segment may begin with. No log reaches it, and offsets counted from
/// it cannot overflow, whatever the segment holds.
const BASE_MAX: u64 = 1 << 62;

/// The base offsets of the segments in a partition's directory, in order; empty if there is no
/// directory. A file name that no journal gives is damage.
pub fn bases(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, ReadError> {
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(read_io(dir)(error)),
    };
    let mut bases: Vec<u64> = names
        .iter()
        .filter_map(|name| layout::segment_base(name))
        .collect();
    bases.sort_unstable();
    match bases.last() {
        Some(&base) if BASE_MAX < base => Err(ReadError::Corrupt(Corruption {
            file: layout::segment(dir, base),
            position: 0,
            offset: base,
            what: "the segment's name is an offset that no log reaches",
        })),
        _ => Ok(bases),
    }
}

/// Checks the base of a partition's first segment: segments of `limits` are never removed.
pub fn check_begin(dir: &Path, stream: Stream, first: u64) -> Result<(), Corruption> {
    if stream != Stream::Limits || first == 0 {
        return Ok(());
    }
    Err(Corruption {
        file: layout::segment(dir, 0),
        position: 0,
        offset: 0,
        what: "the first segment of limits is missing",
    })
}

pub(super) fn read_io(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    let path = path.to_owned();
    move |source| ReadError::Io { path, source }
}

/// Where a reader of a partition stands.
#[derive(Default)]
pub struct JournalCursor {
    /// The offset to read next.
    pub next: u64,
    pub reader: Option<SegmentReader>,
}

impl JournalCursor {
    /// A cursor at `offset`.
    pub fn at(offset: u64) -> Self {
        Self {
            next: offset,
            reader: None,
        }
    }

    /// Moves the cursor to another offset.
    pub fn move_to(&mut self, offset: u64) {
        *self = Self::at(offset);
    }
}
