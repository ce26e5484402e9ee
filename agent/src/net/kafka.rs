//! Kafka as the carrier: a producer on a thread of its own.
//!
//! Records arrive packed and numbered; each goes to its partition as it is. The client sends again by
//! itself, and every record's delivery report is its acknowledgement. A crash of the C library would
//! take the service with it, so as little as possible is asked of it: produce, and list topics.
//!
//! What stays true: nothing is sent later than five minutes after its first sending.

use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::mpsc;

use super::Event;
use crate::courier::Outgoing;
use crate::error::BuildError;

/// Records that may wait for the producer, whose own queue comes after.
const RECORDS_MAX: usize = 256;

/// After how long the client gives a record up: before a courier would, so that its word comes first.
const GIVE_UP_AFTER_MS: u32 = 280_000;

/// How long Kafka may take to list its topics.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait before it is asked again, where the topic is not there.
const LIST_AGAIN: Duration = Duration::from_millis(500);

/// The hub's end.
#[derive(Debug)]
pub(crate) struct Kafka {
    pub(super) records: mpsc::Sender<Outgoing>,
}

/// The client's settings: ours, then the service's own.
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
    config
}

/// Checks the settings without connecting anywhere.
///
/// # Errors
///
/// What the client says about a property or a value that it does not know.
pub(crate) fn check_properties(
    bootstrap: &str,
    agent: &str,
    properties: &[(String, String)],
) -> Result<(), BuildError> {
    config(bootstrap, agent, properties)
        .create_native_config()
        .map(|_| ())
        .map_err(|error| BuildError::KafkaProperty(error.to_string().into()))
}

impl Kafka {
    /// Tells of the aggregators that state themselves in the fleet's `members` topic.
    ///
    /// # Errors
    ///
    /// Where there is no thread to be had.
    pub(crate) fn find_members(
        bootstrap: &str,
        topic: String,
        agent: &str,
        properties: &[(String, String)],
        events: &mpsc::Sender<Event>,
    ) -> std::io::Result<()> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("client.id", agent)
            .set("reconnect.backoff.max.ms", "1000");
        // A consumer takes a producer's properties for mistakes: only those of the connection are its own.
        let of_connection = |name: &str| {
            [
                "sasl.",
                "ssl.",
                "security.",
                "broker.",
                "socket.",
                "client.",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        };
        for (name, value) in properties.iter().filter(|(name, _)| of_connection(name)) {
            config.set(name, value);
        }
        super::members::follow(config, topic, events.downgrade())
    }

    /// Starts the producer's thread.
    ///
    /// # Errors
    ///
    /// Where there is no thread to be had.
    pub(crate) fn start(
        bootstrap: &str,
        topic: String,
        agent: &str,
        properties: &[(String, String)],
        events: mpsc::Sender<Event>,
    ) -> std::io::Result<Self> {
        let (records, receiver) = mpsc::channel(RECORDS_MAX);
        let config = config(bootstrap, agent, properties);
        std::thread::Builder::new()
            .name("tollgate-kafka".to_owned())
            .spawn(move || produce(&config, &topic, receiver, &events))?;
        Ok(Self { records })
    }
}

/// Turns delivery reports into events.
struct Reports {
    events: mpsc::Sender<Event>,
}

impl ClientContext for Reports {
    fn error(&self, error: KafkaError, reason: &str) {
        // Brokers that are away for a while are nothing that a service's log needs each second.
        tracing::debug!(%error, reason, "kafka");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, id: usize) {
        let delivered = Event::Delivered {
            id: id as u64,
            ok: result.is_ok(),
        };
        // The hub takes events as long as it lives, and without it nobody wants to know.
        let _ = self.events.blocking_send(delivered);
    }
}

fn produce(
    config: &ClientConfig,
    topic: &str,
    mut records: mpsc::Receiver<Outgoing>,
    events: &mpsc::Sender<Event>,
) {
    let context = Reports {
        events: events.clone(),
    };
    let producer = match ThreadedProducer::from_config_and_context(config, context) {
        Ok(producer) => producer,
        Err(error) => {
            tracing::error!(%error, "no kafka producer: hits are not recorded");
            return;
        }
    };
    if !find_partitions(&producer, topic, events, &records) {
        return;
    }
    while let Some(outgoing) = records.blocking_recv() {
        send(&producer, topic, &outgoing, events);
    }
    // The hub has ended: whatever is still under way was counted as given up.
}

/// Waits until the topic is there; false: the agent has ended.
fn find_partitions(
    producer: &ThreadedProducer<Reports>,
    topic: &str,
    events: &mpsc::Sender<Event>,
    records: &mpsc::Receiver<Outgoing>,
) -> bool {
    while !records.is_closed() && !events.is_closed() {
        let asked = Instant::now();
        // All topics: to ask for one by its name would have some brokers make it, with their defaults.
        let found = producer
            .client()
            .fetch_metadata(None, LIST_WITHIN)
            .ok()
            .and_then(|metadata| {
                let topic = metadata.topics().iter().find(|one| one.name() == topic)?;
                u32::try_from(topic.partitions().len())
                    .ok()
                    .filter(|partitions| 0 < *partitions)
            });
        if let Some(partitions) = found {
            return events.blocking_send(Event::Partitions(partitions)).is_ok();
        }
        std::thread::sleep(
            LIST_AGAIN
                .saturating_sub(asked.elapsed())
                .max(Duration::from_millis(50)),
        );
    }
    false
}

fn send(
    producer: &ThreadedProducer<Reports>,
    topic: &str,
    outgoing: &Outgoing,
    events: &mpsc::Sender<Event>,
) {
    /// Times that a full queue is waited for, before the record is given up: a second in all.
    const TRIES: u32 = 100;
    let id = usize::try_from(outgoing.id).unwrap_or(usize::MAX);
    for _ in 0..TRIES {
        let record = BaseRecord::<(), [u8], usize>::with_opaque_to(topic, id)
            .partition(i32::try_from(outgoing.partition).unwrap_or(i32::MAX))
            .payload(&outgoing.record[..]);
        match producer.send(record) {
            Ok(()) => return,
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err((error, _)) => {
                tracing::warn!(%error, "kafka refused a batch of hits");
                break;
            }
        }
    }
    let _ = events.blocking_send(Event::Delivered {
        id: outgoing.id,
        ok: false,
    });
}
