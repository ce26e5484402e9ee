//! Tests of hits straight into Kafka, beside the client library's own small broker, which keeps what is produced.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::mocking::MockCluster;
use rdkafka::{Offset, TopicPartitionList};
use tollgate_agent::Agent;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::wire::record::Record;

const SOON: Duration = Duration::from_secs(20);
const PARTITIONS: i32 = 4;

/// A record of the topic: partition, sequence, and the domains with their copies.
type ReadBatch = (u32, u64, Vec<(String, u32)>);

fn read(bootstrap: &str, copies: u64) -> Vec<ReadBatch> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "test")
        .set("fetch.wait.max.ms", "5")
        .create()
        .expect("a consumer");
    let mut all = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        all.add_partition_offset("fleet.hits", partition, Offset::Beginning)
            .expect("a partition");
    }
    consumer.assign(&all).expect("assigned");
    let (mut records, mut seen, until) = (Vec::new(), 0, Instant::now() + SOON);
    while seen < copies {
        assert!(Instant::now() < until, "{seen} of {copies} copies");
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) else {
            continue;
        };
        let bytes = message.payload().expect("a record");
        let Ok(Record::Hits(batch)) = Record::decode(bytes) else {
            panic!("not hits")
        };
        let hits: Vec<(String, u32)> = batch
            .hits()
            .iter()
            .map(|hit| (hit.domain.to_owned(), hit.total() as u32))
            .collect();
        seen += hits
            .iter()
            .map(|(_, copies)| u64::from(*copies))
            .sum::<u64>();
        records.push((message.partition() as u32, batch.sender.sequence, hits));
    }
    records
}

#[test]
fn every_hit_is_in_its_partition_once_and_in_sequence() {
    let cluster = MockCluster::new(1).expect("a broker");
    let bootstrap = cluster.bootstrap_servers();
    // The agent starts first, and waits for the topic.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|one| one.local_addr())
        .expect("a port");
    let agent = Agent::builder()
        .aggregator(nobody.to_string())
        .kafka(&bootstrap)
        .kafka_topic_prefix("fleet")
        .build()
        .expect("good settings");
    let rate = agent.rate("r");
    for n in 0..500 {
        assert!(rate.hit(&format!("t{}", n % 50)).is_ok());
    }
    cluster
        .create_topic("fleet.hits", PARTITIONS, 1)
        .expect("a topic");
    for n in 0..500 {
        assert!(rate.hit(&format!("t{}", n % 50)).is_ok());
    }
    let records = read(&bootstrap, 1_000);
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    for (partition, sequence, hits) in &records {
        let before = last.insert(*partition, *sequence).unwrap_or(0);
        assert_eq!(*sequence, before + 1);
        for (domain, _) in hits {
            assert_eq!(
                *partition,
                partition_of_pair("r", domain, PARTITIONS as u32)
            );
        }
    }
    assert_eq!(last.len(), PARTITIONS as usize);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let flushed = runtime.block_on(agent.shutdown(SOON));
    assert_eq!((flushed.sent, flushed.dropped), (1_000, 0));
}
