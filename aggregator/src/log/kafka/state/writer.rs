//! Writing snapshots: chunk by chunk, the manifest last, and those that it outlives dropped.
//!
//! Waits for Kafka. What stays true: a manifest is written only when all chunks were acknowledged; a client
//! whose last snapshot was not taken is made anew, since it may be what fails.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use tollgate_shared::place::LogId;

use super::super::{KafkaConfig, KafkaFault, producer, properties, rights};
use super::wire::{Key, Manifest, SnapshotId};
use super::{SILENCE_MAX, StateError, StateTopic, unsigned};

/// What is written.
pub struct Written<'a> {
    /// The partition.
    pub partition: u32,
    /// The offset of the last record in it.
    pub upto: u64,
    /// The log that it is of.
    pub log: LogId,
    /// The writer's name, for people.
    pub name: &'a str,
}

/// What became of records that were sent.
#[derive(Default)]
struct Answers {
    taken: AtomicU64,
    /// The offset of the first that was taken since this was reset to the greatest number.
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
    /// The last snapshot was not taken, and it may be this client that fails.
    is_doubted: bool,
    /// Tells this run's snapshots from those of others.
    run: u128,
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
            run: rand::random(),
            state,
        })
    }

    /// Writes a snapshot, and drops those that it outlives; says where its manifest stands in the topic.
    /// `chunks` hands out its chunks one after the other.
    ///
    /// # Errors
    ///
    /// Where Kafka did not take all of it. What it took is half-written, and passed over by readers.
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
        let partition = written.partition;
        let key = |chunk| Key {
            partition,
            id: SnapshotId {
                upto: written.upto,
                group: self.state.config.group.as_str().into(),
                writer: self.run,
            },
            chunk,
        };
        let (mut count, mut bytes, mut digest) = (0u32, 0u64, blake3::Hasher::new());
        self.begin();
        let mut sent = Ok(());
        chunks(&mut |chunk| {
            digest.update(&chunk);
            bytes += chunk.len() as u64;
            if sent.is_ok() {
                sent = self.send(partition, &key(Some(count)), Some(&chunk));
            }
            count += 1;
        });
        sent?;
        let (first, _) = self.await_all(u64::from(count))?;
        let manifest = Manifest {
            log: written.log,
            partitions: self.state.config.partitions,
            rules: self.state.rules,
            chunks: count,
            bytes,
            digest: *digest.finalize().as_bytes(),
            first,
            name: written.name.into(),
        };
        self.begin();
        self.send(partition, &key(None), Some(&manifest.encode()))?;
        let (_, offset) = self.await_all(1)?;
        tracing::debug!(
            partition,
            upto = written.upto,
            chunks = count,
            bytes,
            "snapshot written"
        );
        let id = key(None).id;
        let outlived = self.state.with_catalogue(partition, |catalogue| {
            for chunk in 0..count {
                catalogue.enter_chunk(&id, chunk);
            }
            let now_ms = crate::serve::wall().as_millis();
            catalogue.enter(key(None), Some(Ok(manifest)), offset, now_ms);
            catalogue.take_outlived(partition, &id, keep_hourly)
        });
        self.drop_all(partition, &outlived);
        Ok(offset)
    }

    /// Drops records. What is not dropped takes room, and no more.
    fn drop_all(&mut self, partition: u32, keys: &[Key]) {
        self.begin();
        let mut sent = Ok(());
        for key in keys {
            sent = sent.and_then(|()| self.send(partition, key, None));
        }
        let dropped = sent.and_then(|()| self.await_all(keys.len() as u64));
        if let Err(error) = dropped {
            tracing::warn!(partition, %error, "snapshots that were outlived stay");
        }
    }

    fn begin(&self) {
        self.answers.taken.store(0, Ordering::Relaxed);
        self.answers.first.store(u64::MAX, Ordering::Relaxed);
        self.answers.last.store(0, Ordering::Relaxed);
        self.take_failure();
    }

    fn take_failure(&self) -> Option<String> {
        let failed = self.answers.failed.lock();
        failed.unwrap_or_else(PoisonError::into_inner).take()
    }

    fn send(&self, partition: u32, key: &Key, value: Option<&[u8]>) -> Result<(), StateError> {
        let key = key.encode();
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

    /// Waits until all that was sent is answered; the offsets of the first and the last.
    fn await_all(&self, count: u64) -> Result<(u64, u64), StateError> {
        // Each is answered within `message.timeout.ms`, one way or the other.
        self.producer
            .flush(4 * SILENCE_MAX)
            .map_err(|error| self.state.kafka(error))?;
        if let Some(why) = self.take_failure() {
            return Err(self.state.kafka(why));
        }
        let taken = self.answers.taken.load(Ordering::Relaxed);
        if taken != count {
            // An answer of an earlier snapshot that failed came late: what is here is not known.
            return Err(self
                .state
                .kafka(format!("{taken} of {count} records were taken")));
        }
        let offset = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Ok((offset(&self.answers.first), offset(&self.answers.last)))
    }
}
