//! Snapshots in the `state` topic of a real Kafka: what is read is what was written; a snapshot
//! that is half-written, corrupt or of a later build is skipped in favour of the one before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset};
use tollgate_log::kafka::{self, KafkaConfig, StateError, StateTopic, StateWriter, Written};
use tollgate_shared::log_position::LogId;
use tollgate_tests::kafka::LocalKafka;

use crate::fleet::reader;

const WITHIN: Duration = Duration::from_secs(60);
const PARTITION: u32 = 1;

/// Chunks that differ from each other.
fn chunks(seed: u8, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| vec![seed ^ n as u8; 100_000 + n])
        .collect()
}

fn write(state: &StateTopic, upto: u64, chunks: &[Vec<u8>]) {
    write_keeping(state, upto, chunks, 0);
}

fn up_to(upto: u64) -> Written<'static> {
    Written {
        partition: PARTITION,
        upto,
        log: LogId {
            generation: 1,
            random: 7,
        },
        name: "agg-1",
    }
}

fn write_keeping(state: &StateTopic, upto: u64, chunks: &[Vec<u8>], keep_hourly: u64) {
    let written = up_to(upto);
    let mut writer = state.writer().expect("a writer");
    write_by(&mut writer, &written, keep_hourly, chunks);
}

fn write_by(writer: &mut StateWriter, written: &Written<'_>, keep_hourly: u64, chunks: &[Vec<u8>]) {
    let offset = writer
        .write(written, keep_hourly, |sink| {
            chunks.iter().for_each(|chunk| sink(chunk.clone()));
        })
        .expect("written");
    assert!(0 < offset);
}

/// The reach of the snapshots that look whole, newest first.
fn uptos(state: &StateTopic) -> Vec<u64> {
    let found = state.reader().expect("a reader").candidates(PARTITION);
    let found = found.expect("candidates");
    found.iter().map(|candidate| candidate.id.upto).collect()
}

/// A record of the topic: offset, key, value.
type Raw = (i64, Vec<u8>, Option<Vec<u8>>);

/// All records of the partition.
fn records(kafka: &LocalKafka, topic: &str) -> Vec<Raw> {
    let reader = reader(kafka, topic, PARTITION, Offset::Beginning);
    let number = i32::try_from(PARTITION).expect("small");
    let (_, end) = reader
        .fetch_watermarks(topic, number, WITHIN)
        .expect("watermarks");
    let mut all: Vec<Raw> = Vec::new();
    let deadline = Instant::now() + WITHIN;
    while all.last().is_none_or(|(offset, ..)| *offset + 1 < end) {
        let left = deadline.saturating_duration_since(Instant::now());
        let message = reader.poll(left).expect("in time").expect("a record");
        all.push((
            message.offset(),
            message.key().expect("a key").to_vec(),
            message.payload().map(<[u8]>::to_vec),
        ));
    }
    all
}

fn put(kafka: &LocalKafka, topic: &str, key: &[u8], value: Option<&[u8]>) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .create()
        .expect("a producer");
    let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic)
        .key(key)
        .partition(i32::try_from(PARTITION).expect("small"));
    record.payload = value;
    producer
        .send(record)
        .map_err(|(error, _)| error)
        .expect("sent");
    producer.flush(WITHIN).expect("appended");
}

pub fn snapshots_are_read_whole_or_skipped(kafka: &LocalKafka) {
    let config = KafkaConfig {
        topic_prefix: kafka.fresh_name("state"),
        partitions: 2,
        ..KafkaConfig::new(kafka.bootstrap())
    };
    kafka::check(&config, kafka::Missing::Create).expect("topics");
    let state = StateTopic::new(config.clone(), 1);
    assert!(uptos(&state).is_empty());

    write(&state, 10, &chunks(1, 3));
    write(&state, 20, &chunks(2, 40));
    assert_eq!(uptos(&state), [20, 10]);
    let reader = state.reader().expect("a reader");
    let found = reader.candidates(PARTITION).expect("candidates");
    assert_eq!(found[0].manifest.bytes, 40 * 100_000 + 780);
    let read = |at: usize| reader.chunks(PARTITION, &found[at]).expect("whole");
    assert!(read(0) == chunks(2, 40) && read(1) == chunks(1, 3));
    assert!(reader.candidates(0).expect("candidates").is_empty());

    // A third one of this group: the first is dropped; another group's stays whatever this group
    // does.
    let other = StateTopic::new(
        KafkaConfig {
            group: "b".to_owned(),
            ..config.clone()
        },
        1,
    );
    write(&other, 15, &chunks(3, 2));
    write(&state, 30, &chunks(4, 5));
    assert_eq!(uptos(&state), [30, 20, 15]);

    a_broken_snapshot_is_skipped(kafka, &config, &state);

    // The digest reveals bytes that changed under a whole snapshot.
    write(&state, 40, &chunks(5, 3));
    let mut candidate = reader.candidates(PARTITION).expect("candidates").remove(0);
    assert!(reader.chunks(PARTITION, &candidate).expect("whole") == chunks(5, 3));
    candidate.manifest.digest[0] ^= 1;
    let corrupt = reader.chunks(PARTITION, &candidate);
    assert!(
        matches!(corrupt, Err(StateError::Corrupt(_))),
        "{corrupt:?}"
    );

    // One aggregator writes up to the same offset twice, as for a recreated topic: the two do not
    // mix, and the later one is tried first.
    let mut writer = state.writer().expect("a writer");
    write_by(&mut writer, &up_to(50), 0, &chunks(6, 4));
    write_by(&mut writer, &up_to(50), 0, &chunks(7, 2));
    let found = reader.candidates(PARTITION).expect("candidates");
    assert_eq!((found[0].id.upto, found[1].id.upto), (50, 50));
    let read = |at: usize| reader.chunks(PARTITION, &found[at]).expect("whole");
    assert!(read(0) == chunks(7, 2) && read(1) == chunks(6, 4));
}

/// Of three snapshots, up to 30, 20 and 15.
fn a_broken_snapshot_is_skipped(kafka: &LocalKafka, config: &KafkaConfig, state: &StateTopic) {
    let topic = format!("{}.state", config.topic_prefix);
    // Remove a chunk of the newest snapshot, as if it had never been written.
    let all = records(kafka, &topic);
    let is_chunk = |record: &&Raw| record.2.as_ref().is_some_and(|v| v.len() == 100_002);
    let (_, key, _) = all.iter().rev().find(is_chunk).expect("the third chunk");
    put(kafka, &topic, key, None);
    assert_eq!(uptos(state), [20, 15], "a chunk is gone");

    // A manifest of a later format, and one with later rules.
    let is_manifest = |record: &&Raw| record.2.as_ref().is_some_and(|v| v.len() < 200);
    let manifests: Vec<&Raw> = all.iter().filter(is_manifest).collect();
    let (_, key, value) = manifests[1];
    let mut later = value.clone().expect("a manifest");
    let name = b"format";
    let at = later.windows(name.len()).position(|bytes| bytes == name);
    let number = at.expect("the format's name") + name.len();
    assert_eq!(later[number], 1, "the format");
    later[number] = 2;
    put(kafka, &topic, key, Some(&later));
    assert_eq!(uptos(state), [15]);
    let older_build = StateTopic::new(config.clone(), 0);
    assert!(uptos(&older_build).is_empty(), "of later rules");
}

/// The current hour, by the clock of brokers and writers.
fn hour() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    since.as_secs() / 3_600
}

pub fn hourly_snapshots_stay_where_configured(kafka: &LocalKafka) {
    // If an hour ends meanwhile, another snapshot stays too: repeat then.
    while !stays_while_that_is_asked_for(kafka) {}
}

/// Returns whether all of it was in one hour.
fn stays_while_that_is_asked_for(kafka: &LocalKafka) -> bool {
    let began = hour();
    let config = KafkaConfig {
        topic_prefix: kafka.fresh_name("hourly"),
        partitions: 2,
        ..KafkaConfig::new(kafka.bootstrap())
    };
    kafka::check(&config, kafka::Missing::Create).expect("topics");
    // Each in a process of its own, which first looks what it can restore from.
    let fresh = || StateTopic::new(config.clone(), 1);
    let own = |upto: u8, keep_hourly| {
        let state = fresh();
        uptos(&state);
        write_keeping(&state, upto.into(), &chunks(upto, 2), keep_hourly);
    };
    for (upto, keep_hourly) in [(10, 0), (20, 1), (30, 1), (40, 1)] {
        own(upto, keep_hourly);
    }
    let asked_for = uptos(&fresh());
    own(50, 0);
    let not_any_more = uptos(&fresh());
    // The last record of each key, as compaction leaves them.
    let last: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
        records(kafka, &format!("{}.state", config.topic_prefix))
            .into_iter()
            .map(|(_, key, value)| (key, value))
            .collect();
    if hour() != began {
        return false;
    }
    assert_eq!(asked_for, [40, 30, 10], "the first, and the two newest");
    assert_eq!(not_any_more, [50, 40]);
    let (stand, gone): (Vec<_>, Vec<_>) = last.values().partition(|value| value.is_some());
    let of_one = 2 + 1;
    assert_eq!((stand.len(), gone.len()), (2 * of_one, 3 * of_one));
    true
}
