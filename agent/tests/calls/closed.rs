//! Domains that the limits grant nothing: agents refuse them from their first call.

use std::time::Duration;

use tollgate_agent::testing::{Outcome, Recorded, TestAgent, WhenBlind};
use tollgate_agent::{Cause, Denied, KillSwitch, Rate, Refused};

/// A test agent that knows that `search` grants acme nothing.
fn closed() -> (TestAgent, Rate) {
    let kit = TestAgent::new();
    let search = kit.agent().rate("search");
    kit.windows("search", &[(10, Duration::from_secs(1))]);
    kit.most_at_once("search", 10);
    kit.close("search", "acme");
    (kit, search)
}

fn assert_refused(denied: Denied) {
    assert_eq!(denied.cause(), Cause::Inaccessible);
    assert_eq!(denied.retry_after(), None);
    assert_eq!(denied.code(), None);
    assert_eq!(denied.headers().retry_after_secs(), None);
    assert_eq!(denied.to_string(), "rate limited (inaccessible)");
}

#[test]
fn a_closed_domain_is_refused_from_its_first_call() {
    let (kit, search) = closed();
    let denied = search.hit("acme").expect_err("it is closed");
    assert_refused(denied);
    let refused = Outcome::Refused {
        copies: 1,
        cause: Cause::Inaccessible,
    };
    assert_eq!(kit.recorded()[0].outcome, refused);
    for other in ["globex", "acm", "acme2", "ACME", "*"] {
        assert!(search.hit(other).is_ok(), "{other}");
    }
    assert!(kit.agent().rate("export").hit("acme").is_ok());
}

#[test]
fn every_kind_of_call_of_a_closed_domain_is_refused() {
    let (kit, search) = closed();
    assert_refused(search.peek("acme").expect_err("a look"));
    // More than the limits of any domain grant at once, too: that this never ends says more than how many.
    for copies in [2, 10, 11, 1_000] {
        let refused = search.hit_n("acme", copies).expect_err("copies");
        assert_refused(*refused.denied().expect("a denial"));
        let refused = search.hit_estimated("acme", copies).expect_err("a cost");
        assert_refused(*refused.denied().expect("a denial"));
        let refused = search.hit_up_to("acme", 1..=copies).expect_err("a range");
        assert_refused(*refused.denied().expect("a denial"));
    }
    let none = search.hit_up_to("acme", 0..=5).expect("none is enough");
    assert_eq!(none.copies(), 0);
    let both = kit
        .agent()
        .hit_all(&[(&search, "globex"), (&search, "acme")]);
    assert_refused(both.expect_err("one of two"));
    let wait = search.until_ready("acme", Duration::from_secs(60));
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().expect("a runtime");
    assert_refused(runtime.block_on(wait).expect_err("it does not wait"));
    let is_refused = |one: &Recorded| {
        matches!(
            one.outcome,
            Outcome::Refused {
                cause: Cause::Inaccessible,
                ..
            }
        )
    };
    assert!(
        kit.recorded()
            .iter()
            .all(|one| is_refused(one) && one.domain == "acme")
    );
    // A cost that has been spent counts.
    kit.discard();
    search.record("acme", 3);
    assert_eq!(kit.recorded()[0].outcome, Outcome::Charge { copies: 3 });
    let too_many = search.hit_n("globex", 11);
    assert!(matches!(too_many, Err(Refused::TooMany(_))), "{too_many:?}");
}

#[test]
fn a_blind_agent_treats_a_closed_domain_like_any_other() {
    let (kit, search) = closed();
    kit.go_blind();
    assert!(search.hit("acme").is_ok_and(|allowed| allowed.blind()));
    kit.when_blind("search", WhenBlind::Closed);
    let denied = search.hit("acme").expect_err("the policy");
    assert_eq!(denied.cause(), Cause::Blind);
    kit.see_again();
    assert_refused(search.hit("acme").expect_err("it is closed"));
}

#[test]
fn a_closed_domain_passes_where_denials_are_ignored() {
    let (kit, search) = closed();
    kit.agent().kill_switch(KillSwitch::On);
    assert!(search.hit("acme").is_ok());
    kit.agent().kill_switch(KillSwitch::Off);
    assert!(search.hit("acme").is_err());
    kit.ignored("search");
    assert!(search.hit("acme").is_ok());
}

#[test]
fn a_denial_of_a_closed_domain_comes_first_and_ends() {
    let (kit, search) = closed();
    kit.deny("search", "acme", Duration::from_secs(5));
    let denied = search.hit("acme").expect_err("it is denied");
    assert!(denied.code().is_some());
    kit.advance(Duration::from_secs(6));
    assert_refused(search.hit("acme").expect_err("it is closed"));
}

#[test]
fn a_closed_network_is_refused_where_addresses_are_limited_by_it() {
    let (kit, search) = closed();
    kit.addresses("search", 24, 64);
    kit.close("search", "10.0.0.0/24");
    assert_refused(search.hit("10.0.0.7").expect_err("in the network"));
    assert!(search.hit("10.0.1.7").is_ok());
}

#[test]
fn a_name_that_an_allow_list_does_not_have_is_refused_from_its_first_call() {
    let kit = TestAgent::new();
    let search = kit.agent().rate("search");
    kit.allow_only("search", &["globex", "10.0.0.0/8", "acme"]);
    for allowed in [
        "acme",
        "globex",
        "10.1.2.3",
        "::ffff:10.1.2.3",
        "10.0.0.0/8",
    ] {
        assert!(search.hit(allowed).is_ok(), "{allowed}");
    }
    for other in ["initech", "", "11.0.0.1", "ACME", "acme "] {
        assert_refused(search.hit(other).expect_err(other));
    }
    assert!(search.hit_n("initech", 3).is_err() && search.peek("initech").is_err());
    kit.go_blind();
    assert!(search.hit("initech").is_ok());
    kit.see_again();
    kit.agent().kill_switch(KillSwitch::On);
    assert!(search.hit("initech").is_ok());
    kit.agent().kill_switch(KillSwitch::Off);
    kit.ignored("search");
    assert!(search.hit("initech").is_ok());
    let jobs = kit.agent().copies("jobs");
    kit.copies_limit("jobs", 5);
    kit.allow_only("jobs", &["acme"]);
    assert!(jobs.reserve("acme", 1).is_ok() && jobs.reserve("globex", 1).is_err());
}
