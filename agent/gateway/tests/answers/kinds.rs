//! Tests of questions to `/v1/decide` that name a pair twice, or a resource of another kind.

use tollgate_agent::testing::Outcome;

use crate::{Running, status, text_of};

#[tokio::test]
async fn the_same_pair_twice_in_a_question_wants_the_sum() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 1);
    running.kit.most_at_once("api.search", 1);
    let hit = r#"{"resource": "api.search", "domain": "acme"}"#;
    let hold = r#"{"resource": "sandbox", "domain": "acme", "lease_ms": 60000}"#;
    for question in [
        format!(r#"{{"all_or_none": true, "hits": [{hit}, {hit}]}}"#),
        format!(r#"{{"all_or_none": true, "holds": [{hold}, {hold}]}}"#),
        format!(r#"{{"all_or_none": true, "hits": [{hit}], "holds": [{hold}, {hold}]}}"#),
    ] {
        let refused = running.post(&question).await;
        assert!(refused.contains(r#""allowed":false"#), "{refused}");
        assert_eq!(running.kit.held(), [], "{question}");
    }
    let recorded = running.kit.recorded();
    let is_hit = |one: &Outcome| matches!(one, Outcome::Hit { .. });
    assert!(!recorded.iter().any(|one| is_hit(&one.outcome)));
    let both = format!(r#"{{"all_or_none": true, "hits": [{hit}], "holds": [{hold}]}}"#);
    let allowed = running.post(&both).await;
    assert!(allowed.contains(r#""allowed":true"#), "{allowed}");
    running.end().await;
}

#[tokio::test]
async fn a_question_of_the_wrong_kind_is_no_refusal_by_a_limit() {
    let running = Running::start().await;
    running.kit.copies_limit("sandbox", 5);
    running.kit.most_at_once("api.search", 5);
    running.kit.strict("exports");
    let of = |field: &str, resource: &str, more: &str| {
        format!(r#"{{"{field}": [{{"resource": "{resource}", "domain": "acme"{more}}}]}}"#)
    };
    let lease = r#", "lease_ms": 60000"#;
    let waits = r#", "lease_ms": 60000, "confirmed_within_ms": 10"#;
    let none = r#", "lease_ms": 60000, "copies": 0"#;
    for (question, error, expected) in [
        (of("hits", "sandbox", ""), "not_rate", "expected holds"),
        (of("estimates", "sandbox", ""), "not_rate", "expected holds"),
        (
            of("holds", "api.search", lease),
            "not_copies",
            "expected hits",
        ),
        (
            of("holds", "exports", lease),
            "strict",
            "expected confirmed_within_ms",
        ),
        (
            of("holds", "sandbox", waits),
            "optimistic",
            "expected no confirmed_within_ms",
        ),
        (
            of("holds", "sandbox", none),
            "no_copies",
            "expected at least 1",
        ),
    ] {
        let together = question.replacen('{', r#"{"all_or_none": true, "#, 1);
        let is_estimate = question.contains("estimates");
        for question in [Some(question), (!is_estimate).then_some(together)]
            .into_iter()
            .flatten()
        {
            let answer = running.post(&question).await;
            assert_eq!(status(&answer), "200", "{answer}");
            assert!(
                answer.contains(r#""allowed":false,"blind":false"#),
                "{answer}"
            );
            assert_eq!(text_of(&answer, "error"), error, "{question}");
            assert!(text_of(&answer, "cause").contains(expected), "{answer}");
            assert!(!answer.contains("code"), "{answer}");
        }
    }
    assert_eq!(running.kit.held(), []);
    running.end().await;
}
