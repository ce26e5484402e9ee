//! Sources: a whole log that is read and never written, wherever it is stored.
//!
//! ```text
//! --journal DIR        the files of a journal or of a copy, whether or not a process writes them
//! --kafka HOST:PORT    the topics of a Kafka
//! --export FILE        one portable file with a range of either
//! ```
//!
//! Knows nothing of what records mean. What stays true: nothing is changed and nothing is locked; cursors are
//! independent of each other, so that partitions can be read in parallel; an unreadable record is reported
//! with its position, and never skipped.

pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;

use std::sync::Arc;

use super::range::{Point, Range, Utc};
use tollgate_limits::versions::{LimitsBook, Version};
use tollgate_log::Chunks;
use tollgate_log::{Delivered, Stream};
use tollgate_shared::time::Timestamp;

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is no log, or it cannot be opened.
    #[error("{0}")]
    Missing(String),
    /// The log is damaged, or a later build wrote it.
    #[error("{0}")]
    Bad(String),
    /// No broker answers.
    #[error("{0}")]
    Unreachable(String),
    /// Access is refused.
    #[error("{0}")]
    NotAuthorised(String),
    /// The settings for the connection are wrong, or those of a topic.
    #[error("{0}")]
    Settings(String),
}

/// The result of reading on.
#[derive(Clone, Debug)]
pub enum ReadStep {
    /// Records in order; at least one.
    Records(Vec<Delivered>),
    /// The next records are gone; reading goes on at `next`.
    Gone {
        /// The offset that was wanted.
        wanted: u64,
        /// The first offset that the partition still has.
        next: u64,
    },
    /// There are no more records at the moment.
    End,
}

/// Reads one partition of one stream, front to back.
pub trait Cursor: Send {
    /// Reads on. May be called again after [`ReadStep::End`]: a live log grows.
    ///
    /// # Errors
    ///
    /// If the log cannot be read any further.
    fn read(&mut self) -> Result<ReadStep, SourceError>;
}

/// A log that can be read.
pub trait Source: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> String;

    /// How many partitions hits and denials have.
    fn partitions(&self) -> u32;

    /// A cursor from an offset on. A partition without records is empty.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError>;

    /// An offset before which every record was appended before an instant, as near to it as can be told without reading
    /// all records; 0 if nothing can be told.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn offset_before(
        &self,
        _stream: Stream,
        _partition: u32,
        _instant: Timestamp,
    ) -> Result<u64, SourceError> {
        Ok(0)
    }

    /// The snapshots of a partition's engine beside the log, by the offset of the last record in each,
    /// ascending.
    fn snapshots(&self, _partition: u32) -> Vec<u64> {
        Vec::new()
    }

    /// The chunks of one snapshot.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn snapshot(&self, partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        Err(SourceError::Missing(format!(
            "partition {partition}: no snapshot at {upto}"
        )))
    }

    /// The first offset of a partition's hits that is left out on purpose; `None` if none is.
    fn hits_end(&self, _partition: u32) -> Option<u64> {
        None
    }

    /// About how many bytes of hits there are, for progress.
    fn hits_bytes(&self) -> Option<u64> {
        None
    }
}

/// Why a range has no records, and what the log has instead. A report of nothing must not look like a report
/// that all is well.
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

/// All limits versions that a log has now.
///
/// # Errors
///
/// If the log cannot be read.
pub fn limits_of(source: &dyn Source) -> Result<LimitsBook, SourceError> {
    let (book, _) = limits_at(source, Timestamp::MAX)?;
    Ok(book)
}

/// All limits versions that a log has now, and the last one that it had at an instant of append time.
///
/// # Errors
///
/// If the log cannot be read.
pub(crate) fn limits_at(
    source: &dyn Source,
    at: Timestamp,
) -> Result<(LimitsBook, Option<Arc<Version>>), SourceError> {
    let mut book = LimitsBook::default();
    let mut then = None;
    let mut cursor = source.open(Stream::Limits, 0, 0)?;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => {
                for record in &records {
                    // Every aggregator refuses a version that cannot be read.
                    let _ = book.read(record.offset, record.appended, &record.bytes);
                    if record.appended <= at {
                        then = book.latest().cloned();
                    }
                }
            }
            ReadStep::Gone { .. } => {}
            ReadStep::End => return Ok((book, then)),
        }
    }
}
