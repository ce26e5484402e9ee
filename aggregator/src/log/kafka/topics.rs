//! The three topics: their names, making those that are missing, and checking those that are there.
//!
//! Waits for the network, so it runs in the log's own thread or in that of a check. What stays true: a
//! topic that passes stamps by append time, has the right partitions and loses nothing it must keep.

use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;

use super::super::Stream;
use super::consumer::Client;
use super::{KafkaConfig, KafkaFault, producer, properties};

/// How long one question to the brokers may take. Closing waits for it, and an owner has 5 s to stop.
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// How long brokers may take to tell each other of a topic that was made.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// Room for the longest record and its framing, whatever a cluster's default may be.
const MESSAGE_MAX_BYTES: &str = "1048588";

/// Three keep each record, so that one may be away for repair while another fails.
const REPLICATION: usize = 3;

pub(super) const STREAMS: [Stream; 3] = [Stream::Limits, Stream::Hits, Stream::Denials];

/// The topics' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    hits: String,
    limits: String,
    denials: String,
}

impl Names {
    pub fn of(config: &KafkaConfig) -> Self {
        let name = |word| format!("{}.{word}", config.topic_prefix);
        Self {
            hits: name("hits"),
            limits: name("limits"),
            denials: name("denials"),
        }
    }

    pub fn of_stream(&self, stream: Stream) -> &str {
        match stream {
            Stream::Hits => &self.hits,
            Stream::Limits => &self.limits,
            Stream::Denials => &self.denials,
        }
    }

    pub fn stream_of(&self, topic: &str) -> Option<Stream> {
        STREAMS
            .into_iter()
            .find(|stream| self.of_stream(*stream) == topic)
    }
}

/// How many partitions a stream has.
pub(super) fn partitions_of(stream: Stream, partitions: u32) -> u32 {
    match stream {
        Stream::Limits => 1,
        Stream::Hits | Stream::Denials => partitions,
    }
}

/// Makes what is missing and checks what is there.
pub(super) fn prepare(config: &KafkaConfig, client: &Client) -> Result<(), KafkaFault> {
    let names = Names::of(config);
    let preparing = Preparing {
        config,
        client,
        admin: properties::client(config)?
            .create_with_context(producer::Quiet)
            .map_err(properties::fault_of)?,
    };
    for stream in STREAMS {
        let topic = names.of_stream(stream);
        let wanted = partitions_of(stream, config.partitions);
        let found = match preparing.partitions(topic)? {
            Some(found) => found,
            None => {
                preparing.create(topic, stream, wanted)?;
                preparing.await_topic(topic)?
            }
        };
        if found != wanted as usize {
            return Err(KafkaFault::Partitions {
                topic: topic.to_owned(),
                found,
                wanted,
            });
        }
        judge(topic, stream, &preparing.properties(topic)?)?;
    }
    Ok(())
}

struct Preparing<'a> {
    config: &'a KafkaConfig,
    client: &'a Client,
    admin: AdminClient<producer::Quiet>,
}

impl Preparing<'_> {
    fn unreachable(&self, error: &KafkaError) -> KafkaFault {
        unreachable(self.config, error)
    }

    /// How many partitions a topic has; nothing where it does not exist.
    fn partitions(&self, topic: &str) -> Result<Option<usize>, KafkaFault> {
        let metadata = self
            .client
            .fetch_metadata(Some(topic), ASK_WITHIN)
            .map_err(|error| self.unreachable(&error))?;
        let Some(found) = metadata.topics().iter().find(|t| t.name() == topic) else {
            return Ok(None);
        };
        match found.error() {
            None => Ok(Some(found.partitions().len()).filter(|count| 0 < *count)),
            Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Ok(None),
            Some(error) => Err(KafkaFault::Topic {
                topic: topic.to_owned(),
                why: RDKafkaErrorCode::from(error).to_string(),
            }),
        }
    }

    fn create(&self, topic: &str, stream: Stream, partitions: u32) -> Result<(), KafkaFault> {
        let refused = |why: String| KafkaFault::CannotCreate {
            topic: topic.to_owned(),
            why,
        };
        let replication = self.replication(topic)?;
        let count = |n: u32| i32::try_from(n).map_err(|_| refused(format!("{n} is too many")));
        let mut new = NewTopic::new(
            topic,
            count(partitions)?,
            TopicReplication::Fixed(count(replication)?),
        )
        .set("message.timestamp.type", "LogAppendTime")
        .set("cleanup.policy", "delete")
        .set("max.message.bytes", MESSAGE_MAX_BYTES);
        if stream == Stream::Limits {
            new = new.set("retention.ms", "-1").set("retention.bytes", "-1");
        }
        if 3 <= replication {
            // With one alone in sync, its loss would take back what was acknowledged.
            new = new.set("min.insync.replicas", "2");
        }
        let options = AdminOptions::new()
            .request_timeout(Some(ASK_WITHIN))
            .operation_timeout(Some(ASK_WITHIN));
        let made = block_on(self.admin.create_topics([&new], &options))?
            .map_err(|error| self.unreachable(&error))?;
        match made.into_iter().next() {
            // Somebody else made it at the same moment; it is checked like any other.
            Some(Ok(_)) | Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
                tracing::info!(topic, partitions, replication, "kafka topic created");
                Ok(())
            }
            Some(Err((_, code))) => Err(refused(code.to_string())),
            None => Err(refused("the broker said nothing of it".to_owned())),
        }
    }

    fn replication(&self, topic: &str) -> Result<u32, KafkaFault> {
        if let Some(replication) = self.config.replication {
            return Ok(replication);
        }
        let metadata = self
            .client
            .fetch_metadata(Some(topic), ASK_WITHIN)
            .map_err(|error| self.unreachable(&error))?;
        Ok(metadata.brokers().len().clamp(1, REPLICATION) as u32)
    }

    /// Waits until a topic that was made can be used.
    fn await_topic(&self, topic: &str) -> Result<usize, KafkaFault> {
        let begun = Instant::now();
        loop {
            if let Some(found) = self.partitions(topic)? {
                return Ok(found);
            }
            if KNOWN_WITHIN < begun.elapsed() {
                return Err(KafkaFault::Topic {
                    topic: topic.to_owned(),
                    why: "it was created, and is still not known".to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn properties(&self, topic: &str) -> Result<ConfigResource, KafkaFault> {
        let options = AdminOptions::new().request_timeout(Some(ASK_WITHIN));
        let specifier = [ResourceSpecifier::Topic(topic)];
        let described = block_on(self.admin.describe_configs(&specifier, &options))?
            .map_err(|error| self.unreachable(&error))?;
        let refused = |why: String| KafkaFault::Topic {
            topic: topic.to_owned(),
            why,
        };
        match described.into_iter().next() {
            Some(Ok(properties)) => Ok(properties),
            Some(Err(code)) => Err(refused(code.to_string())),
            None => Err(refused("the broker said nothing of it".to_owned())),
        }
    }
}

/// Whether a topic's properties are what the log needs.
fn judge(topic: &str, stream: Stream, properties: &ConfigResource) -> Result<(), KafkaFault> {
    let topic = || topic.to_owned();
    let value = |name: &str| {
        let entry = properties.get(name);
        entry
            .and_then(|entry| entry.value.clone())
            .unwrap_or_default()
    };
    let found = value("message.timestamp.type");
    if found != "LogAppendTime" {
        return Err(KafkaFault::TimestampType {
            topic: topic(),
            found,
        });
    }
    let found = value("cleanup.policy");
    if found.contains("compact") {
        return Err(KafkaFault::Compacted {
            topic: topic(),
            found,
        });
    }
    if stream == Stream::Limits {
        for property in ["retention.ms", "retention.bytes"] {
            let found = value(property);
            if found != "-1" {
                return Err(KafkaFault::NotKept {
                    topic: topic(),
                    property,
                    found,
                });
            }
        }
    }
    Ok(())
}

fn unreachable(config: &KafkaConfig, error: &KafkaError) -> KafkaFault {
    let why = match error.rdkafka_error_code() {
        // The library's word for "nobody could be connected to" says less than this.
        Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown) => {
            "no broker can be reached".to_owned()
        }
        Some(code) => code.to_string(),
        None => error.to_string(),
    };
    KafkaFault::Unreachable {
        bootstrap: config.bootstrap.join(","),
        why,
    }
}

/// Asks whether the brokers are there and know the topics.
pub(super) fn probe(
    config: &KafkaConfig,
    client: &Client,
    within: Duration,
) -> Result<(), KafkaFault> {
    let names = Names::of(config);
    for stream in STREAMS {
        let topic = names.of_stream(stream);
        let metadata = client
            .fetch_metadata(Some(topic), within)
            .map_err(|error| unreachable(config, &error))?;
        if let Some(error) = metadata.topics().iter().find_map(|found| found.error()) {
            return Err(KafkaFault::Topic {
                topic: topic.to_owned(),
                why: RDKafkaErrorCode::from(error).to_string(),
            });
        }
    }
    Ok(())
}

/// The admin client speaks in futures alone; none of them needs a reactor.
fn block_on<F: Future>(future: F) -> Result<F::Output, KafkaFault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| KafkaFault::Client {
            why: error.to_string(),
        })?;
    Ok(runtime.block_on(future))
}
