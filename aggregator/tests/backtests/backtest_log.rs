//! Tests of `tollgate backtest` on Tollgate's own logs: ranges, live traffic, and logs that it cannot use: with a
//! beginning that retention has removed, or written by a later build.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tollgate_limits::versions::digest;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::export::ExportSource;
use tollgate_server::core::limits_push::Pushed;
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{HitBatch, Refused, Sender, write_hits};
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen};
use tollgate_shared::wire::statement::Cause;

use crate::support::export::{All, altered, of, read_all};
use crate::support::{Dealer, directory, run, serve, tollgate};

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"5/m\"\n";
const LOOSE: &str = "[rate.\"api.search\"]\nrate = \"999/s\"\n";

const PARTITIONS: u32 = 4;
const BACKTEST: [&str; 4] = ["backtest", "--limits", "limits.toml", "--export"];

/// A journal with hits of ten domains, in batches of one to four, and an export of it.
async fn written() -> tempfile::TempDir {
    let dir = directory(LIMITS);
    std::fs::write(dir.path().join("loose.toml"), LOOSE).expect("written");
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    for n in 0..40 {
        let domain = format!("tenant-{}", n % 10);
        agent
            .hit("api.search", &domain, 1 + n % 4, PARTITIONS)
            .await;
    }
    served.signal("TERM");
    served.await_end();
    let args = ["audit", "export", "--journal", "tollgate-data", "-o", "all"];
    let (code, out, err) = run(dir.path(), &args);
    assert_eq!(code, 0, "{out}{err}");
    dir
}

fn report(dir: &Path, args: &[&str]) -> Value {
    let (code, out, err) = run(dir, &[args, &["--format", "json", "-q"]].concat());
    assert_eq!(code, 0, "{args:?}: {out}{err}");
    serde_json::from_str(&out).expect("an object")
}

/// Runs a command that has nothing to report; returns its exit code and stderr.
fn refused(dir: &Path, args: &[&str]) -> (i32, String) {
    let (code, out, err) = run(dir, args);
    assert_eq!(out, "", "{args:?}: {err}");
    (code, err)
}

fn records(dir: &Path, partition: u32) -> Vec<Delivered> {
    let source = ExportSource::open(&dir.join("all")).expect("an export");
    let all = read_all(&source).into_iter();
    let mut hits = all.filter(|(stream, of, _)| (*stream, *of) == (Stream::Hits, partition));
    hits.next().expect("a partition").2
}

fn hits_of(record: &Delivered) -> u64 {
    let hits = |batch: HitBatch<'_>| batch.hits().iter().map(|hit| hit.total()).sum();
    match Record::decode(&record.bytes) {
        Ok(Record::Hits(batch)) => hits(batch),
        _ => 0,
    }
}

fn seen(report: &Value) -> u64 {
    report["inputs"]["seen"]["hits"].as_u64().expect("a number")
}

/// Appends a record to a partition.
fn put(all: &mut All, stream: Stream, partition: u32, bytes: Vec<u8>) -> u64 {
    let records = of(all, stream, partition);
    let mut record = records.last().expect("a record").clone();
    (record.offset, record.bytes) = (record.offset + 1, bytes.into());
    records.push(record);
    records.len() as u64 - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_of_a_range_backtests_like_its_journal() {
    let dir = written().await;
    let of_export = report(dir.path(), &[&BACKTEST[..], &["all"]].concat());
    let journal = [
        "backtest",
        "--limits",
        "limits.toml",
        "--journal",
        "tollgate-data",
    ];
    let mut of_journal = report(dir.path(), &journal);
    of_journal["inputs"]["names"] = of_export["inputs"]["names"].clone();
    assert_eq!(of_journal, of_export);
    assert_eq!(seen(&of_export), 100);

    let all: Vec<Delivered> = (0..PARTITIONS)
        .flat_map(|p| records(dir.path(), p))
        .collect();
    let mut batches: Vec<Timestamp> = all
        .iter()
        .filter(|record| 0 < hits_of(record))
        .map(|record| record.appended)
        .collect();
    batches.sort_unstable();
    let (from, to) = (batches[10], batches[30]);
    let expected: u64 = all
        .iter()
        .filter(|record| from <= record.appended && record.appended < to)
        .map(hits_of)
        .sum();
    let ends = [from, to].map(|end| end.as_micros().to_string());
    let part = [&journal[..], &["--from", &ends[0], "--to", &ends[1]]].concat();
    let of_part = report(dir.path(), &part);
    assert!(0 < expected && expected < 100);
    assert_eq!(seen(&of_part), expected, "{of_part:#}");
    // Records before a range do not count as missing.
    assert_eq!(of_part["inputs"]["seen"]["records_gone"], 0);

    // One partition, by offsets.
    let one = partition_of_pair("api.search", "tenant-0", PARTITIONS);
    let hits = records(dir.path(), one);
    let middle = hits[hits.len() / 2].offset;
    let before: u64 = hits[..hits.len() / 2].iter().map(hits_of).sum();
    let end = format!("@{one}:{middle}");
    let of_one = report(dir.path(), &[&journal[..], &["--to", &end]].concat());
    assert!(0 < before);
    assert_eq!(seen(&of_one), before);
}

#[test]
fn rows_of_files_lie_in_a_range_by_their_stamps() {
    let dir = directory("[rate.api]\nrate = \"1/s\"\n");
    let rows = "t,resource,domain\n10,api,a\n20,api,a\n20,api,b\n30,api,a\n";
    std::fs::write(dir.path().join("calls.csv"), rows).expect("written");
    let args = [
        "backtest",
        "--limits",
        "limits.toml",
        "calls.csv",
        "--time-unit",
        "s",
    ];
    let range = [
        "--from",
        "1970-01-01T00:00:20Z",
        "--to",
        "1970-01-01T00:00:30Z",
    ];
    let found = report(dir.path(), &[&args[..], &range].concat());
    assert_eq!(found["results"][0]["calls"], 2);
    assert_eq!(found["inputs"]["out_of_range"], 2);
    let (code, err) = refused(dir.path(), &[&args[..], &["--from", "@0:1"]].concat());
    assert_eq!(code, 64, "{err}");
    assert!(err.contains("expected an instant"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backtest_reports_the_records_that_retention_removed() {
    let dir = written().await;
    let one = partition_of_pair("api.search", "tenant-0", PARTITIONS);
    altered(dir.path(), "cut", |all| {
        drop(of(all, Stream::Hits, one).drain(..3))
    });
    let first = records(dir.path(), one)[3].clone();
    let early = (first.appended.as_micros() - 1).to_string();
    let late = first.appended.as_micros().to_string();
    for command in [&BACKTEST[..], &["audit", "--export"]] {
        for from in [&*early, &format!("@{one}:0")] {
            let args = [command, &["cut", "--from", from]].concat();
            let (code, out, err) = run(dir.path(), &args);
            let there = format!("on (@{one}:{})", first.offset);
            // An audit of several partitions reports the others, and says that it has not compared all.
            let (expected, text) = match command != &BACKTEST[..] && from == early {
                true => (1, &out),
                false => (65, &err),
            };
            assert_eq!(code, expected, "{args:?}: {err}");
            assert!(
                text.contains("retention has removed") && text.contains(&there),
                "{out}{err}"
            );
        }
    }
    // From there on it is complete.
    report(
        dir.path(),
        &[&BACKTEST[..], &["cut", "--from", &late]].concat(),
    );
    let all = report(dir.path(), &[&BACKTEST[..], &["cut"]].concat());
    assert_eq!(all["inputs"]["seen"]["records_gone"], 3);
    assert_eq!(all["inputs"]["seen"]["lower_bound"], true);
}

/// The records of an agent's holds, and of calls that it refused then, after its last batch in a partition.
fn with_copies(all: &mut All, partition: u32) {
    let batch_of = |record: &Delivered| match Record::decode(&record.bytes) {
        Ok(Record::Hits(batch)) => Some((batch.sender.epoch, batch.sender.sequence)),
        _ => None,
    };
    let mut batches = of(all, Stream::Hits, partition).iter().rev();
    let (epoch, last) = batches.find_map(batch_of).expect("a batch");
    let sent = Timestamp::from_millis(1_700_000_000_000);
    let sender = |sequence| Sender {
        agent: "agent",
        epoch,
        sequence,
        sent,
    };
    let mut holds = Writer::new();
    let reserve = HoldOp {
        resource: 0,
        number: 1,
        at: sent,
        action: HoldAction::Reserve {
            domain: "acme",
            copies: 1,
            min: 1,
        },
    };
    write_holds(
        &mut holds,
        &sender(last + 1),
        &["db"],
        [reserve].into_iter(),
    );
    put(all, Stream::Hits, partition, holds.as_slice().to_vec());
    let refused = |resource, calls, cause| Refused {
        resource,
        domain: "acme",
        calls,
        copies: calls,
        first: sent,
        last: sent,
        cause,
        position: None,
    };
    let refused = [
        refused(0, 2, Cause::Window(0)),
        refused(1, 5, Cause::Banned),
        refused(2, 7, Cause::Full),
    ];
    let mut hits = Writer::new();
    write_hits(
        &mut hits,
        &sender(last + 2),
        &["api.search", "db", "jobs"],
        [].into_iter(),
        refused.into_iter(),
    );
    put(all, Stream::Hits, partition, hits.as_slice().to_vec());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_left_out_and_their_batches_not_missed() {
    let dir = written().await;
    let plain = report(dir.path(), &[&BACKTEST[..], &["all"]].concat());
    altered(dir.path(), "copies", |all| with_copies(all, 2));
    let found = report(dir.path(), &[&BACKTEST[..], &["copies"]].concat());
    let (plain, seen) = (&plain["inputs"]["seen"], &found["inputs"]["seen"]);
    assert_eq!(
        (&seen["hits"], &seen["refused_calls"]),
        (&plain["hits"], &2.into())
    );
    assert_eq!(
        (&seen["batches_missing"], &seen["share"]),
        (&0.into(), &1.0.into())
    );
    assert_eq!(seen["lower_bound"], false);
    assert_eq!(seen["copies_refused"], 12);
    assert_eq!(seen["copies_resources"], serde_json::json!(["db", "jobs"]));
    let resources = found["results"][0]["resources"].as_array().expect("a list");
    let names = resources.iter().map(|of| &of["resource"]);
    assert!(names.eq([&Value::from("api.search")]), "{found:#}");
    let (_, text, _) = run(dir.path(), &[&BACKTEST[..], &["copies"]].concat());
    let remark = "left out, since they are limited by copies: db, jobs (12 refused reservations)";
    assert!(text.contains(remark), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_a_later_build_are_reported() {
    let dir = written().await;
    // A kind that may not be skipped.
    let mut offset = 0;
    altered(dir.path(), "kind", |all| {
        let record = [1, 0x4f, 0xc0];
        let tag = MacKey::UNPROTECTED.tag(2, &record);
        offset = put(all, Stream::Hits, 2, [&record[..], &tag].concat());
    });
    for command in [&BACKTEST[..], &["audit", "--export"]] {
        let (code, err) = refused(dir.path(), &[command, &["kind"]].concat());
        assert_eq!(code, 65, "{err}");
        assert!(
            err.contains(&format!("partition 2, offset {offset}")),
            "{err}"
        );
        assert!(err.contains("kind 79"), "{err}");
    }
    // A record that cannot be decoded: aggregators keep it as a dead letter, and a backtest skips it unless
    // `--strict`.
    altered(dir.path(), "form", |all| {
        put(all, Stream::Hits, 2, vec![9, 1, 0xc0]);
    });
    let found = report(dir.path(), &[&BACKTEST[..], &["form"]].concat());
    assert_eq!(found["inputs"]["seen"]["records_unreadable"], 1);
    let (code, err) = refused(dir.path(), &[&BACKTEST[..], &["form", "--strict"]].concat());
    assert_eq!(code, 65, "{err}");
    assert!(err.contains("partition 2, offset"), "{err}");

    // Rules that this build does not implement: in the log, and in a file.
    let later = LIMITS.replace("rules = 2", "rules = 99");
    std::fs::write(dir.path().join("later.toml"), &later).expect("written");
    altered(dir.path(), "rules", |all| {
        let limits = of(all, Stream::Limits, 0);
        let known = limits.last().expect("a version").offset;
        let pushed = Pushed {
            push: 5,
            text: &later,
            expected: known,
            who: "somebody",
            why: "later",
            at: Timestamp::from_millis(1),
        };
        put(all, Stream::Limits, 0, pushed.record());
        let activation = LimitsActivation {
            version: known + 1,
            digest: digest(later.as_bytes()),
        };
        let record = RecordPen::new(&MacKey::UNPROTECTED, 2).limits_activation(&activation);
        put(all, Stream::Hits, 2, record);
    });
    let (code, err) = refused(dir.path(), &["audit", "--export", "rules"]);
    assert_eq!(code, 65, "{err}");
    assert!(
        err.contains("partition 2") && err.contains("later build"),
        "{err}"
    );
    let args = ["backtest", "--limits", "later.toml", "--export", "all"];
    let (code, err) = refused(dir.path(), &args);
    assert_eq!(code, 65, "{err}");
    assert!(err.contains("rules"), "{err}");

    // An export that ends too early.
    let bytes = std::fs::read(dir.path().join("all")).expect("an export");
    std::fs::write(dir.path().join("short"), &bytes[..bytes.len() * 2 / 3]).expect("written");
    let (code, err) = refused(dir.path(), &[&BACKTEST[..], &["short"]].concat());
    assert_eq!(code, 65, "{err}");
    assert!(err.contains("cut off at byte"), "{err}");
}

/// A push keeps the rows of single domains, so a backtest that asks what it would do has them as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_beside_the_logs_document_are_played_with_each_document() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let set = ["limits", "set", "api.search", "--domain", "acme"];
    let more = ["--rate", "100/m", "--reason", "pays", "--url", &url];
    let (code, out, err) = run(dir.path(), &[&set[..], &more].concat());
    assert_eq!(code, 0, "{out}{err}");
    let mut agent = Dealer::connect(served.agents, 7).await;
    for domain in ["acme", "other"] {
        agent.hit("api.search", domain, 40, PARTITIONS).await;
    }
    let of = |more: &[&str]| {
        let args = ["--format", "json", "--journal", "tollgate-data"];
        let args = [&["backtest", "--limits", "limits.toml"], &args[..], more].concat();
        let (code, out, err) = run(dir.path(), &args);
        assert_eq!(code, 0, "{err}");
        let report: Value = serde_json::from_str(&out).expect("an object");
        (report, err)
    };
    let (report, err) = of(&[]);
    assert_eq!(report["results"][0]["granted"], 45, "{report}");
    assert!(
        err.contains("with 1 of the 1 rows that domains have"),
        "{err}"
    );
    assert_eq!(report["inputs"]["rows"], 80, "{report}");
    let (report, _) = of(&["--domain", "acme"]);
    assert_eq!(report["results"][0]["granted"], 40, "{report}");
    assert_eq!(report["inputs"]["passed_over"], 40, "{report}");
    // A document without the resource has no place for them.
    std::fs::write(
        dir.path().join("limits.toml"),
        LOOSE.replace("search", "find"),
    )
    .expect("written");
    let args = [
        "backtest",
        "--limits",
        "limits.toml",
        "--journal",
        "tollgate-data",
    ];
    let (code, err) = refused(dir.path(), &args);
    assert!(
        code == 65 && err.contains("removes its 1 row "),
        "{code}: {err}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_traffic_is_played_as_it_comes() {
    let dir = directory(LIMITS);
    std::fs::write(dir.path().join("loose.toml"), LOOSE).expect("written");
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    // Before it is followed.
    agent.hit("api.search", "acme", 9, PARTITIONS).await;
    let mut child = tollgate()
        .current_dir(dir.path())
        .args([
            "backtest",
            "--limits",
            "limits.toml",
            "--limits",
            "loose.toml",
        ])
        .args(["--journal", "tollgate-data", "--follow", "--every", "100ms"])
        .args(["--for", "30s", "--format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut reports = lines
        .map(|line| -> Value { serde_json::from_str(&line.expect("a line")).expect("an object") });
    let first = reports.next().expect("a report");
    assert_eq!(first["schema"], "tollgate.backtest_follow/1");
    assert_eq!(
        first["inputs"]["rows"], 0,
        "what came before is not its own"
    );
    for domain in ["acme", "globex"] {
        agent.hit("api.search", domain, 8, PARTITIONS).await;
    }
    let played = |report: &Value| report["results"][0]["calls"] == 16;
    let last = reports.find(played).expect("it is played before the end");
    child.kill().expect("it runs still");
    child.wait().expect("it has ended");
    let of =
        |number: usize, field: &str| last["results"][number][field].as_u64().expect("a number");
    assert_eq!(
        (of(0, "granted"), of(0, "refused"), of(0, "excess")),
        (10, 6, 6)
    );
    assert_eq!((of(1, "granted"), of(1, "refused")), (16, 0));
    assert_eq!((of(0, "pairs_refused"), of(1, "no_longer_refused")), (2, 2));
    assert_eq!(last["results"][0]["worst"][0]["refused"], 3, "{last:#}");
}
