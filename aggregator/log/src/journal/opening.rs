//! Opening a journal: whose it is, in what state it was left, and what of its end is whole.
//!
//! ```text
//! how the last writer ended   marker `running`   boot       what may be wrong at the end
//! stopped cleanly             gone               any        nothing (unless cut by hand)
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
use super::error::OpenError;
use super::layout::{self, Description, DescriptionFault, Running};
use super::partition::Partition;
use super::recovery::Recovery;
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

impl LastStop {
    /// Whether files may have been written, cut or taken away and not be so durably: by who was killed, or by an
    /// opening after the power cut that came to its end, or failed, in the middle of what it mended.
    pub(super) fn leaves_unsynced(self) -> bool {
        matches!(self, Self::Killed | Self::PowerCut)
    }
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
pub(super) struct OpenedJournal {
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
) -> Result<OpenedJournal, OpenError> {
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
    let acknowledged_may_be_lost = match last_stop {
        LastStop::PowerCut => left_ack == Ack::Written,
        LastStop::Clean => !recovery.torn.is_empty(),
        LastStop::New | LastStop::Killed => false,
    };
    if acknowledged_may_be_lost {
        begin_generation(&**disk, dir, &mut description, &mut partitions)?;
    }
    if last_stop.leaves_unsynced() {
        // What is read from here on is ruled by, and what pointers are written for; where it is promised
        // to survive a power cut it must, whether or not whoever wrote it came to sync it. And what was cut off
        // must not come back behind what is answered for from now on.
        let promised =
            |one: &&mut Partition| config.ack == Ack::Synced || one.stream == Stream::Limits;
        for partition in partitions.iter_mut().filter(promised) {
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
    Ok(OpenedJournal {
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
