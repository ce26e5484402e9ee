//! Records that do not belong in the topics: a foreign producer's bytes, records that only aggregators may
//! write, batches for another partition, stamps of clocks that are a year off. None of them stops a
//! partition, each is counted, and the refused ones are kept as dead letters, in a bounded topic, with reason
//! and offset.

use std::time::Instant;

use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{ClientConfig, Offset};
use serde_json::Value;
use tollgate_log::clock::wall;
use tollgate_shared::log_position::LogId;
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::record::{LimitsActivation, RecordPen, Tick, Total};
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin;

use crate::fleet::{Aggregator, PARTITIONS, WITHIN, await_whole, directory, get, reader, until};
use crate::log::property;

/// The partition that all bad records are written to.
pub const PARTITION: u32 = 3;

const YEAR: Span = Span::from_secs(365 * 86_400);

pub fn produce(kafka: &LocalKafka, topic: &str, records: &[Vec<u8>]) {
    produce_to(kafka, topic, PARTITION, records);
}

pub fn produce_to(kafka: &LocalKafka, topic: &str, partition: u32, records: &[Vec<u8>]) {
    let partition = i32::try_from(partition).expect("small");
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .create()
        .expect("a producer");
    for record in records {
        let record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(topic).partition(partition).payload(record);
        producer.send(record).expect("taken");
    }
    producer.flush(WITHIN).expect("flushed");
}

pub fn metric(of: &Aggregator, name: &str) -> u64 {
    let text = twin::text(of.http, "/metrics").expect("metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

/// A domain whose pair belongs to the partition, or does not.
pub fn domain(stem: &str, belongs: bool) -> String {
    let mut names = (0..).map(|n| format!("{stem}-{n}"));
    let is = |name: &String| partition_of_pair("search", name, PARTITIONS) == PARTITION;
    names
        .find(|name| is(name) == belongs)
        .expect("there is one")
}

/// One hit, by an agent whose clock says `sent`.
fn batch(agent: &str, domain: &str, sent: Timestamp) -> Vec<u8> {
    let sender = Sender {
        agent,
        epoch: 9,
        sequence: 1,
        sent,
    };
    let hit = Hit::one(0, domain, sent, 1);
    let mut writer = Writer::new();
    let refused = std::iter::empty::<Refused<'_>>();
    write_hits(
        &mut writer,
        &sender,
        &["search"],
        [hit].into_iter(),
        refused,
    );
    writer.as_slice().to_vec()
}

/// Records that only aggregators may write, under a key that is not theirs.
fn forgeries() -> [Vec<u8>; 3] {
    let forger = MacKey::derive(b"forger");
    let pen = || RecordPen::new(&forger, PARTITION);
    let tick = Tick {
        log: LogId {
            generation: 99,
            random: 1,
        },
        aggregator: "forger",
        instance: 1,
        number: 1,
    };
    let activation = LimitsActivation {
        version: 1,
        digest: [7; 32],
    };
    let total = Total::guarded(1, 1);
    [
        pen().tick(&tick),
        pen().limits_activation(&activation),
        pen().totals("wide", (0, 1), &[total]),
    ]
}

pub fn foreign_records_become_dead_letters_and_stop_nothing(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("bad"));
    let mut one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    let topic = format!("{prefix}.hits");
    let now = wall();
    let behind = Timestamp::from_micros(now.as_micros() - YEAR.as_micros());
    let (ahead_of, behind_of) = (domain("ahead", true), domain("behind", true));
    produce(
        kafka,
        &topic,
        &[
            b"garbage of a foreign producer".to_vec(),
            Vec::new(),
            vec![1, 2, 0x97],
        ],
    );
    produce(kafka, &topic, &forgeries());
    produce(
        kafka,
        &topic,
        &[
            batch("astray", &domain("astray", false), now),
            batch("ahead", &ahead_of, now.saturating_add(YEAR)),
            batch("behind", &behind_of, behind),
        ],
    );
    until("garbage is counted", || {
        metric(&one, "tollgate_records_undecodable_total ") == 3
    });
    until("forgeries are", || {
        metric(&one, "tollgate_records_forged_total ") == 3
    });
    until("and what went astray", || {
        metric(&one, "tollgate_entries_not_ruled_total ") == 1
    });
    for of in [&ahead_of, &behind_of] {
        until("a wrong clock is put right", || {
            let pair = get(one.http, &format!("/v1/pairs/search/{of}")).expect("an answer");
            let time = pair["state"]["time_us"].as_u64().unwrap_or(0);
            time.abs_diff(now.as_micros()) < Span::from_secs(60).as_micros()
        });
    }
    let metrics = twin::text(one.http, "/metrics").expect("metrics");
    for agent in ["ahead", "behind"] {
        let label = format!("tollgate_agent_clock_moved_seconds{{agent=\"{agent}\"}}");
        assert!(metrics.contains(&label), "{label} in:\n{metrics}");
    }
    assert!(one.is_ready());
    kept_aside(kafka, &prefix);
    let lines = one.output().join("\n");
    assert_eq!(lines.matches("a record is refused").count(), 6, "{lines}");
    a_flood_of_garbage_is_bounded(kafka, &prefix, &one);
}

/// The dead letters of the three pieces of garbage and the three forgeries.
fn kept_aside(kafka: &LocalKafka, prefix: &str) {
    let topic = format!("{prefix}.aside");
    assert_eq!(property(kafka, &topic, "cleanup.policy"), "delete");
    for bound in ["retention.bytes", "retention.ms", "segment.bytes"] {
        let value: u64 = property(kafka, &topic, bound).parse().expect(bound);
        assert!(0 < value, "{bound}");
    }
    let kept = read(kafka, &topic, 6);
    let mut reasons = Vec::new();
    for (key, value) in &kept {
        assert_eq!(value["schema"], "tollgate.aside/1");
        assert_eq!(value["by"], "agg-1");
        let offset = value["offset"].as_u64().expect("an offset");
        assert_eq!(*key, format!("hits/{PARTITION}/{offset}"), "{value}");
        reasons.push(value["reason"].as_str().expect("a reason").to_owned());
    }
    let forged = reasons.iter().filter(|why| why.contains("tag is wrong"));
    assert_eq!(forged.count(), 3, "{reasons:?}");
    let garbage = b"garbage of a foreign producer".map(|byte| format!("{byte:02x}"));
    let (garbage, length) = (garbage.concat(), garbage.len());
    let mut values = kept.iter().map(|(_, value)| value);
    let found = values.find(|value| value["first_hex"] == garbage.as_str());
    assert_eq!(found.expect("the bytes")["length"], length);
}

/// Of many refused records some are kept; the rest is counted, and the partition is still ruled.
fn a_flood_of_garbage_is_bounded(kafka: &LocalKafka, prefix: &str, one: &Aggregator) {
    const FLOOD: u64 = 20_000;
    let before = digest(one, PARTITION);
    let garbage = vec![b"garbage".to_vec(); FLOOD as usize];
    produce(kafka, &format!("{prefix}.hits"), &garbage);
    until("all of it is met", || {
        metric(one, "tollgate_records_undecodable_total ") == FLOOD + 3
    });
    let dead_letters = || metric(one, "tollgate_records_aside_total ");
    let dropped = || metric(one, "tollgate_records_aside_dropped_total ");
    until("each is kept or counted", || {
        dead_letters() + dropped() == FLOOD + 6
    });
    assert!(FLOOD / 2 < dropped(), "{} were kept", dead_letters());
    assert!(6 < dead_letters());
    let ruled = digest(one, PARTITION);
    assert!(before + FLOOD <= ruled, "from {before} to {ruled}");
    until("it is ruled on", || ruled < digest(one, PARTITION));
}

/// How far a partition is ruled.
pub fn digest(one: &Aggregator, partition: u32) -> u64 {
    one.rules().get(&partition).map_or(0, |(offset, _)| *offset)
}

/// The first `count` records of a topic with one partition: keys and values.
pub fn read(kafka: &LocalKafka, topic: &str, count: usize) -> Vec<(String, Value)> {
    let reader = reader(kafka, topic, 0, Offset::Beginning);
    let end = Instant::now() + WITHIN;
    (0..count)
        .map(|_| {
            let left = end.saturating_duration_since(Instant::now());
            let record = reader.poll(left).expect("in time").expect("a record");
            let key = String::from_utf8_lossy(record.key().expect("a key")).into_owned();
            let value = record.payload().expect("a value");
            (key, serde_json::from_slice(value).expect("JSON"))
        })
        .collect()
}
