//! Writing an export: blocks from several threads into one file, and copying a log's range.
//!
//! What stays true: one thread writes all blocks of one stream and partition, in order; memory is
//! that of a few batches.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use tollgate_shared::wire::denial::Announced;

use super::{BlockKind, DIGEST_BYTES, Description, Header, MAGIC, RAW_BYTES_MAX, Slice, VERSION};
use crate::range::RangePosition;
use crate::replay::{Replay, ReplayError};
use crate::source::{ReadStep, Source, SourceError, limits_of};
use crate::start;
use crate::tags;
use crate::work::{Progress, Task, Work, side_by_side};
use tollgate_log::{Delivered, Stream};

/// Writes an export.
pub struct Writer<W: Write> {
    inner: Mutex<Inner<W>>,
}

struct Inner<W> {
    sink: W,
    digests: blake3::Hasher,
    blocks: u64,
    bytes: u64,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// Records of hits.
    pub hits: u64,
    /// Records of denials.
    pub denials: u64,
    /// Ids of missing record keys: the tags of aggregators' records under them were not checked.
    pub unchecked_keys: Vec<String>,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn create(mut sink: W) -> io::Result<Self> {
        sink.write_all(&MAGIC)?;
        sink.write_all(&VERSION.to_le_bytes())?;
        Ok(Self {
            inner: Mutex::new(Inner {
                sink,
                digests: blake3::Hasher::new(),
                blocks: 0,
                bytes: (MAGIC.len() + 4) as u64,
            }),
        })
    }

    /// Writes records of a partition, after the earlier ones.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn records(&self, stream: Stream, partition: u32, records: &[Delivered]) -> io::Result<()> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Ok(());
        };
        let mut raw = Vec::new();
        for record in records {
            raw.extend_from_slice(&record.offset.to_le_bytes());
            raw.extend_from_slice(&record.appended.as_millis().to_le_bytes());
            raw.extend_from_slice(&(record.bytes.len() as u32).to_le_bytes());
            raw.extend_from_slice(&record.bytes);
        }
        let of = (BlockKind::Records, stream, partition);
        self.block(of, (first.offset, last.offset), &raw)
    }

    /// Writes the snapshot of a partition's engine up to and including an offset.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn snapshot(&self, partition: u32, upto: u64, chunks: &[Vec<u8>]) -> io::Result<()> {
        for (number, chunk) in chunks.iter().enumerate() {
            let of = (BlockKind::Chunk, Stream::Hits, partition);
            self.block(of, (upto, number as u64), chunk)?;
        }
        Ok(())
    }

    /// Ends the file. Returns its length in bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn finish(self, description: &Description) -> io::Result<u64> {
        let json = serde_json::to_vec(description).map_err(io::Error::other)?;
        self.block((BlockKind::Description, Stream::Hits, 0), (0, 0), &json)?;
        let blocks = self.lock().blocks;
        self.block((BlockKind::End, Stream::Hits, 0), (blocks, 0), &[])?;
        let mut inner = self
            .inner
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        inner.sink.flush()?;
        Ok(inner.bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<W>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(
        &self,
        (kind, stream, partition): (BlockKind, Stream, u32),
        (first, last): (u64, u64),
        raw: &[u8],
    ) -> io::Result<()> {
        let long = |_| io::Error::other("a block is longer than the format allows");
        let raw_bytes = u32::try_from(raw.len()).map_err(long)?;
        // The fastest level: an export is written once and read a few times at most.
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(raw)?;
        let stored = encoder.finish()?;
        let header = Header {
            kind,
            stream,
            partition,
            first,
            last,
            raw: raw_bytes,
            stored: u32::try_from(stored.len()).map_err(long)?,
        };
        let mut block = header.encode().to_vec();
        block.extend_from_slice(&stored);
        let mut inner = self.lock();
        let digest = match kind {
            BlockKind::End => inner.digests.update(&block).finalize(),
            _ => blake3::hash(&block),
        };
        inner.digests.update(digest.as_bytes());
        block.extend_from_slice(digest.as_bytes());
        debug_assert_eq!(digest.as_bytes().len(), DIGEST_BYTES);
        inner.sink.write_all(&block)?;
        inner.blocks += 1;
        inner.bytes += block.len() as u64;
        Ok(())
    }
}

/// Copies a range of a log into an export.
///
/// # Errors
///
/// If the log cannot be read, or the file cannot be written.
pub fn export<W: Write + Send>(
    source: &dyn Source,
    task: &Task,
    progress: &Progress,
    sink: W,
) -> Result<Exported, ExportError> {
    let writer = Writer::create(sink)?;
    let book = Arc::new(limits_of(source).map_err(ReplayError::from)?);
    let work = Work {
        source,
        task,
        book,
        progress,
    };
    let unchecked_keys = tags::unchecked(&task.keys, &work.book);
    let failed = Mutex::new(None);
    let copied = side_by_side(source.partitions(), task.threads, |index| {
        Copying {
            work: &work,
            writer: &writer,
            failed: &failed,
            index,
        }
        .partition()
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(ExportError::Write(error));
    }
    let copied = copied?;
    // Last, so that every limits activation in the hits finds its version.
    let mut cursor = source
        .open(Stream::Limits, 0, 0)
        .map_err(ReplayError::from)?;
    loop {
        match cursor.read().map_err(ReplayError::from)? {
            ReadStep::Records(records) => writer.records(Stream::Limits, 0, &records)?,
            ReadStep::Gone { .. } => {}
            ReadStep::End => break,
        }
    }
    let description = Description {
        schema: "tollgate.export/1".to_owned(),
        log: source.name(),
        partitions: source.partitions(),
        hits: copied.iter().flatten().map(|(slice, _)| *slice).collect(),
    };
    let bytes = writer.finish(&description)?;
    let sum = |of: &dyn Fn(&Exported) -> u64| copied.iter().flatten().map(|(_, e)| of(e)).sum();
    Ok(Exported {
        bytes,
        unchecked_keys,
        hits: sum(&|e| e.hits),
        denials: sum(&|e| e.denials),
    })
}

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReplayError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

struct Copying<'a, W: Write> {
    work: &'a Work<'a>,
    writer: &'a Writer<W>,
    failed: &'a Mutex<Option<io::Error>>,
    index: u32,
}

impl<W: Write> Copying<'_, W> {
    fn partition(&self) -> Result<Option<(Slice, Exported)>, ReplayError> {
        if !self.work.task.range.has(self.index) {
            return Ok(None);
        }
        let (mut replay, next) = start::begin(self.work, self.index)?;
        let mut slice = Slice {
            partition: self.index,
            first: next,
            next,
        };
        let mut exported = Exported::default();
        let mut begun = false;
        let mut cursor = self.work.source.open(Stream::Hits, self.index, next)?;
        'reading: while let Some(records) = self.read(&mut *cursor)? {
            let mut kept = Vec::new();
            for delivered in records {
                let range = &self.work.task.range;
                match range.lies(delivered.offset, delivered.appended) {
                    RangePosition::Before => {
                        replay.apply(&delivered, self.work.source)?;
                        slice.first = delivered.offset + 1;
                        slice.next = slice.first;
                        continue;
                    }
                    RangePosition::Behind => {
                        self.wrote(self.writer.records(Stream::Hits, self.index, &kept))?;
                        exported.hits += kept.len() as u64;
                        break 'reading;
                    }
                    RangePosition::In => {}
                }
                if !std::mem::replace(&mut begun, true) {
                    self.beginning(&mut replay, slice.first)?;
                }
                slice.next = delivered.offset + 1;
                kept.push(delivered);
            }
            exported.hits += kept.len() as u64;
            self.wrote(self.writer.records(Stream::Hits, self.index, &kept))?;
        }
        for upto in self.work.source.snapshots(self.index) {
            if slice.first <= upto && upto < slice.next {
                // A snapshot that cannot be read proves nothing.
                if let Ok(chunks) = self.work.source.snapshot(self.index, upto) {
                    self.wrote(self.writer.snapshot(self.index, upto, &chunks))?;
                }
            }
        }
        exported.denials = self.denials(slice)?;
        Ok(Some((slice, exported)))
    }

    /// Writes the engine's snapshot at the beginning of the range, unless that is the partition's
    /// beginning.
    fn beginning(&self, replay: &mut Replay, first: u64) -> Result<(), ReplayError> {
        let Some(upto) = first.checked_sub(1) else {
            return Ok(());
        };
        let chunks = replay.engine_mut().snapshot();
        self.wrote(self.writer.snapshot(self.index, upto, &chunks))
    }

    /// Writes the recorded statements that the range's hits caused, and all records between them. They are found
    /// first and written then, since those between them may be many.
    fn denials(&self, slice: Slice) -> Result<u64, ReplayError> {
        let Some((first, last)) = self.find_denials(slice)? else {
            return Ok(0);
        };
        let source = self.work.source;
        let mut cursor = source.open(Stream::Denials, self.index, first)?;
        let mut count = 0;
        while let Some(records) = self.read(&mut *cursor)? {
            let wanted = records.partition_point(|record| record.offset <= last);
            let wanted = &records[..wanted];
            self.wrote(self.writer.records(Stream::Denials, self.index, wanted))?;
            count += wanted.len() as u64;
            if records.last().is_some_and(|record| last <= record.offset) {
                break;
            }
        }
        Ok(count)
    }

    /// The first and the last offset of the recorded statements that the range's hits caused, and of records that are
    /// not statements. A range that begins with the partition has all denials from the first one on.
    fn find_denials(&self, slice: Slice) -> Result<Option<(u64, u64)>, ReplayError> {
        let mut cursor = self.work.source.open(Stream::Denials, self.index, 0)?;
        let mut found = None;
        while let Some(records) = self.read(&mut *cursor)? {
            for record in records {
                let caused = Announced::decode(&record.bytes).ok();
                let caused = caused.map(|announced| announced.statement.position.offset);
                if caused.is_none_or(|at| slice.first <= at && at < slice.next) {
                    let first = found.map_or(record.offset, |(first, _)| first);
                    found = Some((first, record.offset));
                }
            }
        }
        let begins = |first| if slice.first == 0 { 0 } else { first };
        Ok(found.map(|(first, last)| (begins(first), last)))
    }

    fn read(
        &self,
        cursor: &mut dyn crate::source::Cursor,
    ) -> Result<Option<Vec<Delivered>>, ReplayError> {
        loop {
            match cursor.read()? {
                ReadStep::Records(records) => {
                    let bytes: usize = records.iter().map(|r| r.bytes.len() + 20).sum();
                    let progress = &self.work.progress.bytes;
                    progress.fetch_add(bytes as u64, std::sync::atomic::Ordering::Relaxed);
                    debug_assert!(bytes < RAW_BYTES_MAX as usize);
                    return Ok(Some(records));
                }
                ReadStep::Gone { .. } => {}
                ReadStep::End => return Ok(None),
            }
        }
    }

    /// After a write error everything ends; the error is kept for the caller.
    fn wrote(&self, result: io::Result<()>) -> Result<(), ReplayError> {
        result.map_err(|error| {
            let text = SourceError::Missing(error.to_string());
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(error);
            text.into()
        })
    }
}
