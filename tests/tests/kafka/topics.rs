//! `tollgate topics` on a real Kafka: it accepts topics that it created, and names differences.

use serde_json::Value;
use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;

use crate::log::create;

/// The command's exit code and output.
fn topics(kafka: &LocalKafka, prefix: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = tollgate()
        .args(["topics", "--kafka", kafka.bootstrap()])
        .args(["--topic-prefix", prefix, "--partitions", "3"])
        .args(more)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    (output.status.code(), text)
}

pub fn the_command_creates_topics_and_reports_differences(kafka: &LocalKafka) {
    let prefix = kafka.fresh_name("topics");
    let (code, text) = topics(kafka, &prefix, &["check"]);
    assert_eq!(code, Some(78), "{text}");
    assert_eq!(text.matches(": missing").count(), 6, "{text}");
    let (code, text) = topics(kafka, &prefix, &["create"]);
    assert_eq!(
        (code, text.matches(": created").count()),
        (Some(0), 6),
        "{text}"
    );
    let (code, text) = topics(kafka, &prefix, &["check"]);
    assert_eq!(
        (code, text.matches(": fits").count()),
        (Some(0), 6),
        "{text}"
    );

    // Two brokers are expected, and one exists: an aggregator starts, and the operator should know.
    let (code, text) = topics(kafka, &prefix, &["check", "--replication", "2"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("replication.factor = 1: recommended at least 2"),
        "{text}"
    );
    let (code, text) = topics(kafka, &prefix, &[]);
    assert_eq!(code, Some(0), "a list is no check: {text}");
    assert!(text.contains("  cleanup.policy = compact"), "{text}");

    let prefix = kafka.fresh_name("unfit");
    let wrong = [("cleanup.policy", "compact")];
    create(kafka, &format!("{prefix}.hits"), 3, &wrong);
    let (code, text) = topics(kafka, &prefix, &["create", "--format", "json"]);
    assert_eq!(code, Some(78), "{text}");
    let hits = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .find(|topic| topic["topic"] == format!("{prefix}.hits"))
        .expect("hits");
    assert_eq!(hits["schema"], "tollgate.topics/1");
    let differs: Vec<(&str, &str, &str)> = hits["settings"]
        .as_array()
        .expect("settings")
        .iter()
        .filter(|setting| setting["fits"] == false && setting["required"] == true)
        .map(|setting| {
            let text = |field: &str| setting[field].as_str().expect("a text");
            (text("setting"), text("found"), text("expected"))
        })
        .collect();
    assert_eq!(
        differs,
        [
            ("message.timestamp.type", "CreateTime", "LogAppendTime"),
            ("cleanup.policy", "compact", "delete"),
        ]
    );

    let nobody = tollgate()
        .args(["topics", "check", "--kafka", "127.0.0.1:1"])
        .output()
        .expect("runs");
    assert_eq!(nobody.status.code(), Some(69), "{nobody:?}");
}

pub fn commands_on_logs_name_a_topic_of_hits_with_further_partitions(kafka: &LocalKafka) {
    let prefix = kafka.fresh_name("further");
    create(kafka, &format!("{prefix}.hits"), 5, &[]);
    create(kafka, &format!("{prefix}.denials"), 3, &[]);
    create(kafka, &format!("{prefix}.limits"), 1, &[]);
    for verb in [&["audit"][..], &["explain", "api.search", "acme"]] {
        let output = tollgate()
            .args(verb)
            .args(["--kafka", kafka.bootstrap(), "--topic-prefix", &prefix])
            .output()
            .expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{errors}");
        let expected = format!("kafka topic `{prefix}.hits`: partitions = 5: expected 3: ");
        assert!(errors.contains(&expected), "{errors}");
    }
}
