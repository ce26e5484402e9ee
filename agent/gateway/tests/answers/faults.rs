//! A test of questions to `/v1/decide` that cannot be read.

use crate::{Running, status};

/// Questions, and a part of the answer to each, in JSON.
const FAULTS: [(&str, &str); 15] = [
    ("", r#"expected {\"hits\": [{"#),
    ("{} {}", r#"expected {\"hits\": [{"#),
    (r#"{"hits": []}"#, "0 entries: expected 1 to 1000"),
    (r#"{"settle": []}"#, "0 entries: expected 1 to 1000"),
    (
        r#"{"hits": [{"resource": "r", "domain": "d", "copy": 1}]}"#,
        "hits[0].copy: unknown field `copy`",
    ),
    (
        r#"{"holds": [{"resource": "r", "domain": "d", "lease_ms": 1}, {"resource": "r", "domain": "d", "lease_ms": 0}]}"#,
        "holds[1].lease_ms = 0: expected 1 to 86400000",
    ),
    (
        r#"{"holds": [{"resource": "r", "domain": "d", "lease_ms": 1, "confirmed_within_ms": 10001}]}"#,
        "holds[0].confirmed_within_ms = 10001: expected 1 to 10000",
    ),
    (
        r#"{"holds": [{"resource": "r", "domain": "d", "lease_ms": -1}]}"#,
        "holds[0].lease_ms: -1: expected a whole number",
    ),
    (
        r#"{"holds": [{"resource": "r", "domain": "d"}]}"#,
        "holds[0]: missing field `lease_ms`",
    ),
    (
        r#"{"holds": [{"resource": "r", "domain": "d"}]}"#,
        r#"expected {\"holds\": [{"#,
    ),
    (
        r#"{"renew": [{"hold": "1-1", "lease_ms": 86400001}]}"#,
        "renew[0].lease_ms = 86400001: expected 1 to 86400000",
    ),
    (
        r#"{"renew": [{"hold": "1-1"}]}"#,
        r#"expected {\"renew\": [{\"hold"#,
    ),
    (
        r#"{"settle": [7]}"#,
        r#"expected {\"settle\": [{\"estimate"#,
    ),
    (r#"{"release": [7]}"#, r#"expected {\"release\": [ID]}"#),
    (
        r#"{"all_or_none": true, "estimates": [{"resource": "r", "domain": "d"}]}"#,
        "expected hits and holds, and no estimates",
    ),
];

#[tokio::test]
async fn a_fault_has_its_place_and_what_was_expected() {
    let running = Running::start().await;
    for (question, expected) in FAULTS {
        let answer = running.post(question).await;
        assert_eq!(status(&answer), "400", "{question}: {answer}");
        assert!(answer.contains(expected), "{question}: {answer}");
    }
    running.end().await;
}
