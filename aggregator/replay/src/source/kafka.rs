//! Kafka topics as a source. Creates nothing, joins no group, commits nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use tollgate_limits::RULES;

use super::{Cursor, ReadStep, Source, SourceError};
use tollgate_log::Chunks;
use tollgate_log::Stream;
use tollgate_log::kafka::reader::{self, KafkaRead, KafkaReader};
use tollgate_log::kafka::{Candidate, KafkaConfig, KafkaFault, StateTopic};
use tollgate_shared::time::Timestamp;

/// About how many bytes a record of hits has; Kafka tells how many records there are, and not how large they are.
const RECORD_BYTES: u64 = 1_024;

/// A Kafka log that is open for reading.
pub struct KafkaSource {
    config: KafkaConfig,
    state: Option<StateTopic>,
    /// By partition: the snapshots that look whole.
    candidates: Mutex<BTreeMap<u32, Vec<Candidate>>>,
    /// How many records of hits there are, once that was asked; every partition's audit asks.
    hits_records: OnceLock<Option<u64>>,
}

impl KafkaSource {
    /// Finds the topics whose names begin with a prefix.
    ///
    /// # Errors
    ///
    /// If no broker answers, or there are no such topics.
    pub fn open(
        bootstrap: &str,
        prefix: &str,
        properties: BTreeMap<String, String>,
    ) -> Result<Self, SourceError> {
        let mut config = KafkaConfig {
            bootstrap: bootstrap.split(',').map(str::to_owned).collect(),
            topic_prefix: prefix.to_owned(),
            group: format!("{prefix}-reader"),
            properties,
            ..KafkaConfig::new(bootstrap)
        };
        config.partitions = reader::partitions(&config).map_err(fault)?;
        Ok(Self {
            state: reader::snapshots(&config, RULES).map_err(fault)?,
            config,
            candidates: Mutex::default(),
            hits_records: OnceLock::new(),
        })
    }

    fn candidates(&self, partition: u32) -> Result<Vec<Candidate>, SourceError> {
        let Some(state) = &self.state else {
            return Ok(Vec::new());
        };
        let known = || {
            self.candidates
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(found) = known().get(&partition) {
            return Ok(found.clone());
        }
        let reader = state.reader().map_err(fault)?;
        let found = reader.candidates(partition);
        let found = found.map_err(|error| SourceError::Unreachable(error.to_string()))?;
        known().insert(partition, found.clone());
        Ok(found)
    }
}

impl Source for KafkaSource {
    fn name(&self) -> String {
        let KafkaConfig {
            bootstrap,
            topic_prefix,
            ..
        } = &self.config;
        format!("kafka {} ({topic_prefix}.*)", bootstrap.join(","))
    }

    fn partitions(&self) -> u32 {
        self.config.partitions
    }

    fn open(
        &self,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let reader = KafkaReader::open(&self.config, stream, partition, from).map_err(fault)?;
        Ok(Box::new(reader))
    }

    fn offset_before(
        &self,
        stream: Stream,
        partition: u32,
        instant: Timestamp,
    ) -> Result<u64, SourceError> {
        reader::offset_before(&self.config, stream, partition, instant).map_err(fault)
    }

    fn hits_bytes(&self) -> Option<u64> {
        let asked = || reader::hits_records(&self.config).ok();
        let records = *self.hits_records.get_or_init(asked);
        Some(records?.saturating_mul(RECORD_BYTES))
    }

    fn snapshots(&self, partition: u32) -> Vec<u64> {
        // If snapshots cannot be listed, none is compared; the hits are read all the same.
        let found = self.candidates(partition).unwrap_or_default();
        let mut uptos: Vec<u64> = found.iter().map(|found| found.id.upto).collect();
        uptos.sort_unstable();
        uptos.dedup();
        uptos
    }

    fn snapshot(&self, partition: u32, upto: u64) -> Result<Chunks, SourceError> {
        let found = self.candidates(partition)?;
        let found = found.iter().find(|found| found.id.upto == upto);
        let (Some(found), Some(state)) = (found, &self.state) else {
            let text = format!("partition {partition}: no snapshot at {upto}");
            return Err(SourceError::Missing(text));
        };
        let reader = state.reader().map_err(fault)?;
        let chunks = reader.chunks(partition, found);
        chunks.map_err(|error| SourceError::Bad(error.to_string()))
    }
}

impl Cursor for KafkaReader {
    fn read(&mut self) -> Result<ReadStep, SourceError> {
        Ok(match KafkaReader::read(self).map_err(fault)? {
            KafkaRead::Records(records) => ReadStep::Records(records),
            KafkaRead::Gone { wanted, first } => ReadStep::Gone {
                wanted,
                next: first,
            },
            KafkaRead::End => ReadStep::End,
        })
    }
}

fn fault(fault: KafkaFault) -> SourceError {
    let text = fault.to_string();
    match fault {
        KafkaFault::Unreachable { .. } => SourceError::Unreachable(text),
        KafkaFault::NotAuthorised { .. } | KafkaFault::NotAuthenticated { .. } => {
            SourceError::NotAuthorised(text)
        }
        KafkaFault::Property { .. } | KafkaFault::Reserved { .. } | KafkaFault::Unfit { .. } => {
            SourceError::Settings(text)
        }
        _ => SourceError::Missing(text),
    }
}
