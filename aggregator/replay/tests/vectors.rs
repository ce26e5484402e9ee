//! Plays every case of the written rules.
//!
//! The vectors come from a brute-force model outside this project; the comparison with the engine's
//! own model is elsewhere. What stays true: a file without cases fails.

use std::path::PathBuf;

use tollgate_replay::cases::play;

fn lines(file: &str) -> Vec<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{}: no cases", path.display());
    lines
}

fn every_op_is_as_expected(file: &str) {
    let mut ops = 0;
    for line in lines(file) {
        let case = play(&line).expect("a case");
        for (index, op) in case["ops"].as_array().expect("ops").iter().enumerate() {
            assert!(op["expect"].is_object(), "{}: op {index}", case["name"]);
            assert_eq!(op["result"], op["expect"], "{}: op {index}", case["name"]);
            ops += 1;
        }
    }
    assert!(40 < ops, "{file}: {ops} ops");
}

#[test]
fn the_in_line_reading_is_the_papers() {
    every_op_is_as_expected("rate.jsonl");
}

#[test]
fn every_constraint_rules_requests_as_written() {
    every_op_is_as_expected("inline2.jsonl");
    every_op_is_as_expected("inline2_more.jsonl");
}

#[test]
fn admitted_copies_count_as_the_rules_say() {
    every_op_is_as_expected("stream2.jsonl");
    every_op_is_as_expected("stream2_more.jsonl");
}

#[test]
fn copies_are_held_as_the_rules_say() {
    every_op_is_as_expected("copies.jsonl");
}

#[test]
fn limits_are_normalised_as_in_the_paper() {
    for line in lines("normalize.jsonl") {
        let case = play(&line).expect("a case");
        assert!(case["expect"].is_array(), "{}", case["name"]);
        assert_eq!(case["result"], case["expect"], "{}", case["name"]);
    }
}

#[test]
fn an_invalid_case_is_refused_with_a_reason() {
    let message = |line: &str| play(line).expect_err("no case").to_string();
    assert!(message("{").contains("not a case"));
    assert!(message(r#"{"mode":"copies","limits":{},"ops":[]}"#).contains("\"copies\""));
    let missing = message(r#"{"limits":{"tiers":[]},"ops":[{"t":0,"domain":"d","copies":1}]}"#);
    assert!(missing.contains("min"), "{missing}");
    let misspelt = message(r#"{"limits":{"windws":[]},"ops":[]}"#);
    assert!(misspelt.contains("unknown field `windws`"), "{misspelt}");
    let incomplete = message(r#"{"limits":{"windows":[{"limit":5}]},"ops":[]}"#);
    assert!(
        incomplete.contains("missing field `window`"),
        "{incomplete}"
    );
}
