//! One partition on disk: its segments, the end that is appended to, and reading from any offset.
//!
//! Knows no commands, tickets or followers. What stays true: `next` counts exactly the records that
//! lie whole in the segments; an append that failed has changed nothing that can be read, and what it
//! may have left behind is cut off before the next; append times never decrease.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Delivered, Stream};
use super::Ack;
use super::disk::{Disk, DiskFile, Syncing};
use super::error::{Corruption, ReadError};
use super::frame::{self, SEGMENT_HEADER_BYTES, SegmentHeader, Tag};
use super::layout;
use super::retention::{KeptSegment, RetainedPartition};
use super::segment::{Ended, SegmentReader};

/// A segment that is full, or old, and is not written to any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClosedSegment {
    pub base: u64,
    /// The append time of the record before its first.
    pub floor_ms: u64,
    pub bytes: u64,
    pub unsynced: bool,
}

/// The segment that is appended to.
pub(super) struct Active {
    pub file: Box<dyn DiskFile>,
    pub base: u64,
    pub floor_ms: u64,
    /// The append time of its first record.
    pub first_ms: Option<u64>,
    /// How many bytes of it are whole records.
    pub bytes: u64,
    /// A write failed: what lies behind `bytes` is to be cut off before anything is written again.
    pub spoiled: bool,
    pub unsynced: bool,
}

/// One partition.
pub(super) struct Partition {
    pub disk: Arc<dyn Disk>,
    pub stream: Stream,
    pub index: u32,
    pub tag: Tag,
    pub dir: PathBuf,
    pub closed: VecDeque<ClosedSegment>,
    pub active: Option<Active>,
    /// The last closed segment, while it is being made durable.
    pub syncing: Option<Box<dyn Syncing>>,
    /// What is left of a segment that could not be begun, and not be taken away yet.
    pub leftover: Option<PathBuf>,
    /// The offset that the next record will have.
    pub next: u64,
    /// The append time of the last record.
    pub last_ms: u64,
    /// Files were made or removed since the directory was last synced.
    pub dir_unsynced: bool,
}

/// How appends are to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub ack: Ack,
    pub segment_bytes: u64,
}

/// What an append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    /// The offset of the first record.
    pub base: u64,
    /// The append time of all of them.
    pub append_ms: u64,
}

impl Partition {
    /// A partition that has no records yet. Nothing is made on disk before the first.
    pub fn empty(disk: Arc<dyn Disk>, root: &Path, stream: Stream, index: u32) -> Self {
        Self {
            disk,
            stream,
            index,
            tag: Tag::of(stream, index),
            dir: layout::partition(root, stream, index),
            closed: VecDeque::new(),
            active: None,
            syncing: None,
            leftover: None,
            next: 0,
            last_ms: 0,
            dir_unsynced: false,
        }
    }

    /// The first offset that there is.
    pub fn first(&self) -> u64 {
        match (self.closed.front(), &self.active) {
            (Some(segment), _) => segment.base,
            (None, Some(active)) => active.base,
            (None, None) => self.next,
        }
    }

    /// Appends records as one write, and makes them durable where the terms ask for it.
    ///
    /// After an error nothing of them counts.
    pub fn append<'a>(
        &mut self,
        records: impl Iterator<Item = &'a [u8]>,
        now_ms: u64,
        terms: Terms,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Appended> {
        let base = self.next;
        let append_ms = now_ms.max(self.last_ms);
        buffer.clear();
        let mut count = 0;
        for record in records {
            frame::encode(buffer, self.tag, base + count, append_ms, record);
            count += 1;
        }
        self.remove_leftover()?;
        self.make_room(buffer.len() as u64, terms)?;
        let Some(active) = &mut self.active else {
            return Err(io::Error::other("no segment to write to"));
        };
        let written = active.file.write_at(buffer, active.bytes);
        let durable = match terms.ack {
            Ack::Synced => written.and_then(|()| active.file.sync()),
            Ack::Written => written,
        };
        if let Err(error) = durable {
            active.spoiled = true;
            // If this fails too, it is tried again before the next append.
            let _ = active.mend(terms.ack);
            return Err(error);
        }
        active.bytes += buffer.len() as u64;
        active.unsynced |= terms.ack == Ack::Written;
        active.first_ms.get_or_insert(append_ms);
        self.next = base + count;
        self.last_ms = append_ms;
        Ok(Appended { base, append_ms })
    }

    /// Takes away what is left of a segment that could not be begun.
    fn remove_leftover(&mut self) -> io::Result<()> {
        if let Some(path) = &self.leftover {
            match self.disk.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.leftover = None,
            }
        }
        Ok(())
    }

    /// Sees to it that there is an active segment that takes `bytes` more.
    fn make_room(&mut self, bytes: u64, terms: Terms) -> io::Result<()> {
        if let Some(active) = &mut self.active {
            active.mend(terms.ack)?;
            let fits = active.bytes + bytes <= terms.segment_bytes;
            if fits || active.base == self.next {
                return Ok(());
            }
        }
        self.roll(terms.ack)
    }

    /// Closes the active segment, if there is one, and begins the next.
    pub fn roll(&mut self, ack: Ack) -> io::Result<()> {
        if self.active.is_none() {
            self.disk.create_dir(&self.dir)?;
        }
        self.settle()?;
        let path = layout::segment(&self.dir, self.next);
        let header = SegmentHeader {
            tag: self.tag,
            base: self.next,
            floor_ms: self.last_ms,
        };
        let begun = self.begin_segment(&path, &header, ack);
        let file = match begun {
            Ok(file) => file,
            Err(error) => {
                // Records that the segment before still takes would stand behind its beginning.
                self.leftover = Some(path);
                let _ = self.remove_leftover();
                return Err(error);
            }
        };
        let begun = Active::begun(file, &header, ack == Ack::Written);
        if let Some(full) = self.active.replace(begun) {
            self.closed.push_back(ClosedSegment {
                base: full.base,
                floor_ms: full.floor_ms,
                bytes: full.bytes,
                unsynced: full.unsynced,
            });
            if full.unsynced {
                self.syncing = Some(self.disk.sync_later(full.file));
            }
        }
        Ok(())
    }

    /// Sees to it that the last closed segment is durable. After a power cut only the last two segments
    /// can lack something then; in an earlier one it would be damage.
    fn settle(&mut self) -> io::Result<()> {
        let waited = self.syncing.take().map(Syncing::wait);
        if let Some(last) = self.closed.back_mut()
            && last.unsynced
        {
            if !matches!(waited, Some(Ok(()))) {
                let path = layout::segment(&self.dir, last.base);
                self.disk.open(&path)?.sync()?;
            }
            last.unsynced = false;
        }
        // A segment that the directory does not durably have is as good as lost; of those before the
        // last two none may be.
        self.sync_dir()
    }

    /// Begins a new segment where the active one's first record is older than `age_ms`, so that it can
    /// be removed in time. `limits` are not removed.
    pub fn roll_if_older(&mut self, now_ms: u64, age_ms: u64, ack: Ack) -> io::Result<()> {
        let first_ms = self.active.as_ref().and_then(|active| active.first_ms);
        let old = first_ms.is_some_and(|first_ms| first_ms.saturating_add(age_ms) < now_ms);
        if !old || self.stream == Stream::Limits {
            return Ok(());
        }
        if let Some(active) = &mut self.active {
            active.mend(ack)?;
        }
        self.roll(ack)
    }

    /// What retention has to know.
    pub fn kept(&self) -> RetainedPartition {
        let active_floor_ms = self.active.as_ref().map(|active| active.floor_ms);
        let ends = self.closed.iter().skip(1).map(|segment| segment.floor_ms);
        let ends = ends.chain([active_floor_ms.unwrap_or(self.last_ms)]);
        RetainedPartition {
            stream: self.stream,
            closed: self
                .closed
                .iter()
                .zip(ends)
                .map(|(segment, last_ms)| KeptSegment {
                    floor_ms: segment.floor_ms,
                    last_ms,
                    bytes: segment.bytes,
                })
                .collect(),
            active_floor_ms,
            active_bytes: self.active.as_ref().map_or(0, |active| active.bytes),
        }
    }

    /// Removes so many segments from the beginning.
    pub fn remove_first(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            let Some(first) = self.closed.front() else {
                break;
            };
            let removed = self.disk.remove(&layout::segment(&self.dir, first.base));
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.closed.pop_front();
            self.dir_unsynced = true;
            // For good, before the next: should it come back with a power cut and that one not, there would be
            // a hole behind it.
            self.disk.sync_dir(&self.dir)?;
        }
        Ok(())
    }

    fn begin_segment(
        &mut self,
        path: &Path,
        header: &SegmentHeader,
        ack: Ack,
    ) -> io::Result<Box<dyn DiskFile>> {
        // Whatever comes of it: a file that was removed again may come back with the next power cut, and
        // is to be gone for good before another one is made. Several of them would stand behind the last
        // two segments, and what those lack would be taken for damage.
        self.dir_unsynced = true;
        let mut file = self.disk.create(path)?;
        file.write_at(&header.encode(), 0)?;
        if ack == Ack::Synced {
            file.sync()?;
            self.sync_dir()?;
        }
        Ok(file)
    }

    /// Makes everything durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.settle()?;
        for segment in &mut self.closed {
            if segment.unsynced {
                let path = layout::segment(&self.dir, segment.base);
                self.disk.open(&path)?.sync()?;
                segment.unsynced = false;
            }
        }
        if let Some(active) = &mut self.active {
            active.mend(Ack::Written)?;
            active.sync()?;
        }
        self.sync_dir()
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        if self.dir_unsynced {
            self.disk.sync_dir(&self.dir)?;
            if let Some(root) = self.dir.parent() {
                self.disk.sync_dir(root)?;
            }
            self.dir_unsynced = false;
        }
        Ok(())
    }

    /// How many bytes of the segment with this base are whole records; nothing where there is none.
    fn readable(&self, base: u64) -> Option<u64> {
        match &self.active {
            Some(active) if active.base == base => Some(active.bytes),
            _ => {
                let at = self.closed.binary_search_by_key(&base, |s| s.base).ok()?;
                self.closed.get(at).map(|segment| segment.bytes)
            }
        }
    }

    /// The base of the segment in which the record `offset` lies.
    fn holding(&self, offset: u64) -> Option<u64> {
        match &self.active {
            Some(active) if active.base <= offset => Some(active.base),
            _ => {
                let behind = self.closed.partition_point(|s| s.base <= offset);
                self.closed.get(behind.checked_sub(1)?).map(|s| s.base)
            }
        }
    }

    /// Reads about one chunk of records from the cursor on; the cursor lies between the first offset and
    /// the next.
    pub fn read(
        &self,
        cursor: &mut JournalCursor,
        into: &mut Vec<Delivered>,
    ) -> Result<(), ReadError> {
        while cursor.next < self.next && into.is_empty() {
            let reader = match &mut cursor.reader {
                Some(reader) => reader,
                none => {
                    let base = self
                        .holding(cursor.next)
                        .ok_or_else(|| self.missing(cursor.next))?;
                    let path = layout::segment(&self.dir, base);
                    none.insert(SegmentReader::open(&*self.disk, &path, self.tag, base)?)
                }
            };
            // A segment that retention removed can still be read through the open file.
            let end = match self.readable(reader.header().base) {
                Some(bytes) => bytes,
                None => reader.size()?,
            };
            let ended = match reader.skip_to(cursor.next, end)? {
                Ended::More => reader.batch(end, into)?,
                short => short,
            };
            cursor.next = match into.last() {
                Some(last) => last.offset + 1,
                None => cursor.next,
            };
            match ended {
                Ended::More => {}
                Ended::Torn => return Err(reader.corrupt("the record is cut short").into()),
                Ended::AtEnd
                    if self.active.as_ref().map(|a| a.base) == Some(reader.header().base) =>
                {
                    if cursor.next < self.next {
                        return Err(reader.corrupt("the record is missing").into());
                    }
                }
                Ended::AtEnd => {
                    let gone = self.holding(cursor.next) == Some(reader.header().base);
                    if gone || reader.next() < cursor.next {
                        return Err(reader.corrupt("the record is missing").into());
                    }
                    cursor.reader = None;
                }
            }
        }
        Ok(())
    }

    fn missing(&self, offset: u64) -> Corruption {
        Corruption {
            file: layout::segment(&self.dir, offset),
            position: 0,
            offset,
            what: "no segment has this record",
        }
    }
}

impl Active {
    /// One that has its header and no records.
    pub fn begun(file: Box<dyn DiskFile>, header: &SegmentHeader, unsynced: bool) -> Self {
        Self {
            file,
            base: header.base,
            floor_ms: header.floor_ms,
            first_ms: None,
            bytes: SEGMENT_HEADER_BYTES as u64,
            spoiled: false,
            unsynced,
        }
    }

    /// Cuts off what a failed write may have left.
    fn mend(&mut self, ack: Ack) -> io::Result<()> {
        if self.spoiled {
            self.file.truncate(self.bytes)?;
            // Else a stop that is taken for one in order could leave what nobody was answered for.
            self.unsynced = true;
            if ack == Ack::Synced {
                // What a failed sync leaves in memory may be taken for clean; a length that is durable
                // again makes all of it void.
                self.sync()?;
            }
            self.spoiled = false;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.file.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }
}

/// Where a reader of a partition is.
#[derive(Default)]
pub(super) struct JournalCursor {
    /// The offset that is read next.
    pub next: u64,
    reader: Option<SegmentReader>,
}

impl JournalCursor {
    /// A cursor at `offset`.
    pub fn at(offset: u64) -> Self {
        Self {
            next: offset,
            reader: None,
        }
    }

    /// Goes to another offset.
    pub fn move_to(&mut self, offset: u64) {
        *self = Self::at(offset);
    }
}
