//! Aggregators' records under the fleet's key: forgeries without it, a change of keys under load, the message of an
//! aggregator that lacks a key, and audits with and without keys.

use std::path::Path;

use serde_json::Value;
use tollgate_log::journal::{Journal, JournalConfig, JournalContext};
use tollgate_log::{Log as _, LogEvent, Stream, Ticket};
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::wire::record::{RecordPen, Total};

use crate::support::{DEADLINE, Dealer, Served, directory, run, serve, wall};

const PARTITIONS: u32 = 4;

/// Limits under which these ids count.
fn limits(ids: &str) -> String {
    format!(
        "version = 1\nrules = 2\nrecord_keys = {ids}\n[rate.\"api.search\"]\nrate = \"5/m\"\n\
         [rate.\"api.wide\"]\nrate = \"1000000/s\"\nglobal = \"100000/s\"\n"
    )
}

/// A directory with two keys, a configuration that names them, and limits.
fn fleet(ids: &str) -> tempfile::TempDir {
    let dir = directory(&limits(ids));
    for id in ["k1", "k2"] {
        let (exit, stdout, why) = run(dir.path(), &["keys", "--dir", "keys", "fleet"]);
        assert!(
            exit == 0 && stdout.contains(&format!("key \"{id}\"")),
            "{stdout}{why}"
        );
    }
    let config = "[security]\nkey_file = \"keys/fleet.keys\"\n";
    std::fs::write(dir.path().join("t.toml"), config).unwrap();
    dir
}

fn keyed(dir: &Path) -> Served {
    serve(dir, &["--config", "t.toml"])
}

fn stop(mut served: Served) {
    served.signal("TERM");
    served.await_end();
}

/// Appends, to a journal that no process has open, a total signed with zero bytes that fills the limit of all
/// domains of `api.wide`.
async fn forge(dir: &Path) {
    let config = JournalConfig {
        partitions: PARTITIONS,
        ..JournalConfig::new(dir.join("tollgate-data"))
    };
    let (events, mut inbox) = tollgate_log::channel(64);
    let opened = Journal::open(config, JournalContext::of_this_machine(), events);
    let mut journal = opened.expect("it was closed").0;
    let target = partition_of_resource("api.wide", PARTITIONS);
    let source = ((target + 1) % PARTITIONS, 1 << 40);
    let total = Total::guarded(wall().as_millis(), 10_000_000);
    let record = RecordPen::new(&MacKey::UNPROTECTED, target).totals("api.wide", source, &[total]);
    journal.append(Stream::Hits, target, Ticket(1), record.into());
    journal.close();
    let closed = async {
        let mut taken = false;
        while let Some(event) = inbox.recv().await {
            match event {
                LogEvent::Appended { answers, .. } => taken = answers[0].result.is_ok(),
                LogEvent::Closed => return taken,
                _ => {}
            }
        }
        taken
    };
    let taken = tokio::time::timeout(DEADLINE, closed).await;
    assert!(taken.expect("the journal closes"), "the log has it");
}

/// Denials that an aggregator has stated since its start, and records that it refused for their tags.
fn counted(served: &Served) -> (f64, f64) {
    let [denials, forged] = ["tollgate_denials_total", "tollgate_records_forged_total"];
    (served.metric(denials), served.metric(forged))
}

fn audit(dir: &Path, more: &[&str]) -> (i32, Value, String) {
    let args = ["audit", "--journal", "tollgate-data", "--model", "all"];
    let (exit, json, why) = run(dir, &[&args[..], &["--format", "json"], more].concat());
    let report = serde_json::from_str(&json).unwrap_or_else(|_| panic!("{exit}: {json}{why}"));
    let (_, text, _) = run(dir, &[&args[..], more].concat());
    (exit, report, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_total_under_zero_bytes_denies_nobody_where_a_key_counts() {
    for (ids, expected) in [("[\"checksum\"]", (1.0, 0.0)), ("[\"k1\"]", (0.0, 1.0))] {
        let dir = fleet(ids);
        let served = keyed(dir.path());
        served.await_ready();
        stop(served);
        forge(dir.path()).await;
        let served = keyed(dir.path());
        served.await_ready();
        assert_eq!(counted(&served), expected, "{ids}");
        stop(served);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_checks_tags_and_reports_missing_keys() {
    let dir = fleet("[\"k1\"]");
    let served = keyed(dir.path());
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    agent.hit("api.search", "acme", 9, PARTITIONS).await;
    agent.hit("api.wide", "acme", 9, PARTITIONS).await;
    served.await_json("/v1/denials", |view| view["denials"][0]["domain"] == "acme");
    stop(served);
    let key_file = ["--key-file", "keys/fleet.keys"];
    let line = "aggregators' records under the keys k1 are accepted unverified";
    let (exit, report, text) = audit(dir.path(), &key_file);
    assert_eq!(
        (exit, report.get("unchecked_keys")),
        (0, None),
        "{report:#}"
    );
    assert!(!text.contains("accepted unverified"), "{text}");
    let (exit, report, text) = audit(dir.path(), &[]);
    assert_eq!(
        (exit, &report["unchecked_keys"]),
        (0, &serde_json::json!(["k1"]))
    );
    assert!(text.contains(line), "{text}");
    let others = [
        &[
            "explain",
            "api.search",
            "acme",
            "--journal",
            "tollgate-data",
        ][..],
        &[
            "backtest",
            "--limits",
            "limits.toml",
            "--journal",
            "tollgate-data",
        ],
        &["audit", "export", "--journal", "tollgate-data", "-o", "all"],
    ];
    for command in others {
        let (exit, text, why) = run(dir.path(), command);
        assert!(exit == 0 && text.contains(line), "{command:?}: {text}{why}");
        let (exit, text, why) = run(dir.path(), &[command, &key_file].concat());
        assert!(
            exit == 0 && !text.contains("accepted unverified"),
            "{command:?}: {text}{why}"
        );
    }
    // A record that is signed only with the public key of zero bytes is recognised without keys, too.
    forge(dir.path()).await;
    for more in [&key_file[..], &[]] {
        let (exit, report, _) = audit(dir.path(), more);
        let kinds: Vec<_> = report["differences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| &d["kind"])
            .collect();
        assert_eq!(
            (exit, kinds),
            (1, vec![&Value::from("forged")]),
            "{report:#}"
        );
    }
    a_bad_key_file_is_reported(dir.path());
}

fn a_bad_key_file_is_reported(dir: &Path) {
    std::fs::write(dir.join("bad.keys"), "k1 short\n").unwrap();
    let (exit, _, why) = run(
        dir,
        &[
            "audit",
            "--journal",
            "tollgate-data",
            "--key-file",
            "bad.keys",
        ],
    );
    assert_eq!(exit, 65, "{why}");
    assert!(
        why.contains("bad.keys: mode 0644")
            || why.contains("bad.keys: line 1: the key of \"k1\" has 5 bytes"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_load_refuses_no_record_and_no_call() {
    let dir = fleet("[\"checksum\"]");
    let served = keyed(dir.path());
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    let version = |view: &Value| view["limits_version"].as_u64().unwrap();
    let steps = [
        "[\"checksum\", \"k1\"]",
        "[\"k1\", \"checksum\"]",
        "[\"k1\"]",
        "[\"k1\", \"k2\"]",
        "[\"k2\", \"k1\"]",
        "[\"k2\"]",
    ];
    for step in steps {
        let before = version(&served.json("/v1/digests"));
        std::fs::write(dir.path().join("limits.toml"), limits(step)).unwrap();
        served.signal("HUP");
        let mut rounds = 0;
        loop {
            for n in 0..20 {
                agent.hit("api.wide", &format!("d{n}"), 3, PARTITIONS).await;
            }
            let view = served.json("/v1/digests");
            let partitions = view["partitions"].as_array().unwrap();
            let is_in_force = before < version(&view)
                && partitions
                    .iter()
                    .all(|of| of["version"].as_u64() == Some(version(&view)));
            // Some more rounds under the new key.
            rounds += usize::from(is_in_force);
            if 3 < rounds {
                break;
            }
        }
    }
    assert_eq!(counted(&served), (0.0, 0.0));
    assert!(0.0 < served.metric("tollgate_totals_total"));
    stop(served);
    let (exit, report, _) = audit(dir.path(), &["--key-file", "keys/fleet.keys"]);
    assert_eq!(
        (exit, &report["differences_count"]),
        (0, &0.into()),
        "{report:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_valid_key_an_aggregator_is_not_ready() {
    let dir = fleet("[\"k1\"]");
    let served = keyed(dir.path());
    served.await_ready();
    stop(served);
    let key = std::fs::read_to_string(dir.path().join("keys/fleet.keys")).unwrap();
    let key = key
        .lines()
        .find_map(|line| line.strip_prefix("k1 "))
        .unwrap()
        .to_owned();
    let mut served = serve(dir.path(), &[]);
    let ready = served.await_json("/readyz", |ready| {
        let why = ready["why"].to_string();
        why.matches("stopped: limits version").count() == PARTITIONS as usize
    });
    let why = ready["why"].to_string();
    for part in [
        "partition 3: stopped: limits version ",
        "record_keys names \\\"k1\\\", and security.key_file has no key of this id here: put its line there",
    ] {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(ready["ready"], false);
    let line = served.line_with("the partition stops");
    let shown = [
        line,
        served.log_lines.join("\n"),
        served.json("/v1/log").to_string(),
        why,
    ];
    assert!(shown.iter().all(|text| !text.contains(&key)), "{shown:?}");
    stop(served);
    // With the key everything is as before.
    let served = keyed(dir.path());
    served.await_ready();
    assert_eq!(counted(&served), (0.0, 0.0));
    stop(served);
}

#[test]
fn a_bad_key_file_is_refused_before_anything_listens() {
    let dir = fleet("[\"k1\"]");
    let path = dir.path().join("keys/fleet.keys");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let start = |expected: &str| {
        let (exit, _, why) = run(dir.path(), &["serve", "--config", "t.toml"]);
        assert!(exit == 78 && why.contains(expected), "{exit}: {why}");
    };
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("k2 ", "k1 ")).unwrap();
    start(
        "security.key_file: keys/fleet.keys: line 5: id \"k1\" stands there already, expected another",
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    start(
        "security.key_file: keys/fleet.keys: mode 0644 lets every user of this machine read a secret",
    );
    std::fs::remove_file(&path).unwrap();
    start("security.key_file: keys/fleet.keys: No such file");
    for (id, expected) in [("k9", 0), ("k9", 65), ("checksum", 64), ("Key", 64)] {
        let (exit, _, why) = run(dir.path(), &["keys", "--dir", "keys", "fleet", "--id", id]);
        assert_eq!(exit, expected, "{id}: {why}");
    }
}
