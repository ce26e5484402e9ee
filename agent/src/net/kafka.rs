//! Kafka as the carrier: a producer on a thread of its own.
//!
//! Records arrive packed and numbered; each goes to its partition as it is. The client retries by itself, and every
//! record's delivery report is its acknowledgement. A crash of the C library would crash the service, so the agent
//! uses as little of it as possible: produce, and list topics.
//!
//! A client that has lost every broker for good, as it does while brokers are fenced and list none
//! (confluentinc/librdkafka, issue 5301), is replaced, and records that it had not delivered are sent again.
//!
//! What stays true: nothing is sent later than ten minutes after its first sending, while the log still recognises
//! duplicates: a courier gives no record to another client after five minutes, and no client retries for that long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{
    BaseRecord, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer,
};
use tokio::sync::mpsc;
use tollgate_shared::kafka_properties::{is_of_connection, may_be_shown};
use tollgate_shared::log_lines::excerpt;

use super::{AppendOutcome, DriverEvent};
use crate::courier::Outgoing;
use crate::error::BuildError;
use crate::log_lines::LogLines;
use crate::threads::Threads;

/// The most records that may wait for the producer, in front of its own queue.
const RECORDS_MAX: usize = 256;

/// After how long the client gives a record up: earlier than a courier would, so that its report comes first.
const GIVE_UP_AFTER_MS: u32 = 280_000;

/// How long Kafka may take to list its topics.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait before listing again, if the topic does not exist.
const LIST_AGAIN: Duration = Duration::from_millis(500);

/// After this long without any delivery report, although records were sent, another client is tried.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long the driver may take to receive the reports of a client that is being replaced.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// How often silence is checked while nothing is sent.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A lasting problem is logged again after this long.
const LOGGED_EVERY: Duration = Duration::from_secs(30);

/// The driver's end.
#[derive(Debug)]
pub(crate) struct Kafka {
    pub(super) records: mpsc::Sender<Outgoing>,
}

/// The client's settings: the agent's, then the service's own.
fn config(bootstrap: &str, agent: &str, properties: &[(String, String)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("client.id", agent)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        // Batches are formed already.
        .set("linger.ms", "0")
        .set("message.timeout.ms", GIVE_UP_AFTER_MS.to_string())
        .set("reconnect.backoff.max.ms", "1000");
    for (name, value) in properties {
        config.set(name, value);
    }
    // A topic that brokers create by themselves lacks the settings that it needs.
    config.set("allow.auto.create.topics", "false");
    config
}

/// Checks the settings without connecting anywhere.
///
/// # Errors
///
/// The client's error about an unknown property or value.
pub(crate) fn check_properties(
    bootstrap: &str,
    agent: &str,
    properties: &[(String, String)],
) -> Result<(), BuildError> {
    config(bootstrap, agent, properties)
        .create_native_config()
        .map(|_| ())
        .map_err(|error| bad(&error))
}

/// The client's error about its properties, and what to build in if it lacks a feature.
fn bad(error: &KafkaError) -> BuildError {
    let mut why = match error {
        KafkaError::ClientConfig(_, why, name, value) if may_be_shown(name, why) => {
            format!("property `{name}` = {value:?}: {why}")
        }
        KafkaError::ClientConfig(_, why, name, _) => format!("property `{name}`: {why}"),
        other => other.to_string(),
    };
    if why.contains("not available at build time") || why.contains("No provider for SASL") {
        why += ": expected tollgate-agent with the feature kafka-ssl, kafka-ssl-vendored, kafka-gssapi or kafka-zstd";
    }
    BuildError::KafkaProperty(why.into())
}

impl Kafka {
    /// Reports the aggregators that register in the fleet's `members` topic.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub(crate) fn find_members(
        bootstrap: &str,
        topic: String,
        (agent, threads): (&str, &Threads),
        properties: &[(String, String)],
        events: &mpsc::Sender<DriverEvent>,
    ) -> std::io::Result<()> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("client.id", agent)
            .set("reconnect.backoff.max.ms", "1000");
        // A consumer logs a producer's properties as mistakes: only those of the connection apply to it.
        let of_connection = properties.iter().filter(|(name, _)| is_of_connection(name));
        for (name, value) in of_connection {
            config.set(name, value);
        }
        super::members::follow(config, topic, threads, events.downgrade())
    }

    /// Starts the producer's thread.
    ///
    /// # Errors
    ///
    /// If no thread can be started, or the client lacks what a property needs.
    pub(crate) fn start(
        bootstrap: &str,
        topic: String,
        (agent, threads): (&str, &Threads),
        properties: &[(String, String)],
        events: mpsc::Sender<DriverEvent>,
    ) -> Result<Self, BuildError> {
        let (records, receiver) = mpsc::channel(RECORDS_MAX);
        let config = config(bootstrap, agent, properties);
        let producing = Producing::begin(config, topic, events, lines_that_last());
        let producing = producing.map_err(|error| bad(&error))?;
        // Only used to wait for the next record, for a moment and no longer.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(BuildError::Thread)?;
        let work = move || produce(producing, &runtime, receiver);
        let started = threads.start("tollgate-kafka", work);
        started.map_err(BuildError::Thread)?;
        Ok(Self { records })
    }
}

/// Turns delivery reports into events.
struct Reports {
    events: mpsc::Sender<DriverEvent>,
    /// How many records have a delivery report.
    answered: Arc<AtomicU64>,
    /// Log lines about brokers that deny the agent access, or writing.
    lines: Arc<LogLines>,
}

/// Log lines about lasting problems, shared by all clients.
pub(super) fn lines_that_last() -> Arc<LogLines> {
    Arc::new(LogLines::once_in(LOGGED_EVERY))
}

/// Whether an error is about authentication of the agent or of the brokers.
fn is_about_admission(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::UnsupportedSASLMechanism
            | RDKafkaErrorCode::SSL
    )
}

/// The library's log lines at debug level; important problems have the agent's own messages.
pub(super) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    let message = excerpt(message);
    tracing::debug!(?level, facility, %message, "kafka client");
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The text may come from a broker.
        let reason = excerpt(reason);
        match error.rdkafka_error_code() {
            // This does not end by itself.
            Some(code) if is_about_admission(code) => {
                if let Some(unsaid) = self.lines.may() {
                    tracing::warn!(
                        %reason,
                        unsaid,
                        "kafka refuses this agent: expected the properties that its brokers require"
                    );
                }
            }
            // Brokers that are away for a while are not worth a line each second in a service's log.
            _ => tracing::debug!(%error, %reason, "kafka"),
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, id: usize) {
        let outcome = match result {
            Ok(_) => AppendOutcome::Taken,
            Err((error, _)) => match error.rdkafka_error_code() {
                // Its client is being replaced.
                Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {
                    AppendOutcome::SendAgain
                }
                _ => AppendOutcome::GivenUp,
            },
        };
        if let Err((error, message)) = result
            && error.rdkafka_error_code() == Some(RDKafkaErrorCode::TopicAuthorizationFailed)
            && let Some(unsaid) = self.lines.may()
        {
            let topic = message.topic();
            tracing::warn!(%error, unsaid, "kafka topic `{topic}`: Write: this agent lacks the right, so hits are lost");
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        let delivered = DriverEvent::Delivered {
            id: id as u64,
            outcome,
        };
        // The driver takes events as long as it lives; after that no report is needed.
        let _ = self.events.blocking_send(delivered);
    }
}

fn produce(
    mut producing: Producing,
    runtime: &tokio::runtime::Runtime,
    mut records: mpsc::Receiver<Outgoing>,
) {
    if !producing.find_partitions(&records) {
        return;
    }
    loop {
        let next = async { tokio::time::timeout(LOOK_EVERY, records.recv()).await };
        match runtime.block_on(next) {
            Ok(Some(outgoing)) => producing.send(&outgoing),
            // The driver has ended: records in flight were counted as given up.
            Ok(None) => return,
            Err(_) => {}
        }
        producing.look_after_silence();
    }
}

/// The producer, and what is needed to make another one.
struct Producing {
    config: ClientConfig,
    topic: String,
    events: mpsc::Sender<DriverEvent>,
    producer: ThreadedProducer<Reports>,
    answered: Arc<AtomicU64>,
    lines: Arc<LogLines>,
    /// Log lines about records that the client does not accept.
    refusals: LogLines,
    /// How many delivery reports there were at the last change, and when that was.
    last_answer: (u64, Instant),
}

impl Producing {
    fn begin(
        config: ClientConfig,
        topic: String,
        events: mpsc::Sender<DriverEvent>,
        lines: Arc<LogLines>,
    ) -> Result<Self, KafkaError> {
        let answered = Arc::<AtomicU64>::default();
        let context = Reports {
            events: events.clone(),
            answered: Arc::clone(&answered),
            lines: Arc::clone(&lines),
        };
        Ok(Self {
            producer: ThreadedProducer::from_config_and_context(&config, context)?,
            config,
            topic,
            events,
            answered,
            lines,
            refusals: LogLines::default(),
            last_answer: (0, Instant::now()),
        })
    }

    /// How many partitions the topic has, if brokers list it; an error if brokers are unreachable.
    fn partitions(&self) -> Result<Option<u32>, KafkaError> {
        // Lists all topics: a request by name would make some brokers create the topic with their defaults.
        let found = self.producer.client().fetch_metadata(None, LIST_WITHIN);
        let metadata = found?;
        if metadata.brokers().is_empty() {
            let none = RDKafkaErrorCode::AllBrokersDown;
            return Err(KafkaError::MetadataFetch(none));
        }
        let mut topics = metadata.topics().iter();
        let topic = topics.find(|one| one.name() == self.topic);
        let count = topic.and_then(|topic| u32::try_from(topic.partitions().len()).ok());
        Ok(count.filter(|partitions| 0 < *partitions))
    }

    /// Waits until the topic exists; `false` if the agent has ended.
    fn find_partitions(&mut self, records: &mpsc::Receiver<Outgoing>) -> bool {
        let lines = lines_that_last();
        while !records.is_closed() && !self.events.is_closed() {
            let begun = Instant::now();
            let partitions = self.partitions();
            if let Ok(Some(partitions)) = partitions {
                let event = DriverEvent::Partitions(partitions);
                return self.events.blocking_send(event).is_ok();
            }
            if partitions.is_ok()
                && let Some(unsaid) = lines.may()
            {
                tracing::warn!(
                    unsaid,
                    "kafka topic `{}`: it does not exist, or this agent may not see it: expected the right to Write",
                    self.topic
                );
            }
            if SILENCE_MAX <= self.last_answer.1.elapsed() {
                self.last_answer.1 = Instant::now();
                self.begin_again();
            }
            std::thread::sleep(
                LIST_AGAIN
                    .saturating_sub(begun.elapsed())
                    .max(Duration::from_millis(50)),
            );
        }
        false
    }

    fn look_after_silence(&mut self) {
        let answered = self.answered.load(Ordering::Relaxed);
        if answered != self.last_answer.0 || self.producer.in_flight_count() == 0 {
            self.last_answer = (answered, Instant::now());
        } else if SILENCE_MAX <= self.last_answer.1.elapsed() {
            self.last_answer.1 = Instant::now();
            self.begin_again();
        }
    }

    /// Continues with another client, if that one reaches the topic.
    fn begin_again(&mut self) {
        let (config, topic) = (self.config.clone(), self.topic.clone());
        match Self::begin(config, topic, self.events.clone(), Arc::clone(&self.lines)) {
            Ok(fresh) => {
                if matches!(fresh.partitions(), Ok(Some(_))) {
                    tracing::debug!("the kafka producer reached no broker; it is recreated");
                    self.let_go();
                    *self = fresh;
                }
            }
            Err(error) => tracing::error!(%error, "the kafka producer cannot be recreated"),
        }
    }

    /// Makes the producer report the records that it still has, so that they are sent again. Records without a report
    /// when it is dropped would wait for minutes.
    fn let_go(&self) {
        self.producer
            .purge(PurgeConfig::default().queue().inflight());
        let end = Instant::now() + ANSWERED_WITHIN;
        while 0 < self.producer.in_flight_count() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn send(&self, outgoing: &Outgoing) {
        /// How often to retry while the queue is full, before the record is given up: a second in all.
        const TRIES: u32 = 100;
        let id = usize::try_from(outgoing.id).unwrap_or(usize::MAX);
        for _ in 0..TRIES {
            let record = BaseRecord::<(), [u8], usize>::with_opaque_to(&self.topic, id)
                .partition(i32::try_from(outgoing.partition).unwrap_or(i32::MAX))
                .payload(&outgoing.record[..]);
            match self.producer.send(record) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err((error, _)) => {
                    if let Some(unsaid) = self.refusals.may() {
                        tracing::warn!(%error, unsaid, "kafka refused a batch of hits");
                    }
                    break;
                }
            }
        }
        let _ = self.events.blocking_send(DriverEvent::Delivered {
            id: outgoing.id,
            outcome: AppendOutcome::GivenUp,
        });
    }
}
