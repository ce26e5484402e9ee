//! Snapshots as files beside the journal.
//!
//! ```text
//! snapshots/00003-00000000000000018250.snap    partition 3, everything up to offset 18250
//! file    "TGSF" 1, then each chunk: length (u32, little-endian), bytes
//! ```
//!
//! The two newest of each partition stay. The engine verifies their content: the last chunk holds its digest.
//! What stays true: a file gets its name only when all of it is on the medium.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile};

const MAGIC: [u8; 5] = *b"TGSF\x01";

/// The snapshots' directory, within the journal's.
const DIR: &str = "snapshots";

/// How many snapshots of each partition stay.
const KEPT: usize = 2;

/// The suffix of a file that is still being written.
const HALF_WRITTEN: &str = ".tmp";

/// How many bytes one write has.
const WRITE_BYTES: usize = 64 * 1024;

/// The snapshots of a journal.
#[derive(Clone)]
pub struct Snapshots {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Snapshots {
    /// The snapshots beside the journal in a directory. Creates nothing before the first one is saved.
    pub fn beside(journal: &Path, disk: Arc<dyn Disk>) -> Self {
        let dir = journal.join(DIR);
        Self { disk, dir }
    }

    /// Writes a snapshot, whose chunks `chunks` passes to its argument one after the other, and removes
    /// superseded ones.
    ///
    /// # Errors
    ///
    /// If the snapshot is not known to be durable, or if a superseded one cannot be removed.
    pub fn save(
        &self,
        partition: u32,
        upto: u64,
        chunks: impl FnOnce(&mut dyn FnMut(Vec<u8>)),
    ) -> io::Result<()> {
        if let Some(journal) = self.dir.parent() {
            // A journal's directory that was deleted is not made again.
            self.disk.list(journal)?;
        }
        self.disk.create_dir(&self.dir)?;
        let target = self.file(partition, upto);
        let mut half_written = target.clone().into_os_string();
        half_written.push(HALF_WRITTEN);
        let half_written = PathBuf::from(half_written);
        let written = self
            .write(&half_written, chunks)
            .and_then(|()| self.disk.rename(&half_written, &target))
            .and_then(|()| self.disk.sync_dir(&self.dir));
        if written.is_err() {
            let _ = self.disk.remove(&half_written);
            return written;
        }
        // A snapshot beyond `upto` is of an end that the log has lost. If it stayed, it would always count as
        // the newest.
        let (beyond, rest): (Vec<_>, Vec<_>) = self
            .of_partition(partition)?
            .into_iter()
            .partition(|of| upto < *of);
        for old in beyond.into_iter().chain(rest.into_iter().skip(KEPT)) {
            self.disk.remove(&self.file(partition, old))?;
        }
        Ok(())
    }

    fn write(&self, path: &Path, chunks: impl FnOnce(&mut dyn FnMut(Vec<u8>))) -> io::Result<()> {
        let mut writer = FileWriter {
            file: self.disk.create(path)?,
            buffer: MAGIC.to_vec(),
            position: 0,
        };
        let mut result = Ok(());
        chunks(&mut |chunk| {
            if result.is_ok() {
                writer.buffer.extend((chunk.len() as u32).to_le_bytes());
                writer.buffer.extend(chunk);
                result = writer.flush(WRITE_BYTES);
            }
        });
        result?;
        writer.flush(1)?;
        writer.file.sync()
    }

    /// Checks that this process may read the directory and each snapshot. A partition whose snapshots are not seen is
    /// ruled from what is left of the log, as if nothing had been used before.
    ///
    /// # Errors
    ///
    /// With the path of what cannot be read.
    pub(super) fn check_readable(&self) -> Result<(), (PathBuf, io::Error)> {
        let names = match self.disk.list(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err((self.dir.clone(), error)),
        };
        for name in names.iter().filter(|name| read_name(name).is_some()) {
            let file = self.dir.join(name);
            match self.disk.open_for_reading(&file) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err((file, error));
                }
                // What is damaged is skipped when it is read.
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes files that a process left half-written when it was killed: nothing would ever read them.
    pub fn remove_half_written(&self) {
        for name in self.disk.list(&self.dir).unwrap_or_default() {
            if name.ends_with(HALF_WRITTEN) {
                self.remove_file(&self.dir.join(name));
            }
        }
    }

    /// Removes the file of a snapshot that belongs to another log.
    pub fn remove(&self, partition: u32, upto: u64) {
        self.remove_file(&self.file(partition, upto));
    }

    /// Removes the snapshots of a partition that reach beyond the log's end, durably: a power cut took the records.
    pub(super) fn remove_beyond(&self, partition: u32, end: u64) -> io::Result<()> {
        let beyond = self.offsets(partition).into_iter();
        let beyond: Vec<u64> = beyond.take_while(|upto| end <= *upto).collect();
        for upto in &beyond {
            let file = self.file(partition, *upto);
            tracing::warn!(file = %file.display(), "a snapshot of records that are lost is removed");
            self.disk.remove(&file)?;
        }
        match beyond.is_empty() {
            true => Ok(()),
            false => self.disk.sync_dir(&self.dir),
        }
    }

    fn remove_file(&self, path: &Path) {
        match self.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %path.display(), %error, "a snapshot's file cannot be removed");
            }
            _ => {}
        }
    }

    /// The file of a partition's snapshot at an offset.
    pub fn file(&self, partition: u32, upto: u64) -> PathBuf {
        self.dir.join(format!("{partition:05}-{upto:020}.snap"))
    }

    /// The offsets of a partition's snapshots, newest first; empty if there is no directory.
    pub fn offsets(&self, partition: u32) -> Vec<u64> {
        self.of_partition(partition).unwrap_or_default()
    }

    /// The offset of the newest snapshot of each partition that has one; empty if the directory cannot be read.
    pub(super) fn newest(&self) -> BTreeMap<u32, u64> {
        let names = self.disk.list(&self.dir).unwrap_or_default();
        let mut found: Vec<_> = names.iter().filter_map(|name| read_name(name)).collect();
        found.sort_unstable();
        found.into_iter().collect()
    }

    fn of_partition(&self, partition: u32) -> io::Result<Vec<u64>> {
        let names = self.disk.list(&self.dir)?;
        let named = names.iter().filter_map(|name| read_name(name));
        let mut found: Vec<u64> = named
            .filter_map(|(of, upto)| (of == partition).then_some(upto))
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// All snapshots by partition, newest first. Skips and logs those that cannot be read: the log has all
    /// the records.
    pub fn read_all(&self, partitions: u32) -> BTreeMap<u32, Vec<Vec<Vec<u8>>>> {
        let mut all = BTreeMap::new();
        for partition in 0..partitions {
            let mut found = Vec::new();
            for upto in self.offsets(partition) {
                match self.read(partition, upto) {
                    Ok(chunks) => found.push(chunks),
                    Err(error) => {
                        let file = self.file(partition, upto);
                        tracing::warn!(file = %file.display(), %error, "a snapshot cannot be read");
                    }
                }
            }
            if !found.is_empty() {
                all.insert(partition, found);
            }
        }
        all
    }

    /// The chunks in the file of a partition's snapshot at an offset.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is incomplete.
    pub fn read(&self, partition: u32, upto: u64) -> io::Result<Vec<Vec<u8>>> {
        let bytes = self.disk.read(&self.file(partition, upto))?;
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
}

/// Writes a file from its beginning on, in large pieces.
struct FileWriter {
    file: Box<dyn DiskFile>,
    buffer: Vec<u8>,
    position: u64,
}

impl FileWriter {
    /// Writes the buffer if it holds at least this many bytes.
    fn flush(&mut self, at_least: usize) -> io::Result<()> {
        if self.buffer.len() < at_least {
            return Ok(());
        }
        self.file.write_at(&self.buffer, self.position)?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn read_name(name: &str) -> Option<(u32, u64)> {
    let (partition, upto) = name.strip_suffix(".snap")?.split_once('-')?;
    Some((partition.parse().ok()?, upto.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::disk::OsDisk;
    use super::*;

    /// Chunks that differ for each offset; the last is longer than one write.
    fn chunks(upto: u64) -> Vec<Vec<u8>> {
        let bytes = |len: usize| vec![upto as u8; len];
        vec![bytes(100), Vec::new(), bytes(3), bytes(WRITE_BYTES + 1)]
    }

    fn save(snapshots: &Snapshots, upto: u64) {
        snapshots
            .save(3, upto, |sink| chunks(upto).into_iter().for_each(sink))
            .unwrap();
    }

    fn beside(dir: &tempfile::TempDir) -> Snapshots {
        Snapshots::beside(dir.path(), Arc::new(OsDisk))
    }

    #[test]
    fn the_last_two_stay_and_are_read_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = beside(&dir);
        assert!(snapshots.read_all(4).is_empty());
        for upto in [7, 9, 100] {
            save(&snapshots, upto);
        }
        let files = std::fs::read_dir(dir.path().join(DIR)).unwrap();
        assert_eq!(files.count(), KEPT);
        let found = snapshots.read_all(4);
        assert_eq!(found, BTreeMap::from([(3, vec![chunks(100), chunks(9)])]));
    }

    #[test]
    fn a_journal_that_was_deleted_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        let snapshots = Snapshots::beside(&journal, Arc::new(OsDisk));
        assert!(snapshots.save(3, 7, |_| {}).is_err());
        assert!(!journal.exists());
    }

    #[test]
    fn a_truncated_snapshot_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = beside(&dir);
        save(&snapshots, 7);
        save(&snapshots, 9);
        let newest = snapshots.file(3, 9);
        let bytes = std::fs::read(&newest).unwrap();
        std::fs::write(&newest, &bytes[..bytes.len() - 3]).unwrap();
        assert_eq!(snapshots.read_all(4)[&3], [chunks(7)]);
    }

    #[test]
    fn a_snapshot_beyond_the_saved_offset_is_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = beside(&dir);
        for upto in [7, 100, 206] {
            save(&snapshots, upto);
        }
        // The log was cut, and has grown to this offset again.
        save(&snapshots, 60);
        assert_eq!(snapshots.offsets(3), [60]);
        save(&snapshots, 80);
        assert_eq!(snapshots.offsets(3), [80, 60]);
    }

    #[test]
    fn half_written_files_of_a_killed_process_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = beside(&dir);
        save(&snapshots, 7);
        let left = dir
            .path()
            .join(DIR)
            .join("00003-00000000000000000009.snap.tmp");
        std::fs::write(&left, b"TGSF").unwrap();
        snapshots.remove_half_written();
        assert!(!left.exists());
        assert_eq!(snapshots.offsets(3), [7]);
        snapshots.remove(3, 7);
        snapshots.remove(3, 7);
        assert!(snapshots.offsets(3).is_empty());
    }
}
