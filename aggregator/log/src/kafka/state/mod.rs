//! Snapshots in the `state` topic: written chunk by chunk with the manifest last, read newest first.
//!
//! ```text
//! write   chunk 0, chunk 1, ... all acknowledged ──> manifest acknowledged ──> whole; older ones dropped
//! read    look at all keys ──> newest that looks whole ──> its chunks, digest compared
//! ```
//!
//! Compressed by the client (lz4). Each waits for Kafka, so each runs in a thread of its own: see who
//! calls. Knows nothing of what is in a chunk. What stays true: a snapshot that is read is byte for
//! byte what was written; one that is not whole is passed over with its reason.

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

/// How long Kafka may say nothing while something is read or written.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Why a snapshot was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Kafka does not take or give it at the moment.
    #[error("kafka topic `{topic}`: {why}")]
    Kafka {
        /// The topic.
        topic: String,
        /// What happened.
        why: String,
    },
    /// What was read is not what was written.
    #[error("{0}")]
    Corrupt(String),
}

/// What every client of the `state` topic shares.
#[derive(Clone)]
pub struct StateTopic {
    config: KafkaConfig,
    topic: String,
    /// The greatest rule set of this build.
    rules: u32,
    /// What is known of each partition, since it was last looked at.
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

    /// One who writes.
    ///
    /// # Errors
    ///
    /// Where a property is wrong.
    pub fn writer(&self) -> Result<StateWriter, KafkaFault> {
        StateWriter::new(self.clone())
    }

    /// One who reads.
    ///
    /// # Errors
    ///
    /// Where a property is wrong.
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

/// Offsets and times are never negative where they are known.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
