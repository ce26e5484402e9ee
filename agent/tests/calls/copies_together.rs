//! Tests of looks at copies, and of calls for several resources, which look before they take.

use std::time::Duration;

use tollgate_agent::testing::{Outcome, TestAgent, WhenBlind};
use tollgate_agent::{Cause, Copies, KillSwitch, Misuse, Refused, Together};

const SECOND: Duration = Duration::from_secs(1);

fn kit() -> (TestAgent, Copies, Copies) {
    let kit = TestAgent::new();
    let (sandbox, gpu) = (kit.agent().copies("sandbox"), kit.agent().copies("gpu"));
    kit.copies_limit("sandbox", 10);
    kit.copies_limit("gpu", 4);
    (kit, sandbox, gpu)
}

fn cause<T: std::fmt::Debug>(result: Result<T, Refused>) -> Cause {
    match result {
        Err(Refused::Denied(denied)) => denied.cause(),
        Err(Refused::TooMany(_)) => Cause::TooMany,
        other => panic!("{other:?}"),
    }
}

fn misuse<T: std::fmt::Debug>(result: Result<T, Refused>) -> Misuse {
    match result {
        Err(Refused::Misuse(misuse)) => misuse,
        other => panic!("{other:?}"),
    }
}

/// The refused resources, and how many copies of each.
fn refused(kit: &TestAgent) -> Vec<(String, u32, Cause)> {
    let recorded = kit.recorded().into_iter();
    let refused = recorded.map(|one| match one.outcome {
        Outcome::Refused { copies, cause } => (one.resource, copies, cause),
        other => panic!("{other:?} of {}", one.resource),
    });
    refused.collect()
}

/// Whether anything was ever taken, even if it was given back.
fn was_taken(kit: &TestAgent) -> bool {
    let _ = kit.held();
    kit.agent().stats().hold_operations != 0
}

#[test]
fn a_peek_agrees_with_a_reserve_under_the_kill_switch() {
    let (kit, sandbox, _) = kit();
    kit.full("sandbox", "acme");
    let _ten = sandbox.reserve("beta", 10).unwrap();
    assert_eq!(cause(sandbox.peek("acme")), Cause::Full);
    assert_eq!(cause(sandbox.peek("beta")), Cause::Full);
    kit.agent().kill_switch(KillSwitch::On);
    for domain in ["acme", "beta"] {
        sandbox.peek(domain).unwrap();
        assert!(sandbox.reserve(domain, 1).is_ok());
        let wanted = [(&sandbox, domain, 1)];
        assert!(kit.agent().reserve_all(&wanted, None).is_ok());
    }
    let stats = kit.agent().stats();
    assert_eq!(stats.kill_switch_grants, 4, "a look lets nothing through");
    assert!(kit.recorded().is_empty());
}

#[test]
fn a_peek_agrees_with_a_reserve_while_blind() {
    let (kit, sandbox, _) = kit();
    let wanted = [(&sandbox, "acme", 1)];
    let _ten = sandbox.reserve("acme", 10).unwrap();
    kit.go_blind();
    sandbox.peek("acme").unwrap();
    assert!(sandbox.reserve("acme", 1).is_ok());
    assert!(kit.agent().reserve_all(&wanted, None).is_ok());
    kit.when_blind("sandbox", WhenBlind::Closed);
    assert_eq!(cause(sandbox.peek("acme")), Cause::Blind);
    let window = SECOND;
    kit.when_blind("sandbox", WhenBlind::Local { limit: 2, window });
    for _ in 0..5 {
        sandbox.peek("acme").unwrap();
    }
    assert!(kit.agent().reserve_all(&wanted, None).is_ok());
    assert!(
        sandbox.reserve("acme", 1).is_ok(),
        "nothing was taken by looks"
    );
    assert_eq!(cause(sandbox.peek("acme")), Cause::Blind);
}

#[test]
fn a_peek_at_a_strict_resource_shows_known_denials() {
    let (kit, sandbox, _) = kit();
    kit.strict("sandbox");
    sandbox.peek("acme").unwrap();
    kit.full("sandbox", "acme");
    assert_eq!(cause(sandbox.peek("acme")), Cause::Full);
    sandbox.peek("beta").unwrap();
    kit.agent().kill_switch(KillSwitch::On);
    sandbox.peek("acme").unwrap();
}

#[test]
fn every_refusal_of_several_is_recorded_and_nothing_is_taken() {
    let (kit, sandbox, gpu) = kit();
    let search = kit.agent().rate("api.search");
    let wanted = [(&sandbox, "acme", 3), (&gpu, "acme", 2)];
    let all = |hit| kit.agent().reserve_all(&wanted, hit);
    kit.full("gpu", "acme");
    assert_eq!(cause(all(None)), Cause::Full);
    assert_eq!(refused(&kit), [("gpu".to_owned(), 2, Cause::Full)]);
    kit.discard();
    kit.full("sandbox", "acme");
    kit.deny("api.search", "acme", SECOND);
    assert_eq!(cause(all(Some((&search, "acme")))), Cause::Tier(1));
    let each = [
        ("api.search".to_owned(), 1, Cause::Tier(1)),
        ("sandbox".to_owned(), 3, Cause::Full),
        ("gpu".to_owned(), 2, Cause::Full),
    ];
    assert_eq!(refused(&kit), each);
    assert!(!was_taken(&kit));
}

#[test]
fn a_later_impossible_request_leaves_the_first_untaken() {
    let (kit, sandbox, gpu) = kit();
    let wanted = [(&sandbox, "acme", 1), (&gpu, "acme", 5)];
    let cause = cause(kit.agent().reserve_all(&wanted, None));
    assert_eq!(cause, Cause::TooMany);
    assert_eq!(refused(&kit), [("gpu".to_owned(), 5, Cause::TooMany)]);
    assert!(!was_taken(&kit));
}

#[test]
fn requests_of_one_pair_are_checked_as_a_sum() {
    let (kit, sandbox, gpu) = kit();
    let again = kit.agent().copies("sandbox");
    let twice = |first, second| {
        let between = (&gpu, "acme", 1);
        let wanted = [(&sandbox, "acme", first), between, (&again, "acme", second)];
        kit.agent().reserve_all(&wanted, None)
    };
    assert_eq!(cause(twice(5, 6)), Cause::TooMany);
    assert_eq!(refused(&kit), [("sandbox".to_owned(), 6, Cause::TooMany)]);
    assert!(!was_taken(&kit));
    let Together { holds, .. } = twice(5, 5).unwrap();
    assert_eq!((holds.len(), sandbox.held("acme")), (3, 10));
    let others = [(&sandbox, "beta", 6), (&sandbox, "gamma", 6)];
    assert!(kit.agent().reserve_all(&others, None).is_ok());
}

#[test]
fn an_invalid_request_among_several_changes_nothing() {
    let (kit, sandbox, gpu) = kit();
    let search = kit.agent().rate("api.search");
    kit.deny("api.search", "acme", SECOND);
    kit.full("sandbox", "beta");
    for domain in ["acme", "beta"] {
        let wanted = [(&sandbox, domain, 1), (&gpu, domain, 0)];
        let hit = Some((&search, "acme"));
        let none = kit.agent().reserve_all(&wanted, hit);
        assert_eq!(misuse(none), Misuse::NoCopies);
    }
    kit.strict("gpu");
    let wanted = [(&sandbox, "acme", 1), (&gpu, "acme", 1)];
    let strict = kit.agent().reserve_all(&wanted, None);
    assert_eq!(misuse(strict), Misuse::Strict);
    assert!(kit.recorded().is_empty() && !was_taken(&kit));
}
