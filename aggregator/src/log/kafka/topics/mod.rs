//! The topics: their names, making those that are missing, and checking those that are there.
//!
//! ```text
//! {prefix}.hits      P partitions   {prefix}.state     P partitions, compacted: snapshots
//! {prefix}.denials   P partitions   {prefix}.members   1 partition, compacted: who serves what
//! {prefix}.limits    1 partition, kept for ever
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
use cluster::{Cluster, Shape};
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
}

impl Topic {
    /// All of them. Hits come before denials, whose retention is compared to theirs.
    pub const ALL: [Self; 5] = [
        Self::Limits,
        Self::Hits,
        Self::Denials,
        Self::State,
        Self::Members,
    ];

    /// The word that its name ends with.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Limits => "limits",
            Self::Hits => "hits",
            Self::Denials => "denials",
            Self::State => "state",
            Self::Members => "members",
        }
    }

    /// How many partitions it has where hits have so many.
    pub const fn partitions(self, hits: u32) -> u32 {
        match self {
            Self::Limits | Self::Members => 1,
            Self::Hits | Self::Denials | Self::State => hits,
        }
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
    /// Whether it was made just now.
    pub created: bool,
    /// Its settings; none where it is not there.
    pub settings: Vec<Setting>,
}

impl TopicReport {
    /// Whether an aggregator starts with it.
    pub fn is_usable(&self) -> bool {
        let bars = |setting: &Setting| !setting.fits && setting.weight == Weight::Must;
        self.exists && !self.settings.iter().any(bars)
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
    let cluster = Cluster::new(config, client)?;
    let mut reports = Vec::new();
    let mut hits_kept_ms = None;
    for topic in Topic::ALL {
        let name = name(config, topic);
        let found = cluster.shape(&name)?;
        let copies = match config.replication {
            Some(copies) => copies as usize,
            None => cluster.brokers(&name)?.clamp(1, needs::REPLICATION),
        };
        let (shape, created) = match (found, missing) {
            (Some(shape), _) => (shape, false),
            (None, Missing::Create) => {
                let wanted = Shape {
                    partitions: topic.partitions(config.partitions) as usize,
                    copies,
                };
                let properties = needs::made_with(topic, copies);
                (cluster.create(&name, wanted, &properties)?, true)
            }
            (None, Missing::Report) => {
                reports.push(TopicReport {
                    name,
                    exists: false,
                    created: false,
                    settings: Vec::new(),
                });
                continue;
            }
        };
        let value = cluster.properties(&name)?;
        let [partitions, replication] = needs::shape(topic, config.partitions, copies);
        let mut settings = vec![
            partitions.judge(shape.partitions.to_string()),
            replication.judge(shape.copies.to_string()),
        ];
        let needs = needs::properties(topic, copies, hits_kept_ms.as_deref());
        settings.extend(
            needs
                .into_iter()
                .map(|need| need.judge(value(need.setting))),
        );
        if topic == Topic::Hits {
            hits_kept_ms = Some(value("retention.ms"));
        }
        reports.push(TopicReport {
            name,
            exists: true,
            created,
            settings,
        });
    }
    Ok(reports)
}

/// Makes what is missing and checks what is there.
pub(super) fn prepare(config: &KafkaConfig, client: &Client) -> Result<(), KafkaFault> {
    for report in survey(config, client, Missing::Create)? {
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
    }
    Ok(())
}

/// Asks whether the brokers are there and know the topics.
pub(super) fn probe(
    config: &KafkaConfig,
    client: &Client,
    within: Duration,
) -> Result<(), KafkaFault> {
    for topic in Topic::ALL {
        let name = name(config, topic);
        let metadata = client
            .fetch_metadata(Some(&name), within)
            .map_err(|error| cluster::unreachable(config, &error))?;
        if let Some(error) = metadata.topics().iter().find_map(|found| found.error()) {
            return Err(cluster::refused(&name, RDKafkaErrorCode::from(error)));
        }
    }
    Ok(())
}
