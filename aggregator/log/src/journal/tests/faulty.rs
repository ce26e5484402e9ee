//! A disk that fails when a test asks it to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::super::disk::{Disk, DiskFile, OsDisk, SyncJob, Syncing};
use super::Kit;

/// The operations that fail.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// How many more bytes can be written; then the disk is full, in the middle of a write.
    pub room_bytes: Option<u64>,
    pub sync: bool,
    pub sync_dir: bool,
    pub truncate: bool,
    pub create: bool,
    /// Paths that contain this cannot be read.
    pub secret: Option<&'static str>,
    /// What syncs in the background does not end before somebody waits for it.
    pub slow: bool,
    /// How many more files can be removed.
    pub removals: Option<u64>,
}

/// How often each operation ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub writes: u64,
    pub syncs: u64,
    /// Files opened for reading.
    pub reads_opened: u64,
}

#[derive(Default)]
struct State {
    faults: Faults,
    counts: Counts,
    /// Files that were removed, but not durably.
    removed: Vec<(PathBuf, Vec<u8>)>,
}

/// The machine's disk, with faults.
#[derive(Clone, Default)]
pub(super) struct FaultyDisk(Arc<Mutex<State>>);

impl FaultyDisk {
    pub fn set(&self, faults: Faults) {
        self.0.lock().expect("no panic").faults = faults;
    }

    pub fn counts(&self) -> Counts {
        self.0.lock().expect("no panic").counts
    }

    /// Cuts the power: files whose removal was not durable are there again.
    pub fn cut_power(&self) {
        let removed = std::mem::take(&mut self.0.lock().expect("no panic").removed);
        for (path, bytes) in removed {
            std::fs::write(path, bytes).expect("writes");
        }
    }

    fn may_read(&self, path: &Path) -> io::Result<()> {
        let secret = self.0.lock().expect("no panic").faults.secret;
        match secret.is_some_and(|secret| path.to_string_lossy().contains(secret)) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }

    fn wrap(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(FaultyFile {
            file,
            state: Arc::clone(&self.0),
        })
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        OsDisk.create_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.may_read(dir)?;
        OsDisk.list(dir)
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        OsDisk.read(path)
    }
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.0.lock().expect("no panic").faults.room_bytes == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        OsDisk.replace(path, bytes)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        OsDisk.lock(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if self.0.lock().expect("no panic").faults.create {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(self.wrap(OsDisk.create(path)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.wrap(OsDisk.open(path)?))
    }
    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.may_read(path)?;
        self.0.lock().expect("no panic").counts.reads_opened += 1;
        OsDisk.open_for_reading(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        OsDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        if let Some(left) = &mut self.0.lock().expect("no panic").faults.removals {
            *left = left.checked_sub(1).ok_or(io::ErrorKind::PermissionDenied)?;
        }
        let bytes = OsDisk.read(path)?;
        OsDisk.remove(path)?;
        let removed = &mut self.0.lock().expect("no panic").removed;
        removed.push((path.to_owned(), bytes));
        Ok(())
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock().expect("no panic");
        if state.faults.sync_dir {
            return Err(io::Error::other("sync fails"));
        }
        state.removed.retain(|(path, _)| path.parent() != Some(dir));
        OsDisk.sync_dir(dir)
    }
    /// At once, so that a test need not wait, unless it is to be slow.
    fn sync_later(&self, job: SyncJob) -> Box<dyn Syncing> {
        let slow = self.0.lock().expect("no panic").faults.slow;
        match slow {
            true => Box::new(Running(Some(job))),
            false => Box::new(Ended(job())),
        }
    }
}

struct Ended(io::Result<()>);

impl Syncing for Ended {
    fn has_ended(&self) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> io::Result<()> {
        self.0
    }
}

/// Ends when somebody waits for it, or, like a thread, though nobody does.
struct Running(Option<SyncJob>);

impl Syncing for Running {
    fn has_ended(&self) -> bool {
        false
    }

    fn wait(mut self: Box<Self>) -> io::Result<()> {
        self.0.take().map_or(Ok(()), |job| job())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            let _ = job();
        }
    }
}

struct FaultyFile {
    file: Box<dyn DiskFile>,
    state: Arc<Mutex<State>>,
}

impl DiskFile for FaultyFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(into, position)
    }

    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.state.lock().expect("no panic");
        state.counts.writes += 1;
        if let Some(room) = &mut state.faults.room_bytes {
            let fits = bytes.len().min(usize::try_from(*room).expect("small"));
            *room -= fits as u64;
            self.file.write_at(&bytes[..fits], position)?;
            if fits < bytes.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            return Ok(());
        }
        self.file.write_at(bytes, position)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        if self.state.lock().expect("no panic").faults.truncate {
            return Err(io::Error::other("truncate fails"));
        }
        self.file.truncate(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state.lock().expect("no panic");
        state.counts.syncs += 1;
        if state.faults.sync {
            return Err(io::Error::other("sync fails"));
        }
        self.file.sync()
    }
}

/// A journal on a disk with faults.
pub(super) fn kit_on(disk: &FaultyDisk) -> Kit {
    let mut kit = Kit::new();
    kit.disk = Arc::new(disk.clone());
    kit
}

/// Changes the bytes of a file.
pub(super) fn edit(path: &PathBuf, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("reads");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("writes");
}
