//! Snapshots as files beside the journal: read at the start, written by a thread of their own.
//!
//! ```text
//! snapshots/00003-00000000000000018250.snap    partition 3, everything up to offset 18250
//! file    "TGSF" 1, then each chunk: length (u32, little-endian), bytes
//! ```
//!
//! The last two of each partition stay. What is in them is the engine's to judge: its digest stands in
//! the last chunk. What stays true: a file has its name only when all of it is on the medium.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use crate::core::event::Event;
use crate::core::snapshots::{Chunks, Moment};

const MAGIC: [u8; 5] = *b"TGSF\x01";

/// Their directory, within the journal's.
pub const DIR: &str = "snapshots";

/// How many of each partition stay.
const KEPT: usize = 2;

/// What the thread is told to do with the snapshot of a partition at an offset.
struct Job {
    partition: u32,
    upto: u64,
    /// Write this; nothing: remove the file.
    moment: Option<Moment>,
}

/// Writes snapshots in a thread of its own.
pub struct Saver {
    jobs: std::sync::mpsc::Sender<Job>,
}

impl Saver {
    /// Starts the thread; it says by an event what became of each. At most one of each partition waits,
    /// because the core asks for no second one before.
    ///
    /// # Errors
    ///
    /// Where no thread can be had.
    pub fn start(dir: PathBuf, events: mpsc::Sender<Event>) -> io::Result<Self> {
        remove_half_written(&dir);
        let (jobs, inbox) = std::sync::mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(move || {
                for job in inbox {
                    let partition = job.partition;
                    let Some(moment) = &job.moment else {
                        remove(&file(&dir, partition, job.upto));
                        continue;
                    };
                    let saved = save(&dir, partition, job.upto, moment);
                    if let Err(error) = &saved {
                        tracing::error!(partition, %error, "a snapshot cannot be written");
                    }
                    let saved = saved.is_ok();
                    let event = Event::SnapshotSaved { partition, saved };
                    if events.blocking_send(event).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self { jobs })
    }

    /// Has a snapshot written.
    pub fn save(&self, partition: u32, upto: u64, moment: Moment) {
        self.send(partition, upto, Some(moment));
    }

    /// Has the file of a snapshot removed that is not of this log.
    pub fn drop_snapshot(&self, partition: u32, upto: u64) {
        self.send(partition, upto, None);
    }

    fn send(&self, partition: u32, upto: u64, moment: Option<Moment>) {
        // The thread lives as long as this, unless it panicked.
        let _ = self.jobs.send(Job {
            partition,
            upto,
            moment,
        });
    }
}

fn save(dir: &Path, partition: u32, upto: u64, moment: &Moment) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let target = file(dir, partition, upto);
    let temporary = target.with_extension("tmp");
    let written = write(&temporary, moment)
        .and_then(|()| std::fs::rename(&temporary, &target))
        .and_then(|()| std::fs::File::open(dir)?.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
        return written;
    }
    // One beyond what was ruled until now is of an end that the log has lost: it would outlive all that
    // are true.
    let (beyond, rest): (Vec<_>, Vec<_>) = of_partition(dir, partition)?
        .into_iter()
        .partition(|(of, _)| upto < *of);
    for (_, old) in beyond.into_iter().chain(rest.into_iter().skip(KEPT)) {
        std::fs::remove_file(old)?;
    }
    Ok(())
}

/// Removes what a process left that was killed while it wrote: nobody would ever read it.
fn remove_half_written(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "tmp") {
            remove(&path);
        }
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(file = %path.display(), %error, "a snapshot's file cannot be removed");
        }
        _ => {}
    }
}

fn write(path: &Path, moment: &Moment) -> io::Result<()> {
    let mut writer = BufWriter::new(std::fs::File::create(path)?);
    writer.write_all(&MAGIC)?;
    let mut result = Ok(());
    moment.0.write(|chunk| {
        if result.is_ok() {
            let len = (chunk.len() as u32).to_le_bytes();
            result = writer
                .write_all(&len)
                .and_then(|()| writer.write_all(&chunk));
        }
    });
    result?;
    writer
        .into_inner()
        .map_err(|error| error.into_error())?
        .sync_all()
}

/// The file of a partition's snapshot at an offset.
pub fn file(dir: &Path, partition: u32, upto: u64) -> PathBuf {
    dir.join(format!("{partition:05}-{upto:020}.snap"))
}

/// The offsets of a partition's snapshots, newest first; none where there is no such directory.
pub fn offsets(dir: &Path, partition: u32) -> Vec<u64> {
    let files = of_partition(dir, partition).unwrap_or_default();
    files.into_iter().map(|(upto, _)| upto).collect()
}

/// The snapshot files of a partition, newest first, each with its offset.
fn of_partition(dir: &Path, partition: u32) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if let Some((of, upto)) = name_of(&path)
            && of == partition
        {
            found.push((upto, path));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

fn name_of(path: &Path) -> Option<(u32, u64)> {
    if path.extension()? != "snap" {
        return None;
    }
    let (partition, upto) = path.file_stem()?.to_str()?.split_once('-')?;
    Some((partition.parse().ok()?, upto.parse().ok()?))
}

/// All snapshots that are there, by partition, newest first. What cannot be read is passed over and
/// said: the log has it all.
pub fn read_all(dir: &Path, partitions: u32) -> BTreeMap<u32, Vec<Chunks>> {
    let mut all = BTreeMap::new();
    for partition in 0..partitions {
        let files = of_partition(dir, partition).unwrap_or_default();
        let mut found = Vec::new();
        for (_, path) in files {
            match read(&path) {
                Ok(chunks) => found.push(chunks),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "a snapshot cannot be read")
                }
            }
        }
        if !found.is_empty() {
            all.insert(partition, found);
        }
    }
    all
}

/// The chunks in a snapshot's file.
///
/// # Errors
///
/// Where it cannot be read, or is not the whole of one.
pub fn read(path: &Path) -> io::Result<Chunks> {
    let bytes = std::fs::read(path)?;
    let cut = || io::Error::new(io::ErrorKind::InvalidData, "not the whole of a snapshot");
    let mut rest = bytes.strip_prefix(&MAGIC).ok_or_else(cut)?;
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let (len, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let len = u32::from_le_bytes(*len) as usize;
        let (chunk, behind) = behind.split_at_checked(len).ok_or_else(cut)?;
        chunks.push(chunk.to_vec());
        rest = behind;
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_engine::engine::Engine;
    use tollgate_shared::place::LogId;
    use tollgate_shared::time::Timestamp;
    use tollgate_shared::wire::record::Record;

    fn moment(offset: u64) -> Moment {
        let mut engine = Engine::new(3, 4);
        let genesis = Record::Genesis(LogId {
            generation: 1,
            random: 5,
        });
        let mut rulings = tollgate_engine::engine::Rulings::new();
        engine.apply(offset, Timestamp::ZERO, &genesis, &(), &mut rulings);
        Moment(Box::new(engine.freeze()))
    }

    fn save(dir: &Path, offset: u64) -> io::Result<()> {
        super::save(dir, 3, offset, &moment(offset))
    }

    #[test]
    fn the_last_two_stay_and_are_read_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        for offset in [7, 9, 100] {
            save(dir.path(), offset).unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), KEPT);
        let found = read_all(dir.path(), 4);
        let restored: Vec<_> = found[&3]
            .iter()
            .map(|chunks| Engine::restore(3, 4, chunks, &()).unwrap().applied_upto())
            .collect();
        assert_eq!(restored, [Some(100), Some(9)]);
    }

    #[test]
    fn what_is_cut_off_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), 7).unwrap();
        save(dir.path(), 9).unwrap();
        let (_, newest) = of_partition(dir.path(), 3).unwrap().remove(0);
        let bytes = std::fs::read(&newest).unwrap();
        std::fs::write(&newest, &bytes[..bytes.len() - 3]).unwrap();
        assert_eq!(read_all(dir.path(), 4)[&3].len(), 1);
        assert!(read_all(&dir.path().join("none"), 4).is_empty());
    }
    #[test]
    fn one_beyond_what_is_saved_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        for offset in [7, 100, 206] {
            save(dir.path(), offset).unwrap();
        }
        // The log was cut, and has grown to here again.
        save(dir.path(), 60).unwrap();
        assert_eq!(offsets(dir.path(), 3), [60]);
        save(dir.path(), 80).unwrap();
        assert_eq!(offsets(dir.path(), 3), [80, 60]);
    }

    #[test]
    fn what_a_killed_process_left_half_written_is_removed_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), 7).unwrap();
        let left = file(dir.path(), 3, 9).with_extension("tmp");
        std::fs::write(&left, b"TGSF").unwrap();
        let (events, mut said) = mpsc::channel(4);
        let saver = Saver::start(dir.path().to_owned(), events).unwrap();
        assert!(!left.exists());
        assert_eq!(offsets(dir.path(), 3), [7]);
        // In the order in which it was told: the second answer comes after the removal.
        saver.save(3, 9, moment(9));
        saver.drop_snapshot(3, 9);
        saver.save(3, 11, moment(11));
        for _ in 0..2 {
            let event = said.blocking_recv().unwrap();
            assert!(matches!(event, Event::SnapshotSaved { saved: true, .. }));
        }
        assert_eq!(offsets(dir.path(), 3), [11, 7]);
    }
}
