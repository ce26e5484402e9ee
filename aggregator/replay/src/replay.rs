//! Replay: the records of one partition into an engine of its own, as an aggregator applies them.
//!
//! Sets aside the same records as an aggregator: unreadable ones, those with a wrong tag, and
//! limits activations without a version. Knows nothing of what was announced. What stays true: the
//! rulings are the engine's own, and depend on nothing but the log and its limits.

use std::sync::Arc;

use tollgate_engine::engine::{Engine, Rulings, SnapshotFault};
use tollgate_shared::keyring::Keyring;
use tollgate_shared::wire::record::{LimitsActivation, Record, needs_tag};

use super::range::Cut;
use super::source::{Source, SourceError, limits_of};
use tollgate_limits::versions::LimitsBook;
use tollgate_log::Chunks;
use tollgate_log::Delivered;

/// Why a replay cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// This build cannot rule the log.
    #[error("partition {partition}, offset {offset}: {why}")]
    Stopped {
        /// The partition.
        partition: u32,
        /// The record's offset.
        offset: u64,
        /// Why.
        why: String,
    },
    /// Retention has removed the beginning of the range.
    #[error("{0}")]
    Cut(Cut),
    /// Retention has removed needed records, and no snapshot of this log replaces them.
    #[error(
        "partition {partition}: offset {wanted} is wanted, the log begins at {first}, and no snapshot of this log at or behind {first} lies beside it"
    )]
    Gone {
        /// The partition.
        partition: u32,
        /// The offset of the first missing record.
        wanted: u64,
        /// The first offset that the partition still has.
        first: u64,
    },
}

/// How a record was handled.
#[derive(Debug)]
pub enum RecordResult<'a> {
    /// The engine applied it: see [`Replay::rulings`].
    Ruled(Record<'a>),
    /// It has a wrong tag, or names no limits version: aggregators keep it as a dead letter.
    Forged(String),
    /// It cannot be decoded: aggregators keep it as a dead letter.
    Undecodable(String),
    /// Its kind is unknown and may be skipped.
    Skipped,
}

/// One partition's replay.
pub struct Replay {
    partition: u32,
    engine: Engine,
    rulings: Rulings,
    keys: Keyring,
    book: Arc<LimitsBook>,
}

impl Replay {
    /// Begins at the partition's beginning.
    pub fn new(partition: u32, partitions: u32, keys: Keyring, book: Arc<LimitsBook>) -> Self {
        let engine = Engine::new(partition, partitions);
        Self::with(engine, partition, keys, book)
    }

    /// Begins at a snapshot.
    ///
    /// # Errors
    ///
    /// If it is not a whole snapshot of this partition, or its limits are missing.
    pub fn restore(
        (partition, partitions): (u32, u32),
        keys: Keyring,
        book: Arc<LimitsBook>,
        chunks: &Chunks,
    ) -> Result<Self, SnapshotFault> {
        let engine = Engine::restore(partition, partitions, chunks, &*book)?;
        Ok(Self::with(engine, partition, keys, book))
    }

    fn with(engine: Engine, partition: u32, keys: Keyring, book: Arc<LimitsBook>) -> Self {
        Self {
            partition,
            engine,
            rulings: Rulings::new(),
            keys,
            book,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, mutable to take a snapshot of its state.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The rulings of the last record.
    pub fn rulings(&self) -> &Rulings {
        &self.rulings
    }

    /// The limits versions that are known.
    pub fn book(&self) -> &Arc<LimitsBook> {
        &self.book
    }

    /// Applies the next record.
    ///
    /// # Errors
    ///
    /// If this build cannot rule any further.
    pub fn apply<'a>(
        &mut self,
        delivered: &'a Delivered,
        source: &dyn Source,
    ) -> Result<RecordResult<'a>, ReplayError> {
        self.rulings.clear();
        let record = match Record::decode(&delivered.bytes) {
            Ok(record) => record,
            Err(error) => return Ok(RecordResult::Undecodable(error.to_string())),
        };
        if needs_tag(&delivered.bytes) {
            let ids = self.book.record_keys(self.engine.version().unwrap_or(0));
            let (bytes, partition) = (&delivered.bytes, self.partition);
            if !self.keys.authentic(ids, bytes, partition) {
                return Ok(RecordResult::Forged(
                    self.keys.refusal(ids, bytes, partition),
                ));
            }
        }
        match &record {
            Record::Unknown {
                skippable: true, ..
            } => return Ok(RecordResult::Skipped),
            Record::LimitsActivation(activation) => {
                if let Some(why) = self.fault_of(delivered.offset, activation, source)? {
                    return Ok(RecordResult::Forged(why));
                }
            }
            _ => {}
        }
        self.feed(delivered, &record)?;
        Ok(RecordResult::Ruled(record))
    }

    /// Applies a record that is known to be valid; `delivered` has its offset and append time.
    ///
    /// # Errors
    ///
    /// As [`Replay::apply`].
    pub fn feed(&mut self, delivered: &Delivered, record: &Record<'_>) -> Result<(), ReplayError> {
        let (offset, appended) = (delivered.offset, delivered.appended);
        self.rulings.clear();
        self.engine
            .apply(offset, appended, record, &*self.book, &mut self.rulings);
        match self.rulings.stopped() {
            Some(stop) => Err(self.stopped(offset, stop.to_string())),
            None => Ok(()),
        }
    }

    /// What is wrong with a limits activation, for the same reasons for which aggregators refuse
    /// it.
    fn fault_of(
        &mut self,
        offset: u64,
        activation: &LimitsActivation,
        source: &dyn Source,
    ) -> Result<Option<String>, ReplayError> {
        let known = self.engine.version().unwrap_or(0);
        if activation.version <= known {
            return Ok(None);
        }
        if self.book.latest_number() < activation.version {
            // A live log has grown since the limits were read.
            self.book = Arc::new(limits_of(source)?);
        }
        if let Some(version) = self.book.newer_between(known, activation.version) {
            let why = format!("limits version {version} needs a later build");
            return Err(self.stopped(offset, why));
        }
        let found = self.book.get(activation.version);
        if found.is_some_and(|version| version.digest == activation.digest) {
            return Ok(None);
        }
        Ok(Some(format!(
            "no limits version {} with this digest",
            activation.version
        )))
    }

    fn stopped(&self, offset: u64, why: String) -> ReplayError {
        ReplayError::Stopped {
            partition: self.partition,
            offset,
            why,
        }
    }
}
