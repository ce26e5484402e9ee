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

mod catalogue;
mod wire;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Message};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use tollgate_shared::place::LogId;

use super::consumer::Logging;
use super::topics::{self, Topic};
use super::{KafkaConfig, KafkaFault, producer, properties};
pub use catalogue::Candidate;
use catalogue::Catalogue;
use wire::{Key, Manifest, SnapshotId};

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
        let (producer, answers) = self.producer()?;
        Ok(StateWriter {
            producer,
            answers,
            is_doubted: false,
            run: rand::random(),
            state: self.clone(),
        })
    }

    fn producer(&self) -> Result<(BaseProducer<Counting>, Arc<Answers>), KafkaFault> {
        let mut client = properties::client(&self.config)?;
        client.set("compression.codec", "lz4");
        let answers = Arc::<Answers>::default();
        let producer = client
            .create_with_context(Counting(Arc::clone(&answers)))
            .map_err(properties::fault_of)?;
        Ok((producer, answers))
    }

    /// One who reads.
    ///
    /// # Errors
    ///
    /// Where a property is wrong.
    pub fn reader(&self) -> Result<StateReader, KafkaFault> {
        Ok(StateReader {
            client: properties::reader(&self.config)?
                .create_with_context(Logging)
                .map_err(properties::fault_of)?,
            state: self.clone(),
        })
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
                let offset = u64::try_from(message.offset()).unwrap_or(0);
                self.0.first.fetch_min(offset, Ordering::Relaxed);
                self.0.last.fetch_max(offset, Ordering::Relaxed);
                self.0.taken.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                let mut failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert_with(|| error.to_string());
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

impl StateWriter {
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
            let fresh = self.state.producer();
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
            let now_ms = now_ms();
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

/// Reads snapshots.
pub struct StateReader {
    client: BaseConsumer<Logging>,
    state: StateTopic,
}

impl StateReader {
    /// Another client for the same.
    ///
    /// # Errors
    ///
    /// Where a property is wrong.
    pub fn anew(&self) -> Result<Self, KafkaFault> {
        self.state.reader()
    }

    /// Looks at all snapshots of a partition: those that look whole, newest first. The others are
    /// passed over, loudly.
    ///
    /// # Errors
    ///
    /// Where Kafka does not answer.
    pub fn candidates(&self, partition: u32) -> Result<Vec<Candidate>, StateError> {
        let mut seen = Catalogue::default();
        let rules = self.state.rules;
        self.read(partition, Offset::Beginning, |message| {
            match Key::decode(message.key().unwrap_or_default()) {
                Ok(key) if key.partition == partition => {
                    let is_manifest = key.chunk.is_none();
                    let offset = unsigned(message.offset());
                    match message.payload() {
                        Some(value) if is_manifest => {
                            let manifest = Manifest::decode(value, rules);
                            let at = unsigned(message.timestamp().to_millis().unwrap_or(0));
                            seen.enter(key, Some(manifest), offset, at);
                        }
                        Some(_) => {
                            let Key { id, chunk, .. } = key;
                            seen.enter_chunk(&id, chunk.unwrap_or_default());
                        }
                        None => seen.enter(key, None, offset, 0),
                    }
                }
                Ok(_) | Err(_) => {
                    let offset = message.offset();
                    tracing::warn!(partition, offset, "a foreign record among snapshots");
                }
            }
            true
        })?;
        let (whole, passed_over) = seen.candidates();
        for (id, why) in passed_over {
            let (upto, group) = (id.upto, &id.group);
            tracing::warn!(partition, upto, %group, why, "a snapshot is passed over");
        }
        self.state.with_catalogue(partition, |known| *known = seen);
        Ok(whole)
    }

    /// The chunks of a snapshot.
    ///
    /// # Errors
    ///
    /// [`StateError::Corrupt`] where they are not what was written.
    pub fn chunks(
        &self,
        partition: u32,
        candidate: &Candidate,
    ) -> Result<Vec<Vec<u8>>, StateError> {
        let Candidate {
            id,
            manifest,
            offset,
        } = candidate;
        let mut found: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        let first = i64::try_from(manifest.first).unwrap_or(i64::MAX);
        self.read(partition, Offset::Offset(first), |message| {
            if let Ok(key) = Key::decode(message.key().unwrap_or_default())
                && key.id == *id
                && let (Some(chunk), Some(bytes)) = (key.chunk, message.payload())
            {
                found.insert(chunk, bytes.to_vec());
            }
            unsigned(message.offset()) < *offset
        })?;
        let mut digest = blake3::Hasher::new();
        for chunk in found.values() {
            digest.update(chunk);
        }
        if found.keys().copied().eq(0..manifest.chunks)
            && digest.finalize().as_bytes() == &manifest.digest
        {
            Ok(found.into_values().collect())
        } else {
            Err(StateError::Corrupt(format!(
                "its {} chunks, {} expected, do not have the digest that they were written with",
                found.len(),
                manifest.chunks
            )))
        }
    }

    /// Hands out a partition's records, until there are no more or `take` has had enough.
    fn read(
        &self,
        partition: u32,
        from: Offset,
        mut take: impl FnMut(&BorrowedMessage<'_>) -> bool,
    ) -> Result<(), StateError> {
        let kafka = |error: KafkaError| self.state.kafka(error);
        let mut list = TopicPartitionList::new();
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        list.add_partition_offset(&self.state.topic, number, from)
            .map_err(kafka)?;
        self.client.assign(&list).map_err(kafka)?;
        let mut deadline = Instant::now() + SILENCE_MAX;
        let read = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(self.state.kafka("nothing was heard in time"));
            }
            match self.client.poll(left) {
                Some(Ok(message)) => {
                    deadline = Instant::now() + SILENCE_MAX;
                    if !take(&message) {
                        break Ok(());
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => break Ok(()),
                Some(Err(error)) if super::consumer::is_about_the_network(&error) => {
                    tracing::debug!(%error, "kafka state");
                }
                Some(Err(error)) => break Err(kafka(error)),
                None => {}
            }
        };
        // What was fetched beyond is let go.
        let _ = self.client.unassign();
        read
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn now_ms() -> u64 {
    crate::serve::wall().as_millis()
}
