//! The file system operations that the journal uses, as traits, so that a simulation can replace them.
//!
//! Every access of the journal goes through [`Disk`] and [`DiskFile`]. A simulated disk may tear or lose
//! writes that were not synced, run out of space, or fail. Knows nothing of segments or records. What stays
//! true: a read sees every earlier write; synced data survives a power cut. On the operating system's disk
//! only the owner can read files and directories, because they hold domains' names, and a pipe or a device in place of a
//! file is refused instead of waited for.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use tollgate_shared::file_mode;

/// A file system.
pub trait Disk: Send + Sync {
    /// Creates a directory and its parents, durably. Succeeds if the directory exists.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// The whole of a small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Replaces a small file atomically and durably: after a crash it has either the old or the new content.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Takes an exclusive lock, and holds it until the returned value is dropped or the process ends.
    /// [`io::ErrorKind::WouldBlock`] if another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>>;

    /// Creates an empty file for writing and reading; truncates an existing file of this name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for writing and reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading alone.
    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file within its directory, replacing a file of the new name. Durable once the directory is
    /// synced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Begins in the background what makes something durable.
    fn sync_later(&self, job: SyncJob) -> Box<dyn Syncing>;
}

/// What makes something durable.
pub type SyncJob = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A [`SyncJob`] that was begun.
pub trait Syncing: Send {
    /// Whether it has ended, so that its result can be had without waiting.
    fn has_ended(&self) -> bool;

    /// Waits until it has ended.
    fn wait(self: Box<Self>) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send {
    /// Its length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Whether a path leads to this file. A disk on which only the journal acts need not look.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }

    /// Reads up to `into.len()` bytes at `position`; fewer only at the end of the file.
    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all bytes at `position`. After an error, any part of them may have been written.
    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()>;

    /// Cuts the file to `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Makes the content durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The mode of new files: the owner reads and writes, others have no access.
const FILE_MODE: u32 = 0o600;

/// The mode of new directories, likewise.
const DIR_MODE: u32 = 0o700;

/// Creates a directory and its parents, for the owner alone. If the directory exists, removes the rights of
/// users outside its owner and group, if this process may do that.
///
/// # Errors
///
/// If a directory cannot be created.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    const OTHERS: u32 = 0o007;
    let existed = dir.is_dir();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(DIR_MODE)
        .create(dir)?;
    let mode = fs::metadata(dir)?.permissions().mode();
    if existed && mode & OTHERS != 0 {
        // Fails on a volume that belongs to another user; the volume keeps its mode then.
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(mode & !OTHERS));
    }
    Ok(())
}

/// Options to create a file that only its owner can read.
pub fn private_file() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.create(true).write(true).mode(FILE_MODE);
    options
}

/// Refuses a path to something other than a regular file.
fn check_regular(path: &Path) -> io::Result<()> {
    file_mode::check_regular(&fs::metadata(path))
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
            // The journal gives no file a name that is not UTF-8.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        check_regular(path)?;
        fs::read(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut beside = PathBuf::from(path).into_os_string();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        let write = || {
            check_regular(&beside)?;
            let mut file = private_file().truncate(true).open(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&beside, path)
        };
        write().inspect_err(|_| {
            // A full disk, for example: nothing would ever read the file.
            let _ = fs::remove_file(&beside);
        })?;
        match path.parent() {
            Some(dir) => self.sync_dir(dir),
            None => Ok(()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send>> {
        check_regular(path)?;
        let file = private_file().truncate(false).open(path)?;
        file.try_lock().map_err(io::Error::from)?;
        let lock = OsLock {
            file,
            dir: lock_dir_of(path)?,
        };
        Ok(Box::new(lock))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        check_regular(path)?;
        let file = private_file().truncate(true).read(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        check_regular(path)?;
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Box::new(OsFile(file)))
    }

    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        check_regular(path)?;
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

    fn sync_later(&self, job: SyncJob) -> Box<dyn Syncing> {
        // One thread per job: there is one for every full segment, which takes some 100 ms, and one for each partition
        // that begins.
        let thread = std::thread::Builder::new().name("journal-sync".to_owned());
        Box::new(OsSyncing(thread.spawn(job)))
    }
}

/// Locks a file's directory as well: somebody may remove the file, so that the next one to lock it locks another. `None`
/// on a file system that locks no directories.
fn lock_dir_of(path: &Path) -> io::Result<Option<fs::File>> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let dir = fs::File::open(dir)?;
    match dir.try_lock() {
        Ok(()) => Ok(Some(dir)),
        Err(fs::TryLockError::Error(_)) => Ok(None),
        Err(held @ fs::TryLockError::WouldBlock) => Err(held.into()),
    }
}

struct OsLock {
    file: fs::File,
    dir: Option<fs::File>,
}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing the file does not release the lock: a child process that is just starting also has the
        // file open, until it executes its own program. After an error the lock is held until the process
        // ends.
        for held in self.dir.iter().chain([&self.file]) {
            let _ = held.unlock();
        }
    }
}

struct OsSyncing(io::Result<std::thread::JoinHandle<io::Result<()>>>);

impl Syncing for OsSyncing {
    fn has_ended(&self) -> bool {
        self.0
            .as_ref()
            .map_or(true, std::thread::JoinHandle::is_finished)
    }

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

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let own = self.0.metadata()?;
        match fs::metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
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
        // fdatasync also makes the file's length durable; nothing reads the other metadata.
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
    fn created_files_are_readable_by_their_user_only() {
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
    fn a_lock_holds_though_its_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = OsDisk.lock(&path).unwrap();
        let kind = || OsDisk.lock(&path).err().map(|fault| fault.kind());
        assert_eq!(kind(), Some(io::ErrorKind::WouldBlock));
        fs::remove_file(&path).unwrap();
        assert_eq!(kind(), Some(io::ErrorKind::WouldBlock));
        drop(held);
        assert_eq!(kind(), None);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_no_half() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ends");
        // A directory cannot be replaced by a file.
        fs::create_dir(&path).unwrap();
        assert!(OsDisk.replace(&path, b"x").is_err());
        assert_eq!(OsDisk.list(dir.path()).unwrap(), ["ends"]);
    }

    #[test]
    fn a_pipe_in_place_of_a_file_is_refused_and_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        for path in [&*pipe, dir.path(), Path::new("/dev/zero")] {
            let found = [
                OsDisk.read(path).err(),
                OsDisk.lock(path).err(),
                OsDisk.create(path).err(),
                OsDisk.open(path).err(),
                OsDisk.open_for_reading(path).err(),
            ];
            for fault in found {
                let text = fault.map(|fault| fault.to_string());
                let name = path.display();
                assert_eq!(text.as_deref(), Some("not a regular file"), "{name}");
            }
        }
        std::fs::rename(&pipe, dir.path().join("ends.new")).unwrap();
        assert!(OsDisk.replace(&dir.path().join("ends"), b"x").is_err());
    }

    #[test]
    fn an_open_directory_is_closed_to_other_users() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        OsDisk.create_dir(&open).unwrap();
        assert_eq!(mode(&open), 0o750);
    }
}
