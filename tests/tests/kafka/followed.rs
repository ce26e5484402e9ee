//! Agents of a fleet: an agent that knows one aggregator finds all, and follows partitions as they move.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Rate};
use tollgate_shared::names::partition_of_pair;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::{Aggregator, PARTITIONS, WITHIN, await_whole, directory};

/// The pace of one domain: far above its limit, and far below what a loaded machine can do.
const PACE: Duration = Duration::from_millis(5);

/// One domain for each partition.
fn domains(round: &str) -> Vec<String> {
    let of = |partition| {
        let mut names = (0..).map(|n| format!("{round}-{n}"));
        names.find(|name| partition_of_pair("search", name, PARTITIONS) == partition)
    };
    (0..PARTITIONS).filter_map(of).collect()
}

/// Hits once in each partition, with domains of its own.
pub fn hit_all(rate: &Rate, round: &str) {
    for domain in domains(round) {
        // The result does not matter here.
        let _ = rate.hit(&domain);
    }
}

/// Hits until the domains of all these partitions have been refused.
pub fn await_refused(rate: &Rate, round: &str, partitions: &BTreeSet<u32>) -> Duration {
    let domains = domains(round);
    let mut waiting = partitions.clone();
    let begun = Instant::now();
    while !waiting.is_empty() {
        assert!(
            begun.elapsed() < WITHIN,
            "{round}: nobody refuses {waiting:?}"
        );
        waiting.retain(|partition| rate.hit(&domains[*partition as usize]).is_ok());
        std::thread::sleep(PACE);
    }
    begun.elapsed()
}

pub fn an_agent_finds_all_aggregators_by_one(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("followed"));
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let (first, second) = (start("agg-1"), start("agg-2"));
    await_whole(&[&first, &second]);
    let of_second: BTreeSet<u32> = second.rules().into_keys().collect();
    assert_eq!(of_second.len(), 4);

    let agent = Agent::builder()
        .aggregator(first.agents.to_string())
        .build()
        .expect("good settings");
    let rate = agent.rate("search");
    let all: BTreeSet<u32> = (0..PARTITIONS).collect();
    let took = await_refused(&rate, "first", &all);
    println!("refused by both within {took:?}, though told of one alone");

    // A third one starts, then the one that the agent was given ends for good.
    let third = start("agg-3");
    await_whole(&[&first, &second, &third]);
    assert!(!third.rules().is_empty());
    let ruled: BTreeSet<u32> = third.rules().into_keys().collect();
    await_refused(&rate, "third", &ruled);
    drop(first.kill());
    let took = await_whole(&[&second, &third]);
    println!("taken over in {took:?}");
    await_refused(&rate, "left", &all);
    assert_eq!(agent.stats().hits_dropped(), 0);
}

pub fn an_agent_finds_all_aggregators_by_kafka(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("found"));
    let agent = Agent::builder()
        .kafka(kafka.bootstrap())
        .kafka_topic_prefix(&prefix)
        .build()
        .expect("good settings");
    let rate = agent.rate("search");
    // No aggregator runs yet, and the topics do not exist.
    assert!(rate.hit("early").is_ok());
    let start = |name| Aggregator::start(dir.path(), kafka, &prefix, name, false);
    let (first, second) = (start("agg-1"), start("agg-2"));
    await_whole(&[&first, &second]);
    let all: BTreeSet<u32> = (0..PARTITIONS).collect();
    let took = await_refused(&rate, "found", &all);
    println!("refused by both within {took:?}, though told of Kafka alone");
    // All that it knew have ended, and others run.
    drop((first.kill(), second.kill()));
    let (third, fourth) = (start("agg-3"), start("agg-4"));
    await_whole(&[&third, &fourth]);
    await_refused(&rate, "again", &all);
    assert_eq!(agent.stats().hits_dropped(), 0);
}
