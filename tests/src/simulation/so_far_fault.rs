//! Why a swarm cannot be gone on with, or what it came to is not written down.
//!
//! Knows nothing of what stands in such a file. What stays true: each says its place, what was found there, and what
//! may be.

use std::io;
use std::path::PathBuf;

use super::plan::PLAN_WAYS;

/// What is wrong with such a file.
#[derive(Debug, thiserror::Error)]
pub enum SoFarFault {
    /// It cannot be read.
    #[error("{path}: cannot be read: {why}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is none that could be gone on with: a directory, a device, a pipe.
    #[error("{path}: found {found}, expected a regular file, or none yet")]
    NoFile {
        /// What stands there.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// It cannot be written, which is tried before anything is run.
    #[error("{path}: cannot be written: {why}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It cannot be written any more.
    #[error("{path}: cannot be written any more: {why}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It is not one.
    #[error("{path}: {why}, expected what a simulation wrote with `--state`")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: serde_json::Error,
    },
    /// It was written in another way.
    #[error("{path}: found {what} {found}, expected {expected}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Of what there is another.
        what: &'static str,
        /// What it says.
        found: String,
        /// What is known here.
        expected: String,
    },
    /// It names a seed of plans that nobody knows how to draw.
    #[error(
        "{path}: seed {seed}: found a way of drawing plans {found}, expected one of {PLAN_WAYS:?}"
    )]
    Way {
        /// The file.
        path: PathBuf,
        /// The seed.
        seed: u64,
        /// What it says.
        found: u32,
    },
    /// It is of another order.
    #[error("{path}: found {what} {found}, expected {expected}")]
    Other {
        /// The file.
        path: PathBuf,
        /// Of what there is another.
        what: &'static str,
        /// What it says.
        found: String,
        /// What was asked for.
        expected: String,
    },
}

impl SoFarFault {
    /// The same of a file that was to be begun.
    #[must_use]
    pub fn of_the_first_write(self) -> Self {
        match self {
            Self::Write { path, why } => Self::Create { path, why },
            other => other,
        }
    }
}
