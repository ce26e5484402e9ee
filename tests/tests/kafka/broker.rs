//! What the log assumes of a broker, tested on a real one.
//!
//! Uses none of Tollgate's records. The mock broker of librdkafka does not qualify: it applies no
//! LogAppendTime, and answers every query for an offset by time with the end.

use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Message, Timestamp};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::util::Timeout;
use tokio::runtime;
use tollgate_tests::kafka::LocalKafka;

/// Far more than a loaded machine needs; a deadline for a broken one.
const WITHIN: Duration = Duration::from_secs(30);

const RECORDS: i64 = 100;

/// Long ago, so that it cannot be mistaken for the broker's stamp.
const PRODUCER_STAMP_MS: i64 = 1_000_000;

/// Starts a broker of its own, beside the shared one, so it also shows that two can run at once.
pub fn a_broker_is_gone_once_dropped(shared: &LocalKafka) {
    let own = LocalKafka::start().expect("a second broker starts where the first did");
    let address = own.bootstrap().to_owned();
    assert_ne!(address, shared.bootstrap());
    TcpStream::connect(&address).expect("a broker listens where it says");
    drop(own);
    TcpStream::connect(&address).expect_err("nobody listens any more");
    TcpStream::connect(shared.bootstrap()).expect("the other broker is not touched");
}

pub fn records_are_stamped_and_found_by_their_append_time(kafka: &LocalKafka) {
    let topic = kafka.fresh_name("append-time");
    create(kafka, &topic);
    let before_ms = now_ms();
    produce(kafka, &topic);
    let after_ms = now_ms();

    let appended_ms = consume(kafka, &topic);

    for (offset, &at_ms) in appended_ms.iter().enumerate() {
        assert!(
            (before_ms..=after_ms).contains(&at_ms),
            "offset {offset}: stamped {at_ms}, sent from {before_ms} to {after_ms}"
        );
    }
    assert!(appended_ms.is_sorted(), "{appended_ms:?}");
    // Without this the search below could not tell one offset from another.
    assert_ne!(appended_ms[49], appended_ms[50]);

    // A client of its own without assignment: a broker answers one request of a connection at a
    // time, so a query after a fetch at the end of a partition waits for `fetch.wait.max.ms`.
    let asker = consumer(kafka, &topic);
    for &asked_ms in &appended_ms {
        let first = appended_ms.partition_point(|&at_ms| at_ms < asked_ms);
        let first = Offset::Offset(i64::try_from(first).unwrap());
        assert_eq!(
            offset_at(&asker, &topic, asked_ms),
            first,
            "asked for {asked_ms}"
        );
    }
    let last_ms = appended_ms[appended_ms.len() - 1];
    assert_eq!(offset_at(&asker, &topic, last_ms + 1), Offset::End);
}

fn config(kafka: &LocalKafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap());
    config
}

fn create(kafka: &LocalKafka, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = config(kafka).create().unwrap();
    let wanted = NewTopic::new(topic, 1, TopicReplication::Fixed(1))
        .set("message.timestamp.type", "LogAppendTime");
    let options = AdminOptions::new().operation_timeout(Some(WITHIN));
    let made = block_on(admin.create_topics(&[wanted], &options)).unwrap();
    assert_eq!(made, [Ok(topic.to_owned())]);
}

/// One batch per record, so that each has a stamp of its own, and a new millisecond halfway.
fn produce(kafka: &LocalKafka, topic: &str) {
    // A future producer, because `BaseProducer::flush` takes at least 100 ms.
    let producer: FutureProducer = config(kafka)
        .set("enable.idempotence", "true")
        .set("linger.ms", "0")
        .set("message.timeout.ms", WITHIN.as_millis().to_string())
        .create()
        .unwrap();
    for number in 0..RECORDS {
        if number == RECORDS / 2 {
            await_next_ms();
        }
        let payload = number.to_be_bytes();
        let record: FutureRecord<'_, (), _> = FutureRecord::to(topic)
            .partition(0)
            .payload(&payload)
            .timestamp(PRODUCER_STAMP_MS);
        let delivery = block_on(producer.send(record, Timeout::Never))
            .map_err(|(error, _)| error)
            .unwrap();
        assert_eq!(delivery.offset, number);
    }
}

fn consumer(kafka: &LocalKafka, group: &str) -> BaseConsumer {
    config(kafka)
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .create()
        .unwrap()
}

/// The append time of each record, once all have come in order with the expected content.
fn consume(kafka: &LocalKafka, topic: &str) -> Vec<i64> {
    let mut assignment = TopicPartitionList::new();
    assignment
        .add_partition_offset(topic, 0, Offset::Beginning)
        .unwrap();
    let consumer = consumer(kafka, topic);
    consumer.assign(&assignment).unwrap();
    let deadline = Instant::now() + WITHIN;
    (0..RECORDS)
        .map(|number| {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = consumer.poll(left).expect("a record in time").unwrap();
            assert_eq!(message.offset(), number);
            assert_eq!(message.payload(), Some(&number.to_be_bytes()[..]));
            match message.timestamp() {
                Timestamp::LogAppendTime(at_ms) => at_ms,
                other => panic!("offset {number}: found {other:?}, expected LogAppendTime"),
            }
        })
        .collect()
}

fn offset_at(consumer: &BaseConsumer, topic: &str, asked_ms: i64) -> Offset {
    let mut wanted = TopicPartitionList::new();
    wanted
        .add_partition_offset(topic, 0, Offset::Offset(asked_ms))
        .unwrap();
    let found = consumer.offsets_for_times(wanted, WITHIN).unwrap();
    found.find_partition(topic, 0).unwrap().offset()
}

fn block_on<F: Future>(future: F) -> F::Output {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn await_next_ms() {
    let started_ms = now_ms();
    while now_ms() == started_ms {
        std::thread::yield_now();
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}
