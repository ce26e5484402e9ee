//! Opening a journal: whose it is, in what state it was left, and what of its end is whole.
//!
//! ```text
//! how the last writer ended   marker `running`   boot       what may be wrong at the end
//! stopped cleanly             gone               any        nothing
//! killed                      there              the same   the last record is torn
//! power cut, crash            there              another    any of what was not synced
//! ```
//!
//! A torn end is cut off and reported; anything else that does not read is damage, and an error. Only
//! the last segment is looked through (after a power cut the last two); damage in earlier ones is
//! found by whoever reads them. Where acknowledged records may have been lost, the generation grows,
//! durably, before anything can be appended. Knows no commands and no followers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_shared::time::{Span, Timestamp};

use super::super::Stream;
use super::disk::Disk;
use super::error::{Corruption, OpenError};
use super::frame::SEGMENT_HEADER_BYTES;
use super::layout::{self, Description, DescriptionFault, Running};
use super::partition::{Active, Closed, Partition};
use super::segment::{Ended, SegmentReader};
use super::{Ack, JournalConfig};

/// How the one who wrote the journal before came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// Nobody has written it before.
    New,
    /// It stopped in order.
    Clean,
    /// It was killed; the machine went on.
    Killed,
    /// The machine went down under it, or nobody knows whether it did.
    PowerCut,
}

/// An end that was torn and has been cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment file.
    pub file: PathBuf,
    /// Where it was cut, in bytes.
    pub position: u64,
    /// How much was cut off, in bytes.
    pub cut_bytes: u64,
    /// The offset that is given to the next record.
    pub next: u64,
}

/// What was found when the journal was opened. To be logged by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// How it was left.
    pub last_stop: LastStop,
    /// The generation of the log: 1 when made, greater after each stop in which acknowledged records
    /// may have been lost.
    pub generation: u32,
    /// Partitions that have no record of this generation yet: the first record that is appended to
    /// each must be the one that states it. Said at each opening until that record is there.
    pub unbegun: Vec<(Stream, u32)>,
    /// Ends that were torn and have been cut off.
    pub torn: Vec<Torn>,
    /// The offset that the next record will have, for each partition.
    pub ends: Vec<(Stream, u32, u64)>,
    /// How far the clock is behind the newest append time. Append times stand still for so long.
    pub clock_behind: Span,
}

/// A journal's state when it has been opened.
pub(super) struct Opened {
    pub partitions: Vec<Partition>,
    pub lock: Box<dyn Send>,
    pub report: OpenReport,
}

/// Opens the journal, or makes it.
pub(super) fn open(
    config: &JournalConfig,
    disk: &Arc<dyn Disk>,
    boot: Option<&str>,
    now: Timestamp,
) -> Result<Opened, OpenError> {
    let dir = &config.dir;
    disk.create_dir(dir)
        .map_err(|source| OpenError::CannotCreate {
            dir: dir.clone(),
            source,
        })?;
    let lock = take_lock(disk, dir)?;
    let (mut description, new) = match read_description(&**disk, dir)? {
        Some(found) if found.partitions != config.partitions => {
            return Err(OpenError::OtherPartitions {
                dir: dir.clone(),
                found: found.partitions,
                wanted: config.partitions,
            });
        }
        Some(found) => (found, false),
        None => (make(&**disk, config)?, true),
    };
    let left = left_running(&**disk, dir)?;
    let last_stop = match &left {
        _ if new => LastStop::New,
        None => LastStop::Clean,
        Some(running) if boot.is_some() && running.boot.as_deref() == boot => LastStop::Killed,
        Some(_) => LastStop::PowerCut,
    };
    let left_ack = left.map_or(Ack::Synced, |running| running.ack);
    let mut recovery = Recovery {
        disk,
        last_stop,
        left_ack,
        torn: Vec::new(),
    };
    let mut partitions = Vec::new();
    for stream in layout::STREAMS {
        for index in 0..layout::partitions_of(stream, config.partitions) {
            partitions.push(recovery.partition(dir, stream, index)?);
        }
    }
    if last_stop == LastStop::PowerCut && left_ack == Ack::Written {
        begin_generation(&**disk, dir, &mut description, &mut partitions)?;
    }
    if last_stop == LastStop::Killed && left_ack == Ack::Written && config.ack == Ack::Synced {
        // From here on the marker promises that all is synced; what the last writer left must be.
        for partition in &mut partitions {
            partition.sync().map_err(OpenError::io(&partition.dir))?;
        }
    }
    let running = Running {
        boot: boot.map(str::to_owned),
        ack: config.ack,
    };
    let path = layout::running(dir);
    disk.replace(&path, running.to_text().as_bytes())
        .map_err(OpenError::io(&path))?;
    let report = report(last_stop, &description, &partitions, recovery.torn, now);
    Ok(Opened {
        partitions,
        lock,
        report,
    })
}

fn take_lock(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Box<dyn Send>, OpenError> {
    disk.lock(&layout::lock(dir)).map_err(|source| {
        let dir = dir.to_owned();
        match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { dir },
            _ => OpenError::NotWritable { dir, source },
        }
    })
}

/// The description of the journal in a directory; nothing where there is none.
pub(super) fn read_description(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<Option<Description>, OpenError> {
    let path = layout::description(dir);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io(path)(error)),
    };
    let dir = dir.to_owned();
    match Description::from_text(&String::from_utf8_lossy(&bytes)) {
        Ok(description) => Ok(Some(description)),
        Err(DescriptionFault::Newer(found)) => Err(OpenError::Newer {
            dir,
            found,
            supported: layout::VERSION,
        }),
        Err(DescriptionFault::Unreadable(what)) => Err(OpenError::NotAJournal { dir, what }),
    }
}

/// Describes a new journal. A directory with other things in it is left alone.
fn make(disk: &dyn Disk, config: &JournalConfig) -> Result<Description, OpenError> {
    let dir = &config.dir;
    let names = disk.list(dir).map_err(OpenError::io(dir))?;
    // Whatever lies here was not made by a journal: its description is the first thing it writes.
    let ours = ["lock", "journal.new"];
    if let Some(strange) = names.iter().find(|name| !ours.contains(&name.as_str())) {
        return Err(OpenError::NotAJournal {
            dir: dir.clone(),
            what: format!(
                "it has `{strange}` but no file `journal`: expected a journal or an empty directory"
            ),
        });
    }
    let description = Description {
        partitions: config.partitions,
        generation: 1,
        begins: Vec::new(),
    };
    write_description(disk, dir, &description)?;
    Ok(description)
}

fn write_description(
    disk: &dyn Disk,
    dir: &Path,
    description: &Description,
) -> Result<(), OpenError> {
    let path = layout::description(dir);
    disk.replace(&path, description.to_text().as_bytes())
        .map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::NotWritable {
                    dir: dir.to_owned(),
                    source,
                }
            }
            _ => OpenError::io(path)(source),
        })
}

fn left_running(disk: &dyn Disk, dir: &Path) -> Result<Option<Running>, OpenError> {
    let path = layout::running(dir);
    match disk.read(&path) {
        Ok(bytes) => Ok(Some(Running::from_text(&String::from_utf8_lossy(&bytes)))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::io(path)(error)),
    }
}

/// Begins the next generation where the log now ends.
fn begin_generation(
    disk: &dyn Disk,
    dir: &Path,
    description: &mut Description,
    partitions: &mut [Partition],
) -> Result<(), OpenError> {
    for partition in partitions.iter_mut() {
        // Should the power go again, the log must not end before where the generation begins.
        partition.sync().map_err(OpenError::io(&partition.dir))?;
    }
    description.generation = description.generation.saturating_add(1);
    description.begins = partitions
        .iter()
        .filter(|partition| 0 < partition.next)
        .map(|partition| (partition.stream, partition.index, partition.next))
        .collect();
    write_description(disk, dir, description)
}

fn report(
    last_stop: LastStop,
    description: &Description,
    partitions: &[Partition],
    torn: Vec<Torn>,
    now: Timestamp,
) -> OpenReport {
    let newest_ms = partitions.iter().map(|p| p.last_ms).max().unwrap_or(0);
    OpenReport {
        last_stop,
        generation: description.generation,
        unbegun: partitions
            .iter()
            .filter(|p| p.next <= description.begin_of(p.stream, p.index))
            .map(|p| (p.stream, p.index))
            .collect(),
        torn,
        ends: partitions
            .iter()
            .map(|p| (p.stream, p.index, p.next))
            .collect(),
        clock_behind: Timestamp::from_millis(newest_ms)
            .since(Timestamp::from_millis(now.as_millis())),
    }
}

/// Finds out how much of each partition is whole.
struct Recovery<'a> {
    disk: &'a Arc<dyn Disk>,
    last_stop: LastStop,
    left_ack: Ack,
    torn: Vec<Torn>,
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
    fn partition(
        &mut self,
        root: &Path,
        stream: Stream,
        index: u32,
    ) -> Result<Partition, OpenError> {
        let mut partition = Partition::empty(Arc::clone(self.disk), root, stream, index);
        let mut bases = match self.disk.list(&partition.dir) {
            Ok(names) => names
                .iter()
                .filter_map(|name| layout::segment_base(name))
                .collect::<Vec<_>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(OpenError::io(&partition.dir)(error)),
        };
        bases.sort_unstable();
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
                    // The segment's header was lost with the power, and so were its records.
                    for lost in &bases[at..] {
                        self.drop_whole(&partition, *lost)?;
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
                    unsynced: self.left_unsynced(),
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

    fn left_unsynced(&self) -> bool {
        self.last_stop == LastStop::Killed && self.left_ack == Ack::Written
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
        let dropped = size < SEGMENT_HEADER_BYTES as u64
            && matches!(self.last_stop, LastStop::Killed | LastStop::PowerCut);
        if dropped {
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
            unsynced: self.left_unsynced(),
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
                Err(super::error::ReadError::Corrupt(corruption)) => {
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
            unsynced: 0 < cut_bytes || self.left_unsynced(),
        });
        Ok(())
    }

    /// A kill leaves a record cut short and nothing else. A power cut may leave anything in what was not
    /// synced: with `synced`, that is no more than one turn writes.
    fn may_cut(&self, torn: bool, cut_bytes: u64) -> bool {
        match self.last_stop {
            LastStop::PowerCut => {
                self.left_ack == Ack::Written || cut_bytes <= super::TURN_WRITE_BYTES_MAX
            }
            LastStop::Killed => torn,
            LastStop::New | LastStop::Clean => false,
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
