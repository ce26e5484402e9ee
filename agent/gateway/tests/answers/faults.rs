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

/// What is expected of a resource's name.
const EXPECTED: &str = ": expected a name of 1 to 256 bytes without `*` and control characters";

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

#[tokio::test]
async fn a_resource_that_no_limits_may_name_is_a_fault() {
    let running = Running::start().await;
    let long = "é".repeat(129);
    for (resource, shown) in [
        ("", r#"\"\""#),
        ("api.*", r#"\"api.*\""#),
        ("*", r#"\"*\""#),
        ("api\\nsearch", r#"\"api\\nsearch\""#),
        (&long, "é… (258 bytes)"),
    ] {
        let entry = |more: &str| format!(r#"{{"resource": "{resource}", "domain": "d"{more}}}"#);
        let right = r#"{"resource": "r", "domain": "d"}"#;
        for (question, place) in [
            (
                format!(r#"{{"hits": [{right}, {}]}}"#, entry("")),
                "hits[1]",
            ),
            (
                format!(r#"{{"estimates": [{}]}}"#, entry("")),
                "estimates[0]",
            ),
            (
                format!(r#"{{"holds": [{}]}}"#, entry(r#", "lease_ms": 1"#)),
                "holds[0]",
            ),
        ] {
            let answer = running.post(&question).await;
            assert_eq!(status(&answer), "400", "{question}: {answer}");
            for part in [&format!("{place}.resource = "), shown, EXPECTED] {
                assert!(answer.contains(part), "{question}: {answer}");
            }
        }
    }
    assert_eq!(
        running.kit.recorded().len(),
        0,
        "the entry before it does not count either"
    );
    let longest = "n".repeat(256);
    for resource in ["(empty)", "api search", "über", &longest] {
        let question = format!(r#"{{"hits": [{{"resource": "{resource}", "domain": ""}}]}}"#);
        assert_eq!(status(&running.post(&question).await), "200", "{question}");
    }
    running.end().await;
}
