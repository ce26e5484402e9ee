//! Kafka as the log: its topics, one producer, one consumer, and a thread that looks after them.
//!
//! ```text
//! {prefix}.hits      P partitions                      all with LogAppendTime, which is what makes
//! {prefix}.limits    1 partition, kept for ever        append times those of the log and not of
//! {prefix}.denials   P partitions                      whoever wrote
//! {prefix}.state     P partitions, compacted           snapshots of engines
//! {prefix}.members   1 partition, compacted            who serves what, and where
//! {prefix}.aside     1 partition, bounded              records that were refused
//! ```
//!
//! Missing topics are made (`topics`), existing ones are checked. The producer is idempotent and waits
//! for all replicas in sync; its delivery reports answer tickets (`producer`). The consumer has its
//! partitions assigned by hand, one for each follow (`consumer`). The thread (`thread`) joins them: it
//! says `Down` and `Up`, begins follows, and closes.
//!
//! What stays true: no call of the owner waits for the network; every queue is bounded, and at the
//! bound appends are answered [`AppendError::NotNow`]; so are they when Kafka has been silent for
//! `message.timeout.ms`. Nothing is sent to a topic that has not been checked.
//!
//! Where Kafka differs from the journal: offsets may skip; append times are those of the brokers that
//! led the partition, so after a change of leader they may fall by what their clocks differ; a `Gap`
//! back goes to the first record there is, since a log that ends before where it was read is another.

mod aside;
mod consumer;
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

use tokio::sync::mpsc;

use super::{AppendError, Log, LogEvent, Stream, Ticket};
pub use aside::{AsideTopic, FIRST_BYTES, RefusedRecord};
pub use member::{Commits, GroupEvent, Member, Sink};
pub use members::{MemberRecord, MembersChanged, Registry, Rules};
pub use state::{Candidate, StateError, StateReader, StateTopic, StateWriter, Written};
pub use topics::{Expected, Missing, Setting, Topic, TopicReport, Weight};

/// Where the log is, and what it should be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaConfig {
    /// Brokers to begin with, as `host:port`.
    pub bootstrap: Vec<String>,
    /// What the topics' names begin with.
    pub topic_prefix: String,
    /// The consumer group.
    pub group: String,
    /// How many partitions `hits` and `denials` have.
    pub partitions: u32,
    /// How many brokers keep each record of a topic that is made; nothing: 3, or as many as there are.
    pub replication: Option<u32>,
    /// The client library's properties, in its names; they beat our defaults.
    pub properties: BTreeMap<String, String>,
}

impl KafkaConfig {
    /// The defaults, for these brokers.
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

/// Why Kafka cannot be the log as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaFault {
    /// A property was given that Tollgate's correctness rests on.
    #[error("kafka property `{name}` = \"{found}\": expected \"{needed}\": {why}")]
    Reserved {
        /// Its name.
        name: String,
        /// What was given.
        found: String,
        /// What it has to be.
        needed: String,
        /// What rests on it.
        why: &'static str,
    },
    /// A property that the client library does not take.
    #[error("kafka property `{name}` = \"{value}\": {why}")]
    Property {
        /// Its name.
        name: String,
        /// What was given.
        value: String,
        /// What the library says.
        why: String,
    },
    /// The client cannot be made.
    #[error("kafka client: {why}")]
    Client {
        /// What the library says.
        why: String,
    },
    /// A topic is otherwise than it has to be.
    #[error("kafka topic `{topic}`: {setting} = {found}: expected {expected}: {why}")]
    Unfit {
        /// The topic.
        topic: String,
        /// The setting, as brokers call it; `partitions` is how many it has.
        setting: &'static str,
        /// What the broker has.
        found: String,
        /// What is needed.
        expected: Expected,
        /// What the need rests on.
        why: &'static str,
    },
    /// The broker does not let us.
    #[error(
        "kafka topic `{topic}`: {operation}: {why}: see the rights that each role needs in deploy/kafka/ACLS.md"
    )]
    NotAuthorised {
        /// The topic.
        topic: String,
        /// What was tried, in the word that ACLs have for it.
        operation: &'static str,
        /// What the broker says.
        why: String,
    },
    /// A topic is missing and cannot be made.
    #[error("kafka topic `{topic}`: it is missing and cannot be created: {why}")]
    CannotCreate {
        /// The topic.
        topic: String,
        /// What the broker says.
        why: String,
    },
    /// A topic is missing.
    #[error(
        "kafka topic `{topic}`: it is not there; make it with `tollgate topics create`, and if it was there, read \
         in the runbook what was lost with it"
    )]
    Missing {
        /// The topic.
        topic: String,
    },
    /// A topic may not be looked at.
    #[error("kafka topic `{topic}`: {why}")]
    Topic {
        /// The topic.
        topic: String,
        /// What the broker says.
        why: String,
    },
    /// The brokers do not take who we say we are.
    #[error(
        "kafka at {bootstrap}: {why}: expected security.protocol, sasl.mechanism, sasl.username and sasl.password \
         as the brokers know them (kafka.properties, kafka.properties_file)"
    )]
    NotAuthenticated {
        /// The brokers that were asked.
        bootstrap: String,
        /// What they, or the library, said.
        why: String,
    },
    /// Nobody answers. Later somebody may.
    #[error("kafka at {bootstrap}: {why}")]
    Unreachable {
        /// The brokers that were asked.
        bootstrap: String,
        /// What happened.
        why: String,
    },
}

/// Looks whether Kafka can be the log: checks the topics that are there, and makes those that are
/// missing if that is asked for. For an owner who wants to end rather than wait when something is
/// configured wrongly; waits for Kafka for some seconds.
///
/// # Errors
///
/// Each [`KafkaFault`]; after [`KafkaFault::Unreachable`] alone there is a point in going on.
pub fn check(config: &KafkaConfig, missing: Missing) -> Result<(), KafkaFault> {
    beside(config, |client| topics::prepare(config, client, missing))
}

/// Looks at every topic, and makes those that are missing if that is asked for; waits for Kafka for
/// some seconds.
///
/// # Errors
///
/// Where Kafka does not answer, or refuses. Topics that differ are no error: see the reports.
pub fn survey(config: &KafkaConfig, missing: Missing) -> Result<Vec<TopicReport>, KafkaFault> {
    beside(config, |client| topics::survey(config, client, missing))
}

/// Asks in a thread of its own, since this one may be a runtime's, which must not block on futures.
fn beside<T: Send>(
    config: &KafkaConfig,
    ask: impl FnOnce(&consumer::Client) -> Result<T, KafkaFault> + Send,
) -> Result<T, KafkaFault> {
    let client = consumer::create(config)?;
    let asking = || ask(&client).map_err(|fault| reason::of(config, fault, reason::PATIENCE));
    let asking = std::thread::scope(|scope| scope.spawn(asking).join());
    asking.unwrap_or_else(|_| {
        Err(KafkaFault::Client {
            why: "asking panicked".to_owned(),
        })
    })
}

/// Kafka as an open log.
pub struct KafkaLog {
    topics: topics::Names,
    partitions: u32,
    shared: producer::ProducerShared,
    commands: std::sync::mpsc::Sender<thread::LogCommand>,
}

impl KafkaLog {
    /// Begins to use Kafka, whether or not it is there. Events go to `events`; while that channel is
    /// full, nothing is consumed.
    ///
    /// # Errors
    ///
    /// [`KafkaFault`] where a property is wrong. What is wrong with topics is said by
    /// [`LogEvent::Down`], and tried again; [`check`] tells it beforehand.
    pub fn open(config: KafkaConfig, events: mpsc::Sender<LogEvent>) -> Result<Self, KafkaFault> {
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

    fn tell(&self, command: thread::LogCommand) {
        // The thread outlives this handle, unless it panicked; then nothing can be said any more.
        let _ = self.commands.send(command);
    }
}

impl Log for KafkaLog {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn append(&mut self, stream: Stream, partition: u32, ticket: Ticket, record: Vec<u8>) {
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
            self.tell(thread::LogCommand::Refuse { ticket, error });
        }
    }

    fn follow(&mut self, stream: Stream, partition: u32, from: u64) {
        self.tell(thread::LogCommand::Follow(consumer::WantedFollow {
            stream,
            partition,
            from,
        }));
    }

    fn unfollow(&mut self, stream: Stream, partition: u32) {
        self.tell(thread::LogCommand::Unfollow { stream, partition });
    }

    fn close(&mut self) {
        self.shared.refuse_from_now_on();
        self.tell(thread::LogCommand::Close);
    }
}
