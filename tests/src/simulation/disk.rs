//! A disk in memory that tears or loses unsynced data, fills up, and stops at any operation.
//!
//! Written data survives the end of a process; synced data survives a power cut. A crash may be set for the
//! n-th operation from now: that operation is done in part, and every later one fails until the host is up
//! again. Knows nothing of journals.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tollgate_log::journal::disk::{Disk, DiskFile, SyncJob, Syncing};

use super::random::Random;

/// The size of a sector: after a power cut an unsynced sector keeps its data or is zeros.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// The content is durable up to here.
    synced: usize,
    /// Whether the file's directory entry is durable.
    listed: bool,
    /// Truncated data that may be back after a power cut.
    cut_off: Vec<u8>,
}

type FileRef = Arc<Mutex<File>>;

/// A file that was renamed.
#[derive(Debug)]
struct Renamed {
    from: PathBuf,
    to: PathBuf,
    /// The file that had the new name before.
    replaced: Option<FileRef>,
}

/// What is on a disk, and how it fails.
#[derive(Debug, Default)]
pub(super) struct DiskState {
    files: BTreeMap<PathBuf, FileRef>,
    /// Removed files whose removal is not durable.
    removed: BTreeMap<PathBuf, FileRef>,
    /// Renames that are not durable, in order.
    renamed: Vec<Renamed>,
    locked: bool,
    /// The host stops after this many more operations.
    pub(super) crash_in: Option<u64>,
    pub(super) crashed: bool,
    /// How many more bytes can be written.
    pub(super) room_bytes: Option<u64>,
    /// Number of writes without room.
    pub(super) without_room: u64,
    pub(super) syncs_fail: bool,
    /// Number of syncs that failed.
    pub(super) failed_syncs: u64,
    /// Whether truncated data may be back after a power cut, until the file is synced. Otherwise it is gone at once.
    pub(super) truncates_late: bool,
    random: Random,
}

/// The disk of one host.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<DiskState>>);

impl SimDisk {
    /// An empty disk.
    pub fn new(random: Random) -> Self {
        let state = DiskState {
            random,
            ..DiskState::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().expect("one thread, and it did not panic")
    }

    /// Whether the host has stopped.
    pub fn has_crashed(&self) -> bool {
        self.state().crashed
    }

    /// The host is up again, so that another process may start.
    pub fn up_again(&self) {
        let mut state = self.state();
        (state.crashed, state.crash_in, state.locked) = (false, None, false);
    }

    /// Cuts the power: any part of the unsynced data may be left.
    pub fn cut_power(&self) {
        let mut state = self.state();
        let DiskState {
            files,
            removed,
            renamed,
            random,
            ..
        } = &mut *state;
        // As with journaled file systems: a prefix of the unsynced renames is left.
        let left = match renamed.len() {
            0 => 0,
            count => random.below(count as u64 + 1) as usize,
        };
        for undone in renamed.drain(..).skip(left).rev() {
            if let Some(file) = files.remove(&undone.to) {
                files.insert(undone.from, file);
            }
            if let Some(replaced) = undone.replaced {
                files.insert(undone.to, replaced);
            }
        }
        for (path, file) in std::mem::take(removed) {
            if random.one_in(2) {
                files.insert(path, file);
            }
        }
        files.retain(|_, file| {
            let mut file = file.lock().expect("one thread");
            if !file.listed && random.one_in(2) {
                return false;
            }
            file.listed = true;
            file.lose(random);
            true
        });
    }
}

impl File {
    /// Keeps, cuts off or zeroes what is not synced.
    fn lose(&mut self, random: &mut Random) {
        let cut_off = std::mem::take(&mut self.cut_off);
        if !cut_off.is_empty() && random.one_in(2) {
            self.bytes.extend(cut_off);
            self.synced = self.bytes.len();
        }
        let unsynced = self.bytes.len() - self.synced;
        if unsynced == 0 {
            return;
        }
        match random.below(4) {
            0 => {}
            1 => self.bytes.truncate(self.synced),
            2 => {
                let kept = random.below(unsynced as u64) as usize;
                self.bytes.truncate(self.synced + kept);
            }
            _ => {
                for sector in self.bytes[self.synced..].chunks_mut(SECTOR_BYTES) {
                    if random.one_in(2) {
                        sector.fill(0);
                    }
                }
            }
        }
        self.synced = self.bytes.len();
    }
}

impl DiskState {
    fn may_sync(&mut self) -> io::Result<()> {
        if self.syncs_fail {
            self.failed_syncs += 1;
            return Err(io::Error::other("sync fails"));
        }
        Ok(())
    }

    /// Counts an operation. Returns false if the host stops within it.
    fn goes_on(&mut self) -> io::Result<bool> {
        if self.crashed {
            return Err(down());
        }
        match &mut self.crash_in {
            Some(0) => {
                self.crashed = true;
                Ok(false)
            }
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => Ok(true),
        }
    }

    /// The same for an operation that is done wholly or not at all.
    fn goes_on_or_fails(&mut self) -> io::Result<()> {
        match self.goes_on()? {
            true => Ok(()),
            false => Err(down()),
        }
    }
}

fn down() -> io::Error {
    io::Error::other("the host is down")
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

struct Lock(SimDisk);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        let inside = state.files.range(dir.to_owned()..);
        let inside = inside.take_while(|(path, _)| path.starts_with(dir));
        let inside = inside.filter(|(path, _)| path.parent() == Some(dir));
        Ok(inside.filter_map(|(path, _)| name(path)).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let file = state.files.get(path).ok_or_else(not_found)?;
        let bytes = file.lock().expect("one thread").bytes.clone();
        Ok(bytes)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.may_sync()?;
        if !state.goes_on()? && state.random.one_in(2) {
            return Err(down());
        }
        let file = File {
            bytes: bytes.to_vec(),
            synced: bytes.len(),
            listed: true,
            cut_off: Vec::new(),
        };
        state
            .files
            .insert(path.to_owned(), Arc::new(Mutex::new(file)));
        if state.crashed {
            return Err(down());
        }
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Send>> {
        let mut state = self.state();
        if std::mem::replace(&mut state.locked, true) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock(self.clone())))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.goes_on_or_fails()?;
        let file = FileRef::default();
        state.files.insert(path.to_owned(), Arc::clone(&file));
        Ok(Box::new(Open {
            disk: self.clone(),
            file,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let state = self.state();
        let file = Arc::clone(state.files.get(path).ok_or_else(not_found)?);
        Ok(Box::new(Open {
            disk: self.clone(),
            file,
        }))
    }

    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.goes_on()? && state.random.one_in(2) {
            return Err(down());
        }
        let file = state.files.remove(from).ok_or_else(not_found)?;
        let replaced = state.files.insert(to.to_owned(), file);
        state.renamed.push(Renamed {
            from: from.to_owned(),
            to: to.to_owned(),
            replaced,
        });
        if state.crashed {
            return Err(down());
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.goes_on_or_fails()?;
        let file = state.files.remove(path).ok_or_else(not_found)?;
        state.removed.insert(path.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.goes_on_or_fails()?;
        state.may_sync()?;
        state.removed.retain(|path, _| path.parent() != Some(dir));
        state.renamed.retain(|one| one.to.parent() != Some(dir));
        for (_, file) in state
            .files
            .iter()
            .filter(|(path, _)| path.parent() == Some(dir))
        {
            file.lock().expect("one thread").listed = true;
        }
        Ok(())
    }

    fn sync_later(&self, job: SyncJob) -> Box<dyn Syncing> {
        Box::new(Later(job))
    }
}

/// Runs as late as it may.
struct Later(SyncJob);

impl Syncing for Later {
    fn has_ended(&self) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> io::Result<()> {
        (self.0)()
    }
}

struct Open {
    disk: SimDisk,
    file: FileRef,
}

impl DiskFile for Open {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.lock().expect("one thread").bytes.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let file = self.file.lock().expect("one thread");
        let from = file.bytes.get(position as usize..).unwrap_or_default();
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        Ok(len)
    }

    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let mut fits = bytes.len();
        if !state.goes_on()? {
            fits = state.random.below(bytes.len() as u64 + 1) as usize;
        }
        if let Some(room) = &mut state.room_bytes {
            fits = fits.min(*room as usize);
            *room -= fits as u64;
        }
        let mut file = self.file.lock().expect("one thread");
        let (from, to) = (position as usize, position as usize + fits);
        if file.bytes.len() < to {
            file.bytes.resize(to, 0);
        }
        file.bytes[from..to].copy_from_slice(&bytes[..fits]);
        // The data written there instead has another length.
        file.cut_off.clear();
        file.synced = file.synced.min(from);
        if state.crashed {
            return Err(down());
        }
        if fits < bytes.len() {
            state.without_room += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.goes_on_or_fails()?;
        let mut file = self.file.lock().expect("one thread");
        if state.truncates_late && (len as usize) < file.bytes.len() {
            let mut cut_off = file.bytes.split_off(len as usize);
            cut_off.append(&mut file.cut_off);
            file.cut_off = cut_off;
        }
        file.bytes.truncate(len as usize);
        file.synced = file.synced.min(len as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.goes_on_or_fails()?;
        state.may_sync()?;
        let mut file = self.file.lock().expect("one thread");
        file.synced = file.bytes.len();
        file.cut_off.clear();
        Ok(())
    }
}
