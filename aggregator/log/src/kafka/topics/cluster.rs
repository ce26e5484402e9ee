//! Queries about topics to the brokers, and the creation of topics.
//!
//! Waits for the network. Knows nothing of how topics should be set up. What stays true: an error
//! names its topic, and distinguishes "no broker answered" from "a broker refused".

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;

use super::super::consumer::Client;
use super::super::{KafkaConfig, KafkaFault, producer, properties};

/// How long one query to the brokers may take. Closing waits for it, and an owner has 5 s to stop.
const ASK_WITHIN: Duration = Duration::from_secs(2);

/// How long brokers may take to learn of a topic that was created.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// A topic's shape, as brokers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub partitions: usize,
    /// The least number of copies that a partition has.
    pub copies: usize,
}

/// The brokers, for creating and checking topics.
pub(super) struct Cluster<'a> {
    config: &'a KafkaConfig,
    client: &'a Client,
    admin: AdminClient<producer::Quiet>,
}

impl<'a> Cluster<'a> {
    pub fn new(config: &'a KafkaConfig, client: &'a Client) -> Result<Self, KafkaFault> {
        Ok(Self {
            config,
            client,
            admin: properties::client(config)?
                .create_with_context(producer::Quiet)
                .map_err(properties::fault_of)?,
        })
    }

    fn unreachable(&self, error: &KafkaError) -> KafkaFault {
        unreachable(self.config, error)
    }

    /// A topic's shape; `None` if the topic does not exist.
    pub fn shape(&self, topic: &str) -> Result<Option<Shape>, KafkaFault> {
        let metadata = self
            .client
            .fetch_metadata(Some(topic), ASK_WITHIN)
            .map_err(|error| self.unreachable(&error))?;
        let Some(found) = metadata.topics().iter().find(|t| t.name() == topic) else {
            return Ok(None);
        };
        match found.error() {
            None => {
                let partitions = found.partitions();
                let copies = partitions.iter().map(|p| p.replicas().len()).min();
                Ok(copies.map(|copies| Shape {
                    partitions: partitions.len(),
                    copies,
                }))
            }
            Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) => Ok(None),
            Some(error) => Err(refused(topic, "Describe", RDKafkaErrorCode::from(error))),
        }
    }

    /// How many brokers there are.
    pub fn brokers(&self, topic: &str) -> Result<usize, KafkaFault> {
        let metadata = self
            .client
            .fetch_metadata(Some(topic), ASK_WITHIN)
            .map_err(|error| self.unreachable(&error))?;
        Ok(metadata.brokers().len())
    }

    /// Creates a topic, and waits until it can be used.
    pub fn create(
        &self,
        topic: &str,
        shape: Shape,
        properties: &[(&'static str, String)],
    ) -> Result<Shape, KafkaFault> {
        let cannot = |why: String| KafkaFault::CannotCreate {
            topic: topic.to_owned(),
            why,
        };
        let count = |n: usize| i32::try_from(n).map_err(|_| cannot(format!("{n} is too many")));
        let mut new = NewTopic::new(
            topic,
            count(shape.partitions)?,
            TopicReplication::Fixed(count(shape.copies)?),
        );
        for (name, value) in properties {
            new = new.set(name, value);
        }
        let options = AdminOptions::new()
            .request_timeout(Some(ASK_WITHIN))
            .operation_timeout(Some(ASK_WITHIN));
        let made = block_on(self.admin.create_topics([&new], &options))?
            .map_err(|error| self.unreachable(&error))?;
        match made.into_iter().next() {
            // Another process created it at the same moment; it is checked like any other.
            Some(Ok(_)) | Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
                let Shape { partitions, copies } = shape;
                tracing::info!(topic, partitions, copies, "kafka topic created");
            }
            Some(Err((_, code))) if is_about_rights(code) => {
                return Err(refused(topic, "Create", code));
            }
            Some(Err((_, code))) => return Err(cannot(code.to_string())),
            None => return Err(cannot("the broker's answer does not contain it".to_owned())),
        }
        self.await_topic(topic)
    }

    /// Waits until a new topic can be used.
    fn await_topic(&self, topic: &str) -> Result<Shape, KafkaFault> {
        let begun = Instant::now();
        loop {
            if let Some(found) = self.shape(topic)? {
                return Ok(found);
            }
            if KNOWN_WITHIN < begun.elapsed() {
                return Err(KafkaFault::Topic {
                    topic: topic.to_owned(),
                    why: "it was created, but brokers do not know it yet".to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A topic's properties by name.
    pub fn properties(&self, topic: &str) -> Result<impl Fn(&str) -> String + use<>, KafkaFault> {
        let options = AdminOptions::new().request_timeout(Some(ASK_WITHIN));
        let specifier = [ResourceSpecifier::Topic(topic)];
        let described = block_on(self.admin.describe_configs(&specifier, &options))?
            .map_err(|error| self.unreachable(&error))?;
        let found = match described.into_iter().next() {
            // Every topic has properties. The library returns none if we may not read them.
            Some(Ok(found)) if found.entries.is_empty() => {
                let code = RDKafkaErrorCode::TopicAuthorizationFailed;
                return Err(refused(topic, "DescribeConfigs", code));
            }
            Some(Ok(found)) => found,
            Some(Err(code)) => return Err(refused(topic, "DescribeConfigs", code)),
            None => {
                return Err(KafkaFault::Topic {
                    topic: topic.to_owned(),
                    why: "the broker's answer does not contain its properties".to_owned(),
                });
            }
        };
        Ok(move |name: &str| {
            let entry = found.get(name);
            entry
                .and_then(|entry| entry.value.clone())
                .unwrap_or_default()
        })
    }
}

fn is_about_rights(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed
    )
}

/// The fault for a broker's refusal about a topic; `operation` is the ACLs' word for what was
/// tried.
pub(in super::super) fn refused(
    topic: &str,
    operation: &'static str,
    code: RDKafkaErrorCode,
) -> KafkaFault {
    let (topic, why) = (topic.to_owned(), code.to_string());
    if is_about_rights(code) {
        KafkaFault::NotAuthorised {
            topic,
            operation,
            why,
        }
    } else {
        KafkaFault::Topic { topic, why }
    }
}

pub(in super::super) fn unreachable(config: &KafkaConfig, error: &KafkaError) -> KafkaFault {
    let why = match error.rdkafka_error_code() {
        // The library's words for "no broker could be connected to" say less than this.
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

/// The admin client returns only futures; none of them needs a reactor.
fn block_on<F: Future>(future: F) -> Result<F::Output, KafkaFault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| KafkaFault::Client {
            why: error.to_string(),
        })?;
    Ok(runtime.block_on(future))
}
