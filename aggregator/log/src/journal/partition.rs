//! One partition on disk: its segments, appending to its end, and reading from any offset.
//!
//! Knows nothing of commands, tickets and followers. What stays true: `next` counts exactly the whole records
//! in the segments; a failed append changes nothing that can be read, and what it may have left behind is cut
//! off before the next append; append times never decrease.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{Delivered, Stream};
use super::Ack;
use super::disk::{Disk, DiskFile, Syncing};
use super::error::{Corruption, ReadError};
use super::frame::{self, SEGMENT_HEADER_BYTES, SegmentHeader, Tag};
use super::layout;
use super::retention::{KeptSegment, RetainedPartition};
use super::segment::{Ended, JournalCursor, SegmentReader};

/// A segment that is full, or old, and gets no more records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClosedSegment {
    pub base: u64,
    /// The append time of the record before its first.
    pub floor_ms: u64,
    pub bytes: u64,
    pub unsynced: bool,
}

/// The segment that gets new records.
pub(super) struct Active {
    pub file: Box<dyn DiskFile>,
    pub base: u64,
    pub floor_ms: u64,
    /// The append time of its first record.
    pub first_ms: Option<u64>,
    /// The total length of its header and whole records, in bytes.
    pub bytes: u64,
    /// A write failed: bytes beyond `bytes` must be cut off before the next write.
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
    /// The last closed segment, while it is being synced.
    pub syncing: Option<Box<dyn Syncing>>,
    /// A segment file that could not be begun, and that could not be removed yet.
    pub leftover: Option<PathBuf>,
    /// The offset that the next record will have.
    pub next: u64,
    /// The append time of the last record.
    pub last_ms: u64,
    /// Files were created or removed since the directory was last synced.
    pub dir_unsynced: bool,
    /// A sync has failed. Later ones may succeed although what they should have written is lost: the system forgets which
    /// pages it could not write. Shared with what syncs in the background.
    pub sync_failed: Arc<AtomicBool>,
}

/// How appends are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub ack: Ack,
    pub segment_bytes: u64,
}

/// The result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    /// The offset of the first record.
    pub base: u64,
    /// The append time of all of them.
    pub append_ms: u64,
}

impl Partition {
    /// A partition without records. Creates nothing on disk before the first record.
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
            sync_failed: Arc::default(),
        }
    }

    /// The first offset that the partition still has.
    pub fn first(&self) -> u64 {
        match (self.closed.front(), &self.active) {
            (Some(segment), _) => segment.base,
            (None, Some(active)) => active.base,
            (None, None) => self.next,
        }
    }

    /// Appends records in one write, and makes them durable if the terms ask for it.
    ///
    /// After an error none of them counts.
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
            // If this fails too, the next append tries it again.
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

    /// Removes the file of a segment that could not be begun.
    fn remove_leftover(&mut self) -> io::Result<()> {
        if let Some(path) = &self.leftover {
            match self.disk.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.leftover = None,
            }
        }
        Ok(())
    }

    /// Makes sure that there is an active segment with room for `bytes` more.
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
        // Else the next append would remove the segment that is begun here.
        self.remove_leftover()?;
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
                // Else the previous segment would get more records, with offsets beyond this file's base.
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
                let mut file = full.file;
                let job = Box::new(move || file.sync());
                self.syncing = Some(self.disk.sync_later(job));
            }
        }
        Ok(())
    }

    /// Makes sure that the last closed segment is durable. So after a power cut only the last two segments can
    /// lack something; in an earlier one that would be damage.
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
        // A segment without a durable directory entry is as good as lost; that must not happen to segments
        // before the last two.
        self.sync_dir()
    }

    /// Begins a new segment if the active one's first record is older than `age_ms`, so that the old one can
    /// be removed in time. Segments of `limits` are never removed.
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

    /// The partition as retention sees it.
    pub fn kept(&self) -> RetainedPartition {
        let active_floor_ms = self.active.as_ref().map(|active| active.floor_ms);
        let active = self.active.as_ref();
        let active = active.map_or((self.next, self.last_ms), |one| (one.base, one.floor_ms));
        let ends = { self.closed.iter().skip(1) }.map(|segment| (segment.base, segment.floor_ms));
        let ends = ends.chain([active]);
        RetainedPartition {
            stream: self.stream,
            index: self.index,
            first: self.first(),
            needed_from: u64::MAX,
            closed: self
                .closed
                .iter()
                .zip(ends)
                .map(|(segment, (end, last_ms))| KeptSegment {
                    end,
                    floor_ms: segment.floor_ms,
                    last_ms,
                    bytes: segment.bytes,
                })
                .collect(),
            active_floor_ms,
            active_bytes: self.active.as_ref().map_or(0, |active| active.bytes),
        }
    }

    /// Removes `count` segments from the beginning.
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
            // Make each removal durable before the next: if a power cut undid this one and not the next, there
            // would be a hole behind this segment.
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
        // Even if this fails: a removed file may come back with the next power cut, and its removal must be
        // durable before another file is created. Several files that came back would stand behind the last two
        // segments, and what those lack would be taken for damage.
        self.dir_unsynced = true;
        let mut file = self.disk.create(path)?;
        file.write_at(&header.encode(), 0)?;
        if ack == Ack::Synced {
            file.sync()?;
            self.sync_dir()?;
        }
        Ok(file)
    }

    /// The files that may lack something after a power cut. Besides them, the partition's directory may.
    pub fn unsynced_files(&self) -> Vec<PathBuf> {
        let closed = self.closed.iter().map(|one| (one.base, one.unsynced));
        let active = self.active.iter().map(|one| (one.base, one.unsynced));
        let unsynced = closed.chain(active).filter(|(_, unsynced)| *unsynced);
        unsynced
            .map(|(base, _)| layout::segment(&self.dir, base))
            .collect()
    }

    /// Makes everything durable.
    pub fn sync(&mut self) -> io::Result<()> {
        let synced = self.sync_all();
        if synced.is_err() {
            self.sync_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    /// Whether a sync has ever failed.
    pub fn has_failed_to_sync(&self) -> bool {
        self.sync_failed.load(Ordering::Relaxed)
    }

    fn sync_all(&mut self) -> io::Result<()> {
        // Else a stop that counts as in order could leave the beginning of a segment.
        self.remove_leftover()?;
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

    /// How many bytes of the segment with this base are whole records; `None` if there is no such segment.
    fn readable(&self, base: u64) -> Option<u64> {
        match &self.active {
            Some(active) if active.base == base => Some(active.bytes),
            _ => {
                let at = self.closed.binary_search_by_key(&base, |s| s.base).ok()?;
                self.closed.get(at).map(|segment| segment.bytes)
            }
        }
    }

    /// The base of the segment that holds the record `offset`.
    fn holding(&self, offset: u64) -> Option<u64> {
        match &self.active {
            Some(active) if active.base <= offset => Some(active.base),
            _ => {
                let behind = self.closed.partition_point(|s| s.base <= offset);
                self.closed.get(behind.checked_sub(1)?).map(|s| s.base)
            }
        }
    }

    /// Reads about one chunk of records from the cursor on. The cursor lies between the first offset and the
    /// next.
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
    /// A segment with a header and no records.
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
            // Else a stop that counts as clean could leave bytes that were never acknowledged.
            self.unsynced = true;
            if ack == Ack::Synced {
                // The operating system may take pages of a failed sync for clean. Once the shorter length is
                // durable, those pages do not matter any more.
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
