//! The demonstration on a real Kafka.

use serde_json::Value;
use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;

/// Agents write to Kafka, an aggregator rules it and is killed for a while; every refusal is justified.
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
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_str(text.trim())
        .unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"));
    assert_eq!(output.status.code(), Some(0), "{report}\n{errors}");
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
    what_was_announced_is_what_the_log_says(kafka.bootstrap(), &report);
    its_traffic_is_played_under_its_limits(kafka.bootstrap(), &report);
}

/// The recorded calls under the limits that stand in the log: as many as were let through and refused.
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
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(0 < number(&seen["hits"]), "{report:#}");
    // Those of the probes that it makes on its own are recorded as well.
    let refused = number(&seen["refused_calls"]);
    assert!(number(&demo["refused"]) <= refused, "{report:#}");
    assert!(0 < number(&result["refused"]), "{report:#}");
    assert!(
        number(&result["excess"]) < number(&seen["hits"]),
        "{report:#}"
    );
}

/// The topics that the demonstration left, audited: with a kill in them, and with all of the model.
fn what_was_announced_is_what_the_log_says(bootstrap: &str, demo: &Value) {
    let prefix = demo["topic_prefix"].as_str().expect("a prefix");
    let log = ["--kafka", bootstrap, "--topic-prefix", prefix];
    let audit = tollgate()
        .args(["audit", "--format", "json", "--model", "all"])
        .args(log)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&audit.stdout);
    let errors = String::from_utf8_lossy(&audit.stderr);
    let report: Value = serde_json::from_str(text.trim())
        .unwrap_or_else(|error| panic!("{error}: {text}\n{errors}"));
    assert_eq!(audit.status.code(), Some(0), "{report:#}\n{errors}");
    assert_eq!(report["equal"], true, "{report:#}");
    let number = |field: &str| report[field].as_u64().expect("a number");
    assert!(0 < number("announced_equal"), "{report:#}");
    assert!(
        number("announced_equal") <= number("denials") + number("lifts"),
        "{report:#}"
    );
    println!("{report:#}");
}
