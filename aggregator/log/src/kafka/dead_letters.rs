//! Dead letters: refused records, kept in the `aside` topic to help find their producer.
//!
//! ```text
//! key    hits/3/18250
//! value  {"schema":"tollgate.aside/1","stream":"hits","partition":3,"offset":18250,"reason":"byte 0: …",
//!         "length":29,"first_hex":"6761…","by":"agg-1"}
//! ```
//!
//! A thread of its own creates the topic, which is bounded by size and age, and writes to it. Knows nothing
//! of what records mean. What stays true: [`DeadLetterTopic::keep`] never waits; records beyond a bound, or that
//! Kafka does not take, are counted and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use serde::Serialize;

use super::super::DeadLetterCounters;
use super::topics::{self, Topic};
use super::{KafkaConfig, KafkaFault, consumer, producer, properties};

/// How many refused records may wait. With [`FIRST_BYTES`] of each, that is a megabyte.
const WAITING_MAX: usize = 256;

/// How many bytes of a record are kept, from its beginning: enough to recognise its producer.
pub const FIRST_BYTES: usize = 4_096;

/// How many dead letters are written per second. These are enough to find a producer that writes nothing
/// but garbage; more would only cost the brokers the same traffic twice.
const A_SECOND: u32 = 100;

/// How long the thread sleeps while delivery reports may come.
const POLL: Duration = Duration::from_millis(500);

/// How long the thread waits before it tries again a topic that it could not use.
const RETRY_EVERY: Duration = Duration::from_secs(10);

/// A refused record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its stream's name.
    pub stream: &'static str,
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Why it was refused.
    pub reason: String,
    /// How many bytes it has.
    pub length: usize,
    /// Its first bytes, at most [`FIRST_BYTES`].
    pub first: Box<[u8]>,
}

#[derive(Serialize)]
struct View<'a> {
    schema: &'static str,
    stream: &'static str,
    partition: u32,
    offset: u64,
    reason: &'a str,
    length: usize,
    first_hex: String,
    by: &'a str,
}

/// The topic, as its writer sees it.
#[derive(Debug)]
pub struct DeadLetterTopic {
    waiting: Option<SyncSender<RefusedRecord>>,
    ended: Receiver<()>,
    counters: Arc<DeadLetterCounters>,
}

impl DeadLetterTopic {
    /// Starts the writer, whether or not Kafka can be reached. `by` is the writer's name.
    ///
    /// # Errors
    ///
    /// If a property is wrong.
    pub fn start(
        config: KafkaConfig,
        by: &str,
        counters: Arc<DeadLetterCounters>,
    ) -> Result<Self, KafkaFault> {
        let (waiting, inbox) = sync_channel(WAITING_MAX);
        let (alive, ended) = channel();
        let is_doubted = Arc::<AtomicBool>::default();
        let thread = DeadLetterThread {
            topic: topics::name(&config, Topic::DeadLetters),
            producer: writing(&config, &counters, &is_doubted)?,
            is_doubted,
            config,
            by: by.to_owned(),
            inbox,
            counters: Arc::clone(&counters),
            there: false,
            try_at: Instant::now(),
            second: (Instant::now(), 0),
        };
        std::thread::Builder::new()
            .name("kafka-aside".to_owned())
            .spawn(move || {
                thread.run();
                drop(alive);
            })
            .map_err(|error| KafkaFault::Client {
                why: error.to_string(),
            })?;
        Ok(Self {
            waiting: Some(waiting),
            ended,
            counters,
        })
    }

    /// Queues a record, if there is room; else counts it as dropped.
    pub fn keep(&self, refused: RefusedRecord) {
        let sent = self
            .waiting
            .as_ref()
            .map(|waiting| waiting.try_send(refused));
        if !matches!(sent, Some(Ok(()))) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Accepts no more records, and waits up to `within` for those in flight.
    pub fn close(&mut self, within: Duration) {
        self.waiting = None;
        // No error if that is not enough: dead letters are a help, not a promise.
        let _ = self.ended.recv_timeout(within);
    }
}

/// Counts the outcomes of writes.
struct Counting {
    counters: Arc<DeadLetterCounters>,
    /// Kafka did not take a record, and this client may be the reason.
    is_doubted: Arc<AtomicBool>,
}

impl ClientContext for Counting {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        producer::log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka aside");
    }
}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, delivered: &DeliveryResult<'_>, (): ()) {
        let counter = match delivered {
            Ok(_) => &self.counters.kept,
            Err((error, _)) => {
                tracing::debug!(%error, "a dead letter was not kept");
                self.is_doubted.store(true, Ordering::Relaxed);
                &self.counters.dropped
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn writing(
    config: &KafkaConfig,
    counters: &Arc<DeadLetterCounters>,
    is_doubted: &Arc<AtomicBool>,
) -> Result<BaseProducer<Counting>, KafkaFault> {
    let mut client = properties::client(config)?;
    client.set("queue.buffering.max.messages", WAITING_MAX.to_string());
    client.set("compression.codec", "lz4");
    let context = Counting {
        counters: Arc::clone(counters),
        is_doubted: Arc::clone(is_doubted),
    };
    client
        .create_with_context(context)
        .map_err(properties::fault_of)
}

struct DeadLetterThread {
    config: KafkaConfig,
    topic: String,
    producer: BaseProducer<Counting>,
    is_doubted: Arc<AtomicBool>,
    by: String,
    inbox: Receiver<RefusedRecord>,
    counters: Arc<DeadLetterCounters>,
    there: bool,
    try_at: Instant,
    /// When the current second began, and how many records were written in it.
    second: (Instant, u32),
}

impl DeadLetterThread {
    fn run(mut self) {
        loop {
            // Without records in flight, the thread need not wake up to poll for reports.
            let refused = match self.producer.in_flight_count() {
                0 => self
                    .inbox
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                _ => self.inbox.recv_timeout(POLL),
            };
            match refused {
                Ok(refused) => {
                    if !self.write(&refused) {
                        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.producer.poll(Duration::ZERO);
        }
        if let Err(error) = self.producer.flush(Duration::from_secs(1)) {
            tracing::debug!(%error, "dead letters are not kept");
        }
    }

    /// Writes a record, unless too many were written in this second. Returns whether it is in flight.
    fn write(&mut self, refused: &RefusedRecord) -> bool {
        if !self.is_there() || !self.may_write() {
            return false;
        }
        let RefusedRecord {
            stream,
            partition,
            offset,
            reason,
            length,
            first,
        } = refused;
        let view = View {
            schema: "tollgate.aside/1",
            stream,
            partition: *partition,
            offset: *offset,
            reason,
            length: *length,
            first_hex: first.iter().map(|byte| format!("{byte:02x}")).collect(),
            by: &self.by,
        };
        let Ok(value) = serde_json::to_vec(&view) else {
            return false;
        };
        let key = format!("{stream}/{partition}/{offset}");
        let record: BaseRecord<'_, str, [u8]> = BaseRecord::to(&self.topic)
            .partition(0)
            .key(&*key)
            .payload(&value);
        self.producer.send(record).is_ok()
    }

    fn may_write(&mut self) -> bool {
        let now = Instant::now();
        if self.second.0 + Duration::from_secs(1) <= now {
            self.second = (now, 0);
        }
        self.second.1 += 1;
        self.second.1 <= A_SECOND
    }

    /// Creates the topic if needed, because a topic that a broker creates by itself would have no bounds.
    fn is_there(&mut self) -> bool {
        let is_time = self.try_at <= Instant::now();
        if self.there && is_time && self.is_doubted.swap(false, Ordering::Relaxed) {
            self.there = false;
            match writing(&self.config, &self.counters, &self.is_doubted) {
                Ok(producer) => {
                    self.producer = producer;
                    // The failure was the old client's.
                    self.is_doubted.store(false, Ordering::Relaxed);
                }
                Err(fault) => tracing::warn!(%fault, "dead letters are not kept"),
            }
        }
        if self.there || !is_time {
            return self.there;
        }
        let asked = consumer::create(&self.config)
            .and_then(|client| topics::ensure(&self.config, &client, Topic::DeadLetters));
        match asked {
            Ok(()) => {
                self.there = true;
                self.try_at = Instant::now() + RETRY_EVERY;
            }
            Err(fault) => {
                tracing::warn!(%fault, "dead letters are not kept, only counted");
                self.try_at = Instant::now() + RETRY_EVERY;
            }
        }
        self.there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_broker_no_call_waits_and_losses_are_counted() {
        let counters = Arc::<DeadLetterCounters>::default();
        // Nothing listens on port 1.
        let config = KafkaConfig::new("127.0.0.1:1");
        let mut topic =
            DeadLetterTopic::start(config, "me", Arc::clone(&counters)).expect("starts");
        let begun = Instant::now();
        let all = WAITING_MAX as u64 * 3;
        for offset in 0..all {
            topic.keep(RefusedRecord {
                stream: "hits",
                partition: 3,
                offset,
                reason: "bad".to_owned(),
                length: 3,
                first: (*b"bad").into(),
            });
        }
        assert!(begun.elapsed() < Duration::from_secs(1), "it waits");
        // The thread gives up its question after some seconds, and then drops the rest of the queue at
        // once.
        topic.close(Duration::from_secs(30));
        assert_eq!(counters.kept.load(Ordering::Relaxed), 0);
        assert_eq!(counters.dropped.load(Ordering::Relaxed), all);
    }
}
