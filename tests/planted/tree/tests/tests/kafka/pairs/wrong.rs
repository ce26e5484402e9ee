//! Aggregators of another group, and an audit of the log, detect an aggregator with a bug.
//!
//! `aggregator/server/tests/core/pairs.rs` tests the same without Kafka and without a bug. What stays true: a
//! program without the bug makes the audit.

use tollgate_tests::binary::tollgate;
use tollgate_tests::kafka::LocalKafka;

use super::{agent, await_metric, await_refused, configure, start};
use crate::fleet::{Aggregator, await_whole, directory};

/// The environment variable that switches the bug on in a process.
const WRONGLY: Option<(&str, &str)> = Some(("TOLLGATE_PLANTED", "batches-forgotten"));

pub fn a_wrong_aggregator_is_found_by_the_other_group(kafka: &LocalKafka) {
    let (dir, prefix) = (directory(), kafka.fresh_name("wrong"));
    let mut right = start(dir.path(), kafka, &prefix, ("a", "agg"));
    await_whole(&[&right]);
    let config = configure(dir.path(), "b");
    let mut wrong = Aggregator::configured(dir.path(), kafka, &prefix, "agg", &config, WRONGLY);
    await_whole(&[&wrong]);
    let agent = agent(kafka, &prefix, &right);
    let rate = agent.rate("hot");
    await_refused(&agent, &rate);
    for one in [&mut right, &mut wrong] {
        await_metric(one, &rate, "tollgate_states_differing_total");
        let line = one.line_with("came to different states");
        for part in [
            "ERROR",
            "partition=",
            "offset=",
            "ours=",
            "theirs=",
            "group=",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        println!("{line}");
    }
    an_audit_names_the_wrong_aggregator(kafka, &prefix);
}

/// The audit uses the wrong aggregator's own records, without a query to it.
fn an_audit_names_the_wrong_aggregator(kafka: &LocalKafka, prefix: &str) {
    let output = tollgate()
        .args(["audit", "--format", "json", "--limit", "100000"])
        .args(["--kafka", kafka.bootstrap(), "--topic-prefix", prefix])
        .output()
        .expect("runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let differences = report["differences"].as_array().expect("a list");
    let digests: Vec<&str> = differences
        .iter()
        .filter(|difference| difference["kind"] == "state_digest")
        .map(|difference| difference["text"].as_str().expect("a text"))
        .collect();
    assert!(!digests.is_empty(), "{stdout}");
    let right = report["state_digests_equal"].as_u64().expect("a number");
    assert!(0 < right, "those of the right one are the replay's");
    for text in digests {
        assert!(
            text.contains("agg of group b came to another state"),
            "{text}"
        );
    }
}
