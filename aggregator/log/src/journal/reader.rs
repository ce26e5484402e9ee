//! Reading a journal without writing to it: takes no lock, whether or not a process writes it.
//!
//! For commands on logs (`audit`, `explain`). What stays true: nothing in the directory changes; records
//! come out whole and in order; the current end of the file is an end, not an error, unless the log is known
//! to reach further, and reading may go on from there later. A reader sees records as soon as they are
//! written, which under `synced` may be a moment before they are acknowledged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_shared::time::Timestamp;

use super::super::{Delivered, Stream};
use super::disk::Disk;
use super::ends::{KnownEnds, LOST_END};
use super::error::{Corruption, OpenError, ReadError};
use super::frame::{SEGMENT_HEADER_BYTES, Tag};
use super::layout::{self, Description};
use super::opening;
use super::segment::{Ended, SegmentReader, bases, check_begin, read_io};

/// How often the reader reads something again that looks damaged before it reports damage. A writer
/// whose disk failed cuts its end off and writes it again; a reader in between sees a mixture for
/// microseconds.
const LOOKS: usize = 32;

/// How many partitions `hits` and `denials` of an existing journal have; `None` if its description does not exist
/// or cannot be read.
pub fn partitions_of(dir: &Path, disk: &dyn Disk) -> Option<u32> {
    let description = opening::read_description(disk, dir).ok()??;
    Some(description.partitions)
}

/// A journal that is only read.
pub struct JournalReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    description: Description,
    known: KnownEnds,
}

impl JournalReader {
    /// Opens a journal for reading.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if there is no journal, or none that this build reads.
    pub fn open(dir: impl Into<PathBuf>, disk: Arc<dyn Disk>) -> Result<Self, OpenError> {
        let dir = dir.into();
        let Some(description) = opening::read_description(&*disk, &dir)? else {
            return Err(OpenError::NotAJournal {
                dir,
                what: "it has no file `journal`: expected a journal's directory".to_owned(),
            });
        };
        // Before any record is read: a process that writes the journal meanwhile knows of more than was read.
        let known = opening::known_to_readers(&disk, &dir, &description)?;
        Ok(Self {
            disk,
            dir,
            description,
            known,
        })
    }

    /// How many partitions `hits` and `denials` have.
    pub fn partitions(&self) -> u32 {
        self.description.partitions
    }

    /// The generation of the log when this reader was opened.
    pub fn generation(&self) -> u32 {
        self.description.generation
    }

    /// How many bytes a partition's segments have at the moment.
    ///
    /// # Errors
    ///
    /// If its directory cannot be read.
    pub fn bytes(&self, stream: Stream, partition: u32) -> Result<u64, ReadError> {
        let dir = layout::partition(&self.dir, stream, partition);
        let mut bytes = 0;
        for base in bases(&*self.disk, &dir)? {
            let path = layout::segment(&dir, base);
            match self.disk.open_for_reading(&path).and_then(|f| f.size()) {
                Ok(size) => bytes += size,
                // Retention removed the file in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(read_io(&path)(error)),
            }
        }
        Ok(bytes)
    }

    /// An offset before which every record of a partition was appended before an instant: the beginning of a segment, or
    /// 0.
    ///
    /// # Errors
    ///
    /// If the partition's directory cannot be read.
    pub fn offset_before(
        &self,
        stream: Stream,
        partition: u32,
        instant: Timestamp,
    ) -> Result<u64, ReadError> {
        let dir = layout::partition(&self.dir, stream, partition);
        let tag = Tag::of(stream, partition);
        let mut before = 0;
        for base in bases(&*self.disk, &dir)? {
            let path = layout::segment(&dir, base);
            // Retention may have removed it, and reading reports damage.
            let Ok(segment) = SegmentReader::open(&*self.disk, &path, tag, base) else {
                continue;
            };
            if instant.as_millis() <= segment.header().floor_ms {
                break;
            }
            before = base;
        }
        Ok(before)
    }

    /// A reader of one partition, from an offset on. A partition that does not exist reads as empty.
    pub fn read(&self, stream: Stream, partition: u32, from: u64) -> PartitionReader {
        PartitionReader {
            disk: Arc::clone(&self.disk),
            dir: layout::partition(&self.dir, stream, partition),
            tag: Tag::of(stream, partition),
            stream,
            reaches: self.known.of(stream, partition),
            next: from,
            segment: None,
            unread_bytes: 0,
        }
    }
}

/// The result of reading on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalRead {
    /// Records, at least one, in order.
    Records(Vec<Delivered>),
    /// Retention has removed the records that come next. Reading goes on at `first`.
    Gone {
        /// The offset that was wanted.
        wanted: u64,
        /// The first offset that the partition still has.
        first: u64,
    },
    /// There are no more records at the moment.
    End,
}

/// Reads one partition.
pub struct PartitionReader {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    tag: Tag,
    stream: Stream,
    /// The log is known to reach this offset.
    reaches: u64,
    next: u64,
    segment: Option<SegmentReader>,
    unread_bytes: u64,
}

impl PartitionReader {
    /// The offset to read next.
    pub fn next_offset(&self) -> u64 {
        self.next
    }

    /// How many bytes of an unfinished record follow the last whole one, as of when the reader reached
    /// the end. If no process writes the journal, that is a torn end, which the next writer cuts off.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    /// Reads on: about a quarter of a MiB.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if something is damaged or cannot be read; another call tries again.
    pub fn read(&mut self) -> Result<JournalRead, ReadError> {
        let mut looks = 0;
        loop {
            match self.look() {
                Ok(Some(JournalRead::End)) if self.next < self.reaches => {
                    return Err(self.lost_end().into());
                }
                Ok(Some(read)) => return Ok(read),
                Ok(None) => {}
                Err(error) if looks == LOOKS => return Err(error),
                Err(_) => {
                    looks += 1;
                    self.segment = None;
                    std::thread::yield_now();
                }
            }
        }
    }

    /// The description of an end before an offset that the log is known to reach.
    fn lost_end(&self) -> Corruption {
        match &self.segment {
            Some(segment) => segment.corrupt(LOST_END),
            None => Corruption {
                file: layout::segment(&self.dir, self.next),
                position: 0,
                offset: self.next,
                what: LOST_END,
            },
        }
    }

    /// Reads on within a segment. `None` if it went to the next segment instead, or must look again.
    fn look(&mut self) -> Result<Option<JournalRead>, ReadError> {
        let Some(segment) = &mut self.segment else {
            return self.enter();
        };
        let end = segment.size()?;
        let mut records = Vec::new();
        let ended = match segment.skip_to(self.next, end)? {
            Ended::More => segment.batch(end, &mut records)?,
            short => short,
        };
        if let Some(last) = records.last() {
            self.next = last.offset + 1;
            return Ok(Some(JournalRead::Records(records)));
        }
        self.unread_bytes = end.saturating_sub(segment.position());
        let (base, reached) = (segment.header().base, segment.next());
        let following = bases(&*self.disk, &self.dir)?
            .into_iter()
            .find(|b| base < *b);
        match (ended, following) {
            (Ended::More, _) => Ok(None),
            (_, None) => Ok(Some(JournalRead::End)),
            // The segment grew while its successor was begun: there is more to read.
            (_, Some(_)) if segment.size()? != end => Ok(None),
            (Ended::AtEnd, Some(following)) if following == reached => {
                self.segment = None;
                self.next = self.next.max(reached);
                Ok(None)
            }
            (Ended::Torn, Some(_)) => Err(segment.corrupt("the record is cut short").into()),
            (Ended::AtEnd, Some(_)) => Err(segment.corrupt("the record is missing").into()),
        }
    }

    /// Opens the segment that holds the next record.
    fn enter(&mut self) -> Result<Option<JournalRead>, ReadError> {
        let bases = bases(&*self.disk, &self.dir)?;
        let Some(first) = bases.first().copied() else {
            return Ok(Some(JournalRead::End));
        };
        check_begin(&self.dir, self.stream, first)?;
        if self.next < first {
            let wanted = std::mem::replace(&mut self.next, first);
            return Ok(Some(JournalRead::Gone { wanted, first }));
        }
        let behind = bases.partition_point(|base| *base <= self.next);
        let Some(base) = behind.checked_sub(1).and_then(|at| bases.get(at)).copied() else {
            return Ok(Some(JournalRead::End));
        };
        let path = layout::segment(&self.dir, base);
        match self.size_of(&path)? {
            // Retention removed it in between: look again.
            None => Ok(None),
            // The writer is about to begin this segment, or was killed when it did.
            Some(size) if size < SEGMENT_HEADER_BYTES as u64 && behind == bases.len() => {
                self.unread_bytes = size;
                Ok(Some(JournalRead::End))
            }
            Some(_) => {
                let segment = SegmentReader::open(&*self.disk, &path, self.tag, base)?;
                self.segment = Some(segment);
                Ok(None)
            }
        }
    }

    fn size_of(&self, path: &Path) -> Result<Option<u64>, ReadError> {
        let opened = self.disk.open_for_reading(path);
        match opened.and_then(|file| file.size()) {
            Ok(size) => Ok(Some(size)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(read_io(path)(error)),
        }
    }
}

/// Record by record, up to the current end; skips what retention has removed.
impl IntoIterator for PartitionReader {
    type Item = Result<Delivered, ReadError>;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        Records {
            reader: self,
            batch: Vec::new().into_iter(),
            failed: false,
        }
    }
}

/// A partition's records, one by one.
pub struct Records {
    reader: PartitionReader,
    batch: std::vec::IntoIter<Delivered>,
    failed: bool,
}

impl Iterator for Records {
    type Item = Result<Delivered, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            if let Some(record) = self.batch.next() {
                return Some(Ok(record));
            }
            match self.reader.read() {
                Ok(JournalRead::Records(records)) => self.batch = records.into_iter(),
                Ok(JournalRead::Gone { .. }) => {}
                Ok(JournalRead::End) => return None,
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
