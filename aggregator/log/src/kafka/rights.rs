//! Rights that turn out to be missing when something is written or read, by topic and operation.
//!
//! Brokers say that an operation is not allowed, and the client library not always on which topic: what
//! was written is known, what was read is found out by trying. Knows nothing of what is in topics. What
//! stays true: a right that came back, or that nobody asked for in a while, is not said to be missing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::consumer::Logging;
use super::{KafkaConfig, KafkaFault, properties};

/// For so long a write that was refused is said to be: what is refused is tried again within a second.
const REMEMBERED: Duration = Duration::from_secs(10);

/// How long an attempt to read may take.
const TRY_WITHIN: Duration = Duration::from_secs(1);

/// Topics that may not be written to.
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

    /// A write was taken. Cheap, where none was refused.
    pub fn taken(&self, topic: &str) {
        if self.any.load(Ordering::Relaxed) {
            let mut topics = self.lock();
            topics.remove(topic);
            self.any.store(!topics.is_empty(), Ordering::Relaxed);
        }
    }

    /// One that may not be written to, as far as is known.
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

/// A right that is missing; `operation` is the ACLs' word for it.
pub(super) fn missing(topic: &str, operation: &'static str) -> KafkaFault {
    KafkaFault::NotAuthorised {
        topic: topic.to_owned(),
        operation,
        why: RDKafkaErrorCode::TopicAuthorizationFailed.to_string(),
    }
}

/// Tries to read a partition; an error where the right to is missing, and only then.
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
    fn what_may_not_be_written_is_named_until_it_may() {
        let topics = Unwritable::default();
        assert_eq!(topics.fault(), Ok(()));
        topics.refused("t.hits");
        topics.refused("t.denials");
        topics.taken("t.denials");
        assert_eq!(topics.fault(), Err(missing("t.hits", "Write")));
        let said = missing("t.hits", "Write").to_string();
        assert!(
            said.starts_with("kafka topic `t.hits`: Write: TopicAuthorizationFailed (Broker: "),
            "{said}"
        );
        topics.taken("t.hits");
        assert_eq!(topics.fault(), Ok(()));
    }
}
