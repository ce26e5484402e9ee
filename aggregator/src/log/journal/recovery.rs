//! What of a partition is whole when its journal is opened, and what of its end must go.
//!
//! Only the last segment is read through (after a power cut the last two, since a segment is synced
//! before the one after the next begins). An end that a kill or a power cut explains is cut off and
//! noted; what they do not explain is damage. What stays true: no record before the cut is touched,
//! and no offset that was found is given again.

use std::path::Path;
use std::sync::Arc;

use tollgate_shared::bugs::{Bug, planted};

use super::super::Stream;
use super::Ack;
use super::disk::Disk;
use super::error::{Corruption, OpenError, ReadError};
use super::frame::SEGMENT_HEADER_BYTES;
use super::layout;
use super::opening::{LastStop, Torn};
use super::partition::{Active, Closed, Partition};
use super::segment::{Ended, SegmentReader, bases};

/// Finds out how much of each partition is whole.
pub(super) struct Recovery<'a> {
    pub disk: &'a Arc<dyn Disk>,
    pub last_stop: LastStop,
    pub left_ack: Ack,
    pub torn: Vec<Torn>,
}

/// What a segment turned out to have.
struct Looked {
    floor_ms: u64,
    first_ms: Option<u64>,
    last_ms: u64,
    next: u64,
    whole_bytes: u64,
    size: u64,
    /// Why reading ended before the file did.
    damage: Option<(Corruption, bool)>,
}

impl Recovery<'_> {
    /// Looks at a partition's segments and makes it ready to be appended to.
    pub fn partition(
        &mut self,
        root: &Path,
        stream: Stream,
        index: u32,
    ) -> Result<Partition, OpenError> {
        let torn_before = self.torn.len();
        let mut partition = self.look_through(root, stream, index)?;
        // Files that were taken away must not come back with the next power cut, and those that whoever
        // was killed had begun must not go with it.
        let has_files = partition.active.is_some() || !partition.closed.is_empty();
        partition.dir_unsynced |=
            torn_before < self.torn.len() || has_files && self.last_stop == LastStop::Killed;
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
            return Ok(partition);
        };
        // A segment is synced before the one after the next begins: after a power cut the last two
        // can lack something.
        let suspects = match self.last_stop {
            LastStop::PowerCut => 2,
            _ => 1,
        };
        for (at, base) in bases.iter().copied().enumerate() {
            if at + suspects <= last {
                partition.closed.push_back(self.closed(&partition, base)?);
                continue;
            }
            let looked = match self.look(&partition, base) {
                Err(OpenError::Corrupt(_)) if self.may_cut(false, 0) => {
                    // The segment's header was lost with the power, and so were its records: the log
                    // ends with the segment before it.
                    partition.next = base;
                    // The last one first, each for good before the next: were one of them left whose
                    // predecessor is gone, the log would begin with it, as if the rest were too old.
                    let mut lost = bases[at..].to_vec();
                    if !planted(Bug::HoleLeft) {
                        lost.reverse();
                    }
                    for base in lost {
                        self.drop_whole(&partition, base)?;
                        let dir = &partition.dir;
                        self.disk.sync_dir(dir).map_err(OpenError::io(dir))?;
                    }
                    if let Some(before) = partition.closed.pop_back() {
                        let looked = self.look(&partition, before.base)?;
                        (partition.next, partition.last_ms) = (looked.next, looked.last_ms);
                        self.activate(&mut partition, before.base, looked)?;
                    }
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
                partition.closed.push_back(Closed {
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

    /// Whether a closed segment may not have been synced.
    fn left_unsynced(&self, stream: Stream) -> bool {
        let written = self.left_ack == Ack::Written && stream != Stream::Limits;
        self.last_stop == LastStop::Killed && written
    }

    /// Takes a last segment away whose header was not wholly written: it has no records.
    fn drop_unbegun(
        &mut self,
        partition: &mut Partition,
        bases: &mut Vec<u64>,
    ) -> Result<(), OpenError> {
        let Some(base) = bases.last().copied() else {
            return Ok(());
        };
        partition.next = base;
        let path = layout::segment(&partition.dir, base);
        let file = self
            .disk
            .open_for_reading(&path)
            .map_err(OpenError::io(&path))?;
        let size = file.size().map_err(OpenError::io(&path))?;
        if size < SEGMENT_HEADER_BYTES as u64 {
            bases.pop();
            self.disk.remove(&path).map_err(OpenError::io(&path))?;
            self.torn.push(Torn {
                file: path,
                position: 0,
                cut_bytes: size,
                next: base,
            });
        }
        Ok(())
    }

    /// An earlier segment: its header alone is looked at.
    fn closed(&self, partition: &Partition, base: u64) -> Result<Closed, OpenError> {
        let path = layout::segment(&partition.dir, base);
        let reader = SegmentReader::open(&**self.disk, &path, partition.tag, base)?;
        Ok(Closed {
            base,
            floor_ms: reader.header().floor_ms,
            bytes: reader.size()?,
            unsynced: self.left_unsynced(partition.stream),
        })
    }

    /// Reads a segment through.
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

    /// Makes a segment the one that is appended to, cutting off a torn end.
    fn activate(
        &mut self,
        partition: &mut Partition,
        base: u64,
        looked: Looked,
    ) -> Result<(), OpenError> {
        let path = layout::segment(&partition.dir, base);
        if let Some((corruption, torn)) = looked.damage
            && !self.may_cut(torn, looked.size - looked.whole_bytes)
        {
            return Err(corruption.into());
        }
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
            // Who was killed between writing and syncing has left what nobody was answered for.
            unsynced: 0 < cut_bytes || self.last_stop == LastStop::Killed,
        });
        Ok(())
    }

    /// A kill leaves a record cut short and nothing else. A power cut may leave anything in what was not
    /// synced: with `synced`, that is no more than one turn writes. A clean stop leaves nothing, so an
    /// end that is cut short all the same was cut by hand; it opens, in a new generation.
    fn may_cut(&self, torn: bool, cut_bytes: u64) -> bool {
        match self.last_stop {
            LastStop::PowerCut => {
                self.left_ack == Ack::Written || cut_bytes <= super::TURN_WRITE_BYTES_MAX
            }
            LastStop::Killed | LastStop::Clean => torn,
            LastStop::New => false,
        }
    }

    /// Takes away a segment behind a torn one: its records were never synced, and what comes before
    /// them is gone.
    fn drop_whole(&mut self, partition: &Partition, base: u64) -> Result<(), OpenError> {
        let path = layout::segment(&partition.dir, base);
        let file = self
            .disk
            .open_for_reading(&path)
            .map_err(OpenError::io(&path))?;
        let cut_bytes = file.size().map_err(OpenError::io(&path))?;
        drop(file);
        self.disk.remove(&path).map_err(OpenError::io(&path))?;
        self.torn.push(Torn {
            file: path,
            position: 0,
            cut_bytes,
            next: partition.next,
        });
        Ok(())
    }
}
