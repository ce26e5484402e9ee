//! Writing snapshots to Kafka, in the order that `writing` defines.
//!
//! Waits for Kafka. What stays true: a client whose last snapshot failed is recreated, since the client may
//! be the reason.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::super::{KafkaConfig, KafkaFault, producer, properties, rights};
use super::wire::StateKey;
use super::writing::{self, Medium, SnapshotSource, Written};
use super::{SILENCE_MAX, StateError, StateTopic, unsigned};

/// The outcomes of sent records.
#[derive(Default)]
struct Answers {
    taken: AtomicU64,
    /// The offset of the first record that Kafka took since this was reset to the greatest number.
    first: AtomicU64,
    last: AtomicU64,
    failed: Mutex<Option<String>>,
}

struct Counting(Arc<Answers>);

impl ClientContext for Counting {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        producer::log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka state");
    }
}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, delivered: &DeliveryResult<'_>, (): ()) {
        match delivered {
            Ok(message) => {
                let offset = unsigned(message.offset());
                self.0.first.fetch_min(offset, Ordering::Relaxed);
                self.0.last.fetch_max(offset, Ordering::Relaxed);
                self.0.taken.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert_with(|| match rights::is_about_a_topic(error) {
                    true => format!("Write: {error}"),
                    false => error.to_string(),
                });
            }
        }
    }
}

/// Writes snapshots.
pub struct StateWriter {
    producer: BaseProducer<Counting>,
    answers: Arc<Answers>,
    /// The last snapshot failed, and this client may be the reason.
    is_doubted: bool,
    state: StateTopic,
}

fn client(config: &KafkaConfig) -> Result<(BaseProducer<Counting>, Arc<Answers>), KafkaFault> {
    let mut client = properties::client(config)?;
    client.set("compression.codec", "lz4");
    let answers = Arc::<Answers>::default();
    let producer = client
        .create_with_context(Counting(Arc::clone(&answers)))
        .map_err(properties::fault_of)?;
    Ok((producer, answers))
}

impl StateWriter {
    pub(super) fn new(state: StateTopic) -> Result<Self, KafkaFault> {
        let (producer, answers) = client(&state.config)?;
        Ok(Self {
            producer,
            answers,
            is_doubted: false,
            state,
        })
    }

    /// Writes a snapshot, and drops the superseded ones. Returns the offset of its manifest in the topic.
    /// `chunks` passes the chunks to its argument one after the other.
    ///
    /// # Errors
    ///
    /// If Kafka did not take all of it. What it took is half-written, and readers skip it.
    pub fn write(
        &mut self,
        written: &Written<'_>,
        keep_hourly: u64,
        chunks: impl FnOnce(&mut dyn FnMut(Vec<u8>)),
    ) -> Result<u64, StateError> {
        if self.is_doubted {
            let fresh = client(&self.state.config);
            (self.producer, self.answers) = fresh.map_err(|fault| self.state.kafka(fault))?;
        }
        self.is_doubted = true;
        let offset = self.write_all(written, keep_hourly, chunks)?;
        self.is_doubted = false;
        Ok(offset)
    }

    fn write_all(
        &mut self,
        written: &Written<'_>,
        keep_hourly: u64,
        chunks: impl FnOnce(&mut dyn FnMut(Vec<u8>)),
    ) -> Result<u64, StateError> {
        let source = SnapshotSource {
            group: self.state.config.group.as_str().into(),
            writing: rand::random(),
            partitions: self.state.config.partitions,
            rules: self.state.rules,
        };
        let whole = writing::write(self, &source, written, chunks)?;
        let (partition, offset) = (written.partition, whole.offset);
        tracing::debug!(
            partition,
            upto = written.upto,
            chunks = whole.manifest.chunks,
            bytes = whole.manifest.bytes,
            "snapshot written"
        );
        let now_ms = crate::clock::wall().as_millis();
        let outlived = self.state.with_catalogue(partition, |catalogue| {
            catalogue.take_over(partition, whole, now_ms, keep_hourly)
        });
        if let Err(error) = writing::drop_all(self, &outlived) {
            tracing::warn!(partition, %error, "outdated snapshots cannot be removed");
        }
        Ok(offset)
    }

    fn take_failure(&self) -> Option<String> {
        let failed = self.answers.failed.lock();
        failed.unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Medium for StateWriter {
    type Error = StateError;

    fn begin(&mut self) {
        self.answers.taken.store(0, Ordering::Relaxed);
        self.answers.first.store(u64::MAX, Ordering::Relaxed);
        self.answers.last.store(0, Ordering::Relaxed);
        self.take_failure();
    }

    fn send(&mut self, key: &StateKey, value: Option<&[u8]>) -> Result<(), StateError> {
        let (partition, key) = (key.partition, key.encode());
        let mut record: BaseRecord<'_, [u8], [u8], ()> =
            BaseRecord::with_opaque_to(&self.state.topic, ())
                .partition(i32::try_from(partition).unwrap_or(i32::MAX))
                .key(&key);
        record.payload = value;
        let deadline = Instant::now() + SILENCE_MAX;
        loop {
            match self.producer.send(record) {
                Ok(()) => {
                    self.producer.poll(Duration::ZERO);
                    return Ok(());
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back))
                    if Instant::now() < deadline =>
                {
                    record = back;
                    self.producer.poll(Duration::from_millis(50));
                }
                Err((error, _)) => return Err(self.state.kafka(error)),
            }
        }
    }

    fn acknowledged(&mut self, count: u64) -> Result<(u64, u64), StateError> {
        // Each record is answered within `message.timeout.ms`, one way or the other.
        self.producer
            .flush(4 * SILENCE_MAX)
            .map_err(|error| self.state.kafka(error))?;
        if let Some(why) = self.take_failure() {
            return Err(self.state.kafka(why));
        }
        let taken = self.answers.taken.load(Ordering::Relaxed);
        if taken != count {
            // A late answer for an earlier, failed snapshot was counted: it is not known what this one has.
            return Err(self
                .state
                .kafka(format!("{taken} of {count} records were taken")));
        }
        let offset = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Ok((offset(&self.answers.first), offset(&self.answers.last)))
    }
}
