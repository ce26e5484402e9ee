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
}
