//! What has no business in the topics: a foreign producer's bytes, records that only aggregators may write,
//! batches for another partition, stamps of clocks that are a year off. None of it stops a partition, each is
//! counted, and what was refused is kept aside with its reason and offset.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::place::LogId;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, Sender, write_hits};
use tollgate_shared::wire::record::{OwnersPen, Pointer, Tick};
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin;

use crate::fleet::{Aggregator, PARTITIONS, WITHIN, await_whole, directory, get};

/// The partition that everything bad is written to.
const PARTITION: u32 = 3;

const YEAR: Span = Span::from_secs(365 * 86_400);

fn produce(kafka: &LocalKafka, topic: &str, records: &[Vec<u8>]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap())
        .create()
        .expect("a producer");
    for record in records {
        let record: BaseRecord<'_, (), [u8]> = BaseRecord::to(topic)
            .partition(PARTITION as i32)
            .payload(record);
        producer.send(record).expect("taken");
    }
    producer.flush(WITHIN).expect("flushed");
}

fn metric(of: &Aggregator, name: &str) -> u64 {
    let text = twin::text(of.http, "/metrics").expect("metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + WITHIN;
    while !holds() {
        assert!(Instant::now() < end, "in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A domain whose pair belongs to the partition, or does not.
fn domain(stem: &str, belongs: bool) -> String {
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
    let hit = Hit {
        resource: 0,
        domain,
        at: sent,
        copies: 1,
        min: None,
    };
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

pub fn what_has_no_business_in_a_topic_stops_nothing_and_is_kept_aside(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("bad"));
    let mut one = Aggregator::start(dir.path(), kafka, &prefix, "agg-1", false);
    await_whole(&[&one]);
    let topic = format!("{prefix}.hits");
    let forger = MacKey::derive(b"forger");
    let pen = || OwnersPen::new(&forger, PARTITION);
    let tick = Tick {
        log: LogId {
            generation: 99,
            random: 1,
        },
        owner: "forger",
        instance: 1,
        number: 1,
    };
    let pointer = Pointer {
        version: 1,
        digest: [7; 32],
    };
    let forged = [
        pen().tick(&tick),
        pen().pointer(&pointer),
        pen().totals("wide", (0, 1), None, &[(1, 1)]),
    ];
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("since then");
    let now = Timestamp::ZERO.saturating_add(Span::from_std(now));
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
    produce(kafka, &topic, &forged);
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
    let aside = dir.path().join("tollgate-aside");
    let mut reasons: Vec<String> = std::fs::read_dir(&aside)
        .expect("kept aside")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            assert!(
                name.starts_with("hits-3-"),
                "{name} has partition and offset"
            );
            std::fs::read_to_string(path).expect("read")
        })
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons.len(), 6, "{reasons:?}");
    assert_eq!(
        reasons
            .iter()
            .filter(|why| why.contains("tag is wrong"))
            .count(),
        3
    );
    let said = one.said().join("\n");
    assert_eq!(said.matches("a record is refused").count(), 6, "{said}");
}
