//! Reading Kafka's topics without writing: creates nothing, joins no group, commits nothing.
//!
//! For commands on logs. What stays true: records come out in order; the end is the partition's end
//! as of when reading began or when the reader last asked again.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use tollgate_shared::time::Timestamp;

use super::super::{Delivered, Stream};
use super::state::StateTopic;
use super::topics::{self, Expected, Names, Topic};
use super::{KafkaConfig, KafkaFault, consumer, reason, rights};

/// How long brokers may take to answer, and how long no record may come although there are some.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// More than brokers usually take.
const SOME_ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How many records, and about how many bytes, are returned at once at most.
const BATCH_RECORDS: usize = 1024;
const BATCH_BYTES: usize = 256 * 1024;

/// Reads one partition.
pub struct KafkaReader {
    client: consumer::Client,
    config: KafkaConfig,
    topic: String,
    number: i32,
    next: u64,
    end: u64,
    /// Whether the client fetches already. The library aborts the process if a partition is assigned again before its
    /// first fetch has begun, so a client gets one assignment, and that late.
    is_assigned: bool,
}

/// The result of reading on.
#[derive(Clone, Debug)]
pub enum KafkaRead {
    /// Records, at least one, in order.
    Records(Vec<Delivered>),
    /// Retention has removed the records that come next. Reading goes on at `first`.
    Gone {
        /// The offset that was wanted.
        wanted: u64,
        /// The first offset that the partition still has.
        first: u64,
    },
    /// There are no more records at the moment.
    End,
}

/// How many partitions a log has.
///
/// # Errors
///
/// If no broker answers, there is no `hits` topic, or `denials` has another number of partitions: somebody added some,
/// and no aggregator rules the hits in them.
pub fn partitions(config: &KafkaConfig) -> Result<u32, KafkaFault> {
    let client = consumer::create(config)?;
    let names = Names::of(config);
    let (hits, denials) = (
        names.of_stream(Stream::Hits),
        names.of_stream(Stream::Denials),
    );
    let count = match partitions_of(&client, config, hits)? {
        0 => {
            return Err(KafkaFault::Client {
                why: format!("no topic `{hits}`"),
            });
        }
        count => count,
    };
    match partitions_of(&client, config, denials)? {
        0 => Ok(count),
        expected if count == expected => Ok(count),
        expected => Err(KafkaFault::Unfit {
            topic: hits.to_owned(),
            setting: "partitions",
            found: count.to_string(),
            expected: Expected::Exactly(u64::from(expected)),
            why: "hits and denials have the same number of partitions, for ever",
        }),
    }
}

/// How many partitions a topic has; 0 if there is no such topic.
fn partitions_of(
    client: &consumer::Client,
    config: &KafkaConfig,
    topic: &str,
) -> Result<u32, KafkaFault> {
    let metadata = patiently(config, |within| client.fetch_metadata(Some(topic), within))?
        .map_err(|error| unreached(config, &error))?;
    let found = metadata.topics().iter().find(|t| t.name() == topic);
    if let Some(error) = found.and_then(|found| found.error())
        && RDKafkaErrorCode::from(error) == RDKafkaErrorCode::TopicAuthorizationFailed
    {
        return Err(rights::missing(topic, "Describe"));
    }
    let count = found.map_or(0, |topic| topic.partitions().len());
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// How many records the `hits` topic has, in all partitions; markers of transactions count as records.
///
/// # Errors
///
/// If no broker answers.
pub fn hits_records(config: &KafkaConfig) -> Result<u64, KafkaFault> {
    let client = consumer::create(config)?;
    let topic = Names::of(config).of_stream(Stream::Hits).to_owned();
    let mut records = 0;
    for partition in 0..config.partitions {
        let number = i32::try_from(partition).unwrap_or(i32::MAX);
        let (first, end) = client
            .fetch_watermarks(&topic, number, ANSWER_WITHIN)
            .map_err(|error| unreached(config, &error))?;
        records += u64::try_from(end.saturating_sub(first)).unwrap_or(0);
    }
    Ok(records)
}

/// The first offset of a partition that was appended at an instant or later; the partition's end if all are older.
///
/// # Errors
///
/// If no broker answers.
pub fn offset_before(
    config: &KafkaConfig,
    stream: Stream,
    partition: u32,
    instant: Timestamp,
) -> Result<u64, KafkaFault> {
    let client = consumer::create(config)?;
    let topic = Names::of(config).of_stream(stream).to_owned();
    let number = i32::try_from(partition).unwrap_or(i32::MAX);
    let millis = i64::try_from(instant.as_millis()).unwrap_or(i64::MAX);
    let mut asked = TopicPartitionList::new();
    let found = asked
        .add_partition_offset(&topic, number, Offset::Offset(millis))
        .and_then(|()| client.offsets_for_times(asked, ANSWER_WITHIN))
        .map_err(|error| unreached(config, &error))?;
    let found = found.find_partition(&topic, number);
    let offset = match found.map(|found| found.offset()) {
        Some(Offset::Offset(offset)) => offset,
        Some(Offset::End) => {
            let ends = client.fetch_watermarks(&topic, number, ANSWER_WITHIN);
            ends.map_err(|error| unreached(config, &error))?.1
        }
        _ => 0,
    };
    Ok(u64::try_from(offset).unwrap_or(0))
}

/// The topic of snapshots, if the log has one.
///
/// # Errors
///
/// If no broker answers.
pub fn snapshots(config: &KafkaConfig, rules: u32) -> Result<Option<StateTopic>, KafkaFault> {
    let client = consumer::create(config)?;
    let topic = topics::name(config, Topic::State);
    let metadata = client
        .fetch_metadata(Some(&topic), ANSWER_WITHIN)
        .map_err(|error| unreachable(config, error))?;
    let found = metadata.topics().iter().find(|t| t.name() == topic);
    let is_there = found.is_some_and(|topic| !topic.partitions().is_empty());
    Ok(is_there.then(|| StateTopic::new(config.clone(), rules)))
}

impl KafkaReader {
    /// A reader from an offset on. Brokers are asked when it reads.
    ///
    /// # Errors
    ///
    /// If the settings are not accepted.
    pub fn open(
        config: &KafkaConfig,
        stream: Stream,
        partition: u32,
        from: u64,
    ) -> Result<Self, KafkaFault> {
        Ok(Self {
            client: consumer::create(config)?,
            topic: Names::of(config).of_stream(stream).to_owned(),
            number: i32::try_from(partition).unwrap_or(i32::MAX),
            config: config.clone(),
            next: from,
            end: 0,
            is_assigned: false,
        })
    }

    /// Begins to fetch, if the client does not yet.
    fn assign(&mut self) -> Result<(), KafkaFault> {
        if self.is_assigned {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(self.next).unwrap_or(i64::MAX));
        list.add_partition_offset(&self.topic, self.number, offset)
            .and_then(|()| self.client.assign(&list))
            .map_err(|error| unreachable(&self.config, error))?;
        self.is_assigned = true;
        Ok(())
    }

    /// Reads on from `next`, which is not where the client is.
    fn leap(&mut self, next: u64) -> Result<(), KafkaFault> {
        if self.is_assigned {
            self.client = consumer::create(&self.config)?;
            self.is_assigned = false;
        }
        self.next = next;
        Ok(())
    }

    /// Reads on.
    ///
    /// # Errors
    ///
    /// If Kafka does not answer.
    pub fn read(&mut self) -> Result<KafkaRead, KafkaFault> {
        if self.end <= self.next {
            let ends = |within| {
                let client = &self.client;
                client.fetch_watermarks(&self.topic, self.number, within)
            };
            let ends = patiently(&self.config, ends)?;
            let (first, end) = ends.map_err(|error| self.fault(&error, "Describe"))?;
            let unsigned = |offset| u64::try_from(offset).unwrap_or(0);
            self.end = unsigned(end);
            let first = unsigned(first);
            if self.next < first {
                let wanted = self.next;
                self.leap(first)?;
                return Ok(KafkaRead::Gone { wanted, first });
            }
        }
        if self.end <= self.next {
            return Ok(KafkaRead::End);
        }
        self.assign()?;
        let records = self.poll()?;
        Ok(match records.is_empty() {
            // The rest before the end was only transaction markers.
            true => KafkaRead::End,
            false => KafkaRead::Records(records),
        })
    }

    fn poll(&mut self) -> Result<Vec<Delivered>, KafkaFault> {
        let deadline = Instant::now() + ANSWER_WITHIN;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while self.next < self.end && records.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
            let patience = match records.is_empty() {
                true => deadline.saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            match self.client.poll(patience) {
                Some(Ok(message)) => {
                    let offset = u64::try_from(message.offset()).unwrap_or(0);
                    let payload = bytes::Bytes::copy_from_slice(message.payload().unwrap_or(&[]));
                    let appended = message.timestamp().to_millis().unwrap_or(0);
                    bytes += payload.len();
                    self.next = offset + 1;
                    records.push(Delivered {
                        offset,
                        appended: Timestamp::from_millis(u64::try_from(appended).unwrap_or(0)),
                        bytes: payload,
                    });
                }
                // A missing right does not come back by itself.
                Some(Err(error)) if rights::is_about_a_topic(&error) => {
                    return Err(self.fault(&error, "Read"));
                }
                Some(Err(error)) if records.is_empty() && deadline <= Instant::now() => {
                    return Err(unreachable(&self.config, error));
                }
                // The client retries by itself.
                Some(Err(_)) => {}
                None if records.is_empty() => {
                    let why = format!(
                        "{} partition {}: nothing came from offset {} on, and it ends at {}",
                        self.topic, self.number, self.next, self.end
                    );
                    return Err(unreachable(&self.config, why));
                }
                None => break,
            }
        }
        Ok(records)
    }

    /// Turns an error into a fault; `operation` is what was tried.
    fn fault(&self, error: &KafkaError, operation: &'static str) -> KafkaFault {
        if rights::is_about_a_topic(error) {
            return rights::missing(&self.topic, operation);
        }
        // Without the right to see a topic, the library knows no partitions of it.
        if consumer::is_about_an_unknown_topic(error)
            && let Ok(found) = self.client.fetch_metadata(Some(&self.topic), ANSWER_WITHIN)
            && let Some(error) = found.topics().iter().find_map(|found| found.error())
        {
            return topics::not_found(&self.topic, RDKafkaErrorCode::from(error));
        }
        unreached(&self.config, error)
    }
}

/// Asks for a short time, then once more for a long one, unless brokers refuse our credentials:
/// waiting does not help then.
fn patiently<T>(
    config: &KafkaConfig,
    ask: impl Fn(Duration) -> KafkaResult<T>,
) -> Result<KafkaResult<T>, KafkaFault> {
    match ask(SOME_ANSWER_WITHIN) {
        Err(error) if consumer::is_about_the_network(&error) => match unreached(config, &error) {
            fault @ KafkaFault::NotAuthenticated { .. } => Err(fault),
            _ => Ok(ask(ANSWER_WITHIN)),
        },
        answer => Ok(answer),
    }
}

/// The fault that brokers cannot be reached, with the reason.
fn unreached(config: &KafkaConfig, error: &KafkaError) -> KafkaFault {
    reason::of(config, topics::unreachable(config, error), reason::PATIENCE)
}

fn unreachable(config: &KafkaConfig, why: impl ToString) -> KafkaFault {
    KafkaFault::Unreachable {
        bootstrap: config.bootstrap.join(","),
        why: why.to_string(),
    }
}
