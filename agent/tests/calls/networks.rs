//! Networks that an operator has banned, or that the limits grant nothing: agents refuse their addresses from the first
//! call.

use std::time::Duration;

use tollgate_agent::testing::{Outcome, TestAgent};
use tollgate_agent::{Cause, KillSwitch, Rate};

const MINUTE: Duration = Duration::from_secs(60);

/// A test agent that knows a ban of a minute, and of a network that is closed.
fn banned() -> (TestAgent, Rate) {
    let kit = TestAgent::new();
    let search = kit.agent().rate("search");
    kit.windows("search", &[(10, Duration::from_secs(1))]);
    kit.ban_network("search", "203.0.113.0/24", Some(MINUTE));
    kit.ban_network("search", "2001:db8::/32", None);
    (kit, search)
}

fn cause(rate: &Rate, domain: &str) -> Option<Cause> {
    rate.hit(domain).err().map(|denied| denied.cause())
}

#[test]
fn each_address_of_a_banned_network_is_refused_from_its_first_call() {
    let (kit, search) = banned();
    for last in 0..=255 {
        assert_eq!(
            cause(&search, &format!("203.0.113.{last}")),
            Some(Cause::Banned)
        );
    }
    for inside in ["::ffff:203.0.113.7", "203.0.113.0/25", "::FFFF:CB00:7107"] {
        assert_eq!(cause(&search, inside), Some(Cause::Banned), "{inside}");
    }
    for inside in ["2001:db8::1", "2001:DB8:7::9", "2001:db8:1:2::/64"] {
        assert_eq!(
            cause(&search, inside),
            Some(Cause::Inaccessible),
            "{inside}"
        );
    }
    for other in [
        "203.0.112.7",
        "2001:db9::1",
        "203.0.113.7:80",
        "acme",
        "203.0.113.",
        "a.b",
        "203.0.112.0/23",
    ] {
        assert_eq!(cause(&search, other), None, "{other}");
    }
    assert_eq!(cause(&kit.agent().rate("export"), "203.0.113.7"), None);
    let refused = kit.recorded().into_iter().filter(|one| {
        matches!(
            one.outcome,
            Outcome::Refused {
                copies: 1,
                cause: Cause::Banned
            }
        )
    });
    assert_eq!(refused.count(), 259);
}

#[test]
fn every_kind_of_call_of_a_banned_address_is_refused_until_the_ban_ends() {
    let (kit, search) = banned();
    let address = "203.0.113.9";
    let denied = search.peek(address).expect_err("a look");
    assert_eq!((denied.retry_after(), denied.code()), (Some(MINUTE), None));
    assert!(
        search
            .hit_n(address, 3)
            .is_err_and(|refused| refused.denied().is_some())
    );
    assert!(search.hit_estimated(address, 3).is_err());
    assert!(
        search
            .hit_up_to(address, 0..=5)
            .is_ok_and(|allowed| allowed.copies() == 0)
    );
    let both = kit
        .agent()
        .hit_all(&[(&search, "acme"), (&search, address)]);
    assert_eq!(both.expect_err("one of two").cause(), Cause::Banned);
    kit.advance(MINUTE - Duration::from_secs(1));
    let last = search.hit(address).expect_err("a second is left");
    assert_eq!(last.retry_after(), Some(Duration::from_secs(1)));
    kit.advance(Duration::from_secs(1));
    assert_eq!(cause(&search, address), None);
    assert_eq!(
        cause(&search, "2001:db8::1"),
        Some(Cause::Inaccessible),
        "no ban"
    );
}

#[test]
fn a_ban_without_an_end_says_so() {
    let kit = TestAgent::new();
    let search = kit.agent().rate("search");
    kit.ban_network("search", "10.0.0.0/8", Some(Duration::MAX));
    let denied = search.hit("10.1.2.3").expect_err("it is banned");
    assert_eq!(
        (denied.cause(), denied.retry_after()),
        (Cause::Banned, None)
    );
}

#[test]
fn copies_are_not_given_to_a_banned_network() {
    let kit = TestAgent::new();
    let jobs = kit.agent().copies("jobs");
    kit.copies_limit("jobs", 9);
    kit.ban_network("jobs", "10.0.0.0/8", Some(MINUTE));
    let refused = jobs.reserve("10.1.2.3", 1).expect_err("it is banned");
    assert_eq!(
        refused.denied().map(|denied| denied.cause()),
        Some(Cause::Banned)
    );
    assert!(jobs.reserve("11.1.2.3", 1).is_ok());
    kit.advance(MINUTE);
    assert!(jobs.reserve("10.1.2.3", 1).is_ok(), "it has ended");
}

#[test]
fn a_banned_network_passes_where_nothing_is_enforced_or_known() {
    let (kit, search) = banned();
    kit.agent().kill_switch(KillSwitch::On);
    assert_eq!(cause(&search, "203.0.113.7"), None);
    kit.agent().kill_switch(KillSwitch::Off);
    assert_eq!(cause(&search, "203.0.113.7"), Some(Cause::Banned));
    kit.go_blind();
    assert_eq!(cause(&search, "203.0.113.7"), None);
    kit.see_again();
    kit.ignored("search");
    assert_eq!(cause(&search, "203.0.113.7"), None);
}
