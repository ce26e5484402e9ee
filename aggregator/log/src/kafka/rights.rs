//! Rights that turn out to be missing when a topic is written or read, by topic and operation.
//!
//! Brokers report that an operation is not allowed, but the client library does not always report the
//! topic: for writes the topic is known, for reads this module tries each topic. Knows nothing of
//! topics' content. What stays true: a right is not reported as missing once it has come back, or if
//! nobody needed it for a while.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::consumer::Logging;
use super::{KafkaConfig, KafkaFault, properties};

/// How long a refused write is reported as refused: the writer repeats a refused write within a second.
const REMEMBERED: Duration = Duration::from_secs(10);

/// How long an attempt to read may take.
const TRY_WITHIN: Duration = Duration::from_secs(1);

/// Topics for which the right to write is missing.
#[derive(Default)]
pub(super) struct Unwritable {
    topics: Mutex<BTreeMap<String, Instant>>,
    any: AtomicBool,
}

impl Unwritable {
    /// A write was refused for want of a right.
    pub fn refused(&self, topic: &str) {
        self.lock().insert(topic.to_owned(), Instant::now());
        self.any.store(true, Ordering::Relaxed);
    }

    /// A write succeeded. Cheap if none was refused.
    pub fn taken(&self, topic: &str) {
        if self.any.load(Ordering::Relaxed) {
            let mut topics = self.lock();
            topics.remove(topic);
            self.any.store(!topics.is_empty(), Ordering::Relaxed);
        }
    }

    /// One topic that cannot be written to, as far as is known, as an error.
    pub fn fault(&self) -> Result<(), KafkaFault> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut topics = self.lock();
        topics.retain(|_, at| at.elapsed() < REMEMBERED);
        self.any.store(!topics.is_empty(), Ordering::Relaxed);
        match topics.keys().next() {
            Some(topic) => Err(missing(topic, "Write")),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error says that a right on a topic is missing.
pub(super) fn is_about_a_topic(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed)
}

/// The fault of a missing right; `operation` is the ACLs' word for it.
pub(super) fn missing(topic: &str, operation: &'static str) -> KafkaFault {
    KafkaFault::NotAuthorised {
        topic: topic.to_owned(),
        operation,
        why: RDKafkaErrorCode::TopicAuthorizationFailed.to_string(),
    }
}

/// Tries to read a partition. An error only if the right to read is missing.
pub(super) fn try_to_read(
    config: &KafkaConfig,
    topic: &str,
    partition: i32,
) -> Result<(), KafkaFault> {
    let consumer: BaseConsumer<Logging> = properties::reader(config)?
        .create_with_context(Logging)
        .map_err(properties::fault_of)?;
    let mut list = TopicPartitionList::new();
    let assigned = list
        .add_partition_offset(topic, partition, Offset::Beginning)
        .and_then(|()| consumer.assign(&list));
    if assigned.is_err() {
        return Ok(());
    }
    match consumer.poll(TRY_WITHIN) {
        Some(Err(error)) if is_about_a_topic(&error) => Err(missing(topic, "Read")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_write_permission_is_reported_until_granted() {
        let topics = Unwritable::default();
        assert_eq!(topics.fault(), Ok(()));
        topics.refused("t.hits");
        topics.refused("t.denials");
        topics.taken("t.denials");
        assert_eq!(topics.fault(), Err(missing("t.hits", "Write")));
        let text = missing("t.hits", "Write").to_string();
        assert!(
            text.starts_with("kafka topic `t.hits`: Write: TopicAuthorizationFailed (Broker: "),
            "{text}"
        );
        topics.taken("t.hits");
        assert_eq!(topics.fault(), Ok(()));
    }
}
