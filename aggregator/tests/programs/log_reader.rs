//! The log is as `shared/LOG.md` describes it: a reader in another language, written from that page alone, reads the
//! golden bytes of every record and a journal of a real aggregator with the same result.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_log::{Delivered, Stream};
use tollgate_replay::source::journal::JournalSource;
use tollgate_replay::source::{ReadStep, Source};
use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::amendment::{Act, Amendment};
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::record::Record;
use tollgate_shared::wire::set_rows::SetRow;
use tollgate_shared::wire::statement::{Scope, StatementKind};

use crate::support::program::Named;
use crate::support::{Dealer, directory, run, serve};

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"5/m\"\n[rate.\"api.wide\"]\nrate = \"100/s\"\nglobal = \"3/s\"\n";

const PARTITIONS: u32 = 4;

pub const PYTHON: &str = "python3";

pub const TESTS: &[Named] = &[
    (
        "an_independent_reader_agrees_on_golden_bytes",
        an_independent_reader_agrees_on_golden_bytes,
    ),
    (
        "an_independent_reader_agrees_on_a_journal",
        an_independent_reader_agrees_on_a_journal,
    ),
];

/// The output of the reader, a line for each record.
fn reader(args: &[&str], dir: &Path, input: &str) -> Vec<Value> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/reader/tollgate_log.py");
    let child = Command::new(PYTHON)
        .arg(script)
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("it starts");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let line = |line: &str| serde_json::from_str(line).expect("an object");
    text.lines().map(line).collect()
}

fn amendments() -> Vec<(Act, Value)> {
    let (resource, domain) = (|| Box::<str>::from("r.a"), || Box::<str>::from("d"));
    let pair = |act: &str| json!({"act": act, "resource": "r.a", "domain": "d"});
    let and = |mut value: Value, field: &str, more: Value| {
        value[field] = more;
        value
    };
    vec![
        (
            Act::Reset {
                resource: resource(),
                domain: domain(),
            },
            pair("reset"),
        ),
        (
            Act::Pardon {
                resource: resource(),
                domain: domain(),
            },
            pair("pardon"),
        ),
        (
            Act::Refund {
                resource: resource(),
                domain: domain(),
                hits: 300,
            },
            and(pair("refund"), "hits", 300.into()),
        ),
        (
            Act::Ban {
                resource: None,
                domain: domain(),
                until: Timestamp::MAX,
            },
            json!({"act": "ban", "resource": null, "domain": "d", "until_us": u64::MAX}),
        ),
        (
            Act::Unban {
                resource: Some(resource()),
                domain: domain(),
            },
            pair("unban"),
        ),
        (
            Act::ReleaseHold {
                resource: resource(),
                agent: "web".into(),
                epoch: 9,
                number: 17,
            },
            json!({"act": "release_hold", "agent": "web", "epoch": format!("{:032x}", 9), "number": 17}),
        ),
        (
            Act::ReleaseHolds {
                resource: resource(),
                domain: None,
                agent: Some("web".into()),
            },
            json!({"act": "release_holds", "resource": "r.a", "domain": null, "agent": "web"}),
        ),
        (
            Act::ReleaseTransfer {
                resource: resource(),
                transfer: TransferId(0xab),
            },
            json!({"act": "release_transfer", "resource": "r.a", "transfer": format!("{:032x}", 0xab)}),
        ),
        (
            Act::Switch {
                namespace: "r".into(),
                ignore_configured: Some(true),
                allow_unconfigured: None,
            },
            json!({"act": "switch", "ignore_configured": true, "allow_unconfigured": null}),
        ),
        (
            Act::Set(row("acme")),
            json!({"act": "set", "domain": "acme", "rate": "7/s", "hard": null, "limit": null}),
        ),
        (
            Act::SetMany(vec![row("acme"), row("b")]),
            json!({"act": "set_many", "rows": [
                {"resource": "r.a", "domain": "acme", "rate": "7/s", "hard": null, "limit": null},
                {"resource": "r.a", "domain": "b", "rate": "7/s", "hard": null, "limit": null},
            ]}),
        ),
    ]
}

fn row(domain: &str) -> SetRow {
    SetRow {
        resource: "r.a".into(),
        domain: domain.into(),
        rate: Some("7/s".into()),
        hard: None,
        limit: None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn an_independent_reader_agrees_on_golden_bytes() {
    // The wire's own tests check the bytes; their meaning was written down by hand.
    let golden = include_str!("../../../tests/reader/golden.txt");
    let expected = include_str!("../../../tests/reader/golden.jsonl");
    let dir = tempfile::tempdir().expect("a directory");
    let read = reader(&["records"], dir.path(), golden);
    let expected: Vec<Value> = expected
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(read, expected);
    for line in golden.lines().filter(|line| line.starts_with("hits ")) {
        let bytes = line.trim_start_matches("hits ").as_bytes().chunks(2);
        let byte = |two| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16);
        let bytes: Vec<u8> = bytes.map(|two| byte(two).expect("hexadecimal")).collect();
        let known = Record::decode(&bytes).expect("this build reads it");
        assert!(!matches!(known, Record::Unknown { .. }), "{line}");
    }

    let mut input = String::new();
    for (act, _) in amendments() {
        let mut writer = Writer::new();
        let (push, expected, who, why) = (5, 3, "ann", "bug");
        let amendment = Amendment {
            push,
            expected,
            who,
            why,
            act,
        };
        amendment.encode(&mut writer);
        input += &format!("limits {}\n", hex(writer.as_slice()));
    }
    let read = reader(&["records"], dir.path(), &input);
    for (read, (_, expected)) in read.iter().zip(amendments()) {
        assert_eq!(
            (&read["who"], &read["expected"]),
            (&"ann".into(), &3.into())
        );
        for (field, value) in expected.as_object().expect("an object") {
            assert_eq!(&read[field], value, "{field} of {read}");
        }
    }
}

fn records(source: &JournalSource, stream: Stream, partition: u32) -> Vec<Delivered> {
    let mut cursor = source.open(stream, partition, 0).expect("a cursor");
    let mut records = Vec::new();
    while let ReadStep::Records(more) = cursor.read().expect("records") {
        records.extend(more);
    }
    records
}

/// The part of a record of hits that is compared: its hits.
fn hits_of(record: &Record<'_>) -> Value {
    let Record::Hits(batch) = record else {
        return Value::Null;
    };
    let hits = batch.hits().iter().map(|hit| {
        json!({
            "resource": batch.resource(hit.resource), "domain": hit.domain,
            "at_us": hit.at.as_micros(), "copies": hit.copies, "min": hit.min,
            "calls": hit.calls, "unguarded": hit.unguarded, "kind": "hit",
        })
    });
    hits.collect()
}

/// The part of a statement that is compared.
fn statement_of(announced: &Announced) -> Value {
    let name = match &announced.statement.scope {
        Scope::Pair(name) | Scope::Group(name) => Some(&**name),
        Scope::Resource => None,
    };
    let mut expected = json!({
        "resource": announced.resource, "name": name,
        "offset": announced.statement.position.offset, "entry": announced.statement.position.entry,
    });
    if let StatementKind::Denied(denial) = &announced.statement.kind {
        expected["end_us"] = denial.end.as_micros().into();
        expected["cause"] = denial.cause.to_string().into();
    }
    expected
}

fn read_statement(line: &Value) -> Value {
    let mut read = json!({
        "resource": line["resource"], "name": line["name"],
        "offset": line["position"]["offset"], "entry": line["position"]["entry"],
    });
    for field in ["end_us", "cause"] {
        if let Some(value) = line.get(field) {
            read[field] = value.clone();
        }
    }
    read
}

fn an_independent_reader_agrees_on_a_journal() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    let journal = runtime.expect("a runtime").block_on(write_a_journal());
    compare_journals(journal.path());
}

/// A directory with the journal of an aggregator that ruled hits and took amendments.
async fn write_a_journal() -> TempDir {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    for n in 0..20 {
        let domain = format!("tenant-{n}");
        agent
            .hit("api.search", &domain, 4 + n % 4, PARTITIONS)
            .await;
        agent.hit("api.wide", &domain, 1, PARTITIONS).await;
    }
    let url = format!("http://{}", served.http);
    let ban = [
        "ban",
        "api.search",
        "tenant-0",
        "--for",
        "1h",
        "--reason",
        "x",
        "--url",
        &url,
    ];
    let refund = [
        "refund",
        "api.search",
        "tenant-1",
        "2",
        "--reason",
        "x",
        "--url",
        &url,
    ];
    for act in [&ban[..], &refund] {
        let (code, out, err) = run(dir.path(), act);
        assert_eq!(code, 0, "{out}{err}");
    }
    served.signal("TERM");
    served.await_end();
    dir
}

fn compare_journals(dir: &Path) {
    let lines = reader(&["journal", "tollgate-data"], dir, "");
    let source = JournalSource::open(&dir.join("tollgate-data")).expect("a journal");
    let mut lines = lines.iter();
    let (mut hits, mut statements) = (0, 0);
    let streams = [
        ("hits", Stream::Hits),
        ("limits", Stream::Limits),
        ("denials", Stream::Denials),
    ];
    for (name, stream) in streams {
        for partition in 0..if stream == Stream::Limits {
            1
        } else {
            PARTITIONS
        } {
            for record in records(&source, stream, partition) {
                let line = lines.next().expect("as many records");
                let place = json!([name, partition, record.offset, record.appended.as_millis()]);
                let found = ["stream", "partition", "offset", "appended_ms"];
                let found: Value = found.iter().map(|field| line[field].clone()).collect();
                assert_eq!(found, place);
                match stream {
                    Stream::Hits => {
                        let known = Record::decode(&record.bytes).expect("a record");
                        let expected = hits_of(&known);
                        assert_eq!(line["hits"], expected, "{line}");
                        hits += expected.as_array().map_or(0, Vec::len);
                    }
                    Stream::Denials if line["kind"] == "genesis" => {
                        assert!(matches!(
                            Record::decode(&record.bytes),
                            Ok(Record::Genesis(_))
                        ));
                    }
                    Stream::Denials => {
                        let known = Announced::decode(&record.bytes).expect("a statement");
                        assert_eq!(read_statement(line), statement_of(&known));
                        statements += 1;
                    }
                    Stream::Limits => {}
                }
            }
        }
    }
    assert_eq!(lines.next(), None);
    assert_eq!(hits, 5 * (4 + 5 + 6 + 7) + 20);
    assert!(10 < statements, "{statements}");
}
