//! The topics of a Kafka as evidence. Nothing is made in it, no group is joined, nothing is committed.

use std::collections::BTreeMap;

use super::{Cursor, Source, SourceError, Step};
use crate::log::Stream;
use crate::log::kafka::reader::{self, KafkaReader, Read};
use crate::log::kafka::{KafkaConfig, KafkaFault};

/// A Kafka that is read.
pub struct KafkaSource {
    config: KafkaConfig,
}

impl KafkaSource {
    /// Finds the topics whose names begin with a prefix.
    ///
    /// # Errors
    ///
    /// Where nobody answers, or there are none.
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
        Ok(Self { config })
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
}

impl Cursor for KafkaReader {
    fn read(&mut self) -> Result<Step, SourceError> {
        Ok(match KafkaReader::read(self).map_err(fault)? {
            Read::Records(records) => Step::Records(records),
            Read::Gone { wanted, first } => Step::Gone {
                wanted,
                next: first,
            },
            Read::End => Step::End,
        })
    }
}

fn fault(fault: KafkaFault) -> SourceError {
    let text = fault.to_string();
    match fault {
        KafkaFault::Unreachable { .. } => SourceError::Unreachable(text),
        _ => SourceError::Missing(text),
    }
}
