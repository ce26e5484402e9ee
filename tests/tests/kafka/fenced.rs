//! Fenced brokers: for a while every answer names no broker, and each client finds Kafka again.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_agent::Agent;
use tollgate_tests::http::get_text;
use tollgate_tests::kafka::{LocalKafka, Proxy};

use crate::fleet::{Aggregator, PARTITIONS, await_whole, directory, until};
use crate::followed::{await_refused, hit_all};

/// How often connections are cut while brokers look fenced, and for how long each time: a client
/// that reconnects asks for metadata, and not every answer without brokers makes it forget them
/// all.
const CUTS: (u32, Duration) = (8, Duration::from_millis(600));

/// How many rounds are tried until a client has forgotten all.
const ROUNDS: u32 = 10;

/// The client library then forgets every broker, and asks none any more.
pub fn clients_without_a_broker_find_kafka_again(_: &LocalKafka) {
    // A broker of its own: clients of other tests must not lose theirs.
    let proxy = Proxy::start().expect("a port");
    let started = LocalKafka::start_behind(&proxy.address());
    let (kafka, broker) = started.expect("another one starts");
    proxy.lead_to(&broker);
    let (dir, prefix) = (directory(), kafka.fresh_name("fenced"));
    let mut aggregator = Aggregator::start(dir.path(), &kafka, &prefix, "agg-1", false);
    await_whole(&[&aggregator]);
    let agent = Agent::builder()
        .kafka(kafka.bootstrap())
        .kafka_topic_prefix(&prefix)
        .build()
        .expect("good settings");
    let rate = agent.rate("search");
    let all: BTreeSet<u32> = (0..PARTITIONS).collect();
    await_refused(&rate, "before", &all);

    // Not every such answer makes a client forget all brokers: it must come at a bad moment.
    let reconnected = "a kafka client had lost every broker";
    let lost = (0..ROUNDS).any(|round| {
        for _ in 0..CUTS.0 {
            proxy.fence();
            std::thread::sleep(CUTS.1);
        }
        println!("{} answers named no broker so far", proxy.unfence());
        await_refused(&rate, &format!("after-{round}"), &all);
        aggregator
            .output()
            .iter()
            .any(|line| line.contains(reconnected))
    });
    assert!(lost, "nobody lost it: {}", aggregator.output().join("\n"));

    let took = await_whole(&[&aggregator]);
    println!("whole {took:?} after the agent was");
    let http = aggregator.http;
    let saved = || {
        let metrics = get_text(http, "/metrics").unwrap_or_default();
        let mut lines = metrics.lines();
        let saved = lines.find_map(|line| line.strip_prefix("tollgate_snapshots_saved_total "));
        saved.and_then(|count| count.parse::<u32>().ok())
    };
    let before = saved().expect("it serves metrics");
    let mut round = 0;
    until("snapshots are written again", || {
        // Without hits there is no denial to receive.
        hit_all(&rate, &format!("later-{round}"));
        round += 1;
        saved().is_some_and(|now| before + 2 * PARTITIONS <= now)
    });
    assert_eq!(agent.stats().hits_dropped(), 0);
}
