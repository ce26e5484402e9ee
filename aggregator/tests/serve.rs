//! Tests of `tollgate serve`, with a real process: the loop from hit to denial works, kills lose nothing, shutdown is
//! quick.

#[path = "serve/journal_faults.rs"]
mod journal_faults;
#[path = "serve/limits_file.rs"]
mod limits_file;
#[path = "serve/log_lines.rs"]
mod log_lines;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use support::{Dealer, LIMITS, Subscriber, directory, serve};
use tollgate_limits::versions::LimitsBook;
use tollgate_log::Stream;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::reader::{JournalRead, JournalReader};
use tollgate_server::core::counters::Counters;
use tollgate_server::core::ruler::Ruler;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Refusal};
use tollgate_shared::wire::public::Kind;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::statement::{Cause, Scope, StatementKind};

const RESOURCE: &str = "api.search";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_of_one_process_become_a_denial_for_another() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut subscriber = Subscriber::connect(served.feed).await;
    // The subscription has arrived once a heartbeat arrives.
    let (_, first) = subscriber.frame().await;
    let mut agent = Dealer::connect(served.agents, 1).await;
    let (instance, partitions, feed) = agent.hello().await;
    assert_eq!((first.instance, partitions), (instance, 4));
    assert_eq!(feed, format!("tcp://{}", served.feed));

    agent.hit(RESOURCE, "acme", 5, partitions).await;
    let (topic, frame) = loop {
        let (topic, frame) = subscriber.frame().await;
        if !frame.statements.is_empty() {
            break (topic, frame);
        }
    };
    assert_eq!(&*frame.resource, RESOURCE);
    assert_eq!(topic.as_bytes()[0], b'r');
    assert_eq!(frame.sequence, 1);
    let statement = &frame.statements[0].statement;
    assert_eq!(statement.scope, Scope::Pair("acme".into()));
    let StatementKind::Denied(denial) = statement.kind else {
        panic!("{statement:?}");
    };
    assert_eq!(denial.cause, Cause::Window(0));
    let remaining = frame.statements[0].remaining.to_std();
    assert!(
        Duration::from_secs(50) < remaining && remaining <= Duration::from_secs(61),
        "{remaining:?}"
    );
    // The watermark is beyond the statement's own log position.
    let watermark = frame
        .watermarks
        .iter()
        .find(|e| e.partition == frame.statements[0].partition);
    assert!(statement.position.offset < watermark.unwrap().ruled);

    let shown = served.json("/v1/denials?resource=api.search&domain=acme");
    assert_eq!(shown["schema"], "tollgate.denials/1");
    assert_eq!(shown["denials"][0]["domain"], "acme");
    assert_eq!(shown["denials"][0]["cause"], "window:0");
    let pair = served.json("/v1/pairs/api.search/acme");
    assert_eq!(pair["state"]["remaining"], 0);
    assert_eq!(pair["denial"]["code"], shown["denials"][0]["code"]);
    for wrong in [
        "/v1/denials?limit=many",
        "/v1/denials?rsource=api.search",
        "/v1/pairs",
        "/v1/pairs/api.search/%ff",
        "/v1/bans?after=none",
    ] {
        let (status, body) = served.get(wrong);
        let fault: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &fault["schema"]),
            (400, &"tollgate.error/1".into()),
            "{body}"
        );
    }
    assert_eq!(
        served.json("/v1/denials?domain=globex")["denials"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_send_heartbeats_without_gaps() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 1).await;
    agent.hit(RESOURCE, "acme", 9, 4).await;
    let mut subscriber = Subscriber::connect(served.feed).await;
    let (mut control, mut resource) = (Vec::new(), Vec::new());
    let mut ruled = Vec::new();
    while control.len() < 4 || resource.len() < 4 {
        let (topic, frame) = subscriber.frame().await;
        match topic.as_bytes()[0] {
            b'c' => control.push(frame.sequence),
            _ => resource.push(frame.sequence),
        }
        assert_eq!(frame.watermarks.len(), 4, "every partition is ready");
        ruled.push(frame.watermarks[0].ruled);
    }
    for sequences in [control, resource] {
        assert!(
            sequences.windows(2).all(|two| two[0] + 1 == two[1]),
            "{sequences:?}"
        );
    }
    assert!(
        ruled.first() < ruled.last(),
        "ticks make places advance: {ruled:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_joins_gets_the_denials_in_force() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 1).await;
    for n in 0..3_000 {
        let (partition, record) = agent.batch(RESOURCE, &format!("tenant-{n}"), 5, 4);
        agent.append(partition, &record).await;
    }
    served.await_json("/v1/denials?limit=0", |shown| shown["omitted"] == 3_000);
    let parts = agent.ask(&[RESOURCE, "api.none"]).await;
    assert!(1 < parts.len(), "3,000 statements do not fit one part");
    let received: usize = parts
        .iter()
        .flat_map(|part| &part.topics)
        .map(|topic| topic.statements.len())
        .sum();
    assert_eq!(received, 3_000);
    let topic = &parts[0].topics[0];
    assert_eq!(
        (&*topic.resource, topic.public.kind),
        (RESOURCE, Kind::Rate)
    );
    assert_eq!(topic.public.windows[0].limit, 5);
    assert!(1 <= topic.sequence);
    let last = parts.last().unwrap().topics.last().unwrap();
    assert_eq!(
        (&*last.resource, last.public.kind, last.sequence),
        ("api.none", Kind::Unconfigured, 0)
    );
    assert!(
        parts
            .iter()
            .all(|part| part.nonce == 9 && part.watermarks.len() == 4)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn global_limits_are_ruled_over_all_partitions() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut subscriber = Subscriber::connect(served.feed).await;
    subscriber.frame().await;
    let mut agent = Dealer::connect(served.agents, 1).await;
    for domain in ["a", "b", "c", "d", "e", "f"] {
        agent.hit("api.wide", domain, 1, 4).await;
    }
    loop {
        let (_, frame) = subscriber.frame().await;
        if let Some(notice) = frame.statements.first() {
            assert_eq!(notice.statement.scope, Scope::Resource);
            assert!(
                matches!(notice.statement.kind, StatementKind::Denied(denial) if denial.cause == Cause::Global)
            );
            break;
        }
    }
    // Every total is in the log, once.
    served.await_json("/readyz", |_| {
        served.metric("tollgate_totals_waiting") == 0.0
    });
    assert_eq!(served.metric("tollgate_totals_total"), 6.0);
    assert_eq!(served.metric("tollgate_totals_out_of_order_total"), 0.0);
}

/// Rules a journal beside its aggregator, from the beginning, and compares with the aggregator's digests: at the
/// offset that it shows, each partition must have the digest that it shows.
fn replay_agrees(served: &support::Served, dir: &Path) {
    let view = served.json("/v1/digests");
    let reader = JournalReader::open(dir.join("tollgate-data"), Arc::new(OsDisk)).unwrap();
    let records = |stream, partition, upto: u64| {
        let mut reader = reader.read(stream, partition, 0);
        let mut all = Vec::new();
        while let JournalRead::Records(records) = reader.read().unwrap() {
            all.extend(records.into_iter().filter(|record| record.offset < upto));
        }
        all
    };
    let mut book = LimitsBook::default();
    for record in records(Stream::Limits, 0, u64::MAX) {
        book.read(record.offset, record.appended, &record.bytes)
            .unwrap();
    }
    for found in view["partitions"].as_array().unwrap() {
        let partition = found["partition"].as_u64().unwrap() as u32;
        let upto = found["offset"].as_u64().unwrap();
        let mut ruler = Ruler::new(partition, 4);
        let mut counters = Counters::default();
        for record in records(Stream::Hits, partition, upto) {
            let decoded = Record::decode(&record.bytes).unwrap();
            ruler.apply(
                record.offset,
                record.appended,
                &decoded,
                &book,
                &mut counters,
            );
        }
        assert_eq!(
            found["digest"],
            ruler.digest(),
            "partition {partition} at {upto}"
        );
    }
}

/// Domains, codes and ends of denials.
fn places(view: &serde_json::Value) -> Vec<(String, String, u64)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let list = view["denials"].as_array().unwrap();
    list.iter()
        .map(|d| {
            (
                text(&d["domain"]),
                text(&d["code"]),
                d["end_us"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_9_the_journal_brings_back_the_same_state() {
    let dir = directory(LIMITS);
    // Often enough that snapshots are taken during the test.
    std::fs::write(
        dir.path().join("tollgate.toml"),
        "snapshot = { every = \"1s\", entries_max = 1000 }\n",
    )
    .unwrap();
    let config = ["--config", "tollgate.toml"];
    let mut served = serve(dir.path(), &config);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    let mut entries = 0;
    while served.metric("tollgate_snapshots_saved_total") < 6.0 || entries < 3_000 {
        let n = entries;
        agent
            .hit(RESOURCE, &format!("t{}", n % 90), 1 + n % 3, 4)
            .await;
        agent.hit("api.wide", &format!("t{}", n % 7), 10, 4).await;
        entries += 11 + n % 3;
    }
    // Everything appended has been ruled, and what followed from it was appended.
    served.await_json("/readyz", |_| {
        served.metric("tollgate_entries_total") == entries as f64
            && served.metric("tollgate_totals_waiting") == 0.0
    });
    let denials = served.json("/v1/denials?resource=api.search&limit=1000");
    replay_agrees(&served, dir.path());
    served.signal("KILL");
    served.await_end();

    let mut again = serve(dir.path(), &config);
    again.line_with("partitions restored from snapshots");
    again.await_ready();
    let ruled = again.metric("tollgate_entries_total");
    // How many depends on when the snapshots were taken.
    assert!(
        ruled < entries as f64,
        "{ruled} of {entries} entries were read again"
    );
    let denials_again = again.json("/v1/denials?resource=api.search&limit=1000");
    assert!(20 < places(&denials).len());
    assert_eq!(places(&denials_again), places(&denials));
    replay_agrees(&again, dir.path());
    let digests = again.json("/v1/digests");
    assert!(
        digests["partitions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|p| p["generation"] == 1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_loses_no_acknowledged_record() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let agents = served.agents;
    let load = tokio::spawn(async move {
        let mut agent = Dealer::connect(agents, 3).await;
        let mut acknowledged = 0u64;
        let mut ids = 0;
        loop {
            // 32 on their way at once; the end of the socket ends the load.
            let mut sent = 0;
            for n in 0..32 {
                let (partition, record) = agent.batch("api.wide", &format!("t{n}"), 10, 4);
                ids += 1;
                let mut writer = tollgate_shared::wire::Writer::new();
                let append = FromAgent::Append {
                    id: ids,
                    partition,
                    record: &record,
                };
                append.encode(&mut writer);
                if agent.try_send(writer.as_slice()).await.is_err() {
                    return acknowledged;
                }
                sent += 1;
            }
            for _ in 0..sent {
                match agent.try_receive().await {
                    Some(FromAggregator::Appended { .. }) => acknowledged += 10,
                    Some(_) => {}
                    None => return acknowledged,
                }
            }
        }
    });
    served.await_json("/readyz", |_| {
        5_000.0 < served.metric("tollgate_entries_total")
    });
    served.signal("TERM");
    let (status, took) = served.await_end();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let acknowledged = load.await.unwrap();
    // What is ruled may not be acknowledged yet: 32 records of 10 at most.
    assert!(5_000 - 320 <= acknowledged, "{acknowledged}");

    let again = serve(dir.path(), &[]);
    again.await_ready();
    let ruled = again.metric("tollgate_entries_total");
    assert!(
        acknowledged as f64 <= ruled,
        "{acknowledged} were acknowledged, {ruled} are there"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_records_of_agents_are_refused_with_a_reason() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 1).await;
    for (partition, record) in [
        (99, &b"\x01\x02"[..]),
        (0, b"\x01\x05"),
        (0, b"\x01\x02\x93"),
        (0, b""),
    ] {
        agent
            .send(&FromAgent::Append {
                id: 1,
                partition,
                record,
            })
            .await;
        let answer = agent.receive().await;
        assert!(
            matches!(&answer, FromAggregator::Refused { reason: Refusal::Never, text, .. } if !text.is_empty()),
            "{answer:?}"
        );
    }
    // Bytes that are not a message end their connection, and no other.
    let mut other = Dealer::connect(served.agents, 2).await;
    agent.send_raw(b"\xffgarbage").await;
    assert_eq!(agent.try_receive().await, None);
    other.hello().await;
    assert_eq!(served.metric("tollgate_link_garbage_total"), 1.0);
    for (reason, count) in [("partition", 1.0), ("kind", 1.0), ("malformed", 2.0)] {
        let metric = format!("tollgate_link_refused_total{{reason=\"{reason}\"}}");
        assert_eq!(served.metric(&metric), count);
    }
    let ended = r#"tollgate_connections_ended_total{port="agents",reason="malformed"}"#;
    assert_eq!(served.metric(ended), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limits_file_is_pushed_on_sighup_and_a_bad_one_changes_nothing() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let first = served.json("/v1/limits")["version"].as_u64().unwrap();
    let mut agent = Dealer::connect(served.agents, 1).await;
    agent.hit(RESOURCE, "acme", 5, 4).await;
    served.await_json("/v1/denials", |shown| {
        !shown["denials"].as_array().unwrap().is_empty()
    });

    let path = dir.path().join("limits.toml");
    std::fs::write(
        &path,
        "version = 1\nrules = 2\n[rate.\"api.search\"]\nrat = \"9/m\"\nhard = 7\n",
    )
    .unwrap();
    served.signal("HUP");
    served.line_with("did you mean `rate`");
    served.line_with("hard = 7");
    assert_eq!(served.json("/v1/limits")["version"], first);
    assert_eq!(served.metric("tollgate_limits_file_bad"), 1.0);

    std::fs::write(
        &path,
        "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"9/m\"\n",
    )
    .unwrap();
    served.signal("HUP");
    let limits = served.await_json("/v1/limits", |limits| {
        limits["version"].as_u64() > Some(first)
    });
    assert!(limits["text"].as_str().unwrap().contains("9/m"));
    // The version's record lifts the denial: its partition has room again.
    served.await_json("/v1/denials", |shown| {
        shown["denials"].as_array().unwrap().is_empty()
    });
    assert_eq!(served.metric("tollgate_limits_file_bad"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_lines_are_json_objects_where_configured() {
    let dir = directory(LIMITS);
    let text = "telemetry.log_format = \"json\"\n";
    std::fs::write(dir.path().join("tollgate.toml"), text).unwrap();
    let mut served = serve(dir.path(), &["--config", "tollgate.toml"]);
    served.await_ready();
    served.signal("TERM");
    served.line_with("stopping");
    assert!(served.await_end().0.success());
    assert!(3 < served.log_lines.len(), "{:?}", served.log_lines);
    for line in &served.log_lines {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let has = |key: &str| object[key].is_string();
        assert!(has("level") && has("timestamp") && has("target"), "{line}");
        assert!(object["fields"]["message"].is_string(), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_followed_is_a_warning_and_a_metric() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    served.await_end();
    std::fs::write(dir.path().join("limits.toml"), "version = 1\nrules = 2\n").unwrap();
    std::fs::write(
        dir.path().join("tollgate.toml"),
        "limits.follow_file = false\n",
    )
    .unwrap();
    let mut served = serve(dir.path(), &["--config", "tollgate.toml"]);
    served.line_with("differs from the limits version in force");
    served.await_ready();
    assert_eq!(served.metric("tollgate_limits_file_differs"), 1.0);
    assert!(
        served.json("/v1/limits")["text"]
            .as_str()
            .unwrap()
            .contains("5/m")
    );
}
