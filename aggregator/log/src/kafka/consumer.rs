//! Following partitions: the position of each, what is delivered, and what is missing.
//!
//! Each partition is assigned by hand when it is followed, from the requested offset on. What stays true:
//! records of a follow are delivered in order and once; a `Gap` is sent before the records behind it;
//! `CaughtUp` is sent once, when everything that existed at the beginning was delivered; another client changes
//! nothing of that.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::BytesMut;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tollgate_shared::time::Timestamp;

use super::super::{Delivered, LogEvent, LogSender, Stream};
use super::topics::{self, Names, TopicPartition};
use super::{KafkaConfig, KafkaFault, producer, properties};

/// About how many bytes are delivered at once.
const BATCH_BYTES: usize = 256 * 1024;

/// How many records are delivered at once, at most.
const BATCH_RECORDS: usize = 1024;

/// How long the query for a partition's end offsets may take.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// A client that consumes and queries.
pub(super) type Client = BaseConsumer<Logging>;

pub(super) struct Logging;

impl ClientContext for Logging {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        producer::log_line(level, facility, message);
    }
}

impl ConsumerContext for Logging {}

/// Creates the client; that needs no network.
pub(super) fn create(config: &KafkaConfig) -> Result<Client, KafkaFault> {
    properties::client(config)?
        .create_with_context(Logging)
        .map_err(properties::fault_of)
}

/// A follow that has yet to begin, or to be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WantedFollow {
    pub stream: Stream,
    pub partition: u32,
    pub from: FollowFrom,
}

impl WantedFollow {
    /// Whether both are of the same partition.
    pub fn is_of_partition(&self, other: &Self) -> bool {
        (self.stream, self.partition) == (other.stream, other.partition)
    }
}

/// Where a follow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowFrom {
    /// At the offset that the owner requested.
    Offset(u64),
    /// At the position that the follow had when the client was replaced.
    Position,
}

/// The consumer and the partitions that it follows.
pub(super) struct Follows {
    client: Client,
    names: Names,
    partitions: u32,
    follows: BTreeMap<(Stream, u32), Follow>,
    events: LogSender,
    /// Records of one partition that are about to be delivered.
    run: Vec<Delivered>,
    run_of: (Stream, u32),
    /// Payloads are copied into blocks of this arena, many to an allocation.
    arena: BytesMut,
}

struct Follow {
    /// The append time of the last delivered record, in milliseconds.
    appended_ms: i64,
    /// The least offset of the next record.
    next: u64,
    /// The partition's end when following began; `None` once `CaughtUp` was sent.
    target: Option<u64>,
    /// Whether the client fetches the partition; false from when the client was replaced until the follow is resumed.
    is_assigned: bool,
}

impl Follows {
    pub fn new(config: &KafkaConfig, client: Client, events: LogSender) -> Self {
        Self {
            client,
            names: Names::of(config),
            partitions: config.partitions,
            follows: BTreeMap::new(),
            events,
            run: Vec::new(),
            run_of: (Stream::Hits, 0),
            arena: BytesMut::new(),
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The partition as Kafka names it.
    pub fn named(&self, wanted: &WantedFollow) -> TopicPartition {
        let topic = self.names.of_stream(wanted.stream);
        (topic.to_owned(), number_of(wanted.partition))
    }

    /// One followed partition of each topic.
    pub fn one_of_each(&self) -> Vec<TopicPartition> {
        let mut one: Vec<TopicPartition> = Vec::new();
        for (stream, partition) in self.follows.keys() {
            let topic = self.names.of_stream(*stream);
            if one.iter().all(|(known, _)| known != topic) {
                one.push((topic.to_owned(), number_of(*partition)));
            }
        }
        one
    }

    /// Begins a follow, or resumes it. If Kafka does not answer, nothing changes.
    pub fn begin(&mut self, wanted: WantedFollow) -> KafkaResult<()> {
        let (stream, partition) = (wanted.stream, wanted.partition);
        match wanted.from {
            FollowFrom::Offset(from) => self.begin_at(stream, partition, from),
            FollowFrom::Position => self.resume(stream, partition),
        }
    }

    fn begin_at(&mut self, stream: Stream, partition: u32, from: u64) -> KafkaResult<()> {
        if topics::partitions_of(stream, self.partitions) <= partition {
            self.emit_following(stream, partition, from);
            self.emit(LogEvent::Broken {
                stream,
                partition,
                next: from,
                why: format!("{stream:?} has no partition {partition}"),
            });
            return Ok(());
        }
        let (first, end) = self.ends(stream, partition)?;
        let start = if from < first || end < from {
            first
        } else {
            from
        };
        self.end(stream, partition)?;
        self.assign(stream, partition, start)?;

        self.emit_following(stream, partition, from);
        if start != from {
            self.emit(LogEvent::Gap {
                stream,
                partition,
                wanted: from,
                next: start,
            });
        }
        let mut follow = Follow {
            appended_ms: 0,
            next: start,
            target: Some(end),
            is_assigned: true,
        };
        let caught_up = follow.caught_up(stream, partition);
        self.follows.insert((stream, partition), follow);
        caught_up.into_iter().for_each(|event| self.emit(event));
        Ok(())
    }

    /// Goes on with another client. Returns the follows, each of which is to be resumed.
    pub fn replace(&mut self, client: Client) -> Vec<WantedFollow> {
        self.flush();
        self.client = client;
        let follows = self.follows.iter_mut();
        follows
            .map(|(&(stream, partition), follow)| {
                follow.is_assigned = false;
                WantedFollow {
                    stream,
                    partition,
                    from: FollowFrom::Position,
                }
            })
            .collect()
    }

    /// Resumes a follow from its position, or from the beginning of a log that was recreated.
    fn resume(&mut self, stream: Stream, partition: u32) -> KafkaResult<()> {
        let follow = self.follows.get(&(stream, partition));
        let Some(follow) = follow.filter(|follow| !follow.is_assigned) else {
            return Ok(());
        };
        let (first, end) = self.ends(stream, partition)?;
        let place = (self.names.of_stream(stream), number_of(partition));
        let stands = first <= follow.next && follow.next <= end;
        let start = match stands && !is_recreated(&self.client, place, first, follow)? {
            true => follow.next,
            false => first,
        };
        self.assign(stream, partition, start)?;
        let Some(follow) = self.follows.get_mut(&(stream, partition)) else {
            return Ok(());
        };
        follow.is_assigned = true;
        let wanted = std::mem::replace(&mut follow.next, start);
        if start < wanted {
            follow.appended_ms = 0;
            follow.target = follow.target.map(|_| end);
        }
        let caught_up = follow.caught_up(stream, partition);
        if start != wanted {
            self.emit(LogEvent::Gap {
                stream,
                partition,
                wanted,
                next: start,
            });
        }
        caught_up.into_iter().for_each(|event| self.emit(event));
        Ok(())
    }

    /// The offsets of a partition's first record and of its end.
    fn ends(&self, stream: Stream, partition: u32) -> KafkaResult<(u64, u64)> {
        let (topic, number) = (self.names.of_stream(stream), number_of(partition));
        let ends = self.client.fetch_watermarks(topic, number, ENDS_WITHIN)?;
        Ok((unsigned(ends.0), unsigned(ends.1)))
    }

    /// Has the client fetch a partition from an offset on.
    fn assign(&self, stream: Stream, partition: u32, start: u64) -> KafkaResult<()> {
        let mut come = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(start).unwrap_or(i64::MAX));
        let topic = self.names.of_stream(stream);
        come.add_partition_offset(topic, number_of(partition), offset)?;
        self.client.incremental_assign(&come)
    }

    /// Ends a follow, if there is one.
    pub fn end(&mut self, stream: Stream, partition: u32) -> KafkaResult<()> {
        let ended = self.follows.remove(&(stream, partition));
        if ended.is_none_or(|follow| !follow.is_assigned) {
            return Ok(());
        }
        let mut gone = TopicPartitionList::new();
        gone.add_partition(self.names.of_stream(stream), number_of(partition));
        self.client.incremental_unassign(&gone)
    }

    /// Delivers up to a batch of records; waits at most `wait` for the first. Returns how many records it
    /// delivered, and the faults that the client reported between them.
    ///
    /// In an outage the client queues a fault for each vain attempt to connect, hundreds in a minute, and the records
    /// that follow wait behind them: so they are all taken at once.
    pub fn deliver(&mut self, wait: Duration) -> (usize, Vec<KafkaError>) {
        let mut bytes = 0;
        let mut records = 0;
        let mut wait = wait;
        let mut faults = Vec::new();
        while bytes < BATCH_BYTES && records + faults.len() < BATCH_RECORDS {
            // The message borrows the client, and handling it changes other fields.
            let Some(polled) = self.client.poll(wait) else {
                break;
            };
            wait = Duration::ZERO;
            match polled {
                Ok(message) => {
                    bytes += message.payload_len();
                    records += 1;
                    MessageRun {
                        names: &self.names,
                        follows: &mut self.follows,
                        events: &self.events,
                        run: &mut self.run,
                        run_of: &mut self.run_of,
                        arena: &mut self.arena,
                    }
                    .take(&message);
                }
                Err(error) => faults.push(error),
            }
        }
        self.flush();
        (records, faults)
    }

    fn flush(&mut self) {
        MessageRun {
            names: &self.names,
            follows: &mut self.follows,
            events: &self.events,
            run: &mut self.run,
            run_of: &mut self.run_of,
            arena: &mut self.arena,
        }
        .flush();
    }

    fn emit_following(&self, stream: Stream, partition: u32, from: u64) {
        self.emit(LogEvent::Following {
            stream,
            partition,
            from,
        });
    }

    fn emit(&self, event: LogEvent) {
        // If the owner is gone, nobody receives the event.
        self.events.send(event);
    }
}

/// Whether the topic was recreated: the last delivered record lay behind the log's current first record, and
/// yet even that first record was appended later.
fn is_recreated(
    client: &Client,
    (topic, partition): (&str, i32),
    first: u64,
    follow: &Follow,
) -> KafkaResult<bool> {
    if follow.next <= first || follow.appended_ms == 0 {
        return Ok(false);
    }
    let mut asked = TopicPartitionList::new();
    asked.add_partition_offset(topic, partition, Offset::Offset(follow.appended_ms + 1))?;
    let found = client.offsets_for_times(asked, ENDS_WITHIN)?;
    let found = found.find_partition(topic, partition);
    let offset = found.and_then(|found| found.offset().to_raw());
    Ok(offset.is_some_and(|offset| 0 <= offset && unsigned(offset) <= first))
}

/// What handling a message changes.
struct MessageRun<'a> {
    names: &'a Names,
    follows: &'a mut BTreeMap<(Stream, u32), Follow>,
    events: &'a LogSender,
    run: &'a mut Vec<Delivered>,
    run_of: &'a mut (Stream, u32),
    arena: &'a mut BytesMut,
}

impl MessageRun<'_> {
    fn take(&mut self, message: &BorrowedMessage<'_>) {
        let Some(stream) = self.names.stream_of(message.topic()) else {
            return;
        };
        let key = (
            stream,
            u32::try_from(message.partition()).unwrap_or(u32::MAX),
        );
        let offset = unsigned(message.offset());
        let Some(wanted) = self.follows.get(&key).map(|follow| follow.next) else {
            return;
        };
        if *self.run_of != key || offset != wanted {
            self.flush();
            *self.run_of = key;
        }
        if offset != wanted {
            // Retention overtook this reader, or the log was recreated: Kafka went on at its first record.
            self.events.send(LogEvent::Gap {
                stream,
                partition: key.1,
                wanted,
                next: offset,
            });
        }
        if let Some(follow) = self.follows.get_mut(&key) {
            follow.next = offset + 1;
            follow.appended_ms = message.timestamp().to_millis().unwrap_or(0);
        }
        let payload = message.payload().unwrap_or_default();
        if self.arena.capacity() < payload.len() {
            self.arena.reserve(payload.len().max(BATCH_BYTES));
        }
        self.arena.extend_from_slice(payload);
        let appended_ms = message.timestamp().to_millis().unwrap_or(0);
        self.run.push(Delivered {
            offset,
            appended: Timestamp::from_millis(unsigned(appended_ms)),
            bytes: self.arena.split().freeze(),
        });
    }

    fn flush(&mut self) {
        if self.run.is_empty() {
            return;
        }
        let (stream, partition) = *self.run_of;
        self.events.send(LogEvent::Delivered {
            stream,
            partition,
            records: std::mem::take(self.run),
        });
        let follow = self.follows.get_mut(&(stream, partition));
        let caught_up = follow.and_then(|follow| follow.caught_up(stream, partition));
        if let Some(event) = caught_up {
            self.events.send(event);
        }
    }
}

impl Follow {
    fn caught_up(&mut self, stream: Stream, partition: u32) -> Option<LogEvent> {
        self.target.take_if(|target| *target <= self.next)?;
        Some(LogEvent::CaughtUp {
            stream,
            partition,
            next: self.next,
        })
    }
}

/// A partition's number as Kafka has it.
fn number_of(partition: u32) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}

/// Converts an offset or time, which is never negative if it is known.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Whether a broker does not know a topic that the client follows.
pub(super) fn is_about_an_unknown_topic(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode::{
        UnknownPartition, UnknownTopic, UnknownTopicOrPartition,
    };
    matches!(
        error.rdkafka_error_code(),
        Some(UnknownTopicOrPartition | UnknownTopic | UnknownPartition)
    )
}

/// Whether an error of the consumer is a mere network error, from which the client recovers by itself.
pub(super) fn is_about_the_network(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode::{
        AllBrokersDown, BrokerTransportFailure, OperationTimedOut, Resolve,
    };
    matches!(
        error.rdkafka_error_code(),
        Some(AllBrokersDown | BrokerTransportFailure | OperationTimedOut | Resolve)
    )
}
