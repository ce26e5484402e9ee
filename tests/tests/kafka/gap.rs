//! Retention overtakes a fleet that is down: records that were removed before they were ruled are a
//! gap, which is logged and counted, and ruling goes on after it.

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tollgate_tests::kafka::LocalKafka;

use crate::bad::{PARTITION, domain, metric, produce};
use crate::everywhere::hit_much;
use crate::fleet::{Aggregator, WITHIN, await_whole, command, directory, until};

/// Does at once what retention does: removes everything before the end. Returns that offset.
pub fn delete_all(kafka: &LocalKafka, topic: &str, partition: u32) -> i64 {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", kafka.bootstrap());
    let reader: BaseConsumer = client.create().expect("a consumer");
    let number = i32::try_from(partition).expect("small");
    let (_, end) = reader
        .fetch_watermarks(topic, number, WITHIN)
        .expect("watermarks");
    let mut offsets = TopicPartitionList::new();
    offsets
        .add_partition_offset(topic, number, Offset::Offset(end))
        .expect("listed");
    let admin: AdminClient<DefaultClientContext> = client.create().expect("an admin");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = AdminOptions::new();
    let done = runtime.block_on(admin.delete_records(&offsets, &options));
    let of_all = done.expect("asked").to_topic_map();
    let first = of_all.get(&(topic.to_owned(), number)).copied();
    assert_eq!(first, Some(Offset::Offset(end)), "deleted");
    end
}

pub fn records_lost_to_retention_are_reported_and_ruling_goes_on(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("gap"));
    let (code, output) = command(kafka, &prefix, &["topics", "create"]);
    assert_eq!(code, Some(0), "{output}");
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let first = start("agg-1");
    await_whole(&[&first]);
    hit_much(&first, &[domain("acme", true)]);
    until("the partition has a snapshot", || {
        0 < metric(&first, "tollgate_snapshots_saved_total")
    });
    assert_eq!(metric(&first, "tollgate_log_gaps_total"), 0);
    drop(first.kill());

    // No aggregator runs; hits come, and are all removed before one is back.
    let topic = format!("{prefix}.hits");
    produce(kafka, &topic, &vec![b"whatever it was".to_vec(); 20]);
    let next = delete_all(kafka, &topic, PARTITION);

    let mut second = start("agg-2");
    let gap = second.line_with("records were removed before they could be read");
    assert!(gap.contains(&format!("partition={PARTITION}")), "{gap}");
    assert!(gap.contains(&format!("next={next}")), "{gap}");
    await_whole(&[&second]);
    assert_eq!(metric(&second, "tollgate_log_gaps_total"), 1);
    let end = u64::try_from(next).expect("an offset");
    until("what comes behind the gap is ruled", || {
        second
            .rules()
            .get(&PARTITION)
            .is_some_and(|(at, _)| end < *at)
    });
}
