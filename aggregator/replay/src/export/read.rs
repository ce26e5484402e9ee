//! Reading an export as a log. The whole file is verified before any part of it is used.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::ZlibDecoder;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::link::PARTITIONS_MAX;

use super::{
    BlockKind, DIGEST_BYTES, Description, HEADER_BYTES, Header, MAGIC, RAW_BYTES_MAX, VERSION,
};
use crate::source::{Cursor, ReadStep, Source, SourceError};
use tollgate_log::Chunks;
use tollgate_log::{Delivered, Stream};

/// The length of a record's header within a block.
const RECORD_HEADER_BYTES: usize = 20;

/// A block of the file: its header, and where its stored bytes begin.
#[derive(Clone, Copy, Debug)]
struct Block {
    header: Header,
    position: u64,
}

/// An export that is open for reading.
pub struct ExportSource {
    path: PathBuf,
    file: Arc<File>,
    description: Description,
    records: BTreeMap<(Stream, u32), Arc<[Block]>>,
    /// By partition and offset.
    snapshots: BTreeMap<(u32, u64), Vec<Block>>,
    bytes: u64,
}

impl ExportSource {
    /// Opens an export, and verifies all of it.
    ///
    /// # Errors
    ///
    /// If there is no export, or it was cut or altered: the error says where.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let name = path.display();
        let missing = |error| SourceError::Missing(format!("{name}: {error}"));
        let file = File::open(path).map_err(missing)?;
        let bytes = file.metadata().map_err(missing)?.len();
        let mut scan = Scan {
            reader: BufReader::with_capacity(1 << 20, &file),
            at: 0,
            length: bytes,
        };
        let (blocks, description) = scan
            .run()
            .map_err(|why| SourceError::Bad(format!("{name}: {why}")))?;
        let mut records: BTreeMap<_, Vec<Block>> = BTreeMap::new();
        let mut snapshots: BTreeMap<_, Vec<Block>> = BTreeMap::new();
        for block in blocks {
            let header = block.header;
            match header.kind {
                BlockKind::Records => {
                    let of = (header.stream, header.partition);
                    records.entry(of).or_default().push(block);
                }
                BlockKind::Chunk => {
                    let of = (header.partition, header.first);
                    snapshots.entry(of).or_default().push(block);
                }
                BlockKind::Description | BlockKind::End => {}
            }
        }
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            description,
            records: records
                .into_iter()
                .map(|(of, blocks)| (of, blocks.into()))
                .collect(),
            snapshots,
            bytes,
        })
    }

    /// The description of the export.
    pub fn description(&self) -> &Description {
        &self.description
    }
}

/// The first pass: every block's digest, and the whole file's.
struct Scan<'f> {
    reader: BufReader<&'f File>,
    at: u64,
    length: u64,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(Vec<Block>, Description), String> {
        let magic: [u8; 12] = self.take("an export's beginning")?;
        if magic[..8] != MAGIC {
            return Err("byte 0: not an export, expected `TGEXPORT`".to_owned());
        }
        let version = u32::from_le_bytes([8, 9, 10, 11].map(|at| magic[at]));
        if version != VERSION {
            return Err(format!(
                "byte 8: format {version}, this build reads {VERSION}"
            ));
        }
        let (mut blocks, mut description) = (Vec::new(), None);
        let mut order = BlockOrder::default();
        let mut digests = blake3::Hasher::new();
        loop {
            let (block, stored, digest, begin) = self.block()?;
            let header = block.header;
            let encoded = header.encode();
            let of_block = match header.kind {
                BlockKind::End => digests.update(&encoded).update(&stored).finalize(),
                _ => blake3::Hasher::new()
                    .update(&encoded)
                    .update(&stored)
                    .finalize(),
            };
            if of_block.as_bytes() != &digest {
                return Err(format!(
                    "byte {begin}: {}: its digest is not that of its content",
                    what(&header)
                ));
            }
            digests.update(&digest);
            order
                .take(&header)
                .map_err(|why| at(begin, &header, &why))?;
            match header.kind {
                BlockKind::Description => {
                    let raw = inflate(&header, &stored).map_err(|why| at(begin, &header, &why))?;
                    let read = serde_json::from_slice(&raw);
                    description = Some(read.map_err(|why| at(begin, &header, &why.to_string()))?);
                }
                BlockKind::End if header.first != blocks.len() as u64 => {
                    return Err(format!(
                        "byte {begin}: the end counts {} blocks, and there are {}",
                        header.first,
                        blocks.len()
                    ));
                }
                BlockKind::End if self.at < self.length => {
                    return Err(format!("byte {}: something stands behind the end", self.at));
                }
                BlockKind::End => {
                    let none = || format!("byte {begin}: the description is missing");
                    let description: Description = description.ok_or_else(none)?;
                    check_partitions(&blocks, &description)?;
                    return Ok((blocks, description));
                }
                BlockKind::Records | BlockKind::Chunk => {}
            }
            blocks.push(block);
        }
    }

    fn block(&mut self) -> Result<(Block, Vec<u8>, [u8; DIGEST_BYTES], u64), String> {
        let begin = self.at;
        let bytes: [u8; HEADER_BYTES] = self.take("a block")?;
        let header = Header::decode(&bytes).filter(|header| header.encode() == bytes);
        let header = header.ok_or_else(|| format!("byte {begin}: no block begins here"))?;
        let position = self.at;
        let left = self.length - self.at;
        if RAW_BYTES_MAX < header.raw || left < u64::from(header.stored) {
            return Err(format!(
                "cut off at byte {}: {} from byte {begin} on has {} bytes",
                self.length,
                what(&header),
                header.stored
            ));
        }
        let mut stored = vec![0; header.stored as usize];
        self.fill(&mut stored, "a block's content")?;
        let digest = self.take("a block's digest")?;
        Ok((Block { header, position }, stored, digest, begin))
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    fn fill(&mut self, into: &mut [u8], what: &str) -> Result<(), String> {
        if self.length - self.at < into.len() as u64 {
            return Err(format!(
                "cut off at byte {}: expected {what} at byte {}",
                self.length, self.at
            ));
        }
        let read = self.reader.read_exact(into);
        read.map_err(|error| format!("byte {}: {error}", self.at))?;
        self.at += into.len() as u64;
        Ok(())
    }
}

/// How far each stream and partition has come, to check that blocks are in order.
#[derive(Default)]
struct BlockOrder {
    /// The last offset of the records, by stream and partition.
    records: BTreeMap<(Stream, u32), u64>,
    /// The chunks of each snapshot.
    chunks: BTreeMap<(u32, u64), u64>,
}

impl BlockOrder {
    fn take(&mut self, header: &Header) -> Result<(), String> {
        match header.kind {
            BlockKind::Records => {
                let of = (header.stream, header.partition);
                let before = self.records.insert(of, header.last);
                match before {
                    _ if header.last < header.first => Err("its offsets fall".to_owned()),
                    Some(last) if header.first <= last => Err(format!(
                        "it begins before {last}, where the one before it ends"
                    )),
                    _ => Ok(()),
                }
            }
            BlockKind::Chunk => {
                let count = self
                    .chunks
                    .entry((header.partition, header.first))
                    .or_default();
                if header.last != *count {
                    return Err(format!("chunk {}, expected chunk {count}", header.last));
                }
                *count += 1;
                Ok(())
            }
            BlockKind::Description | BlockKind::End => Ok(()),
        }
    }
}

/// Checks that the description has all partitions of the blocks.
fn check_partitions(blocks: &[Block], description: &Description) -> Result<(), String> {
    let found = description.partitions;
    if found == 0 || PARTITIONS_MAX < found {
        return Err(format!(
            "byte 0: {found} partitions, expected 1 to {PARTITIONS_MAX}"
        ));
    }
    let strange = blocks.iter().find(|block| {
        let count = match block.header.stream {
            Stream::Limits => 1,
            Stream::Hits | Stream::Denials => found,
        };
        count <= block.header.partition
    });
    match strange {
        Some(Block { header, position }) => Err(at(
            *position,
            header,
            &format!("the description has {found} partitions"),
        )),
        None => Ok(()),
    }
}

fn at(begin: u64, header: &Header, why: &str) -> String {
    format!("byte {begin}: {}: {why}", what(header))
}

/// A block in words.
fn what(header: &Header) -> String {
    let Header {
        partition,
        first,
        last,
        ..
    } = header;
    let stream = match header.stream {
        Stream::Hits => "hits",
        Stream::Limits => "limits",
        Stream::Denials => "denials",
    };
    match header.kind {
        BlockKind::Records => {
            format!("the {stream} of partition {partition}, offsets {first} to {last}")
        }
        BlockKind::Chunk => format!("the snapshot of partition {partition} up to offset {first}"),
        BlockKind::Description => "the description".to_owned(),
        BlockKind::End => "the end".to_owned(),
    }
}

fn inflate(header: &Header, stored: &[u8]) -> Result<Vec<u8>, String> {
    // Deflate expands a byte to at most 1,032: the stated length alone must not allocate memory.
    let most = stored.len().saturating_mul(1_032);
    let mut raw = Vec::with_capacity(most.min(header.raw as usize));
    // One byte more than stated, to notice longer content.
    ZlibDecoder::new(stored)
        .take(u64::from(header.raw) + 1)
        .read_to_end(&mut raw)
        .map_err(|error| error.to_string())?;
    match raw.len() == header.raw as usize {
        true => Ok(raw),
        false => Err(format!("{} bytes, expected {}", raw.len(), header.raw)),
    }
}

impl ExportSource {
    fn raw(&self, block: &Block) -> Result<Vec<u8>, SourceError> {
        raw(&self.path, &self.file, block)
    }
}

fn raw(path: &Path, file: &File, block: &Block) -> Result<Vec<u8>, SourceError> {
    let bad = |why: String| {
        let place = at(block.position, &block.header, &why);
        SourceError::Bad(format!("{}: {place}", path.display()))
    };
    let mut stored = vec![0; block.header.stored as usize];
    file.read_exact_at(&mut stored, block.position)
        .map_err(|error| bad(error.to_string()))?;
    inflate(&block.header, &stored).map_err(bad)
}

impl Source for ExportSource {
    fn name(&self) -> String {
        format!("{} (of {})", self.path.display(), self.description.log)
    }

    fn partitions(&self) -> u32 {
        self.description.partitions
    }

    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let none = || Arc::from(Vec::new());
        let blocks = self.records.get(&(stream, partition)).cloned();
        Ok(Box::new(BlockCursor {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            blocks: blocks.unwrap_or_else(none),
            at: 0,
            from,
        }))
    }

    fn snapshots(&self, partition: u32) -> Vec<u64> {
        let of = self.snapshots.range((partition, 0)..=(partition, u64::MAX));
        of.map(|((_, upto), _)| *upto).collect()
    }

    fn snapshot(&self, partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        let blocks = self.snapshots.get(&(partition, upto));
        let blocks = blocks.map(Vec::as_slice).unwrap_or_default();
        blocks.iter().map(|block| self.raw(block)).collect()
    }

    fn hits_bytes(&self) -> Option<u64> {
        let hits = self.records.iter().filter(|((s, _), _)| *s == Stream::Hits);
        let raw = hits.flat_map(|(_, blocks)| blocks.iter().map(|b| u64::from(b.header.raw)));
        Some(raw.sum::<u64>().max(self.bytes / 2))
    }

    fn hits_end(&self, partition: u32) -> Option<u64> {
        let mut slices = self.description.hits.iter();
        let slice = slices.find(|slice| slice.partition == partition);
        Some(slice.map_or(0, |slice| slice.next))
    }
}

struct BlockCursor {
    path: PathBuf,
    file: Arc<File>,
    blocks: Arc<[Block]>,
    at: usize,
    from: u64,
}

impl Cursor for BlockCursor {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        while let Some(block) = self.blocks.get(self.at) {
            if self.at == 0 && self.from < block.header.first {
                let wanted = std::mem::replace(&mut self.from, block.header.first);
                let next = block.header.first;
                return Ok(ReadStep::Gone { wanted, next });
            }
            self.at += 1;
            if block.header.last < self.from {
                continue;
            }
            let raw = Bytes::from(raw(&self.path, &self.file, block)?);
            let records = records(&raw, &block.header).map_err(|why| {
                let place = at(block.position, &block.header, why);
                SourceError::Bad(format!("{}: {place}", self.path.display()))
            })?;
            let from = self.from;
            let wanted: Vec<_> = records.into_iter().filter(|r| from <= r.offset).collect();
            if !wanted.is_empty() {
                return Ok(ReadStep::Records(wanted));
            }
        }
        Ok(ReadStep::End)
    }
}

/// The records of a block: in order, from the first offset of its header to the last.
fn records(raw: &Bytes, header: &Header) -> Result<Vec<Delivered>, &'static str> {
    const CUT: &str = "records are cut short";
    let (mut records, mut at): (Vec<Delivered>, _) = (Vec::new(), 0);
    while at < raw.len() {
        let head = raw.get(at..at + RECORD_HEADER_BYTES).ok_or(CUT)?;
        let long =
            |from: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| head[from + n]));
        let length = u32::from_le_bytes([16, 17, 18, 19].map(|n| head[n])) as usize;
        let begin = at + RECORD_HEADER_BYTES;
        raw.get(begin..begin + length).ok_or(CUT)?;
        let offset = long(0);
        // A record that appears twice is left for the audit to report.
        if records.last().is_some_and(|last| offset < last.offset) {
            return Err("offsets of records fall");
        }
        records.push(Delivered {
            offset,
            appended: Timestamp::from_millis(long(8)),
            bytes: raw.slice(begin..begin + length),
        });
        at = begin + length;
    }
    let ends = |record: Option<&Delivered>| record.map(|record| record.offset);
    match (ends(records.first()), ends(records.last())) {
        (Some(first), Some(last)) if (first, last) == (header.first, header.last) => Ok(records),
        _ => Err("its records have other offsets"),
    }
}
