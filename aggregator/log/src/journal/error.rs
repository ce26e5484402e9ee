//! Why a journal does not open, and the description of damage in it.

use std::io;
use std::path::PathBuf;

/// Damage other than a torn end: some bytes in the middle differ from those that were written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: byte {position}: record {offset}: {what}", file.display())]
pub struct Corruption {
    /// The segment file.
    pub file: PathBuf,
    /// The byte position in the file at which the record or header begins.
    pub position: u64,
    /// The offset of the record that cannot be read.
    pub offset: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// Why a partition cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The content is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// Reading the medium failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path that was read.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Why a journal does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be created.
    #[error("journal directory {}: cannot be created: {source}{}", dir.display(), what_to_free(source))]
    CannotCreate {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The directory exists, but cannot be written to.
    #[error("journal directory {}: cannot be written to: {source}{}", dir.display(), what_to_free(source))]
    NotWritable {
        /// The directory.
        dir: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another process is writing this journal.
    #[error("journal directory {}: in use by another process", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A later build wrote the journal.
    #[error(
        "journal directory {}: its format is version {found}, this build reads up to version {supported}",
        dir.display()
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The version in the journal.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// One of the journal's small files cannot be parsed.
    #[error("journal directory {}: damaged: {what}", dir.display())]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// The file, what it holds, and what was expected.
        what: String,
    },
    /// The directory holds something else.
    #[error("journal directory {}: {what}", dir.display())]
    NotAJournal {
        /// The directory.
        dir: PathBuf,
        /// What the directory holds, and what was expected.
        what: String,
    },
    /// The journal was created with another number of partitions.
    #[error("journal directory {}: it has {found} partitions, the configuration says {wanted}", dir.display())]
    OtherPartitions {
        /// The directory.
        dir: PathBuf,
        /// How many partitions the journal has.
        found: u32,
        /// How many partitions the caller asked for.
        wanted: u32,
    },
    /// The content is damaged.
    #[error("journal is damaged: {0}")]
    Corrupt(#[from] Corruption),
    /// Reading or writing the medium failed.
    #[error("{}: {source}{}", path.display(), what_to_free(source))]
    Io {
        /// The path that was read or written.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt(corruption) => Self::Corrupt(corruption),
            ReadError::Io { path, source } => Self::Io { path, source },
        }
    }
}

/// What to do about an error for want of room. A start writes a little: how far the log is intact.
fn what_to_free(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some room on this file system and start again; in the journal's directory delete nothing but files \
             in aside/ (dead letters)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_at_the_start_says_what_to_free() {
        let text = |kind: io::ErrorKind| OpenError::io("data/generation")(kind.into()).to_string();
        let full = text(io::ErrorKind::StorageFull);
        assert!(
            full.contains("free some room") && full.contains("aside/"),
            "{full}"
        );
        assert!(!text(io::ErrorKind::NotFound).contains("free some room"));
    }
}
