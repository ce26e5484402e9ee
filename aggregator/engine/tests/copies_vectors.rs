//! Cases of copies that the written rules do not have; those that they have are played with the
//! others.

use serde_json::json;
use tollgate_engine::copies::cases::run;

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
