//! A journal's directory as a source, with its snapshots.
//!
//! What stays true: nothing in the directory is changed, and its writer is not disturbed.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Cursor, ReadStep, Source, SourceError};
use tollgate_log::Chunks;
use tollgate_log::Stream;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::reader::JournalRead;
use tollgate_log::journal::snapshots::Snapshots;
use tollgate_log::journal::{JournalReader, OpenError, PartitionReader, ReadError};
use tollgate_shared::time::Timestamp;

/// A journal that is open for reading.
pub struct JournalSource {
    dir: PathBuf,
    snapshots: Snapshots,
    reader: JournalReader,
}

impl JournalSource {
    /// Opens a journal's directory for reading.
    ///
    /// # Errors
    ///
    /// If there is no journal that this build reads.
    pub fn open(dir: &Path) -> Result<Self, SourceError> {
        if !dir.is_dir() {
            let text = format!("{}: no such directory", dir.display());
            return Err(SourceError::Missing(text));
        }
        let reader = JournalReader::open(dir, Arc::new(OsDisk)).map_err(|error| {
            let text = error.to_string();
            match error {
                OpenError::Newer { .. } | OpenError::Corrupt(_) | OpenError::Damaged { .. } => {
                    SourceError::Bad(text)
                }
                OpenError::Io { source, .. } => unread(&source, text),
                _ => SourceError::Missing(text),
            }
        })?;
        Ok(Self {
            dir: dir.to_owned(),
            snapshots: Snapshots::beside(dir, Arc::new(OsDisk)),
            reader,
        })
    }
}

impl Source for JournalSource {
    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    fn partitions(&self) -> u32 {
        self.reader.partitions()
    }

    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(self.reader.read(stream, partition, from)))
    }

    fn offset_before(
        &self,
        stream: Stream,
        partition: u32,
        instant: Timestamp,
    ) -> Result<u64, SourceError> {
        let before = self.reader.offset_before(stream, partition, instant);
        before.map_err(fault)
    }

    fn snapshots(&self, partition: u32) -> Vec<u64> {
        let mut found = self.snapshots.offsets(partition);
        found.sort_unstable();
        found
    }

    fn snapshot(&self, partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        self.snapshots.read(partition, upto).map_err(|error| {
            let path = self.snapshots.file(partition, upto);
            let text = format!("{}: {error}", path.display());
            match error.kind() {
                ErrorKind::InvalidData => SourceError::Bad(text),
                _ => unread(&error, text),
            }
        })
    }

    fn hits_bytes(&self) -> Option<u64> {
        let sizes = (0..self.partitions()).map(|partition| {
            self.reader
                .bytes(Stream::Hits, partition)
                .unwrap_or_default()
        });
        Some(sizes.sum())
    }
}

impl Cursor for PartitionReader {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        match PartitionReader::read(self) {
            Ok(JournalRead::Records(records)) => Ok(ReadStep::Records(records)),
            Ok(JournalRead::Gone { wanted, first }) => Ok(ReadStep::Gone {
                wanted,
                next: first,
            }),
            Ok(JournalRead::End) => Ok(ReadStep::End),
            Err(error) => Err(fault(error)),
        }
    }
}

fn fault(error: ReadError) -> SourceError {
    let text = error.to_string();
    match error {
        ReadError::Corrupt(_) => SourceError::Bad(text),
        ReadError::Io { source, .. } => unread(&source, text),
    }
}

fn unread(error: &Error, text: String) -> SourceError {
    match error.kind() {
        ErrorKind::PermissionDenied => SourceError::NotAuthorised(text),
        _ => SourceError::Missing(text),
    }
}
