//! Logs as evidence: a whole log that is read and never written, wherever it lies.
//!
//! ```text
//! --journal DIR        the files of a journal, whether or not somebody writes them, or a copy
//! --kafka HOST:PORT    the topics of a Kafka
//! --export FILE        one portable file with a range of either
//! ```
//!
//! Knows nothing of what records mean. What stays true: nothing is changed and nothing is locked;
//! cursors are independent of each other, so that partitions can be read side by side; what cannot be
//! read is said with its place, and never skipped.

pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;

use super::range::{Point, Range, Utc};
use tollgate_limits::versions::LimitsBook;
use tollgate_log::Chunks;
use tollgate_log::{Delivered, Stream};

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is none, or it cannot be opened.
    #[error("{0}")]
    Missing(String),
    /// What is there is not what was written, or a later build wrote it.
    #[error("{0}")]
    Bad(String),
    /// Nobody answers.
    #[error("{0}")]
    Unreachable(String),
    /// It does not let us.
    #[error("{0}")]
    NotAuthorised(String),
    /// What we were told about the way there is wrong.
    #[error("{0}")]
    Settings(String),
}

/// What reading on came to.
#[derive(Clone, Debug)]
pub enum ReadStep {
    /// Records in order; at least one.
    Records(Vec<Delivered>),
    /// What was to be read next is gone; reading goes on at `next`.
    Gone {
        /// The offset that was wanted.
        wanted: u64,
        /// The first one that there is.
        next: u64,
    },
    /// That is all at the moment.
    End,
}

/// Reads one partition of one stream, front to back.
pub trait Cursor: Send {
    /// Reads on. After [`ReadStep::End`] it may be asked again: a live log grows.
    ///
    /// # Errors
    ///
    /// Where the log cannot be read any further.
    fn read(&mut self) -> Result<ReadStep, SourceError>;
}

/// A log that can be read.
pub trait Source: Send + Sync {
    /// How it is called in messages.
    fn name(&self) -> String;

    /// How many partitions hits and denials have.
    fn partitions(&self) -> u32;

    /// A cursor from an offset on. A partition without records is empty.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError>;

    /// The snapshots of a partition's engine that lie beside the log, by the offset of the last record
    /// in each, ascending.
    fn snapshots(&self, _partition: u32) -> Vec<u64> {
        Vec::new()
    }

    /// The chunks of one of them.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    fn snapshot(&self, partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        Err(SourceError::Missing(format!(
            "partition {partition}: no snapshot at {upto}"
        )))
    }

    /// The first offset of a partition's hits that is left out on purpose; none where nothing is.
    fn hits_end(&self, _partition: u32) -> Option<u64> {
        None
    }

    /// About how many bytes of hits there are, for progress.
    fn hits_bytes(&self) -> Option<u64> {
        None
    }
}

/// Why there is nothing of a log in a range, and what there is instead: of nothing nothing is reported, or it
/// would look like a report of all.
pub fn nothing_in(source: &dyn Source, range: &Range) -> String {
    let (name, partitions) = (source.name(), source.partitions());
    let points = [range.from, range.to].into_iter().flatten();
    let missing = points.into_iter().find_map(|point| match point {
        Point::Offset { partition, .. } if partitions <= partition => Some(partition),
        _ => None,
    });
    if let Some(missing) = missing {
        return format!("{name}: it has no partition {missing}, expected one below {partitions}");
    }
    let first_of = |partition| {
        let mut cursor = source.open(Stream::Hits, partition, 0).ok()?;
        loop {
            match cursor.read().ok()? {
                ReadStep::Records(records) => return Some((records.first()?.appended, partition)),
                ReadStep::Gone { .. } => {}
                ReadStep::End => return None,
            }
        }
    };
    let wanted = (0..partitions).filter(|partition| range.has(*partition));
    match wanted.filter_map(first_of).min() {
        Some((appended, _)) => format!(
            "{name}: no record lies in this range; what there is was appended from {} on",
            Utc(appended)
        ),
        None => format!("{name}: there are no records"),
    }
}

/// Every limits version that a log knows by now.
///
/// # Errors
///
/// Where the log cannot be read.
pub fn limits_of(source: &dyn Source) -> Result<LimitsBook, SourceError> {
    let mut book = LimitsBook::default();
    let mut cursor = source.open(Stream::Limits, 0, 0)?;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => {
                for record in &records {
                    // What cannot be read is refused by everybody alike.
                    let _ = book.read(record.offset, record.appended, &record.bytes);
                }
            }
            ReadStep::Gone { .. } => {}
            ReadStep::End => return Ok(book),
        }
    }
}
