//! Sending records, and answering their tickets from Kafka's delivery reports.
//!
//! The owner's calls put records directly into the library's bounded queue; the library's own thread
//! returns the delivery reports. What stays true: every ticket that was sent is answered once; no record is
//! sent before the topics were checked, nor after `close`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{
    BaseRecord, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer,
};

use super::super::{AppendError, LogEvent, LogSender, Ticket};
use super::rights::{self, Unwritable};
use super::{KafkaConfig, KafkaFault, properties, reach};

/// How long the owner has to receive the answers of a producer that is being dropped.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// How often this is checked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Passes the library's log lines to ours.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client");
    }
}

/// Nobody waits for delivery reports.
impl ProducerContext for Quiet {
    type DeliveryOpaque = ();

    fn delivery(&self, delivered: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = delivered
            && rights::is_about_a_topic(error)
        {
            let fault = rights::missing(message.topic(), "Write");
            tracing::warn!(%fault, "a right is missing");
        }
    }
}

/// Logs one line of the library. `Down` and answers report everything of importance; the lines are for
/// close diagnosis.
pub(super) fn log_line(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, message, "kafka client");
        }
        _ => tracing::debug!(facility, message, "kafka client"),
    }
}

/// The part of the producer that the owner and the log's thread share.
#[derive(Clone)]
pub(super) struct ProducerShared {
    producer: Arc<Mutex<Option<Producer>>>,
    state: Arc<ProducerState>,
}

#[derive(Default)]
struct ProducerState {
    /// The topics were checked.
    ready: AtomicBool,
    /// The owner closed the log.
    closed: AtomicBool,
    /// The producer cannot go on and must be recreated.
    fatal: AtomicBool,
    /// An operation failed, perhaps because Kafka cannot be reached.
    suspect: AtomicBool,
    /// Topics for which the right to write is missing.
    unwritable: Unwritable,
    /// A record timed out, and none has succeeded since.
    late: AtomicBool,
    /// How long this producer's records have timed out while Kafka answers other clients.
    silence: Mutex<reach::Silence>,
}

impl ProducerState {
    /// A record succeeded. Cheap if none had timed out.
    fn came_in_time(&self) {
        if self.late.load(Ordering::Relaxed) {
            self.late.store(false, Ordering::Relaxed);
            self.silence().broken();
        }
    }

    fn silence(&self) -> MutexGuard<'_, reach::Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Producer = ThreadedProducer<Answering>;

/// Answers tickets from delivery reports.
struct Answering {
    events: LogSender,
    state: Arc<ProducerState>,
}

impl ClientContext for Answering {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka producer");
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.state.fatal.store(true, Ordering::Relaxed);
        }
        self.state.suspect.store(true, Ordering::Relaxed);
    }
}

impl ProducerContext for Answering {
    type DeliveryOpaque = usize;

    fn delivery(&self, delivered: &DeliveryResult<'_>, ticket: usize) {
        let result = match delivered {
            Ok(message) => {
                self.state.unwritable.taken(message.topic());
                self.state.came_in_time();
                Ok(u64::try_from(message.offset()).unwrap_or(0))
            }
            Err((error, message)) => {
                self.state.suspect.store(true, Ordering::Relaxed);
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageTimedOut) {
                    self.state.late.store(true, Ordering::Relaxed);
                }
                if rights::is_about_a_topic(error) {
                    self.state.unwritable.refused(message.topic());
                }
                Err(append_error(error, message.topic(), message.payload_len()))
            }
        };
        // While the owner does not take its events, other answers wait too; the queue of records to send is
        // bounded.
        let answer = LogEvent::answer(Ticket(ticket as u64), result);
        self.events.send(answer);
    }
}

impl ProducerShared {
    pub fn create(config: &KafkaConfig, events: LogSender) -> Result<Self, KafkaFault> {
        let state = Arc::new(ProducerState::default());
        let producer = create(config, events, &state)?;
        Ok(Self {
            producer: Arc::new(Mutex::new(Some(producer))),
            state,
        })
    }

    /// Sends a record. Never waits for the network.
    pub fn send(
        &self,
        topic: &str,
        partition: u32,
        ticket: Ticket,
        record: &[u8],
    ) -> Result<(), AppendError> {
        let not_now = |why: &str| Err(AppendError::NotNow(why.to_owned()));
        if self.state.closed.load(Ordering::Relaxed) {
            return not_now("the log is closed");
        }
        if !self.state.ready.load(Ordering::Relaxed) {
            return not_now("kafka has not been reached yet");
        }
        let guard = self.lock();
        let Some(producer) = guard.as_ref() else {
            return not_now("the log is closed");
        };
        // Tickets are as wide as pointers wherever the library runs.
        let to_send: BaseRecord<'_, (), [u8], usize> =
            BaseRecord::with_opaque_to(topic, ticket.0 as usize)
                .partition(i32::try_from(partition).unwrap_or(i32::MAX))
                .payload(record);
        producer
            .send(to_send)
            .map_err(|(error, _)| append_error(&error, topic, record.len()))
    }

    pub fn refuse_from_now_on(&self) {
        self.state.closed.store(true, Ordering::Relaxed);
    }

    pub fn set_ready(&self) {
        self.state.ready.store(true, Ordering::Relaxed);
    }

    /// Whether an operation failed since the last call.
    pub fn take_suspicion(&self) -> bool {
        self.state.suspect.swap(false, Ordering::Relaxed)
    }

    /// An error if the right to write to some topic is missing.
    pub fn may_write(&self) -> Result<(), KafkaFault> {
        self.state.unwritable.fault()
    }

    /// The caller calls this while Kafka answers it. Has the producer recreated if its records have timed
    /// out for long all the same.
    pub fn look_after_silence(&self) {
        if self.state.late.load(Ordering::Relaxed) && self.state.silence().goes_on() {
            tracing::warn!("kafka answers, but accepts nothing from the log's producer");
            self.doubt();
        }
    }

    /// Requests that the producer is recreated.
    pub fn doubt(&self) {
        self.state.fatal.store(true, Ordering::Relaxed);
    }

    /// Recreates the producer if it cannot go on. Records of the old one are answered.
    pub fn revive(&self, config: &KafkaConfig, events: &LogSender) -> Result<(), KafkaFault> {
        if !self.state.fatal.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        tracing::error!("the kafka producer cannot continue; recreating it");
        let fresh = match create(config, events.clone(), &self.state) {
            Ok(fresh) => fresh,
            Err(fault) => {
                self.doubt();
                return Err(fault);
            }
        };
        let old = self.lock().replace(fresh);
        self.state.came_in_time();
        if let Some(old) = old {
            let_go(old);
        }
        Ok(())
    }

    /// Waits up to `within` for the answers to all sent records, refuses the rest, and drops the producer.
    pub fn finish(&self, within: Duration) {
        self.refuse_from_now_on();
        let Some(producer) = self.lock().take() else {
            return;
        };
        if producer.flush(within).is_err() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
        // This joins its thread, which first passes on the last report.
        drop(producer);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Producer>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until every record of a producer is answered, and then drops it. Records that the library does not
/// answer before the drop would never be answered.
fn let_go(old: Producer) {
    old.purge(PurgeConfig::default().queue().inflight());
    let end = Instant::now() + ANSWERED_WITHIN;
    while 0 < old.in_flight_count() && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY);
    }
    let left = old.in_flight_count();
    if 0 < left {
        tracing::error!(left, "some appends will never be answered");
    }
}

fn create(
    config: &KafkaConfig,
    events: LogSender,
    state: &Arc<ProducerState>,
) -> Result<Producer, KafkaFault> {
    let context = Answering {
        events,
        state: Arc::clone(state),
    };
    properties::client(config)?
        .create_with_context(context)
        .map_err(properties::fault_of)
}

fn append_error(error: &KafkaError, topic: &str, bytes: usize) -> AppendError {
    let why = format!("kafka topic `{topic}`: {error}");
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) => {
            AppendError::Never(format!(
                "kafka topic `{topic}`: a record of {bytes} bytes is longer than it takes: expected \
                 max.message.bytes of the topic, and message.max.bytes of this client, to be at least {}",
                super::topics::MESSAGE_MAX_BYTES
            ))
        }
        Some(RDKafkaErrorCode::UnknownPartition) => AppendError::Never(why),
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
            AppendError::NotNow(rights::missing(topic, "Write").to_string())
        }
        _ => AppendError::NotNow(why),
    }
}
