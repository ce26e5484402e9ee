//! Records how far partitions reach, in the background, because this syncs files, and appends would wait meanwhile.
//!
//! Looks every second, at one partition at a time. What stays true: the file never has less than it had, nor an end that
//! is not durable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::disk::{Disk, Syncing};
use super::ends::KnownEnds;
use super::layout;
use super::partition::Partition;

/// Keeps the file of the ends.
pub(super) struct EndRecorder {
    /// What the file has.
    recorded: KnownEnds,
    running: Option<EndWrite>,
}

/// A new content of the file, while it is being written.
struct EndWrite {
    ends: KnownEnds,
    job: Box<dyn Syncing>,
}

impl EndRecorder {
    /// Of a file that has these ends.
    pub fn new(recorded: KnownEnds) -> Self {
        Self {
            recorded,
            running: None,
        }
    }

    /// Begins to record the end of the first partition for which it is time, unless the last recording still runs.
    /// Returns that one's fault, which names the file or directory.
    pub fn turn<'a>(
        &mut self,
        mut partitions: impl Iterator<Item = &'a Partition>,
        disk: &Arc<dyn Disk>,
        dir: &Path,
    ) -> io::Result<()> {
        if self.running.as_ref().is_some_and(|it| !it.job.has_ended()) {
            return Ok(());
        }
        let last = self.settle();
        let due = partitions.find(|one| self.recorded.is_due(one));
        self.running = due.map(|one| self.begin(one, disk, dir));
        last
    }

    /// Records how far all partitions reach, which the caller has synced, and waits for it.
    pub fn close<'a>(
        mut self,
        partitions: impl Iterator<Item = &'a Partition>,
        disk: &dyn Disk,
        dir: &Path,
    ) -> io::Result<()> {
        // It would replace the file later. Its fault does not matter, because the file is written again.
        let _ = self.settle();
        for one in partitions {
            self.recorded.raise_to_synced(one);
        }
        self.recorded.write(disk, dir)
    }

    /// Waits for the recording that runs.
    fn settle(&mut self) -> io::Result<()> {
        let Some(EndWrite { ends, job }) = self.running.take() else {
            return Ok(());
        };
        job.wait()?;
        self.recorded = ends;
        Ok(())
    }

    fn begin(&self, one: &Partition, disk: &Arc<dyn Disk>, dir: &Path) -> EndWrite {
        let mut ends = self.recorded.clone();
        ends.raise_to_synced(one);
        let (files, directories) = (one.unsynced_files(), [one.dir.clone(), dir.to_owned()]);
        let sync_failed = Arc::clone(&one.sync_failed);
        let (on, to, written) = (Arc::clone(disk), dir.to_owned(), ends.clone());
        let job = disk.sync_later(Box::new(move || {
            sync(&*on, &files, &directories).inspect_err(|_| {
                sync_failed.store(true, Ordering::Relaxed);
            })?;
            written.write(&*on, &to).map_err(at(&layout::ends(&to)))
        }));
        EndWrite { ends, job }
    }
}

fn sync(disk: &dyn Disk, files: &[PathBuf], directories: &[PathBuf]) -> io::Result<()> {
    for file in files {
        let synced = disk.open(file).and_then(|mut opened| opened.sync());
        synced.map_err(at(file))?;
    }
    for dir in directories {
        disk.sync_dir(dir).map_err(at(dir))?;
    }
    Ok(())
}

fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
