//! The log that the verdict reads, once and whole: a journal beside its writer, or Kafka's topics.

use std::path::Path;

use tollgate_log::{Delivered, Stream};
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::{ReadStep, Source, SourceError};

use super::plan::{AttachedLog, Log, Plan};

/// The log of a plan; `own` is the directory of its own journal.
///
/// # Errors
///
/// If there is no log that this build can read.
pub fn open(plan: &Plan, own: &Path) -> Result<Box<dyn Source>, SourceError> {
    match &plan.log {
        Log::Journal => Ok(Box::new(JournalSource::open(own)?)),
        Log::Attached {
            log: AttachedLog::Journal(dir),
            ..
        } => Ok(Box::new(JournalSource::open(dir)?)),
        Log::Kafka { bootstrap, prefix }
        | Log::Attached {
            log: AttachedLog::Kafka { bootstrap, prefix },
            ..
        } => kafka(bootstrap, prefix, plan),
    }
}

#[cfg(feature = "kafka")]
fn kafka(bootstrap: &str, prefix: &str, plan: &Plan) -> Result<Box<dyn Source>, SourceError> {
    use tollgate_replay::source::kafka::KafkaSource;

    let properties = plan.kafka_properties.clone();
    Ok(Box::new(KafkaSource::open(bootstrap, prefix, properties)?))
}

#[cfg(not(feature = "kafka"))]
fn kafka(_: &str, _: &str, _: &Plan) -> Result<Box<dyn Source>, SourceError> {
    let text = "this build has no Kafka (feature `kafka`)";
    Err(SourceError::Settings(text.to_owned()))
}

/// Passes every record of a partition's hits to the callback, in order, to its present end.
///
/// # Errors
///
/// If the log cannot be read.
pub fn each_of_hits(
    source: &dyn Source,
    partition: u32,
    mut each: impl FnMut(&Delivered),
) -> Result<(), SourceError> {
    let mut cursor = source.open(Stream::Hits, partition, 0)?;
    loop {
        match cursor.read()? {
            ReadStep::Records(records) => records.iter().for_each(&mut each),
            ReadStep::Gone { .. } => {}
            ReadStep::End => return Ok(()),
        }
    }
}
