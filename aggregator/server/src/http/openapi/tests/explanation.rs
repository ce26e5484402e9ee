//! An explanation with every field filled.

use tollgate_replay::explain::{Explanation, view as explained};

use super::{check, code};

#[test]
fn an_explanation_is_as_described() {
    let agent = explained::AgentView {
        agent: "web".to_owned(),
        hits: 5,
        first_us: 1,
        last_us: 2,
    };
    let tally = explained::Tally {
        calls: 1,
        hits: 5,
        by_agent: vec![agent.clone()],
    };
    let tier = explained::TierView {
        tier: 1,
        limit: 5,
        window_us: 1,
        active_us: 1,
        cooldown_us: 1,
        skippable: true,
        phase: "active",
        hits: 5,
        entered_us: Some(1),
        entered_by: Some("web".to_owned()),
        entered_at: Some("1.0".to_owned()),
        active_until_us: Some(2),
        cooling_until_us: None,
    };
    let window = explained::WindowView {
        from_us: 1,
        to_us: 2,
        hits: 5,
        unnamed: 0,
        by_agent: vec![agent],
        by_time: vec![explained::TimeView {
            from_us: 1,
            hits: 5,
        }],
    };
    let explanation = Explanation {
        schema: "tollgate.explain/1",
        log: "a journal".to_owned(),
        denied: true,
        reason: "tier",
        sentences: vec!["It was refused.".to_owned()],
        resource: "api.search".to_owned(),
        domain: Some("acme".to_owned()),
        at_us: Some(1),
        partition: 3,
        code: Some(code().to_string()),
        window: Some(window),
        tiers: vec![tier],
        excess: tally.clone(),
        refused: tally,
        picture: Some("#".to_owned()),
        ..parts()
    };
    check("Explanation", &explanation);
}

/// The remaining parts, which belong to causes other than a tier.
fn parts() -> Explanation {
    let denial = explained::DenialView {
        cause: "tier 1".to_owned(),
        tier: Some(1),
        limit: 5,
        window_us: 1,
        since_us: 1,
        appended_us: 1,
        recorded_us: None,
        until_us: Some(2),
    };
    let holder = explained::HolderView {
        agent: None,
        copies: 1,
        holds: 1,
        oldest_us: 1,
    };
    Explanation {
        denial: Some(denial.clone()),
        statements: vec![explained::StatementView {
            code: Some(code().to_string()),
            at_us: 1,
            until_us: Some(2),
            says: "denied",
            cause: Some("tier 1".to_owned()),
            refused_calls: 1,
        }],
        version: Some(explained::VersionView {
            number: 1,
            digest: "0f".to_owned(),
            amendment: None,
            excerpt: "[rate]".to_owned(),
        }),
        holders: vec![holder.clone()],
        same_code: vec![explained::ScopeDenialView {
            scope: "resource",
            domain: None,
            group: None,
            denial,
            holders: vec![holder],
        }],
        constraints: vec![explained::ConstraintView {
            name: "hard".to_owned(),
            over: Some("1s".to_owned()),
            limit: 5,
            counted: 5,
            level: None,
            full: true,
            room_at_us: None,
        }],
        call: Some(explained::CallView {
            position: "1.0".to_owned(),
            agent: "web".to_owned(),
            stamp_us: 1,
            at_us: 1,
            appended_us: 1,
            copies: 1,
            granted: 0,
            excess: 1,
            late: 0,
        }),
        ..Explanation::default()
    }
}
