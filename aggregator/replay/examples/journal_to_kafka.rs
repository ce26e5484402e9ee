//! Copies a journal into Kafka topics, with the same offsets and append times, to audit it there.
//!
//! ```text
//! cargo run --release -p tollgate-replay --example journal_to_kafka -- DIR HOST:PORT PREFIX
//! tollgate audit --kafka HOST:PORT --topic-prefix PREFIX
//! ```
//!
//! The topics use the writer's times, so that the journal's append times can be copied. For measurements
//! alone: in a normal log, append times are the broker's. What stays true: every record keeps its offset, or
//! the copy fails.

use std::path::Path;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tollgate_log::{Delivered, Stream};
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::{ReadStep, Source as _};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, bootstrap, prefix] = args.as_slice() else {
        panic!("expected DIR HOST:PORT PREFIX");
    };
    let journal = JournalSource::open(Path::new(dir)).expect("a journal");
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("queue.buffering.max.kbytes", "262144")
        .set("linger.ms", "20");
    let streams = [
        (Stream::Limits, "limits", 1),
        (Stream::Hits, "hits", journal.partitions()),
        (Stream::Denials, "denials", journal.partitions()),
    ];
    create(
        &client,
        &streams.map(|(_, name, partitions)| (format!("{prefix}.{name}"), partitions)),
    );
    let producer: BaseProducer = client.create().expect("a producer");
    let mut copied = 0u64;
    for (stream, name, partitions) in streams {
        let topic = format!("{prefix}.{name}");
        for partition in 0..partitions {
            let mut cursor = journal.open(stream, partition, 0).expect("readable");
            let mut next = 0;
            while let ReadStep::Records(records) = cursor.read().expect("readable") {
                for record in records {
                    assert_eq!(record.offset, next, "a journal that begins at 0");
                    next += 1;
                    copied += 1;
                    send(&producer, &topic, partition, &record);
                }
            }
        }
    }
    producer.flush(Duration::from_secs(60)).expect("all taken");
    println!("{copied} records");
}

fn create(client: &ClientConfig, topics: &[(String, u32)]) {
    let admin: AdminClient<DefaultClientContext> = client.create().expect("a client");
    let wanted: Vec<NewTopic<'_>> = topics
        .iter()
        .map(|(topic, partitions)| {
            let partitions = i32::try_from(*partitions).expect("few");
            NewTopic::new(topic, partitions, TopicReplication::Fixed(1))
                // The journal may be old.
                .set("retention.ms", "-1")
                .set("message.timestamp.type", "CreateTime")
        })
        .collect();
    let made = admin.create_topics(&wanted, &AdminOptions::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for topic in runtime.block_on(made).expect("an answer") {
        topic.expect("a topic that was not there");
    }
}

fn send(producer: &BaseProducer, topic: &str, partition: u32, record: &Delivered) {
    let at = i64::try_from(record.appended.as_millis()).expect("a time");
    let mut to_send: BaseRecord<'_, (), [u8]> = BaseRecord::to(topic)
        .partition(i32::try_from(partition).expect("few"))
        .timestamp(at)
        .payload(&record.bytes[..]);
    loop {
        match producer.send(to_send) {
            Ok(()) => {
                producer.poll(Duration::ZERO);
                return;
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                to_send = back;
                producer.poll(Duration::from_millis(50));
            }
            Err((error, _)) => panic!("{topic} {partition}: {error}"),
        }
    }
}
