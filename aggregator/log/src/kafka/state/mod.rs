//! Snapshots in the `state` topic: written chunk by chunk with the manifest last, read newest first.
//!
//! ```text
//! write   chunk 0, chunk 1, ... all acknowledged ──> manifest acknowledged ──> whole; older ones dropped
//! read    look at all keys ──> newest that looks whole ──> its chunks, digest compared
//! ```
//!
//! The client compresses records (lz4). Reading and writing wait for Kafka, so callers run them in
//! threads of their own. Knows nothing of what is in a chunk. What stays true: a snapshot that is read is
//! byte for byte what was written; a snapshot that is not whole is skipped, with the reason.

pub mod catalogue;
mod reader;
pub mod wire;
mod writer;
pub mod writing;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::topics::{self, Topic};
use super::{KafkaConfig, KafkaFault};
pub use catalogue::Candidate;
use catalogue::Catalogue;
pub use reader::StateReader;
pub use writer::StateWriter;
pub use writing::Written;

/// How long Kafka may be silent while a snapshot is read or written.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Why a snapshot was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Kafka cannot write or read it at the moment.
    #[error("kafka topic `{topic}`: {why}")]
    Kafka {
        /// The topic.
        topic: String,
        /// What happened.
        why: String,
    },
    /// What was read differs from what was written.
    #[error("{0}")]
    Corrupt(String),
}

/// What all clients of the `state` topic share.
#[derive(Clone)]
pub struct StateTopic {
    config: KafkaConfig,
    topic: String,
    /// The greatest rule set that this build knows.
    rules: u32,
    /// The catalogue of each partition, as of its last examination.
    catalogues: Arc<Mutex<BTreeMap<u32, Catalogue>>>,
}

impl StateTopic {
    /// The topic, for a build that knows rule sets up to `rules`.
    pub fn new(config: KafkaConfig, rules: u32) -> Self {
        Self {
            topic: topics::name(&config, Topic::State),
            config,
            rules,
            catalogues: Arc::default(),
        }
    }

    /// A writer of snapshots.
    ///
    /// # Errors
    ///
    /// If a property is wrong.
    pub fn writer(&self) -> Result<StateWriter, KafkaFault> {
        StateWriter::new(self.clone())
    }

    /// A reader of snapshots.
    ///
    /// # Errors
    ///
    /// If a property is wrong.
    pub fn reader(&self) -> Result<StateReader, KafkaFault> {
        StateReader::new(self.clone())
    }

    fn kafka(&self, why: impl ToString) -> StateError {
        StateError::Kafka {
            topic: self.topic.clone(),
            why: why.to_string(),
        }
    }

    fn with_catalogue<T>(&self, partition: u32, with: impl FnOnce(&mut Catalogue) -> T) -> T {
        let mut all = self
            .catalogues
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        with(all.entry(partition).or_default())
    }
}

/// Converts an offset or time, which is never negative if it is known.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
