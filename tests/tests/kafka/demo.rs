//! The demonstration on a real Kafka.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_tests::binary::tollgate;
use tollgate_tests::http::get;
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin::text;

use crate::fleet::{await_whole, directory};
use crate::pairs;

/// How long limits may take to be in force.
const LIMITS_WITHIN: Duration = Duration::from_secs(30);

/// When the aggregator is killed after the demonstration began, and how long it stays away.
const KILLED_AFTER: Duration = Duration::from_secs(4);
const AWAY: Duration = Duration::from_secs(2);

/// The drill of the runbook in small: one aggregator of two groups is killed and restarted.
pub fn agents_of_two_groups_are_unaffected_by_a_kill(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("attached"));
    let start = |group| pairs::start(dir.path(), kafka, &prefix, (group, "agg"));
    let (killed, other) = (start("a"), start("b"));
    for one in [&killed, &other] {
        await_whole(&[one]);
    }
    // An aggregator may rule before any limits are in force, but a demonstration needs some.
    let begun = Instant::now();
    while get(other.http, "/v1/limits").is_none_or(|limits| limits["version"] == 0) {
        assert!(begun.elapsed() < LIMITS_WITHIN, "no limits are in force");
        std::thread::sleep(Duration::from_millis(20));
    }
    let attached = format!("http://{}", other.http);
    let demo = tollgate()
        .args(["demo", "--seconds", "12", "--seed", "7", "--format", "json"])
        .args(["-q", "--attach", &attached])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // In the middle of its calls; the exact instant does not matter.
    std::thread::sleep(KILLED_AFTER);
    killed.kill();
    std::thread::sleep(AWAY);
    let again = start("a");
    let report = report_of(&demo.wait_with_output().expect("ends"));
    assert_eq!(report["unjustified_refusals"], 0, "{report}");
    for at_least_one in ["refused", "denials"] {
        assert!(0 < number(&report[at_least_one]), "{report}");
    }
    for one in [&again, &other] {
        let metrics = text(one.http, "/metrics").expect("metrics");
        let differing = "tollgate_states_differing_total 0";
        assert!(metrics.contains(differing), "{metrics}");
    }
}

/// The single document that the demonstration printed; it must have succeeded.
fn report_of(output: &std::process::Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(text.trim())
        .unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"));
    assert_eq!(output.status.code(), Some(0), "{report}\n{errors}");
    report
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// Agents write to Kafka; the ruling aggregator is killed for a while; every refusal is justified.
pub fn the_demonstration_runs_on_a_real_kafka(kafka: &LocalKafka) {
    let output = tollgate()
        .args([
            "demo",
            "--seconds",
            "10",
            "--format",
            "json",
            "-q",
            "--kafka",
            kafka.bootstrap(),
        ])
        .output()
        .expect("runs");
    let report = report_of(&output);
    assert_eq!(report["unjustified_refusals"], 0, "{report}");
    assert!(
        report["refused"]
            .as_u64()
            .is_some_and(|refused| 0 < refused),
        "{report}"
    );
    assert!(
        report["topic_prefix"]
            .as_str()
            .is_some_and(|prefix| prefix.starts_with("tollgate-demo-")),
        "{report}"
    );
    assert!(
        report["denials"]
            .as_u64()
            .is_some_and(|denials| 0 < denials),
        "{report}"
    );
    let copies = |field: &str| report[field].as_u64();
    assert_eq!(
        (copies("copies_held"), copies("copies_lost")),
        (Some(5), Some(0)),
        "{report}"
    );
    assert!(copies("copies_back_ms").is_some(), "{report}");
    announced_denials_equal_those_of_the_log(kafka.bootstrap(), &report);
    its_traffic_is_played_under_its_limits(kafka.bootstrap(), &report);
}

/// The recorded calls, replayed under the limits in the log: as many are let through and refused.
fn its_traffic_is_played_under_its_limits(bootstrap: &str, demo: &Value) {
    let prefix = demo["topic_prefix"].as_str().expect("a prefix");
    let log = ["--kafka", bootstrap, "--topic-prefix", prefix];
    let dir = tempfile::tempdir().expect("a directory");
    let shown = tollgate()
        .args(["limits", "show"])
        .args(log)
        .output()
        .expect("runs");
    std::fs::write(dir.path().join("limits.toml"), &shown.stdout).expect("written");
    let backtest = tollgate()
        .current_dir(dir.path())
        .args(["backtest", "--limits", "limits.toml", "--format", "json"])
        .args(log)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&backtest.stdout);
    let errors = String::from_utf8_lossy(&backtest.stderr);
    let report: Value = serde_json::from_str(text.trim())
        .unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"));
    let (seen, result) = (&report["inputs"]["seen"], &report["results"][0]);
    assert!(0 < number(&seen["hits"]), "{report:#}");
    // The probes that the demonstration makes on its own are recorded as well.
    let refused = number(&seen["refused_calls"]);
    assert!(number(&demo["refused"]) <= refused, "{report:#}");
    assert!(0 < number(&result["refused"]), "{report:#}");
    assert!(
        number(&result["excess"]) < number(&seen["hits"]),
        "{report:#}"
    );
}

/// Audits the topics of the demonstration, with a kill in them, and with the model for all pairs.
fn announced_denials_equal_those_of_the_log(bootstrap: &str, demo: &Value) {
    let prefix = demo["topic_prefix"].as_str().expect("a prefix");
    let log = ["--kafka", bootstrap, "--topic-prefix", prefix];
    let audit = tollgate()
        .args(["audit", "--format", "json", "--model", "all"])
        .args(log)
        .output()
        .expect("runs");
    let report = report_of(&audit);
    assert_eq!(report["equal"], true, "{report:#}");
    let of = |field: &str| number(&report[field]);
    assert!(0 < of("announced_equal"), "{report:#}");
    assert!(
        of("announced_equal") <= of("denials") + of("lifts"),
        "{report:#}"
    );
    println!("{report:#}");
}
