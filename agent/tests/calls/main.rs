//! Tests of what calls promise, with the testing kit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod axum;
mod closed;
mod copies;
mod copies_awaited;
mod copies_together;
mod networks;
#[path = "../support/sandbox.rs"]
mod sandbox;
mod weighted;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate_agent::testing::{Outcome, Recorded, TestAgent, WhenBlind};
use tollgate_agent::{Cause, KillSwitch, Misuse, Refused, Scope};

const SECOND: Duration = Duration::from_secs(1);

fn outcomes(recorded: &[Recorded]) -> Vec<(&str, Outcome)> {
    recorded
        .iter()
        .map(|one| (one.domain.as_str(), one.outcome))
        .collect()
}

fn hit(copies: u32, min: Option<u32>) -> Outcome {
    Outcome::Hit { copies, min }
}

fn refused(copies: u32) -> Outcome {
    Outcome::Refused {
        copies,
        cause: Cause::Tier(1),
    }
}

#[test]
fn a_denial_refuses_its_pair_alone_and_ends_by_itself() {
    let kit = TestAgent::new();
    let (search, export) = (
        kit.agent().rate("api.search"),
        kit.agent().rate("api.export"),
    );
    kit.deny("api.search", "acme", 5 * SECOND);
    let denied = search.hit("acme").expect_err("denied");
    assert_eq!(
        (denied.scope(), denied.cause(), denied.retry_after()),
        (Scope::Pair, Cause::Tier(1), Some(5 * SECOND))
    );
    assert!(denied.code().is_some());
    assert!(search.hit("globex").is_ok() && export.hit("acme").is_ok());
    kit.advance(5 * SECOND - Duration::from_micros(1));
    assert_eq!(
        search.hit("acme").expect_err("denied").retry_after(),
        Some(Duration::from_micros(1))
    );
    kit.advance(Duration::from_micros(1));
    assert!(search.hit("acme").is_ok());
}

#[test]
fn a_lift_ends_a_denial_and_a_global_denial_refuses_all() {
    let kit = TestAgent::new();
    let search = kit.agent().rate("api.search");
    kit.deny("api.search", "acme", 5 * SECOND);
    kit.lift("api.search", "acme");
    assert!(search.hit("acme").is_ok());
    kit.deny_everybody("api.search", SECOND);
    let denied = search.hit("acme").expect_err("denied");
    assert_eq!(
        (denied.scope(), denied.cause()),
        (Scope::Resource, Cause::Global)
    );
    // A domain of that name is limited like any other.
    assert_eq!(
        kit.agent()
            .rate("other")
            .hit("*")
            .expect("allowed")
            .copies(),
        1
    );
    kit.advance(SECOND);
    assert!(search.hit("acme").is_ok());
}

#[test]
fn every_call_is_recorded_with_its_kind() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    let _ = rate.hit("a");
    let _ = rate.hit_n("b", 3);
    assert_eq!(rate.hit_up_to("c", 2..=7).expect("allowed").copies(), 7);
    assert_eq!(rate.hit_up_to("d", 1..=4).expect("allowed").copies(), 4);
    rate.record("e", 9);
    let _ = rate.peek("f");
    rate.record("g", 0);
    assert_eq!(
        outcomes(&kit.recorded()),
        [
            ("a", hit(1, None)),
            ("b", hit(3, None)),
            ("c", hit(7, Some(2))),
            ("d", hit(4, Some(1))),
            ("e", Outcome::Charge { copies: 9 }),
        ]
    );
}

#[test]
fn an_invalid_call_is_an_error_and_is_not_recorded() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    let reversed = || std::ops::RangeInclusive::new(5, 4);
    let mut used_up = 3..=3;
    used_up.next();
    let check = |when: &str| {
        let none = Err(Refused::Misuse(Misuse::NoCopies));
        assert_eq!(rate.hit_n("acme", 0), none, "{when}");
        assert_eq!(rate.hit_up_to("acme", 0..=0), none, "{when}");
        assert_eq!(
            rate.hit_up_to("acme", reversed()),
            Err(Refused::Misuse(Misuse::MinAboveMax { min: 5, max: 4 })),
            "{when}"
        );
        assert!(
            matches!(
                rate.hit_up_to("acme", used_up.clone()),
                Err(Refused::Misuse(Misuse::MinAboveMax { .. }))
            ),
            "{when}"
        );
    };
    check("open");
    kit.deny("r", "acme", SECOND);
    check("denied");
    kit.agent().kill_switch(KillSwitch::On);
    check("killed");
    kit.go_blind();
    check("blind");
    assert_eq!(kit.recorded(), []);
    assert_eq!(kit.agent().stats().kill_switch_grants, 0);
}

#[test]
fn a_refusal_of_many_is_the_same_as_of_one() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", SECOND);
    let one = rate.hit("acme").expect_err("denied");
    let many = rate.hit_n("acme", 3).expect_err("denied");
    assert_eq!(many.denied(), Some(&one));
    assert_eq!(rate.hit_up_to("acme", 1..=3), Err(Refused::Denied(one)));
}

#[test]
fn refused_calls_are_recorded_too_and_peeks_are_not() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", SECOND);
    let _ = rate.hit("acme");
    let _ = rate.hit_n("acme", 4);
    assert_eq!(
        rate.hit_up_to("acme", 0..=4)
            .expect("0 is what was asked for at least")
            .copies(),
        0
    );
    assert!(rate.peek("acme").is_err());
    rate.record("acme", 2);
    let expected = [
        refused(1),
        refused(4),
        refused(4),
        Outcome::Charge { copies: 2 },
    ]
    .map(|one| ("acme", one));
    assert_eq!(outcomes(&kit.recorded()), expected);
}

#[test]
fn empty_and_long_domains_are_limited_like_others() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    let long = "x".repeat(300);
    for domain in ["", "*", &long] {
        kit.deny("r", domain, SECOND);
        assert!(rate.hit(domain).is_err(), "{domain}");
    }
    assert_eq!(
        kit.recorded()
            .iter()
            .map(|one| one.domain.len())
            .collect::<Vec<_>>(),
        [7, 6, 256]
    );
    // A long resource name does not escape a limit, either.
    kit.deny(&long, "acme", SECOND);
    assert!(kit.agent().rate(&long).hit("acme").is_err());
}

#[test]
fn calls_of_several_pairs_are_recorded_all_or_none() {
    let kit = TestAgent::new();
    let (agent, one, other) = (
        kit.agent(),
        kit.agent().rate("one"),
        kit.agent().rate("other"),
    );
    assert!(agent.hit_all(&[(&one, "acme"), (&other, "acme")]).is_ok());
    assert_eq!(kit.recorded().len(), 2);
    kit.discard();
    kit.deny("one", "acme", SECOND);
    kit.deny("other", "acme", 3 * SECOND);
    let denied = agent
        .hit_all(&[(&other, "acme"), (&other, "globex"), (&one, "acme")])
        .expect_err("denied");
    assert_eq!(denied.retry_after(), Some(3 * SECOND));
    assert_eq!(
        outcomes(&kit.recorded()),
        [("acme", refused(1)), ("acme", refused(1))]
    );
    assert_eq!(agent.hit_all(&[]).expect("nothing was asked").copies(), 0);
}

#[test]
fn a_blind_agent_follows_the_resources_policy() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", 5 * SECOND);
    kit.go_blind();
    assert!(rate.hit("acme").expect("denials do not hold").blind());
    // A bulk call gets its minimum, but at least one.
    assert_eq!(rate.hit_up_to("acme", 2..=9).expect("open").copies(), 2);
    assert_eq!(rate.hit_up_to("acme", 0..=9).expect("open").copies(), 1);
    kit.when_blind(
        "r",
        WhenBlind::Local {
            limit: 2,
            window: SECOND,
        },
    );
    assert!(rate.hit("globex").is_ok() && rate.hit("globex").is_ok());
    let denied = rate.hit("globex").expect_err("used up");
    assert_eq!(
        (denied.cause(), denied.code(), denied.retry_after()),
        (Cause::Blind, None, Some(SECOND / 2))
    );
    assert!(rate.peek("globex").is_err(), "as a hit");
    kit.advance(SECOND / 2);
    assert!(rate.peek("globex").is_ok(), "a peek takes nothing");
    assert!(rate.hit("globex").is_ok());
    kit.when_blind("r", WhenBlind::Closed);
    assert!(rate.peek("globex").is_err());
    let denied = rate.hit("initech").expect_err("closed");
    assert_eq!((denied.cause(), denied.retry_after()), (Cause::Blind, None));
    kit.see_again();
    assert!(!rate.hit("initech").expect("heard").blind());
    assert!(rate.hit("acme").is_err(), "the denial has not ended");
}

#[test]
fn a_refused_call_for_several_pairs_takes_no_blind_rate() {
    let kit = TestAgent::new();
    let (agent, one, other) = (
        kit.agent(),
        kit.agent().rate("one"),
        kit.agent().rate("other"),
    );
    let twice = WhenBlind::Local {
        limit: 2,
        window: SECOND,
    };
    kit.when_blind("one", twice);
    kit.when_blind("other", WhenBlind::Closed);
    kit.go_blind();
    for _ in 0..5 {
        assert!(agent.hit_all(&[(&one, "acme"), (&other, "acme")]).is_err());
    }
    // Nor if the refusal is found only after something was taken.
    kit.when_blind("other", twice);
    for _ in 0..5 {
        let thrice = [
            (&one, "acme"),
            (&other, "acme"),
            (&other, "acme"),
            (&other, "acme"),
        ];
        assert!(agent.hit_all(&thrice).is_err());
    }
    for _ in 0..2 {
        assert!(agent.hit_all(&[(&one, "acme"), (&other, "acme")]).is_ok());
    }
    assert!(one.hit("acme").is_err() && other.hit("acme").is_err());
    kit.agent().kill_switch(KillSwitch::On);
    assert!(agent.hit_all(&[(&one, "acme"), (&other, "acme")]).is_ok());
    assert_eq!(agent.stats().kill_switch_grants, 2);
}

#[test]
fn the_kill_switch_turns_denials_into_grants_that_are_counted() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", SECOND);
    kit.agent().kill_switch(KillSwitch::On);
    assert_eq!(rate.hit_n("acme", 2).expect("killed").copies(), 2);
    kit.agent().kill_switch(KillSwitch::Off);
    assert!(rate.hit("acme").is_err());
    assert_eq!(kit.agent().stats().kill_switch_grants, 1);
    assert_eq!(
        outcomes(&kit.recorded()),
        [("acme", hit(2, None)), ("acme", refused(1))]
    );
}

#[test]
fn answers_and_handles_go_anywhere() {
    fn anywhere<T: Send + Sync + 'static>() {}
    anywhere::<tollgate_agent::Rate>();
    anywhere::<tollgate_agent::Agent>();
    anywhere::<Result<tollgate_agent::Allowed, tollgate_agent::Denied>>();
}

fn poll<F: Future>(future: &mut std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_waiting_call_passes_when_the_denial_has_ended() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", SECOND);
    let mut waiting = pin!(rate.until_ready("acme", 10 * SECOND));
    assert!(poll(&mut waiting).is_pending());
    kit.advance(SECOND - Duration::from_micros(1));
    assert!(poll(&mut waiting).is_pending());
    // A quarter of the wait later, and the first step of at most 6.25 ms.
    kit.advance(Duration::from_millis(257));
    let Poll::Ready(Ok(allowed)) = poll(&mut waiting) else {
        panic!("let through")
    };
    assert_eq!(allowed.copies(), 1);
    assert_eq!(outcomes(&kit.recorded()), [("acme", hit(1, None))]);
}

#[test]
fn a_wait_that_would_be_too_long_is_refused_at_once() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", 10 * SECOND);
    let mut waiting = pin!(rate.until_ready("acme", SECOND));
    let Poll::Ready(Err(denied)) = poll(&mut waiting) else {
        panic!("told at once")
    };
    assert_eq!(denied.retry_after(), Some(10 * SECOND));
    assert_eq!(outcomes(&kit.recorded()), [("acme", refused(1))]);
}

#[test]
fn a_wait_that_times_out_ends_with_a_refusal() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.deny("r", "acme", SECOND);
    let mut waiting = pin!(rate.until_ready("acme", 3 * SECOND));
    for _ in 0..3 {
        assert!(poll(&mut waiting).is_pending());
        kit.advance(SECOND);
        kit.deny("r", "acme", SECOND);
    }
    assert!(matches!(poll(&mut waiting), Poll::Ready(Err(_))));
}

#[test]
fn an_address_is_limited_as_its_network() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("web.login");
    let _ = rate.hit("2001:DB8:1:2::9");
    kit.addresses("web.login", 32, 64);
    let _ = rate.hit("2001:DB8:1:2::9");
    let _ = rate.hit_n("::ffff:203.0.113.7", 2);
    let _ = rate.hit("acme");
    let recorded = kit.recorded();
    let domains: Vec<&str> = recorded.iter().map(|one| one.domain.as_str()).collect();
    let expected = [
        "2001:DB8:1:2::9",
        "2001:db8:1:2::/64",
        "203.0.113.7",
        "acme",
    ];
    assert_eq!(domains, expected);
    kit.deny("web.login", "2001:db8:1:2::/64", SECOND);
    assert!(rate.hit("2001:db8:1:2:3:4:5:6").is_err());
    assert!(rate.hit("2001:db8:1:3::1").is_ok());
}
