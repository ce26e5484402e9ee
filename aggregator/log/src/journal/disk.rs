//! What the journal asks of a file system, so that a simulation can stand in its place.
//!
//! Every access of the journal goes through [`Disk`] and [`DiskFile`]; a simulated one may tear or
//! lose what was written and not synced, run out of space, or fail. Knows nothing of segments or
//! records. What was written is seen by the next read; what was synced survives a power cut. On the
//! operating system's disk files and directories can be read by their owner alone: they hold domains' names.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file system.
pub trait Disk: Send + Sync {
    /// Makes a directory and its parents, durably; one that exists is well.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// The whole of a small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Puts a small file in place as a whole and durably: after a crash there is the old or the new.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Takes a lock that nobody else can hold, until what is returned is dropped or the process is
    /// gone; [`io::ErrorKind::WouldBlock`] where somebody holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>>;

    /// A new, empty file for writing and reading; an old one of this name is emptied.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// A file that exists, for writing and reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// A file that exists, for reading alone.
    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name in its directory; what had that name is gone. Durable with the directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a file away.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes durable which files a directory has.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Begins to make a file's content durable, while its owner goes on with something else.
    fn sync_later(&self, file: Box<dyn DiskFile>) -> Box<dyn Syncing>;
}

/// A file that is being made durable.
pub trait Syncing: Send {
    /// Waits until that is done.
    fn wait(self: Box<Self>) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send {
    /// Its length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `into.len()` bytes at `position`; fewer at the end of the file alone.
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all bytes at `position`. After a failure, any part of them may have been written.
    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Cuts the file to `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Makes the content durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// What a file is made with: its owner may read and write it, and nobody else anything.
const FILE_MODE: u32 = 0o600;

/// The same of a directory.
const DIR_MODE: u32 = 0o700;

/// Makes a directory and its parents, for the owner alone. Of one that exists already whoever is neither its
/// owner nor of its group is shut out, if this process may do that.
///
/// # Errors
///
/// Where a directory cannot be made.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    const OTHERS: u32 = 0o007;
    let existed = dir.is_dir();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(dir)?;
    let mode = fs::metadata(dir)?.permissions().mode();
    if existed && mode & OTHERS != 0 {
        // A volume that is somebody else's keeps its mode.
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(mode & !OTHERS));
    }
    Ok(())
}

/// Options to make a file that its owner alone can read.
pub fn private_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.create(true).write(true).mode(FILE_MODE);
    options
}

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
        create_private_dir(dir)?;
        for made in missing {
            match made.parent() {
                Some(parent) if parent.as_os_str().is_empty() => self.sync_dir(Path::new("."))?,
                Some(parent) => self.sync_dir(parent)?,
                None => {}
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut beside = PathBuf::from(path).into_os_string();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let mut file = private_file().truncate(true).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        match path.parent() {
            Some(dir) => self.sync_dir(dir),
            None => Ok(()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        let file = private_file().truncate(false).open(path)?;
        file.try_lock().map_err(io::Error::from)?;
        Ok(Box::new(OsLock(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = private_file().truncate(true).read(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OsFile(fs::File::open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn sync_later(&self, mut file: Box<dyn DiskFile>) -> Box<dyn Syncing> {
        // A thread for each: once for every full segment, which takes some 100 ms to be synced.
        let thread = std::thread::Builder::new().name("journal-sync".to_owned());
        Box::new(OsSyncing(thread.spawn(move || file.sync())))
    }
}

struct OsLock(fs::File);

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is just being started has it open, too,
        // until it runs its own program. An error leaves the lock to the end of the process.
        let _ = self.0.unlock();
    }
}

struct OsSyncing(io::Result<std::thread::JoinHandle<io::Result<()>>>);

impl Syncing for OsSyncing {
    fn wait(self: Box<Self>) -> io::Result<()> {
        let ended = self.0?.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the syncing thread panicked")))
    }
}

struct OsFile(fs::File);

impl DiskFile for OsFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        // The length is part of what fdatasync makes durable; the other metadata nobody reads.
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_can_be_read_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (outer, inner) = (dir.path().join("a"), dir.path().join("a/b"));
        OsDisk.create_dir(&inner).unwrap();
        let [made, replaced, locked] = ["made", "replaced", "locked"].map(|name| inner.join(name));
        drop(OsDisk.create(&made).unwrap());
        OsDisk.replace(&replaced, b"x").unwrap();
        drop(OsDisk.lock(&locked).unwrap());
        for path in [&outer, &inner] {
            assert_eq!(mode(path), DIR_MODE, "{}", path.display());
        }
        for path in [&made, &replaced, &locked] {
            assert_eq!(mode(path), FILE_MODE, "{}", path.display());
        }
    }

    #[test]
    fn others_are_shut_out_of_a_directory_that_was_open() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        OsDisk.create_dir(&open).unwrap();
        assert_eq!(mode(&open), 0o750);
    }
}
