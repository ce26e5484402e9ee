//! Tests of `tollgate audit`, on a journal that a real aggregator wrote under traffic and a kill: it reports
//! equality, and where something was altered, exactly where.

mod copies;
mod state_digests;
mod truncated;

use std::path::Path;

use serde_json::Value;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::export::ExportSource;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::hits::write_hits;
use tollgate_shared::wire::record::{Record, kind};
use tollgate_shared::wire::statement::StatementKind;

use crate::support::export::{All, altered, of, read_all};
use crate::support::{self, Dealer, directory, run, serve};

const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
tiers = [
  { limit = 5, window = "1m", active = "1m" },
  { limit = 3, window = "10s", active = "10s", cooldown = "1h" },
]
[rate."api.wide"]
rate = "1000000/s"
global = "3/s"
[rate."web.*"]
rate = "2/m"
[rate."web.net"]
rate = "7/m"
addresses = { v4 = 24, v6 = 64 }
domains = { "10.0.0.0/8" = { rate = "1/m" }, "10.1.0.0/16" = { rate = "4/m" }, "203.0.113.7" = { rate = "2/m" } }
"#;

/// Hits beyond what a pattern, networks and an address's network allow, and how many of each are allowed.
const BY_PATTERN_AND_NETWORK: [(&str, &str, u64); 6] = [
    ("web.other", "acme", 2),
    ("web.net", "acme", 7),
    ("web.net", "10.9.9.0/24", 1),
    ("web.net", "10.1.9.0/24", 4),
    ("web.net", "203.0.113.0/24", 2),
    ("web.net", "2001:db8:1:2::/64", 7),
];

const PARTITIONS: u32 = 4;

/// A journal with denials of tiers and of a global limit, over two runs of an aggregator, the first of
/// which is killed; and an export of all of it.
async fn written() -> tempfile::TempDir {
    let dir = directory(LIMITS);
    std::fs::write(dir.path().join("t.toml"), "[snapshot]\nevery = \"1s\"\n").unwrap();
    for run in 0..2 {
        let mut served = serve(dir.path(), &["--config", "t.toml"]);
        served.await_ready();
        let mut agent = Dealer::connect(served.agents, 7 + run).await;
        for n in 0..20 {
            let domain = format!("tenant-{n}");
            agent
                .hit("api.search", &domain, 4 + n % 6, PARTITIONS)
                .await;
            agent.hit("api.wide", &domain, 1, PARTITIONS).await;
        }
        agent.hit("api.search", "tenant-0", 9, PARTITIONS).await;
        for (resource, domain, allowed) in BY_PATTERN_AND_NETWORK {
            agent
                .hit(resource, domain, allowed as usize, PARTITIONS)
                .await;
        }
        // Two more ticks in every partition, so that everything is known to be recorded.
        let shown = served.json("/v1/digests");
        let past = |value: &Value| {
            let offsets = value["partitions"].as_array().unwrap().iter();
            let before = shown["partitions"].as_array().unwrap().iter();
            offsets.zip(before).all(|(now, then)| {
                then["offset"].as_u64().unwrap() + 8 < now["offset"].as_u64().unwrap()
            })
        };
        served.await_json("/v1/digests", past);
        served.signal(if run == 0 { "KILL" } else { "TERM" });
        served.await_end();
    }
    let args = ["audit", "export", "--journal", "tollgate-data", "-o", "all"];
    let (exit, stdout, stderr) = support::run(dir.path(), &args);
    assert_eq!(exit, 0, "{stdout}{stderr}");
    dir
}

fn audit(dir: &Path, args: &[&str]) -> (i32, Value) {
    let mut all = vec!["audit", "--format", "json"];
    all.extend(args);
    let (exit, stdout, stderr) = run(dir, &all);
    let report =
        serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{exit}: {stdout}{stderr}"));
    (exit, report)
}

fn announced(record: &Delivered) -> Option<Announced> {
    Announced::decode(&record.bytes).ok()
}

/// A partition, and the index among its denials of a statement that, like the next one, was announced once: what the
/// killed aggregator had announced after its last snapshot, the second one announces again.
fn neighbours(all: &All) -> (u32, usize) {
    for (stream, partition, records) in all {
        let places: Vec<_> = records
            .iter()
            .map(|r| announced(r).map(|a| a.statement.position))
            .collect();
        let is_once = |place| places.iter().filter(|of| **of == Some(place)).count() == 1;
        let apart = |two: &[_]| match *two {
            [Some(a), Some(b)] => a < b && is_once(a) && is_once(b),
            _ => false,
        };
        if *stream == Stream::Denials
            && let Some(at) = places.windows(2).position(apart)
        {
            return (*partition, at);
        }
    }
    panic!("no two statements");
}

fn encoded(announced: &Announced) -> bytes::Bytes {
    let mut writer = wire::Writer::new();
    announced.encode(&mut writer);
    bytes::Bytes::copy_from_slice(writer.as_slice())
}

fn kinds(report: &Value) -> Vec<&str> {
    let differences = report["differences"].as_array().unwrap();
    let kinds = differences.iter().map(|d| d["kind"].as_str().unwrap());
    kinds.collect()
}

fn code(announced: &Announced) -> String {
    let code = tollgate_shared::log_position::Code {
        partition: announced.partition,
        position: announced.statement.position,
    };
    code.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_goes_into_pipes_and_leaves_links() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    agent.hit("api.search", "acme", 3, PARTITIONS).await;
    served.signal("TERM");
    served.await_end();
    let path = |name: &str| dir.path().join(name);
    let export = |to: &str| {
        let args = ["audit", "export", "--journal", "tollgate-data", "-o", to];
        let mut command = support::tollgate();
        command.current_dir(dir.path()).args(args);
        command
    };
    let exported = |to: &str| {
        let output = export(to).output().unwrap();
        assert!(output.status.success(), "{to}: {output:?}");
        output.stdout
    };
    std::fs::write(path("file"), "before").unwrap();
    std::os::unix::fs::symlink("file", path("link")).unwrap();
    exported("link");
    assert!(path("link").is_symlink());
    let (exit, report) = audit(dir.path(), &["--export", "file"]);
    assert_eq!(exit, 0, "{report:#}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&path("file").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // The export alone is on stdout; the summary is on stderr.
    for (to, into) in [("-", "stdout"), ("/dev/stdout", "device")] {
        std::fs::write(path(into), exported(to)).unwrap();
        let summary = export(to).output().unwrap().stderr;
        assert!(String::from_utf8_lossy(&summary).contains("records of hits"));
    }
    let made = std::process::Command::new("mkfifo")
        .arg(path("pipe"))
        .status();
    assert!(made.unwrap().success());
    let mut writing = export("pipe").spawn().unwrap();
    let mut cat = std::process::Command::new("timeout");
    let read = cat.args(["60", "cat"]).arg(path("pipe")).output().unwrap();
    std::fs::write(path("piped"), read.stdout).unwrap();
    assert!(writing.wait().unwrap().success());
    for read in ["stdout", "device", "piped"] {
        let (exit, found) = audit(dir.path(), &["--export", read]);
        assert_eq!((exit, &found["records"]), (0, &report["records"]), "{read}");
    }
    assert!(!path("-").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_of_a_killed_journal_and_its_export_are_equal() {
    let dir = written().await;
    let (exit, report) = audit(dir.path(), &["--journal", "tollgate-data"]);
    assert_eq!((exit, &report["equal"]), (0, &true.into()), "{report:#}");
    let number = |field: &str| report[field].as_u64().unwrap();
    assert!(20 < number("announced_equal"), "{report:#}");
    assert_eq!(
        number("announced_equal"),
        number("denials") + number("lifts"),
        "{report:#}"
    );
    assert!(0 < number("snapshots_equal"), "{report:#}");
    assert!(0 < number("excess"), "{report:#}");
    let by_cause = &report["excess_by_cause"];
    let causes = ["propagation", "loss", "restart", "unguarded", "charged"];
    let of = |value: &Value| -> u64 { causes.iter().map(|of| value[of].as_u64().unwrap()).sum() };
    let pairs = report["excess_pairs"].as_array().unwrap();
    assert_eq!(
        of(by_cause),
        pairs.iter().map(of).sum::<u64>(),
        "{report:#}"
    );
    assert!(
        0 < of(by_cause) && of(by_cause) <= number("excess"),
        "{report:#}"
    );
    assert_eq!(number("effect_violations"), 0, "{report:#}");
    // A small log: the model checks everything.
    let model = |field: &str| report["model"][field].as_u64().unwrap();
    assert_eq!(model("statements"), number("announced_equal"), "{report:#}");
    assert_eq!(model("entries"), number("entries"), "{report:#}");
    let (_, unasked) = audit(
        dir.path(),
        &["--journal", "tollgate-data", "--model", "none"],
    );
    assert_eq!(unasked["model"]["entries"], 0);
    let (_, some) = audit(
        dir.path(),
        &["--journal", "tollgate-data", "--model", "40%"],
    );
    let pairs = some["model"]["pairs"].as_u64().unwrap();
    assert!(0 < pairs && pairs < model("pairs"), "{some:#}");
    let (exit, exported) = audit(dir.path(), &["--export", "all"]);
    assert_eq!(exit, 0, "{exported:#}");
    for same in [
        "records",
        "entries",
        "granted",
        "announced_equal",
        "snapshots_equal",
    ] {
        assert_eq!(report[same], exported[same], "{same}");
    }
    // A part of it, which begins with a snapshot of its own.
    let from = "@0:40";
    let args = [
        "audit", "export", "--export", "all", "--from", from, "-o", "part",
    ];
    assert_eq!(run(dir.path(), &args).0, 0);
    let (exit, part) = audit(dir.path(), &["--export", "part"]);
    let (_, of_all) = audit(dir.path(), &["--export", "all", "--from", from]);
    assert_eq!(exit, 0, "{part:#}");
    for same in ["records", "entries", "granted", "announced_equal"] {
        assert_eq!(part[same], of_all[same], "{same}: {part:#}");
    }
    assert!(part["records"].as_u64() < exported["records"].as_u64());
}

/// Audits a copy of the export in which the records of one stream of a partition are altered: exit code and report.
fn audit_altered(
    dir: &Path,
    name: &str,
    (stream, partition): (Stream, u32),
    alter: impl FnOnce(&mut Vec<Delivered>),
) -> (i32, Value) {
    altered(dir, name, |all| alter(of(all, stream, partition)));
    audit(dir, &["--export", name])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_reports_every_altered_record_with_its_position() {
    let dir = written().await;
    let source = ExportSource::open(&dir.path().join("all")).unwrap();
    let (partition, at) = neighbours(&read_all(&source));
    let denials = (Stream::Denials, partition);

    // An end that is one microsecond later.
    let mut right = None;
    let (exit, report) = audit_altered(dir.path(), "end", denials, |records| {
        let mut changed = announced(&records[at]).unwrap();
        right = Some(changed.clone());
        let StatementKind::Denied(denial) = &mut changed.statement.kind else {
            panic!("{changed:?}");
        };
        denial.end = Timestamp::from_micros(denial.end.as_micros() + 1);
        records[at].bytes = encoded(&changed);
    });
    let right = code(&right.unwrap());
    assert_eq!((exit, kinds(&report)), (1, vec!["changed"]), "{report:#}");
    let difference = &report["differences"][0];
    assert_eq!(difference["code"], *right);
    let end = |of: &str| difference[of]["end_us"].as_u64().unwrap();
    assert_eq!(end("found"), end("expected") + 1);
    assert!(difference["text"].as_str().unwrap().ends_with(": end"));
    let (_, text, _) = run(dir.path(), &["audit", "--export", "end"]);
    assert!(text.contains("NOT equal: 1 difference"), "{text}");

    // One statement is missing; its offset is kept, so that the hole is seen as well.
    let (exit, report) = audit_altered(dir.path(), "less", denials, |records| {
        records.remove(at);
    });
    let found = (exit, kinds(&report));
    assert_eq!(found, (1, vec!["missing", "gap"]), "{report:#}");
    assert_eq!(report["differences"][0]["code"], *right);

    // Two statements are swapped.
    let (exit, report) = audit_altered(dir.path(), "swapped", denials, |records| {
        let bytes = records[at].bytes.clone();
        records[at].bytes = records[at + 1].bytes.clone();
        records[at + 1].bytes = bytes;
    });
    assert_eq!(exit, 1, "{report:#}");
    let found = kinds(&report);
    assert!(found == ["order"] || found.contains(&"early"), "{report:#}");

    // A statement without a cause.
    let (exit, report) = audit_altered(dir.path(), "more", denials, |records| {
        let mut invented = announced(&records[at]).unwrap();
        invented.statement.position.entry += 1_000;
        let mut record = records.last().unwrap().clone();
        record.offset += 1;
        record.bytes = encoded(&invented);
        records.push(record);
    });
    let found = (exit, kinds(&report));
    assert_eq!(found, (1, vec!["unexpected"]), "{report:#}");
}

/// A batch of hits in which one was made a millisecond earlier.
fn with_an_earlier_hit(batch: &[u8], entry: usize) -> bytes::Bytes {
    let Ok(Record::Hits(batch)) = Record::decode(batch) else {
        panic!("a batch caused it");
    };
    let mut hits: Vec<_> = batch.hits().to_vec();
    hits[entry].at = Timestamp::from_micros(hits[entry].at.as_micros() - 1_000);
    let mut writer = wire::Writer::new();
    write_hits(
        &mut writer,
        &batch.sender,
        batch.resources(),
        hits.into_iter(),
        batch.refused().collect::<Vec<_>>().into_iter(),
    );
    bytes::Bytes::copy_from_slice(writer.as_slice())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_altered_hit_or_tick_is_found_and_a_doubled_batch_is_a_remark() {
    let dir = written().await;
    let source = ExportSource::open(&dir.path().join("all")).unwrap();
    let mut all = read_all(&source);
    let (partition, at) = neighbours(&all);
    let first = announced(&of(&mut all, Stream::Denials, partition)[at]);
    let caused = first.unwrap().statement.position;
    let position = |records: &[Delivered]| {
        let mut records = records.iter();
        records.position(|r| r.offset == caused.offset).unwrap()
    };
    let hits = (Stream::Hits, partition);

    let (exit, report) = audit_altered(dir.path(), "hit", hits, |records| {
        let at = position(records);
        records[at].bytes = with_an_earlier_hit(&records[at].bytes, caused.entry as usize);
    });
    assert_eq!(exit, 1, "{report:#}");
    let first = &report["differences"][0];
    assert_eq!(first["offset"], caused.offset, "{report:#}");
    assert_eq!(first["partition"], partition, "{report:#}");

    // A record is missing; its offset is kept.
    let (exit, report) = audit_altered(dir.path(), "less", hits, |records| {
        records.remove(position(records));
    });
    assert_eq!(exit, 1, "{report:#}");
    let gap = &report["differences"][0];
    assert_eq!(
        (&gap["kind"], &gap["offset"]),
        (&"gap".into(), &caused.offset.into())
    );

    // A tick with a content that no aggregator wrote.
    let mut tick = 0;
    let (exit, report) = audit_altered(dir.path(), "tick", hits, |records| {
        let is_tick = |r: &&mut Delivered| r.bytes.get(1) == Some(&kind::TICK);
        let record = records.iter_mut().find(is_tick).unwrap();
        tick = record.offset;
        let mut bytes = record.bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        record.bytes = bytes.into();
    });
    let forged = &report["differences"][0];
    assert_eq!((exit, &forged["kind"]), (1, &"forged".into()), "{report:#}");
    assert_eq!(forged["offset"], tick);

    // A batch that occurs twice: once more at its offset, and once more at the end.
    let beside = audit_altered(dir.path(), "beside", hits, |records| {
        let at = position(records);
        records.insert(at + 1, records[at].clone());
    });
    let behind = audit_altered(dir.path(), "behind", hits, |records| {
        let mut again = records[position(records)].clone();
        let last = records.last().unwrap();
        (again.offset, again.appended) = (last.offset + 1, last.appended);
        records.push(again);
    });
    for ((exit, report), expected) in [(beside, "redelivered"), (behind, "duplicates")] {
        assert_eq!((exit, &report["equal"]), (0, &true.into()), "{report:#}");
        let remarks = report["remarks"].to_string();
        assert!(remarks.contains(expected), "{remarks}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_or_bad_input_yields_no_report() {
    let dir = written().await;
    let exit = |args: &[&str]| {
        let mut all = vec!["audit"];
        all.extend(args);
        let (exit, stdout, stderr) = run(dir.path(), &all);
        assert_eq!(stdout, "", "{stderr}");
        (exit, stderr)
    };
    let bytes = std::fs::read(dir.path().join("all")).unwrap();
    std::fs::write(dir.path().join("cut"), &bytes[..bytes.len() / 2]).unwrap();
    let (code, why) = exit(&["--export", "cut"]);
    assert_eq!(code, 65);
    assert!(why.contains("cut off at byte"), "{why}");
    let mut changed = bytes;
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    std::fs::write(dir.path().join("changed"), changed).unwrap();
    let (code, why) = exit(&["--export", "changed"]);
    assert_eq!(code, 65);
    assert!(why.contains("byte "), "{why}");
    assert_eq!(exit(&["--journal", "nowhere"]).0, 66);
    assert_eq!(exit(&["--export", "nowhere"]).0, 66);
    assert_eq!(exit(&[]).0, 64);
    assert_eq!(exit(&["--export", "all", "--from", "whenever"]).0, 64);
    // An empty range results in no report.
    for (from, to, expected) in [
        ("@0:99999999", None, "what there is was appended from 20"),
        (
            "2020-01-01T00:00:00Z",
            Some("2020-01-02T00:00:00Z"),
            "no record lies in this range",
        ),
        ("@99:0", None, "it has no partition 99"),
    ] {
        let to = to.map_or(Vec::new(), |to| vec!["--to", to]);
        let (code, why) = exit(&[&["--export", "all", "--from", from], &to[..]].concat());
        assert!(code == 65 && why.contains(expected), "{from}: {code} {why}");
    }
    // A segment of the journal with altered bytes.
    let journal = dir.path().join("tollgate-data/hits-00000");
    let segment = std::fs::read_dir(journal).unwrap().next().unwrap().unwrap();
    let mut bytes = std::fs::read(segment.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(segment.path(), bytes).unwrap();
    let (code, why) = exit(&["--journal", "tollgate-data"]);
    assert_eq!(code, 65);
    assert!(why.contains("record "), "{why}");
}
