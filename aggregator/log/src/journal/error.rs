//! Why a journal does not open, and what is said of damage in it.

use std::io;
use std::path::PathBuf;

/// Damage that is not a torn end: something in the middle of what was written is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: byte {position}: record {offset}: {what}", file.display())]
pub struct Corruption {
    /// The segment file.
    pub file: PathBuf,
    /// Where in it the record or header begins, in bytes.
    pub position: u64,
    /// The offset of the record that cannot be read.
    pub offset: u64,
    /// What was found.
    pub what: &'static str,
}

/// Why reading a partition cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The content is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The medium refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a journal does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made.
    #[error("journal directory {}: cannot be created: {source}", dir.display())]
    CannotCreate {
        /// The directory.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The directory is there and cannot be written to.
    #[error("journal directory {}: cannot be written to: {source}", dir.display())]
    NotWritable {
        /// The directory.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Somebody writes this journal at this moment.
    #[error("journal directory {}: in use by another process", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A later build has written it.
    #[error(
        "journal directory {}: its format is version {found}, this build reads up to version {supported}",
        dir.display()
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The version that was found.
        found: u32,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// The directory holds something else, or its description is damaged.
    #[error("journal directory {}: {what}", dir.display())]
    NotAJournal {
        /// The directory.
        dir: PathBuf,
        /// What was found, and what was expected.
        what: String,
    },
    /// It was made with another number of partitions.
    #[error("journal directory {}: it has {found} partitions, the configuration says {wanted}", dir.display())]
    OtherPartitions {
        /// The directory.
        dir: PathBuf,
        /// How many it has.
        found: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// The content is damaged.
    #[error("journal is damaged: {0}")]
    Corrupt(#[from] Corruption),
    /// The medium refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be read or written.
        path: PathBuf,
        /// What the operating system said.
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
