//! What of a partition is whole when its journal is opened, and what of its end must go.
//!
//! Recovery reads only the last segment; after a power cut the last two if records were acknowledged before they
//! were durable, since a segment is synced before the one after the next begins. If records were durable first, as
//! limits always are, a power cut explains a damaged end as long as one turn's write, and a last segment without
//! records; then recovery also reads the segment before that. Recovery cuts off and reports an end that a kill or a
//! power cut explains, unless the log is known to reach further; any other fault is damage. What stays true: recovery
//! touches no record before the cut, and gives no offset that it found to another record; if it is killed, the next
//! one finds the same state.

use std::path::Path;
use std::sync::Arc;

use super::super::Stream;
use super::Ack;
use super::disk::Disk;
use super::ends::{KnownEnds, LOST_END};
use super::error::{Corruption, OpenError, ReadError};
use super::frame::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::layout;
use super::opening::{LastStop, Torn};
use super::partition::{Active, ClosedSegment, Partition};
use super::segment::{Ended, SegmentReader, bases, check_begin};

/// Finds out how much of each partition is whole.
pub(super) struct Recovery<'a> {
    pub disk: &'a Arc<dyn Disk>,
    pub last_stop: LastStop,
    pub left_ack: Ack,
    /// What no partition may end before.
    pub known: KnownEnds,
    pub torn: Vec<Torn>,
}

/// What reading a segment found.
struct Looked {
    floor_ms: u64,
    first_ms: Option<u64>,
    last_ms: u64,
    next: u64,
    whole_bytes: u64,
    size: u64,
    /// Why reading ended before the end of the file.
    damage: Option<(Corruption, bool)>,
}

impl Recovery<'_> {
    /// Examines a partition's segments and makes it ready for appends.
    pub fn partition(
        &mut self,
        root: &Path,
        stream: Stream,
        index: u32,
    ) -> Result<Partition, OpenError> {
        let torn_before = self.torn.len();
        let mut partition = self.look_through(root, stream, index)?;
        // Files that were removed must not come back with the next power cut, and files that a killed process had
        // begun must not be lost with it.
        let has_files = partition.active.is_some() || !partition.closed.is_empty();
        partition.dir_unsynced |=
            torn_before < self.torn.len() || has_files && self.last_stop.leaves_unsynced();
        Ok(partition)
    }

    fn look_through(
        &mut self,
        root: &Path,
        stream: Stream,
        index: u32,
    ) -> Result<Partition, OpenError> {
        let mut partition = Partition::empty(Arc::clone(self.disk), root, stream, index);
        let mut bases = bases(&**self.disk, &partition.dir)?;
        self.drop_unbegun(&mut partition, &mut bases)?;
        let Some(last) = bases.len().checked_sub(1) else {
            self.check_end(&partition, partition.next, partition.next, 0)?;
            return Ok(partition);
        };
        check_begin(&partition.dir, stream, bases[0])?;
        let suspects = match self.last_stop {
            LastStop::PowerCut if !self.was_synced(stream) => 2,
            // That segment may be one that could not be begun and was removed: its removal was undone, and the
            // segment before it has grown meanwhile.
            LastStop::PowerCut if self.has_no_records(&partition, &bases)? => 2,
            _ => 1,
        };
        for (at, base) in bases.iter().copied().enumerate() {
            if at + suspects <= last {
                partition.closed.push_back(self.closed(&partition, base)?);
                continue;
            }
            let looked = match self.look(&partition, base) {
                Err(OpenError::Corrupt(_)) if self.may_lack_header(&partition, base)? => {
                    self.end_before(&mut partition, &bases[at..])?;
                    break;
                }
                looked => looked?,
            };
            let follows = bases.get(at + 1);
            let whole = looked.damage.is_none()
                && follows.is_none_or(|following| *following == looked.next);
            partition.next = looked.next;
            partition.last_ms = looked.last_ms;
            if whole && follows.is_some() {
                partition.closed.push_back(ClosedSegment {
                    base,
                    floor_ms: looked.floor_ms,
                    bytes: looked.whole_bytes,
                    unsynced: self.left_unsynced(stream),
                });
                continue;
            }
            self.activate(&mut partition, base, looked)?;
            for later in &bases[at + 1..] {
                self.drop_whole(&partition, *later)?;
            }
            break;
        }
        Ok(partition)
    }

    /// Ends a partition before segments whose headers were lost.
    fn end_before(
        &mut self,
        partition: &mut Partition,
        truncated: &[u64],
    ) -> Result<(), OpenError> {
        let base = truncated[0];
        self.check_end(partition, base, base, 0)?;
        // The power cut took the segment's header, and so its records: the log ends with the segment before it.
        partition.next = base;
        // Remove the last one first, each durably before the next. If one were left without its predecessor, the log
        // would begin with it, as if retention had removed the rest.
        let before = partition.closed.pop_back();
        for lost in truncated.iter().rev().copied() {
            let is_first = before.is_none() && lost == base;
            match is_first {
                true => self.begin_next(partition, lost)?,
                false => self.drop_whole(partition, lost)?,
            }
        }
        if let Some(before) = before {
            let looked = self.look(partition, before.base)?;
            (partition.next, partition.last_ms) = (looked.next, looked.last_ms);
            self.activate(partition, before.base, looked)?;
        }
        Ok(())
    }

    /// Checks that a partition may end at `end`, at a byte of the segment with this base. Changes nothing, so that
    /// damage is left as it was found.
    fn check_end(
        &self,
        partition: &Partition,
        end: u64,
        base: u64,
        position: u64,
    ) -> Result<(), Corruption> {
        if self.known.of(partition.stream, partition.index) <= end {
            return Ok(());
        }
        Err(Corruption {
            file: layout::segment(&partition.dir, base),
            position,
            offset: end,
            what: LOST_END,
        })
    }

    /// Whether a closed segment may not have been synced.
    fn left_unsynced(&self, stream: Stream) -> bool {
        let written = self.left_ack == Ack::Written && stream != Stream::Limits;
        self.last_stop == LastStop::Killed && written
    }

    /// Whether the last writer acknowledged this stream's records only when they were durable.
    fn was_synced(&self, stream: Stream) -> bool {
        self.left_ack == Ack::Synced || stream == Stream::Limits
    }

    /// Whether a segment may have lost its header. If the header was durable before any record was, only a segment
    /// without records may have.
    fn may_lack_header(&self, partition: &Partition, base: u64) -> Result<bool, OpenError> {
        if self.last_stop != LastStop::PowerCut {
            return Ok(false);
        }
        let size = self.size(&layout::segment(&partition.dir, base))?;
        Ok(!self.was_synced(partition.stream) || size <= SEGMENT_HEADER_BYTES as u64)
    }

    /// Whether the last segment is no more than a header.
    fn has_no_records(&self, partition: &Partition, bases: &[u64]) -> Result<bool, OpenError> {
        let Some(last) = bases.last() else {
            return Ok(false);
        };
        let size = self.size(&layout::segment(&partition.dir, *last))?;
        Ok(size <= SEGMENT_HEADER_BYTES as u64)
    }

    fn size(&self, path: &Path) -> Result<u64, OpenError> {
        let file = self.disk.open_for_reading(path);
        let size = file.and_then(|file| file.size());
        size.map_err(OpenError::io(path))
    }

    /// Writes the header of a partition's first segment again after nothing of it was left. Without the file, the
    /// offset at which the log goes on would be lost.
    fn begin_next(&mut self, partition: &mut Partition, base: u64) -> Result<(), OpenError> {
        let path = layout::segment(&partition.dir, base);
        let cut_bytes = self.size(&path)?;
        let header = SegmentHeader {
            tag: partition.tag,
            base,
            floor_ms: 0,
        };
        let begun = self.disk.open(&path).and_then(|mut file| {
            file.truncate(0)?;
            file.write_at(&header.encode(), 0)?;
            file.sync()?;
            self.disk.sync_dir(&partition.dir)?;
            Ok(file)
        });
        let file = begun.map_err(OpenError::io(&path))?;
        partition.active = Some(Active::begun(file, &header, false));
        partition.next = base;
        self.torn.push(Torn {
            file: path,
            position: 0,
            cut_bytes,
            next: base,
        });
        Ok(())
    }

    /// Removes a last segment whose header is incomplete: it has no records. If it is the only segment, recovery
    /// writes its header again.
    fn drop_unbegun(
        &mut self,
        partition: &mut Partition,
        bases: &mut Vec<u64>,
    ) -> Result<(), OpenError> {
        let Some(base) = bases.last().copied() else {
            return Ok(());
        };
        partition.next = base;
        let size = self.size(&layout::segment(&partition.dir, base))?;
        // A stop in order leaves no such segment, so that one is damage, which is found when it is read.
        if size < SEGMENT_HEADER_BYTES as u64 && self.last_stop != LastStop::Clean {
            bases.pop();
            if bases.is_empty() {
                self.check_end(partition, base, base, 0)?;
                self.begin_next(partition, base)?;
            } else {
                // Where the end is, the segment before it tells: that may have grown after this one was removed, and a
                // power cut may have undone the removal.
                self.drop_whole(partition, base)?;
            }
        }
        Ok(())
    }

    /// An earlier segment: recovery reads only its header.
    fn closed(&self, partition: &Partition, base: u64) -> Result<ClosedSegment, OpenError> {
        let path = layout::segment(&partition.dir, base);
        let reader = SegmentReader::open(&**self.disk, &path, partition.tag, base)?;
        Ok(ClosedSegment {
            base,
            floor_ms: reader.header().floor_ms,
            bytes: reader.size()?,
            unsynced: self.left_unsynced(partition.stream),
        })
    }

    /// Reads a whole segment.
    fn look(&self, partition: &Partition, base: u64) -> Result<Looked, OpenError> {
        let path = layout::segment(&partition.dir, base);
        let mut reader = SegmentReader::open(&**self.disk, &path, partition.tag, base)?;
        let floor_ms = reader.header().floor_ms;
        let size = reader.size()?;
        let mut looked = Looked {
            floor_ms,
            first_ms: None,
            last_ms: floor_ms,
            next: base,
            whole_bytes: 0,
            size,
            damage: None,
        };
        let mut records = Vec::new();
        loop {
            records.clear();
            let ended = reader.batch(size, &mut records);
            if let (Some(first), Some(last)) = (records.first(), records.last()) {
                looked.first_ms.get_or_insert(first.appended.as_millis());
                looked.last_ms = last.appended.as_millis();
            }
            match ended {
                Ok(Ended::More) => {}
                Ok(Ended::AtEnd) => break,
                Ok(Ended::Torn) => {
                    looked.damage = Some((reader.corrupt("the record is cut short"), true));
                    break;
                }
                Err(ReadError::Corrupt(corruption)) => {
                    looked.damage = Some((corruption, false));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        looked.next = reader.next();
        looked.whole_bytes = reader.position();
        Ok(looked)
    }

    /// Makes a segment the active one, cutting off a torn end.
    fn activate(
        &mut self,
        partition: &mut Partition,
        base: u64,
        looked: Looked,
    ) -> Result<(), OpenError> {
        let path = layout::segment(&partition.dir, base);
        if let Some((corruption, torn)) = looked.damage
            && !self.may_cut(partition.stream, torn, looked.size - looked.whole_bytes)
        {
            return Err(corruption.into());
        }
        self.check_end(partition, looked.next, base, looked.whole_bytes)?;
        let mut file = self.disk.open(&path).map_err(OpenError::io(&path))?;
        let cut_bytes = looked.size - looked.whole_bytes;
        if 0 < cut_bytes {
            file.truncate(looked.whole_bytes)
                .map_err(OpenError::io(&path))?;
            self.torn.push(Torn {
                file: path,
                position: looked.whole_bytes,
                cut_bytes,
                next: looked.next,
            });
        }
        partition.active = Some(Active {
            file,
            base,
            floor_ms: looked.floor_ms,
            first_ms: looked.first_ms,
            bytes: looked.whole_bytes,
            spoiled: false,
            // A process killed between writing and syncing leaves records that it never acknowledged.
            unsynced: 0 < cut_bytes || self.last_stop.leaves_unsynced(),
        });
        Ok(())
    }

    /// Whether the last stop explains this end. A kill leaves at most one record cut short. A power cut may leave
    /// anything where data was not synced: with `synced`, no more than one turn writes. A clean stop leaves nothing:
    /// an end that is cut short was cut later, and how much of it is gone is not known.
    fn may_cut(&self, stream: Stream, torn: bool, cut_bytes: u64) -> bool {
        match self.last_stop {
            LastStop::PowerCut => {
                !self.was_synced(stream) || cut_bytes <= super::TURN_WRITE_BYTES_MAX
            }
            LastStop::Killed => torn,
            LastStop::Clean | LastStop::New => false,
        }
    }

    /// Removes a segment without records, or one behind a torn one: its records were never synced, and the records
    /// before them are gone. The removal is durable: if the segment came back without the ones before it, the log
    /// would begin there.
    fn drop_whole(&mut self, partition: &Partition, base: u64) -> Result<(), OpenError> {
        let path = layout::segment(&partition.dir, base);
        let cut_bytes = self.size(&path)?;
        let removed = self.disk.remove(&path);
        let removed = removed.and_then(|()| self.disk.sync_dir(&partition.dir));
        removed.map_err(OpenError::io(&path))?;
        self.torn.push(Torn {
            file: path,
            position: 0,
            cut_bytes,
            next: partition.next,
        });
        Ok(())
    }
}
