//! Kafka as the log: its topics, one producer, one consumer, and a thread that controls them.
//!
//! ```text
//! {prefix}.hits      P partitions                      all with LogAppendTime: the append time is
//! {prefix}.limits    1 partition, kept for ever        the broker's, not the
//! {prefix}.denials   P partitions                      writer's
//! {prefix}.state     P partitions, compacted           snapshots of engines
//! {prefix}.members   1 partition, compacted            which aggregator serves what, and where
//! {prefix}.aside     1 partition, bounded              dead letters: records that were refused
//! ```
//!
//! Missing topics are created (`topics`), existing ones are checked. The producer is idempotent and
//! waits for all replicas in sync; its delivery reports answer tickets (`producer`). The consumer has
//! its partitions assigned by hand, one for each follow (`consumer`). The thread (`thread`) connects
//! them: it sends `Down` and `Up`, begins follows, and closes.
//!
//! What stays true: no call of the owner waits for the network; every queue is bounded; appends are
//! answered [`AppendError::NotNow`] at the bound, and when Kafka has been silent for
//! `message.timeout.ms`. Nothing is sent to a topic that has not been checked.
//!
//! Where Kafka differs from the journal: offsets may skip; append times are those of the brokers that
//! led the partition, so after a change of leader they may fall by the difference of the clocks; a
//! `Gap` back goes to the log's first record, since a log that ends before the reader's position was
//! recreated.

mod consumer;
mod dead_letters;
mod leaderless;
mod member;
mod members;
mod producer;
mod properties;
mod reach;
pub mod reader;
mod reason;
mod rights;
pub mod state;
#[cfg(test)]
mod tests;
mod thread;
mod topics;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{AppendError, Log, LogSender, Stream, Ticket};
pub use dead_letters::{DeadLetterTopic, FIRST_BYTES, RefusedRecord};
pub use member::{Commits, GroupEvent, Member, Sink};
pub use members::{MemberRecord, MembersChanged, Registry, Rules};
pub use state::{Candidate, StateError, StateReader, StateTopic, StateWriter, Written};
pub use topics::{Expected, Missing, Setting, Topic, TopicReport, Weight};

/// Where the log is, and how its topics should be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaConfig {
    /// The first brokers to connect to, as `host:port`.
    pub bootstrap: Vec<String>,
    /// The prefix of the topics' names.
    pub topic_prefix: String,
    /// The consumer group.
    pub group: String,
    /// How many partitions `hits` and `denials` have.
    pub partitions: u32,
    /// How many brokers keep each record of a topic that we create. `None`: 3, or as many as there
    /// are.
    pub replication: Option<u32>,
    /// The client library's properties, under its names; they override our defaults.
    pub properties: BTreeMap<String, String>,
}

impl KafkaConfig {
    /// The default settings, for these brokers.
    pub fn new(bootstrap: impl Into<String>) -> Self {
        Self {
            bootstrap: vec![bootstrap.into()],
            topic_prefix: "tollgate".to_owned(),
            group: "a".to_owned(),
            partitions: 16,
            replication: None,
            properties: BTreeMap::new(),
        }
    }
}

/// Why Kafka cannot be used as the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaFault {
    /// The configuration sets a property that Tollgate's correctness depends on.
    #[error("kafka property `{name}` = \"{found}\": expected \"{needed}\": {why}")]
    Reserved {
        /// Its name.
        name: String,
        /// The configured value.
        found: String,
        /// The required value.
        needed: String,
        /// Why the value is required.
        why: &'static str,
    },
    /// The client library does not accept a property.
    #[error("kafka property `{name}` = \"{value}\": {why}")]
    Property {
        /// Its name.
        name: String,
        /// The configured value.
        value: String,
        /// The library's error.
        why: String,
    },
    /// The client cannot be created.
    #[error("kafka client: {why}")]
    Client {
        /// The library's error.
        why: String,
    },
    /// A setting of a topic is wrong.
    #[error("kafka topic `{topic}`: {setting} = {found}: expected {expected}: {why}")]
    Unfit {
        /// The topic.
        topic: String,
        /// The setting, as brokers call it; `partitions` is the number of partitions.
        setting: &'static str,
        /// The broker's value.
        found: String,
        /// The expected value.
        expected: Expected,
        /// Why it is expected.
        why: &'static str,
    },
    /// A right on a topic is missing.
    #[error(
        "kafka topic `{topic}`: {operation}: {why}: see the rights that each role needs in deploy/kafka/ACLS.md"
    )]
    NotAuthorised {
        /// The topic.
        topic: String,
        /// The operation that was refused, as ACLs name it.
        operation: &'static str,
        /// The broker's error.
        why: String,
    },
    /// A topic is missing and cannot be created.
    #[error("kafka topic `{topic}`: it is missing and cannot be created: {why}")]
    CannotCreate {
        /// The topic.
        topic: String,
        /// The broker's error.
        why: String,
    },
    /// A topic is missing.
    #[error(
        "kafka topic `{topic}`: it does not exist; create it with `tollgate topics create`, and if it existed before, read \
         in the runbook what was lost with it"
    )]
    Missing {
        /// The topic.
        topic: String,
    },
    /// The settings of a topic cannot be read.
    #[error("kafka topic `{topic}`: {why}")]
    Topic {
        /// The topic.
        topic: String,
        /// The broker's error.
        why: String,
    },
    /// The brokers do not accept our credentials.
    #[error(
        "kafka at {bootstrap}: {why}: expected security.protocol, sasl.mechanism, sasl.username and sasl.password \
         as the brokers know them (kafka.properties, kafka.properties_file)"
    )]
    NotAuthenticated {
        /// The brokers that we asked.
        bootstrap: String,
        /// Their error, or the library's.
        why: String,
    },
    /// No broker answers. A later attempt may succeed.
    #[error("kafka at {bootstrap}: {why}")]
    Unreachable {
        /// The brokers that we asked.
        bootstrap: String,
        /// What happened.
        why: String,
    },
}

/// Checks whether Kafka can be used as the log: checks the existing topics, and creates missing ones
/// if asked to. For an owner that would rather end than wait if the configuration is wrong. Waits some
/// seconds for Kafka. Returns the names of the topics that it created.
///
/// # Errors
///
/// Each [`KafkaFault`]. Only [`KafkaFault::Unreachable`] may go away by itself.
pub fn check(config: &KafkaConfig, missing: Missing) -> Result<Vec<String>, KafkaFault> {
    beside(config, |client| topics::prepare(config, client, missing))
}

/// Examines every topic, and creates missing ones if asked to. Waits some seconds for Kafka.
///
/// # Errors
///
/// If Kafka does not answer, or refuses. A topic with wrong settings is not an error: see the reports.
pub fn survey(config: &KafkaConfig, missing: Missing) -> Result<Vec<TopicReport>, KafkaFault> {
    beside(config, |client| topics::survey(config, client, missing))
}

/// Asks in a thread of its own, since the caller's may belong to a runtime, which must not block on
/// futures.
fn beside<T: Send>(
    config: &KafkaConfig,
    ask: impl FnOnce(&consumer::Client) -> Result<T, KafkaFault> + Send,
) -> Result<T, KafkaFault> {
    let client = consumer::create(config)?;
    let asking = || ask(&client).map_err(|fault| reason::of(config, fault, reason::PATIENCE));
    let asking = std::thread::scope(|scope| scope.spawn(asking).join());
    asking.unwrap_or_else(|_| {
        Err(KafkaFault::Client {
            why: "the thread that queried it panicked".to_owned(),
        })
    })
}

/// An open log in Kafka.
pub struct KafkaLog {
    topics: topics::Names,
    partitions: u32,
    shared: producer::ProducerShared,
    commands: std::sync::mpsc::Sender<thread::LogCommand>,
}

impl KafkaLog {
    /// Begins to use Kafka, whether or not it can be reached. Sends events to `events`; consumes
    /// nothing while that channel is full.
    ///
    /// # Errors
    ///
    /// [`KafkaFault`] if a property is wrong. Faults of topics are reported by [`LogEvent::Down`] and
    /// retried; [`check`] reports them beforehand.
    pub fn open(config: KafkaConfig, events: LogSender) -> Result<Self, KafkaFault> {
        let topics = topics::Names::of(&config);
        let partitions = config.partitions;
        let (shared, commands) = thread::start(config, events)?;
        Ok(Self {
            topics,
            partitions,
            shared,
            commands,
        })
    }

    fn send(&self, command: thread::LogCommand) {
        // The thread outlives this handle, unless it panicked; then there is nothing left to report
        // to.
        let _ = self.commands.send(command);
    }
}

impl Log for KafkaLog {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Bytes) {
        let sent = if topics::partitions_of(stream, self.partitions) <= partition {
            let why = format!("{stream:?} has no partition {partition}");
            Err(AppendError::Never(why))
        } else if tollgate_shared::wire::MESSAGE_BYTES_MAX < record.len() {
            let why = format!("a record of {} bytes is too long", record.len());
            Err(AppendError::Never(why))
        } else {
            self.shared
                .send(self.topics.of_stream(stream), partition, ticket, &record)
        };
        if let Err(error) = sent {
            self.send(thread::LogCommand::Refuse { ticket, error });
        }
    }

    fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.send(thread::LogCommand::Follow(consumer::WantedFollow {
            stream,
            partition,
            from: consumer::FollowFrom::Offset(from),
        }));
    }

    fn unfollow(&mut self, stream: Stream, partition: u32) {
        self.send(thread::LogCommand::Unfollow { stream, partition });
    }

    fn close(&mut self) {
        self.shared.refuse_from_now_on();
        self.send(thread::LogCommand::Close);
    }
}
