//! The topics: their names, the creation of missing ones, and the check of existing ones.
//!
//! ```text
//! {prefix}.hits      P partitions   {prefix}.state     P partitions, compacted: snapshots
//! {prefix}.denials   P partitions   {prefix}.members   1 partition, compacted: which aggregator serves what
//! {prefix}.limits    1 partition, kept for ever  {prefix}.aside   1 partition, bounded: refused records
//! ```
//!
//! Waits for the network, so it runs in the log's own thread or in that of a check. What stays true: a
//! topic that passes the check stamps by append time, has the right number of partitions and keeps every
//! record that is needed.

mod cluster;
mod needs;

use std::time::Duration;

use rdkafka::consumer::Consumer;
use rdkafka::error::RDKafkaErrorCode;

use super::super::Stream;
use super::consumer::Client;
use super::{KafkaConfig, KafkaFault};
pub(super) use cluster::unreachable;
use cluster::{Cluster, Shape};
pub(super) use needs::MESSAGE_MAX_BYTES;
pub use needs::{Expected, Setting, Weight};

/// One of the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// Limits documents and amendments.
    Limits,
    /// Hits, totals, ticks, limits activations: the records that engines read.
    Hits,
    /// Announced statements.
    Denials,
    /// Snapshots of engines.
    State,
    /// Which aggregator serves what, and where.
    Members,
    /// Dead letters: refused records, to help find their producer.
    DeadLetters,
}

impl Topic {
    /// All of them. Hits come before denials, whose retention is compared to theirs.
    pub const ALL: [Self; 6] = [
        Self::Limits,
        Self::Hits,
        Self::Denials,
        Self::State,
        Self::Members,
        Self::DeadLetters,
    ];

    /// The word that the topic's name ends with.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Hits => "hits",
            Self::Denials => "denials",
            Self::State => "state",
            Self::Members => "members",
            Self::DeadLetters => "aside",
        }
    }

    /// How many partitions it has, given the number of `hits`.
    pub const fn partitions(self, hits: u32) -> u32 {
        match self {
            Self::Limits | Self::Members | Self::DeadLetters => 1,
            Self::Hits | Self::Denials | Self::State => hits,
        }
    }

    /// Whether an aggregator needs it. Without any topic but `aside`, rulings could be lost.
    pub const fn is_required(self) -> bool {
        !matches!(self, Self::DeadLetters)
    }

    const fn of(stream: Stream) -> Self {
        match stream {
            Stream::Limits => Self::Limits,
            Stream::Hits => Self::Hits,
            Stream::Denials => Self::Denials,
        }
    }
}

const STREAMS: [Stream; 3] = [Stream::Limits, Stream::Hits, Stream::Denials];

/// The names of the topics that are streams, formatted once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names([String; 3]);

impl Names {
    pub fn of(config: &KafkaConfig) -> Self {
        Self(STREAMS.map(|stream| name(config, Topic::of(stream))))
    }

    pub fn of_stream(&self, stream: Stream) -> &str {
        let [limits, hits, denials] = &self.0;
        match stream {
            Stream::Limits => limits,
            Stream::Hits => hits,
            Stream::Denials => denials,
        }
    }

    pub fn stream_of(&self, topic: &str) -> Option<Stream> {
        STREAMS
            .into_iter()
            .find(|stream| self.of_stream(*stream) == topic)
    }
}

/// A topic's name.
pub(super) fn name(config: &KafkaConfig, topic: Topic) -> String {
    format!("{}.{}", config.topic_prefix, topic.suffix())
}

/// How many partitions a stream has.
pub(super) fn partitions_of(stream: Stream, partitions: u32) -> u32 {
    Topic::of(stream).partitions(partitions)
}

/// A topic as the check found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicReport {
    /// Its name.
    pub name: String,
    /// Whether it exists.
    pub exists: bool,
    /// Whether an aggregator needs it.
    pub required: bool,
    /// Whether the check created it.
    pub created: bool,
    /// Its settings; empty if it does not exist.
    pub settings: Vec<Setting>,
}

impl TopicReport {
    /// Whether an aggregator starts with it.
    pub fn is_usable(&self) -> bool {
        let bars = |setting: &Setting| !setting.fits && setting.weight == Weight::Must;
        (self.exists || !self.required) && !self.settings.iter().any(bars)
    }

    /// Whether it exists with all settings as they should be.
    pub fn fits(&self) -> bool {
        self.exists && self.settings.iter().all(|setting| setting.fits)
    }
}

/// What to do about missing topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Create them.
    Create,
    /// Report them.
    Report,
}

/// Examines every topic.
pub(super) fn survey(
    config: &KafkaConfig,
    client: &Client,
    missing: Missing,
) -> Result<Vec<TopicReport>, KafkaFault> {
    let mut look = Look::begin(config, client, missing)?;
    Topic::ALL.into_iter().map(|topic| look.at(topic)).collect()
}

/// Examines topics, one after the other.
struct Look<'a> {
    config: &'a KafkaConfig,
    cluster: Cluster<'a>,
    missing: Missing,
    /// How long hits are kept, once that topic was examined.
    hits_kept_ms: Option<String>,
}

impl<'a> Look<'a> {
    fn begin(
        config: &'a KafkaConfig,
        client: &'a Client,
        missing: Missing,
    ) -> Result<Self, KafkaFault> {
        Ok(Self {
            config,
            cluster: Cluster::new(config, client)?,
            missing,
            hits_kept_ms: None,
        })
    }

    fn at(&mut self, topic: Topic) -> Result<TopicReport, KafkaFault> {
        let name = name(self.config, topic);
        let hits = self.config.partitions;
        let found = self.cluster.shape(&name)?;
        let copies = match self.config.replication {
            Some(copies) => copies as usize,
            None => self.cluster.brokers(&name)?.clamp(1, needs::REPLICATION),
        };
        let (shape, created) = match (found, self.missing) {
            (Some(shape), _) => (shape, false),
            (None, Missing::Create) => {
                let wanted = Shape {
                    partitions: topic.partitions(hits) as usize,
                    copies,
                };
                let properties = needs::made_with(topic, copies);
                (self.cluster.create(&name, wanted, &properties)?, true)
            }
            (None, Missing::Report) => {
                return Ok(TopicReport {
                    name,
                    exists: false,
                    required: topic.is_required(),
                    created: false,
                    settings: Vec::new(),
                });
            }
        };
        let value = self.cluster.properties(&name)?;
        let [partitions, replication] = needs::shape(topic, hits, copies);
        let mut settings = vec![
            partitions.check(shape.partitions.to_string()),
            replication.check(shape.copies.to_string()),
        ];
        let needs = needs::properties(topic, copies, self.hits_kept_ms.as_deref());
        settings.extend(
            needs
                .into_iter()
                .map(|need| need.check(value(need.setting))),
        );
        if topic == Topic::Hits {
            self.hits_kept_ms = Some(value("retention.ms"));
        }
        Ok(TopicReport {
            name,
            exists: true,
            required: topic.is_required(),
            created,
            settings,
        })
    }
}

/// Creates one topic if it is missing.
pub(super) fn ensure(
    config: &KafkaConfig,
    client: &Client,
    topic: Topic,
) -> Result<(), KafkaFault> {
    Look::begin(config, client, Missing::Create)?.at(topic)?;
    Ok(())
}

/// Creates missing topics and checks existing ones. Returns the names of those that it created.
pub(super) fn prepare(
    config: &KafkaConfig,
    client: &Client,
    missing: Missing,
) -> Result<Vec<String>, KafkaFault> {
    let mut look = Look::begin(config, client, missing)?;
    let mut created = Vec::new();
    for topic in Topic::ALL {
        match look.at(topic) {
            Ok(report) => {
                created.extend(report.created.then(|| report.name.clone()));
                check(report)?;
            }
            Err(fault @ KafkaFault::Unreachable { .. }) => return Err(fault),
            // An older fleet may lack the right to create it.
            Err(fault) if !topic.is_required() => {
                tracing::warn!(%fault, "an optional kafka topic is missing or differs");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(created)
}

/// Logs settings that should be otherwise; a setting that must be otherwise is an error.
fn check(report: TopicReport) -> Result<(), KafkaFault> {
    for setting in report.settings {
        let Setting {
            name,
            found,
            expected,
            why,
            ..
        } = setting;
        if setting.fits {
            continue;
        }
        let topic = report.name.clone();
        if setting.weight == Weight::Must {
            return Err(KafkaFault::Unfit {
                topic,
                setting: name,
                found,
                expected,
                why,
            });
        }
        tracing::warn!(topic, setting = name, found, %expected, why, "a kafka topic differs from what is recommended");
    }
    Ok(())
}

/// How long the query whether a topic exists may take.
const FOUND_WITHIN: Duration = Duration::from_secs(1);

/// A partition of a topic: the topic's name and the partition's number.
pub(super) type TopicPartition = (String, i32);

/// Asks whether the brokers answer and know the topics. Returns the partitions that have no leader.
pub(super) fn probe(
    config: &KafkaConfig,
    client: &Client,
) -> Result<Vec<TopicPartition>, KafkaFault> {
    let required = Topic::ALL.into_iter().filter(|topic| topic.is_required());
    let mut leaderless = Vec::new();
    for topic in required {
        leaderless.extend(find(config, client, topic)?);
    }
    Ok(leaderless)
}

/// Asks whether the brokers answer and know a topic. Returns its partitions that have no leader.
pub(super) fn find(
    config: &KafkaConfig,
    client: &Client,
    topic: Topic,
) -> Result<Vec<TopicPartition>, KafkaFault> {
    let name = name(config, topic);
    let metadata = client
        .fetch_metadata(Some(&name), FOUND_WITHIN)
        .map_err(|error| cluster::unreachable(config, &error))?;
    let topics = metadata.topics();
    if let Some(error) = topics.iter().find_map(|found| found.error()) {
        return Err(not_found(&name, RDKafkaErrorCode::from(error)));
    }
    let partitions = topics.iter().flat_map(|found| found.partitions());
    let leaderless = partitions.filter(|partition| partition.leader() < 0);
    Ok(leaderless
        .map(|partition| (name.clone(), partition.id()))
        .collect())
}

/// The fault for this answer of brokers to a query about a topic.
pub(super) fn not_found(topic: &str, code: RDKafkaErrorCode) -> KafkaFault {
    match code {
        RDKafkaErrorCode::UnknownTopicOrPartition => KafkaFault::Missing {
            topic: topic.to_owned(),
        },
        code => cluster::refused(topic, "Describe", code),
    }
}
