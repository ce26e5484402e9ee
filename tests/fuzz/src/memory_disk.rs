//! A file system in memory, for targets that read files.
//!
//! Knows nothing of what files mean. What stays true: what was written can be read, and the only
//! error is a missing file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_log::journal::disk::{Disk, DiskFile, SyncJob, Syncing};

type Content = Arc<Mutex<Vec<u8>>>;

/// Files by their paths.
#[derive(Debug, Default)]
pub(crate) struct MemoryDisk {
    files: Mutex<BTreeMap<PathBuf, Content>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryDisk {
    /// Adds a file.
    pub fn put(&self, path: impl Into<PathBuf>, bytes: &[u8]) {
        let content = Arc::new(Mutex::new(bytes.to_vec()));
        locked(&self.files).insert(path.into(), content);
    }

    /// Every file with its content.
    pub fn all(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = locked(&self.files);
        let all = files.iter();
        all.map(|(path, content)| (path.clone(), locked(content).clone()))
            .collect()
    }

    fn content(&self, path: &Path) -> io::Result<Content> {
        let files = locked(&self.files);
        files
            .get(path)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemoryDisk {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let files = locked(&self.files);
        let within = files.keys().filter(|path| path.parent() == Some(dir));
        let names = within.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(names.collect())
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let content = self.content(path)?;
        Ok(locked(&content).clone())
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put(path, bytes);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Send>> {
        Ok(Box::new(()))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.put(path, &[]);
        self.open(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(MemoryFile(self.content(path)?)))
    }

    fn open_for_reading(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let content = self.content(from)?;
        let mut files = locked(&self.files);
        files.remove(from);
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = locked(&self.files).remove(path);
        removed
            .map(|_| ())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_later(&self, job: SyncJob) -> Box<dyn Syncing> {
        Box::new(Synced(job()))
    }
}

/// What was made durable at once.
struct Synced(io::Result<()>);

impl Syncing for Synced {
    fn has_ended(&self) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> io::Result<()> {
        self.0
    }
}

struct MemoryFile(Content);

impl DiskFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(locked(&self.0).len() as u64)
    }

    fn read_at(&self, into: &mut [u8], position: u64) -> io::Result<usize> {
        let bytes = locked(&self.0);
        let from = usize::try_from(position).unwrap_or(usize::MAX);
        let rest = bytes.get(from..).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut content = locked(&self.0);
        let from = usize::try_from(position).map_err(io::Error::other)?;
        let end = from + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[from..end].copy_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        locked(&self.0).resize(len, 0);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
