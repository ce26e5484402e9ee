//! Every case of copies in the written rules, played through the engine.
//!
//! What stays true: a file without cases fails.

use std::path::PathBuf;

use serde_json::{Value, json};
use tollgate_engine::copies::cases::run;

#[test]
fn copies_are_held_as_the_rules_say() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/copies.jsonl");
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut ops = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let results = run(&case).expect("a case");
        let expected = case["ops"].as_array().expect("ops");
        let results = results.as_array().expect("results");
        assert_eq!(results.len(), expected.len(), "{}", case["name"]);
        for (index, (result, op)) in results.iter().zip(expected).enumerate() {
            assert!(op["expect"].is_object(), "{}: op {index}", case["name"]);
            assert_eq!(result, &op["expect"], "{}: op {index}", case["name"]);
            ops += 1;
        }
    }
    assert!(100 < ops, "{ops} ops");
}

#[test]
fn a_case_of_another_shape_is_refused_with_a_reason() {
    let fault = run(&json!({"limits": {"domain": 1}, "ops": [{"t": 0, "op": "grab"}]}));
    assert!(fault.expect_err("no case").to_string().contains("grab"));
    let fault = run(&json!({"ops": []})).expect_err("no case");
    assert!(fault.to_string().contains("limits"), "{fault}");
}

#[test]
fn a_hold_of_another_agent_is_unknown_to_who_names_itself() {
    let case = json!({"mode": "hold", "limits": {"domain": 5}, "ops": [
        {"op": "hold", "t": 0, "hold": "h", "agent": "A", "domain": "a", "copies": 2},
        {"op": "release", "t": 1, "hold": "h", "agent": "B", "copies": 1},
        {"op": "release", "t": 2, "hold": "h", "agent": "A", "copies": 1},
    ]});
    let results = run(&case).expect("a case");
    assert_eq!(results[1]["error"], "unknown_hold");
    assert_eq!(results[2]["counts"]["global"], 1);
}
