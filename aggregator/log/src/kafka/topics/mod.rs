//! The topics: their names, making those that are missing, and checking those that are there.
//!
//! ```text
//! {prefix}.hits      P partitions   {prefix}.state     P partitions, compacted: snapshots
//! {prefix}.denials   P partitions   {prefix}.members   1 partition, compacted: who serves what
//! {prefix}.limits    1 partition, kept for ever  {prefix}.aside   1 partition, bounded: refused records
//! ```
//!
//! Waits for the network, so it runs in the log's own thread or in that of a check. What stays true: a
//! topic that passes stamps by append time, has the right partitions and loses nothing it must keep.

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
    /// What engines read.
    Hits,
    /// What was announced.
    Denials,
    /// Snapshots of engines.
    State,
    /// Which aggregator serves what, and where.
    Members,
    /// Records that were refused, for whoever looks for their producer.
    Aside,
}

impl Topic {
    /// All of them. Hits come before denials, whose retention is compared to theirs.
    pub const ALL: [Self; 6] = [
        Self::Limits,
        Self::Hits,
        Self::Denials,
        Self::State,
        Self::Members,
        Self::Aside,
    ];

    /// The word that its name ends with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Hits => "hits",
            Self::Denials => "denials",
            Self::State => "state",
            Self::Members => "members",
            Self::Aside => "aside",
        }
    }

    /// How many partitions it has where hits have so many.
    pub const fn partitions(self, hits: u32) -> u32 {
        match self {
            Self::Limits | Self::Members | Self::Aside => 1,
            Self::Hits | Self::Denials | Self::State => hits,
        }
    }

    /// Whether an aggregator needs it: without the others rulings could be lost.
    pub const fn is_required(self) -> bool {
        !matches!(self, Self::Aside)
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

/// The names of the topics that are streams, made once.
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
    format!("{}.{}", config.topic_prefix, topic.word())
}

/// How many partitions a stream has.
pub(super) fn partitions_of(stream: Stream, partitions: u32) -> u32 {
    Topic::of(stream).partitions(partitions)
}

/// A topic as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicReport {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub exists: bool,
    /// Whether an aggregator needs it.
    pub required: bool,
    /// Whether it was made just now.
    pub created: bool,
    /// Its settings; none where it is not there.
    pub settings: Vec<Setting>,
}

impl TopicReport {
    /// Whether an aggregator starts with it.
    pub fn is_usable(&self) -> bool {
        let bars = |setting: &Setting| !setting.fits && setting.weight == Weight::Must;
        (self.exists || !self.required) && !self.settings.iter().any(bars)
    }

    /// Whether it is there, and all of it is as it should be.
    pub fn fits(&self) -> bool {
        self.exists && self.settings.iter().all(|setting| setting.fits)
    }
}

/// What to do about topics that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// They are made.
    Create,
    /// They are reported.
    Report,
}

/// Looks at every topic.
pub(super) fn survey(
    config: &KafkaConfig,
    client: &Client,
    missing: Missing,
) -> Result<Vec<TopicReport>, KafkaFault> {
    let mut look = Look::begin(config, client, missing)?;
    Topic::ALL.into_iter().map(|topic| look.at(topic)).collect()
}

/// Looking at topics, one after the other.
struct Look<'a> {
    config: &'a KafkaConfig,
    cluster: Cluster<'a>,
    missing: Missing,
    /// How long hits are kept, once they were looked at.
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
            partitions.judge(shape.partitions.to_string()),
            replication.judge(shape.copies.to_string()),
        ];
        let needs = needs::properties(topic, copies, self.hits_kept_ms.as_deref());
        settings.extend(
            needs
                .into_iter()
                .map(|need| need.judge(value(need.setting))),
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

/// Makes one topic if it is missing.
pub(super) fn ensure(
    config: &KafkaConfig,
    client: &Client,
    topic: Topic,
) -> Result<(), KafkaFault> {
    Look::begin(config, client, Missing::Create)?.at(topic)?;
    Ok(())
}

/// Makes what is missing and checks what is there.
pub(super) fn prepare(
    config: &KafkaConfig,
    client: &Client,
    missing: Missing,
) -> Result<(), KafkaFault> {
    let mut look = Look::begin(config, client, missing)?;
    for topic in Topic::ALL {
        match look.at(topic) {
            Ok(report) => judge(report)?,
            Err(fault @ KafkaFault::Unreachable { .. }) => return Err(fault),
            // An older fleet may have no right to make it.
            Err(fault) if !topic.is_required() => {
                tracing::warn!(%fault, "it can be done without");
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

/// Says what should be otherwise; what has to be is an error.
fn judge(report: TopicReport) -> Result<(), KafkaFault> {
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
        tracing::warn!(topic, setting = name, found, %expected, why, "a kafka topic should be otherwise");
    }
    Ok(())
}

/// How long the question whether a topic is there may take.
const FOUND_WITHIN: Duration = Duration::from_secs(1);

/// Asks whether the brokers are there and know the topics.
pub(super) fn probe(config: &KafkaConfig, client: &Client) -> Result<(), KafkaFault> {
    for topic in Topic::ALL.into_iter().filter(|topic| topic.is_required()) {
        find(config, client, topic)?;
    }
    Ok(())
}

/// Asks whether the brokers are there and know a topic.
pub(super) fn find(config: &KafkaConfig, client: &Client, topic: Topic) -> Result<(), KafkaFault> {
    let name = name(config, topic);
    let metadata = client
        .fetch_metadata(Some(&name), FOUND_WITHIN)
        .map_err(|error| cluster::unreachable(config, &error))?;
    let Some(error) = metadata.topics().iter().find_map(|found| found.error()) else {
        return Ok(());
    };
    Err(not_found(&name, RDKafkaErrorCode::from(error)))
}

/// What it means that brokers say this where they are asked for a topic.
pub(super) fn not_found(topic: &str, code: RDKafkaErrorCode) -> KafkaFault {
    match code {
        RDKafkaErrorCode::UnknownTopicOrPartition => KafkaFault::Missing {
            topic: topic.to_owned(),
        },
        code => cluster::refused(topic, "Describe", code),
    }
}
