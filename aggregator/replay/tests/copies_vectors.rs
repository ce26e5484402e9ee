//! Cases of copies that the written rules do not have. The cases of the written rules are played
//! with the others.

use serde_json::json;
use tollgate_replay::cases::play_copies as run;

#[test]
fn a_case_of_another_shape_is_refused_with_a_reason() {
    let fault = run(&json!({"limits": {"domain": 1}, "ops": [{"t": 0, "op": "grab"}]}));
    assert!(fault.expect_err("no case").to_string().contains("grab"));
    let fault = run(&json!({"ops": []})).expect_err("no case");
    assert!(fault.to_string().contains("limits"), "{fault}");
}

#[test]
fn an_agent_does_not_know_another_agents_hold() {
    let case = json!({"mode": "hold", "limits": {"domain": 5}, "ops": [
        {"op": "hold", "t": 0, "hold": "h", "agent": "A", "domain": "a", "copies": 2},
        {"op": "release", "t": 1, "hold": "h", "agent": "B", "copies": 1},
        {"op": "release", "t": 2, "hold": "h", "agent": "A", "copies": 1},
    ]});
    let results = run(&case).expect("a case");
    assert_eq!(results[1]["error"], "unknown_hold");
    assert_eq!(results[2]["counts"]["global"], 1);
}

#[test]
fn an_ambiguous_case_is_refused_with_its_path() {
    let hold = json!({"op": "hold", "t": 1, "hold": "h", "agent": "A", "domain": "a", "copies": 2});
    let reserve = json!({"op": "reserve", "t": 1, "hold": "h", "agent": "A", "domain": "a", "copies": 2, "min": 1});
    let new = json!({"op": "limits", "t": 2, "limits": {"domain": 1, "max_ag": 5}});
    let case = |mode: &str, limits: serde_json::Value, ops: &[&serde_json::Value]| {
        run(&json!({"mode": mode, "limits": limits, "ops": ops}))
    };
    let limits = json!({"domain": 5});
    let group = json!({"domain": 5, "groups": {"g": {"members": ["a"], "limits": 3, "limit": 3}}});
    for (faulty, expected) in [
        (
            case("hold", json!({"domain": 5, "gloabl": 5}), &[&hold]),
            "limits: unknown field `gloabl`, expected one of `domain`, `global`,",
        ),
        (
            case("hold", group, &[&hold]),
            "limits: unknown field `limits`, expected `members` or `limit`",
        ),
        (
            case("hold", limits.clone(), &[&hold, &new]),
            "ops[1]: unknown field `max_ag`",
        ),
        (
            case("reserve", limits.clone(), &[&reserve, &hold]),
            "ops[1]: op \"hold\" in a case of mode \"reserve\": expected \"reserve\"",
        ),
        (
            case("hold", limits.clone(), &[&reserve]),
            "ops[0]: op \"reserve\" in a case of mode \"hold\": expected \"hold\"",
        ),
    ] {
        let fault = faulty.expect_err(expected).to_string();
        assert!(fault.contains(expected), "{fault}");
    }
    // Members that are not rules of the case are allowed.
    let mut noted = hold.clone();
    noted["note"] = "why".into();
    assert!(case("hold", limits, &[&noted]).is_ok());
}
