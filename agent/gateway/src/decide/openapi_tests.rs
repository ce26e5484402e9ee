//! Tests that questions and answers match `openapi.json`.

#[path = "../../../../tests/src/json_schema.rs"]
mod json_schema;
#[path = "../../../../tests/src/serde_fields.rs"]
mod serde_fields;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::question::{AskedRenewal, AskedSettling};
use super::*;
use crate::openapi::DOCUMENT;
use serde_fields::fields_of;

fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("JSON")
}

/// The one pattern: neither `*` nor control characters.
const RESOURCE_PATTERN: &str = r"^[^*\u0000-\u001f\u007f-\u009f]*$";

/// How a value differs from the schema of this name.
fn faults(name: &str, value: &Value) -> Vec<String> {
    let document = document();
    let schema = json_schema::JsonSchema {
        document: &document,
        matches: |pattern, text| {
            assert_eq!(pattern, RESOURCE_PATTERN);
            !text.chars().any(|one| one == '*' || one.is_control())
        },
    };
    let described = &document["components"]["schemas"][name];
    assert!(described.is_object(), "{name}");
    schema.faults(described, value)
}

fn described(name: &str) -> BTreeSet<String> {
    let document = document();
    let properties = document["components"]["schemas"][name]["properties"].as_object();
    properties.expect("properties").keys().cloned().collect()
}

/// A resource and a domain, and further fields.
fn named(more: Value) -> Value {
    let mut asked = json!({"resource": "r", "domain": "d"});
    let (into, more) = (asked.as_object_mut(), more.as_object().cloned());
    into.expect("an object").extend(more.expect("an object"));
    asked
}

/// Checks that every described question can be read, and no other.
fn are_read_as_described(questions: &[(Value, bool)]) {
    for (question, is_right) in questions {
        let bytes = question.to_string();
        assert_eq!(read(bytes.as_bytes()).is_ok(), *is_right, "{question}");
        let faults = faults("Question", question);
        assert_eq!(faults.is_empty(), *is_right, "{question}: {faults:?}");
    }
}

#[test]
fn requests_match_the_openapi_document() {
    assert_eq!(described("Question"), fields_of::<AskedHits>());
    assert_eq!(described("Hit"), fields_of::<AskedHit>());
    assert_eq!(described("Hold"), fields_of::<AskedHold>());
    assert_eq!(described("Settling"), fields_of::<AskedSettling>());
    assert_eq!(described("Renewal"), fields_of::<AskedRenewal>());
    are_read_as_described(&[
        (
            json!({"hits": [named(json!({})), named(json!({"copies": 0}))]}),
            true,
        ),
        (json!({"hits": [named(json!({"copies": null}))]}), true),
        (
            json!({"hits": [named(json!({"copies": 4_294_967_296u64}))]}),
            false,
        ),
        (json!({"hits": [{"resource": "r"}]}), false),
        (json!({"estimates": [named(json!({"copies": 800}))]}), true),
        (
            json!({"holds": [named(json!({"lease_ms": 1}))], "all_or_none": true}),
            true,
        ),
        (json!({"holds": [named(json!({}))]}), false),
        (
            json!({"holds": [named(json!({"lease_ms": 86_400_001}))]}),
            false,
        ),
        (
            json!({"holds": [named(json!({"lease_ms": 1, "confirmed_within_ms": 10_000}))]}),
            true,
        ),
        (
            json!({"holds": [named(json!({"lease_ms": 1, "confirmed_within_ms": 0}))]}),
            false,
        ),
        (
            json!({"settle": [{"estimate": "1-1", "actual": 0}], "release": ["1-1"]}),
            true,
        ),
        (
            json!({"renew": [{"hold": "1-1", "lease_ms": 86_400_000}]}),
            true,
        ),
        (json!({"release": [1]}), false),
        (json!({"all_or_none": 1, "release": ["1-1"]}), false),
    ]);
}

#[test]
fn invalid_requests_do_not_match_the_openapi_document() {
    are_read_as_described(&[
        (json!({"hits": [named(json!({"copies": 1.5}))]}), false),
        (json!({"hits": [named(json!({"copies": -1}))]}), false),
        (json!({"hits": [named(json!({"copies": "1"}))]}), false),
        (json!([[named(json!({}))]]), false),
        (json!({"hits": [["r", "d", 1]]}), false),
        (json!({"renew": [["1-1", 1]]}), false),
        (json!({}), false),
        (
            json!({"hits": [], "release": [], "all_or_none": false}),
            false,
        ),
        (
            json!({"all_or_none": true, "estimates": [named(json!({}))], "hits": [named(json!({}))]}),
            false,
        ),
        (json!({"all_or_none": true, "release": ["1-1"]}), false),
        (
            json!({"all_or_none": true, "hits": [named(json!({}))], "release": ["1-1"], "estimates": []}),
            true,
        ),
        (json!({"release": vec!["1-1"; 1_001]}), false),
    ]);
}

#[test]
fn a_resource_is_described_as_limits_may_name_it() {
    let longest = "n".repeat(256);
    let too_long = "n".repeat(257);
    let names = [
        ("api.search", true),
        ("(empty)", true),
        (&longest, true),
        ("", false),
        ("*", false),
        ("api.*", false),
        ("api\nsearch", false),
        ("api\u{9f}", false),
        (&too_long, false),
    ];
    for (resource, is_right) in names {
        let hit = json!({"resource": resource, "domain": "d"});
        let hold = json!({"resource": resource, "domain": "d", "lease_ms": 1});
        are_read_as_described(&[
            (json!({"hits": [hit]}), is_right),
            (json!({"estimates": [hit]}), is_right),
            (json!({"holds": [hold]}), is_right),
        ]);
    }
}

#[test]
fn a_whole_number_may_be_written_as_a_float() {
    let read = |copies: &str| {
        let hit =
            format!(r#"{{"hits": [{{"resource": "r", "domain": "d", "copies": {copies}}}]}}"#);
        read(hit.as_bytes()).map(|question| question.hits[0].copies)
    };
    assert_eq!(read("5.0"), Ok(Some(5)));
    assert_eq!(read("4294967295.0"), Ok(Some(u32::MAX)));
    assert_eq!(read("-0.0"), Ok(Some(0)));
    for copies in ["5.5", "4294967296.0", "1e300", "-1.0"] {
        let fault = read(copies).expect_err(copies);
        assert!(
            fault.contains("expected a whole number below 2^32"),
            "{fault}"
        );
    }
    let lease = r#"{"renew": [{"hold": "1-1", "lease_ms": 30000.0}]}"#;
    assert!(super::read(lease.as_bytes()).is_ok());
}

#[test]
fn answers_match_the_openapi_document() {
    let text = || Some("1-1".to_owned());
    let decision = Decision {
        allowed: false,
        blind: false,
        remaining: Some(7),
        cause: text(),
        error: Some("not_rate"),
        retry_after_ms: Some(412),
        code: text(),
        estimate: text(),
        hold: text(),
        holds: vec![text(), None],
    };
    let answer = Answer {
        schema: "tollgate.decide/1",
        allowed: false,
        decisions: vec![decision, Decision::default()],
        settled: vec![
            Some(name_of(Settled::Exact)),
            Some(name_of(Settled::Charged(1))),
            None,
        ],
        renewed: vec![true],
        released: vec![false],
    };
    let fault = Fault {
        schema: "tollgate.error/1",
        error: "0 hits".to_owned(),
    };
    let json = |written: serde_json::Result<Value>| written.expect("JSON");
    let answer = json(serde_json::to_value(answer));
    let names = |value: &Value| -> BTreeSet<String> {
        let fields = value.as_object().expect("an object");
        fields.keys().cloned().collect()
    };
    assert_eq!(names(&answer), described("Answer"));
    assert_eq!(names(&answer["decisions"][0]), described("Decision"));
    assert_eq!(faults("Answer", &answer), Vec::<String>::new());
    let fault = json(serde_json::to_value(fault));
    assert_eq!(names(&fault), described("Fault"));
    assert_eq!(faults("Fault", &fault), Vec::<String>::new());
    // The answer to a request at a web server.
    let denied = tollgate_agent::testing::TestAgent::new();
    denied.deny("api.search", "acme", Duration::from_secs(5));
    let refused = denied.agent().rate("api.search").hit("acme");
    let problem = refused.expect_err("it is denied").http().body();
    let problem: Value = serde_json::from_str(&problem).expect("JSON");
    assert_eq!(names(&problem), described("Problem"));
    assert_eq!(faults("Problem", &problem), Vec::<String>::new());
}
