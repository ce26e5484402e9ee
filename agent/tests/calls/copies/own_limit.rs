//! Domains with a limit of their own that is less than others': an agent holds them to it once it knows it.

use super::*;

#[test]
fn a_domain_that_may_have_no_copies_is_refused_from_its_first_call() {
    let (kit, sandbox) = kit();
    kit.close("sandbox", "acme");
    for copies in [1, 5, 100] {
        assert_eq!(
            denied(sandbox.reserve("acme", copies)),
            (Cause::Full, Scope::Pair)
        );
    }
    assert!(sandbox.peek("acme").is_err());
    assert_eq!(sandbox.reserve_up_to("acme", 0..=5).unwrap().copies(), 0);
    let both = [(&sandbox, "beta", 1), (&sandbox, "acme", 1)];
    assert!(kit.agent().reserve_all(&both, None).is_err());
    assert!(sandbox.reserve("beta", 10).is_ok());
    kit.go_blind();
    assert!(sandbox.reserve("acme", 1).is_ok());
    kit.see_again();
    kit.agent().kill_switch(KillSwitch::On);
    assert!(sandbox.reserve("acme", 1).is_ok());
}

#[test]
fn a_domain_is_held_to_its_own_limit_once_a_denial_has_stated_it() {
    let (kit, sandbox) = kit();
    kit.most_at_once_of("sandbox", "acme", 3);
    let too_many = |refused: Result<_, Refused>| match refused {
        Err(Refused::TooMany(too_many)) => too_many.most(),
        other => panic!("{other:?}"),
    };
    assert_eq!(too_many(sandbox.reserve("acme", 4)), 3);
    let both = [(&sandbox, "acme", 2), (&sandbox, "acme", 2)];
    assert_eq!(
        too_many(kit.agent().reserve_all(&both, None).map(|_| unreachable!())),
        3
    );
    let all = sandbox.reserve_up_to("acme", 1..=9).unwrap();
    assert_eq!(all.copies(), 3);
    assert_eq!(too_many(sandbox.reserve("acme", 4)), 3, "whatever is held");
    drop(all);
    assert!(sandbox.peek("acme").is_ok() && sandbox.reserve("acme", 3).is_ok());
    // Others may have as many as any domain, and so may this one where nothing is refused or known.
    assert!(sandbox.reserve("beta", 10).is_ok());
    kit.go_blind();
    assert!(sandbox.reserve("acme", 10).is_ok());
    kit.see_again();
    kit.agent().kill_switch(KillSwitch::On);
    assert!(sandbox.reserve("acme", 10).is_ok());
    kit.agent().kill_switch(KillSwitch::Off);
    kit.advance(10 * 60 * SECOND);
    assert!(sandbox.reserve("acme", 10).is_ok(), "ten minutes later");
}
