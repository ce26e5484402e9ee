//! Reads a whole log once, for the verdict: a journal beside its writer, or Kafka's topics.
//!
//! Limits are read first, since records of partitions refer to them. Knows nothing of verdicts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

use tollgate_limits::versions::{Entered, LimitsBook};
use tollgate_log::journal::JournalReader;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::reader::JournalRead;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::judge::Versions;

/// A log that can be read from its beginning.
pub trait LogSource {
    /// How many partitions hits have.
    fn partitions(&self) -> u32;

    /// Passes every record of a partition to the callback, in order, to its present end.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    fn read(
        &mut self,
        stream: Stream,
        partition: u32,
        each: &mut dyn FnMut(&Delivered),
    ) -> anyhow::Result<()>;

    /// Every limits version in the log.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    fn versions(&mut self) -> anyhow::Result<Versions> {
        let (mut book, mut versions) = (LimitsBook::default(), Versions::default());
        self.read(Stream::Limits, 0, &mut |delivered| {
            if let Ok(Some(Entered::Version { version, .. })) =
                book.read(delivered.offset, delivered.appended, &delivered.bytes)
            {
                versions.insert(&version);
            }
        })?;
        Ok(versions)
    }
}

/// A journal, read without disturbing its writer.
pub struct JournalSource(JournalReader);

impl JournalSource {
    /// Opens a journal's directory.
    ///
    /// # Errors
    ///
    /// If there is no journal that this build can read.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let reader = JournalReader::open(dir, Arc::new(OsDisk))
            .with_context(|| dir.display().to_string())?;
        Ok(Self(reader))
    }
}

impl LogSource for JournalSource {
    fn partitions(&self) -> u32 {
        self.0.partitions()
    }

    fn read(
        &mut self,
        stream: Stream,
        partition: u32,
        each: &mut dyn FnMut(&Delivered),
    ) -> anyhow::Result<()> {
        let mut reader = self.0.read(stream, partition, 0);
        loop {
            match reader.read()? {
                JournalRead::Records(records) => records.iter().for_each(&mut *each),
                JournalRead::Gone { .. } => {}
                JournalRead::End => return Ok(()),
            }
        }
    }
}

/// Topics of Kafka, read to their present ends.
///
/// # Errors
///
/// Always: this build has no Kafka.
#[cfg(not(feature = "kafka"))]
pub fn kafka(
    _bootstrap: &str,
    _prefix: &str,
    _partitions: u32,
    _properties: BTreeMap<String, String>,
) -> anyhow::Result<Box<dyn LogSource>> {
    anyhow::bail!("this build has no Kafka (feature `kafka`)")
}

/// Topics of Kafka, read to their present ends.
///
/// # Errors
///
/// If its settings are invalid.
#[cfg(feature = "kafka")]
pub fn kafka(
    bootstrap: &str,
    prefix: &str,
    partitions: u32,
    properties: BTreeMap<String, String>,
) -> anyhow::Result<Box<dyn LogSource>> {
    use tollgate_log::kafka::{KafkaConfig, KafkaLog};

    let config = KafkaConfig {
        topic_prefix: prefix.to_owned(),
        partitions,
        properties,
        group: format!("{prefix}-reader"),
        ..KafkaConfig::new(bootstrap)
    };
    let (sender, events) = tokio::sync::mpsc::channel(64);
    let log = KafkaLog::open(config, sender)?;
    Ok(Box::new(Followed {
        log: Box::new(log),
        events,
    }))
}

/// Any log that can be followed, read partition by partition.
#[cfg(feature = "kafka")]
struct Followed {
    log: Box<dyn tollgate_log::Log>,
    events: tokio::sync::mpsc::Receiver<tollgate_log::LogEvent>,
}

#[cfg(feature = "kafka")]
impl LogSource for Followed {
    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn read(
        &mut self,
        stream: Stream,
        partition: u32,
        each: &mut dyn FnMut(&Delivered),
    ) -> anyhow::Result<()> {
        use tollgate_log::LogEvent;

        let ours = (stream, partition);
        self.log.follow(stream, partition, 0);
        let mut following = false;
        loop {
            match self.events.blocking_recv() {
                Some(LogEvent::Following {
                    stream, partition, ..
                }) => following |= (stream, partition) == ours,
                Some(LogEvent::Delivered {
                    stream,
                    partition,
                    records,
                }) if following && (stream, partition) == ours => {
                    records.iter().for_each(&mut *each);
                }
                Some(LogEvent::CaughtUp {
                    stream, partition, ..
                }) if following && (stream, partition) == ours => {
                    return Ok(());
                }
                Some(LogEvent::Broken { why, .. } | LogEvent::Down { why }) => anyhow::bail!(why),
                Some(LogEvent::Closed) | None => {
                    anyhow::bail!("the log was closed under the reader")
                }
                Some(_) => {}
            }
        }
    }
}
