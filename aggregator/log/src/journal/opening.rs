//! Opening a journal: who uses it, how its last writer ended, and how much of its end is whole.
//!
//! ```text
//! how the last writer ended   marker `running`   boot       what may be wrong at the end
//! stopped cleanly             gone               any        nothing
//! killed                      there              the same   the last record is torn
//! power cut, crash            there              another    anything that was not synced
//! ```
//!
//! A torn end is cut off and reported; anything else that cannot be read is damage, and an error. So is an end before
//! one that the log is known to have had (`ends`): a partition without its files, for example. Opening reads
//! only the last segment (after a power cut the last two); readers find damage in earlier ones. If acknowledged
//! records may have been lost, the generation grows, durably, before anything can be appended. So it does if an operator
//! states, by the file `restored`, that the journal is a backup: else agents that know the records after it would take
//! new ones, at the same offsets, for old. Knows nothing of commands and followers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_shared::time::{Span, Timestamp};

use super::super::Stream;
use super::disk::Disk;
use super::ends::KnownEnds;
use super::error::OpenError;
use super::layout::{self, Description, DescriptionFault, Running};
use super::partition::Partition;
use super::recovery::Recovery;
use super::snapshots::Snapshots;
use super::{Ack, JournalConfig};

/// How the last process that wrote the journal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// No process has written the journal before.
    New,
    /// It stopped in order.
    Clean,
    /// It was killed, while the machine went on.
    Killed,
    /// The machine went down, or it is not known whether it did.
    PowerCut,
}

impl LastStop {
    /// Whether files may have been written, cut or removed without being durable: by a process that was killed,
    /// or by an opening after a power cut that failed or was killed during its repair.
    pub(super) fn leaves_unsynced(self) -> bool {
        matches!(self, Self::Killed | Self::PowerCut)
    }
}

/// A torn end that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The segment file.
    pub file: PathBuf,
    /// The file's length after the cut, in bytes.
    pub position: u64,
    /// How many bytes were cut off.
    pub cut_bytes: u64,
    /// The offset that the next record gets.
    pub next: u64,
}

/// What opening the journal found. The caller logs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    /// How the last writer ended.
    pub last_stop: LastStop,
    /// The generation of the log: 1 for a new journal, and greater after each stop in which acknowledged records
    /// may have been lost, and after the journal was restored from a backup.
    pub generation: u32,
    /// Partitions that have no record of this generation yet. The first record that the owner appends to each
    /// must state the generation. Listed at each opening until that record exists.
    pub unbegun: Vec<(Stream, u32)>,
    /// Torn ends that were cut off.
    pub torn: Vec<Torn>,
    /// The offset that the next record will have, for each partition.
    pub ends: Vec<(Stream, u32, u64)>,
    /// By how much the clock is behind the newest append time, from which log time goes on.
    pub clock_behind: Span,
}

/// The state of a journal that was just opened.
pub(super) struct OpenedJournal {
    pub partitions: Vec<Partition>,
    pub lock: Box<dyn Send>,
    /// The ends on record.
    pub ends: KnownEnds,
    pub report: OpenReport,
}

/// Opens the journal, or creates it.
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
    let last_stop = match new {
        true => LastStop::New,
        false => last_stop(left.as_ref(), boot),
    };
    let left_ack = left.map_or(Ack::Synced, |running| running.ack);
    let may_have_lost = last_stop == LastStop::PowerCut && left_ack == Ack::Written;
    let ends = read_ends(&**disk, dir, &description)?;
    let snapshots = readable_snapshots(disk, dir)?;
    let mut recovery = Recovery {
        disk,
        last_stop,
        left_ack,
        known: known_ends(&ends, &description, (!may_have_lost).then_some(&snapshots)),
        torn: Vec::new(),
    };
    let mut partitions = Vec::new();
    for stream in layout::STREAMS {
        for index in 0..layout::partitions_of(stream, config.partitions) {
            partitions.push(recovery.partition(dir, stream, index)?);
        }
    }
    if may_have_lost {
        remove_beyond_ends(&snapshots, &partitions).map_err(OpenError::io(dir))?;
        begin_generation(&**disk, dir, &mut description, &mut partitions)?;
    }
    begin_if_restored(&**disk, dir, &mut description, &mut partitions)?;
    if last_stop.leaves_unsynced() {
        sync_promised(config.ack, &mut partitions)?;
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
        ends,
        report,
    })
}

/// The snapshots, which this process may read.
fn readable_snapshots(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Snapshots, OpenError> {
    let snapshots = Snapshots::beside(dir, Arc::clone(disk));
    let unreadable = |(path, error)| OpenError::io(path)(error);
    snapshots.check_readable().map_err(unreadable)?;
    Ok(snapshots)
}

/// Removes the snapshots of records that a power cut took, before the log begins a generation: later such a snapshot
/// counts as the sign of a lost end.
fn remove_beyond_ends(snapshots: &Snapshots, partitions: &[Partition]) -> io::Result<()> {
    let mut hits = partitions.iter().filter(|one| one.stream == Stream::Hits);
    hits.try_for_each(|one| snapshots.remove_beyond(one.index, one.next))
}

/// The ends on record. If they, or the directory, have a partition that the description does not have, one of them is
/// not as it was written.
fn read_ends(
    disk: &dyn Disk,
    dir: &Path,
    description: &Description,
) -> Result<KnownEnds, OpenError> {
    let ends = KnownEnds::read(disk, dir)?;
    let names = disk.list(dir).map_err(OpenError::io(dir))?;
    let mut named = names
        .iter()
        .filter_map(|name| layout::partition_named(name));
    let found = match ends.foreign(description) {
        Some((stream, partition)) => {
            let name = layout::stream_name(stream);
            Some(format!("file `ends` has `{name} {partition}`"))
        }
        None => named
            .find(|(stream, partition)| !description.has(*stream, *partition))
            .map(|(stream, partition)| {
                let path = layout::partition(Path::new(""), stream, partition);
                format!("there is `{}`", path.display())
            }),
    };
    match found {
        None => Ok(ends),
        Some(found) => Err(OpenError::Damaged {
            dir: dir.to_owned(),
            what: format!(
                "{found}, but file `journal` has `partitions {}`",
                description.partitions
            ),
        }),
    }
}

/// What no partition may end before. `snapshots`: `None` if the log may have lost records that they have.
fn known_ends(
    ends: &KnownEnds,
    description: &Description,
    snapshots: Option<&Snapshots>,
) -> KnownEnds {
    let mut known = ends.clone();
    known.raise_to_begins(description);
    if let Some(snapshots) = snapshots {
        known.raise_to_snapshots(snapshots, description.partitions);
    }
    known
}

/// What no partition may end before, for a process that only reads. It has no lock, so a process may be writing; what
/// is known stays true meanwhile.
pub(super) fn known_to_readers(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    description: &Description,
) -> Result<KnownEnds, OpenError> {
    let left = left_running(&**disk, dir)?;
    let boot = super::boot_of_this_machine();
    let went_down = last_stop(left.as_ref(), boot.as_deref()) == LastStop::PowerCut;
    let may_have_lost = went_down && left.is_some_and(|left| left.ack == Ack::Written);
    let ends = read_ends(&**disk, dir, description)?;
    let snapshots = Snapshots::beside(dir, Arc::clone(disk));
    let snapshots = (!may_have_lost).then_some(&snapshots);
    Ok(known_ends(&ends, description, snapshots))
}

/// How the last process on a journal ended, by what it left there.
fn last_stop(left: Option<&Running>, boot: Option<&str>) -> LastStop {
    match left {
        None => LastStop::Clean,
        Some(running) if boot.is_some() && running.boot.as_deref() == boot => LastStop::Killed,
        Some(_) => LastStop::PowerCut,
    }
}

/// Syncs what is promised to survive a power cut.
///
/// The aggregator rules by what it reads from here on, and writes limits activations for it. Where records are promised
/// to survive a power cut, they must do so even if the last writer did not sync them. And what was cut off must not
/// reappear after records that are acknowledged from now on.
fn sync_promised(ack: Ack, partitions: &mut [Partition]) -> Result<(), OpenError> {
    let promised = |one: &&mut Partition| ack == Ack::Synced || one.stream == Stream::Limits;
    for partition in partitions.iter_mut().filter(promised) {
        partition.sync().map_err(OpenError::io(&partition.dir))?;
    }
    Ok(())
}

fn take_lock(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Box<dyn Send>, OpenError> {
    let path = layout::lock(dir);
    disk.lock(&path).map_err(|source| {
        let dir = dir.to_owned();
        match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { dir },
            io::ErrorKind::Other => OpenError::io(path)(source),
            _ => OpenError::NotWritable { dir, source },
        }
    })
}

/// Reads the description of the journal in a directory; `None` without a description.
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
        Err(DescriptionFault::Unreadable(what)) => Err(OpenError::Damaged { dir, what }),
    }
}

/// Creates a journal's description. Refuses a directory that holds other things.
fn make(disk: &dyn Disk, config: &JournalConfig) -> Result<Description, OpenError> {
    let dir = &config.dir;
    let names = disk.list(dir).map_err(OpenError::io(dir))?;
    // A journal writes its description first, so nothing else in this directory belongs to a journal.
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

/// Begins the next generation at the current end of the log.
fn begin_generation(
    disk: &dyn Disk,
    dir: &Path,
    description: &mut Description,
    partitions: &mut [Partition],
) -> Result<(), OpenError> {
    for partition in partitions.iter_mut() {
        // If the power goes again, the log must not end before the beginning of the generation.
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

/// Begins the next generation if an operator states that the journal was restored from a backup. The statement is
/// removed last: if the process dies before, the next one begins a further generation, which does no harm.
fn begin_if_restored(
    disk: &dyn Disk,
    dir: &Path,
    description: &mut Description,
    partitions: &mut [Partition],
) -> Result<(), OpenError> {
    // Listed and not read: another user may have made the file.
    let names = disk.list(dir).map_err(OpenError::io(dir))?;
    if !names.iter().any(|name| name == layout::RESTORED) {
        return Ok(());
    }
    let path = dir.join(layout::RESTORED);
    begin_generation(disk, dir, description, partitions)?;
    disk.remove(&path).map_err(OpenError::io(path))?;
    disk.sync_dir(dir).map_err(OpenError::io(dir))?;
    tracing::warn!(
        generation = description.generation,
        "the journal was restored from a backup: the log begins a generation"
    );
    Ok(())
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
