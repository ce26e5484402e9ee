//! Tests of calls that cost more than one copy: too many at once, estimates, settling; of what is left; and of calls
//! that are mistakes.

use std::time::Duration;

use tollgate_agent::testing::{Outcome, TestAgent};
use tollgate_agent::{
    Cause, KillSwitch, Misuse, Refused, SeizeError, SettleError, Settled, TransferId,
};

const MINUTE: Duration = Duration::from_secs(60);

fn outcomes(kit: &TestAgent) -> Vec<Outcome> {
    kit.recorded().iter().map(|one| one.outcome).collect()
}

fn most(result: Result<tollgate_agent::Allowed, Refused>) -> Option<u64> {
    match result {
        Err(Refused::TooMany(too_many)) => Some(too_many.most()),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

#[test]
fn a_call_above_every_limit_is_refused_at_once() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    assert_eq!(most(rate.hit_n("acme", 1_001)), None, "nothing is known");
    kit.most_at_once("r", 1_000);
    kit.discard();
    assert_eq!(most(rate.hit_n("acme", 1_001)), Some(1_000));
    assert_eq!(most(rate.hit_n("acme", 1_000)), None);
    assert!(rate.hit_estimated("acme", 2_000).is_err());
    let too_many = |copies| Outcome::Refused {
        copies,
        cause: Cause::TooMany,
    };
    let hit = Outcome::Hit {
        copies: 1_000,
        min: None,
    };
    assert_eq!(outcomes(&kit), [too_many(1_001), hit, too_many(2_000)]);
}

#[test]
fn a_denials_limit_holds_for_its_pair_for_ten_minutes() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.most_at_once("r", 1_000);
    kit.most_at_once_of("r", "small", 10);
    assert_eq!(most(rate.hit_n("small", 500)), Some(10));
    assert_eq!(most(rate.hit_n("small", 10)), None);
    assert_eq!(most(rate.hit_n("large", 500)), None);
    kit.advance(9 * MINUTE);
    assert_eq!(most(rate.hit_n("small", 500)), Some(10));
    kit.advance(MINUTE);
    assert_eq!(most(rate.hit_n("small", 500)), None);
    assert_eq!(most(rate.hit_n("small", 5_000)), Some(1_000));
}

#[test]
fn of_a_range_no_more_is_granted_than_can_ever_be() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.most_at_once("r", 100);
    let granted = |range| rate.hit_up_to("acme", range).map(|one| one.copies());
    assert_eq!(granted(5..=300).ok(), Some(100));
    assert_eq!(most(rate.hit_up_to("acme", 101..=300)), Some(100));
}

#[test]
fn no_call_is_too_large_where_no_limit_applies() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("r");
    kit.most_at_once("r", 10);
    kit.agent().kill_switch(KillSwitch::On);
    assert_eq!(most(rate.hit_n("acme", 11)), None, "the kill switch");
    kit.agent().kill_switch(KillSwitch::Off);
    kit.go_blind();
    assert_eq!(most(rate.hit_n("acme", 11)), None, "unguarded");
    kit.see_again();
    assert_eq!(most(rate.hit_n("acme", 11)), Some(10));
    kit.ignored("r");
    assert_eq!(most(rate.hit_n("acme", 11)), None, "shadow");
}

#[test]
fn an_estimate_is_settled_by_what_the_call_cost() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("llm.tokens");
    let settle = |estimate, actual| {
        let estimate = rate.hit_estimated("acme", estimate).expect("allowed");
        estimate.settle(actual).expect("in time")
    };
    assert_eq!(settle(800, 620), Settled::TakenBack(180));
    assert_eq!(settle(800, 950), Settled::Charged(150));
    assert_eq!(settle(800, 800), Settled::Exact);
    assert_eq!(settle(800, 0), Settled::TakenBack(800));
    let charged = Outcome::Hit {
        copies: 800,
        min: None,
    };
    let refund = |actual| Outcome::Refund {
        estimated: 800,
        actual,
    };
    let more = Outcome::Charge { copies: 150 };
    let expected = [
        charged,
        refund(620),
        charged,
        more,
        charged,
        charged,
        refund(0),
    ];
    assert_eq!(outcomes(&kit), expected);
}

#[test]
fn an_estimate_that_is_dropped_or_late_stays_charged() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("llm.tokens");
    let late = rate.hit_estimated("acme", 8).expect("allowed");
    drop(rate.hit_estimated("acme", 8).expect("allowed"));
    kit.advance(10 * MINUTE);
    let error = late.settle(5).expect_err("too late");
    assert_eq!(error, SettleError::TooLate { after_secs: 600 });
    let charged = Outcome::Hit {
        copies: 8,
        min: None,
    };
    assert_eq!(outcomes(&kit), [charged, charged]);
}

#[test]
fn a_refused_call_has_no_estimate_and_charges_nothing() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("llm.tokens");
    kit.deny("llm.tokens", "acme", MINUTE);
    let error = rate.hit_estimated("acme", 8).expect_err("denied");
    assert!(error.denied().is_some());
    assert!(matches!(
        rate.hit_estimated("acme", 0),
        Err(Refused::Misuse(_))
    ));
    let refused = Outcome::Refused {
        copies: 8,
        cause: Cause::Tier(1),
    };
    assert_eq!(outcomes(&kit), [refused]);
}

#[test]
fn limits_may_forbid_refunds() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("web.login");
    kit.keeps_estimates("web.login");
    let estimate = rate.hit_estimated("acme", 8).expect("allowed");
    assert_eq!(estimate.settle(5), Ok(Settled::Kept));
    assert_eq!(outcomes(&kit).len(), 1);
}

#[test]
fn a_hit_of_a_resource_that_is_limited_by_copies_is_an_error() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("sandbox");
    assert!(rate.hit("acme").is_ok(), "nobody knows yet");
    kit.limited_by_copies("sandbox");
    let denied = rate.hit("acme").expect_err("a mistake");
    assert_eq!(
        (denied.cause(), denied.retry_after()),
        (Cause::NotRate, None)
    );
    assert!(rate.hit_n("acme", 2).is_err() && rate.peek("acme").is_err());
    assert_eq!(
        denied.to_string(),
        "limited by copies, not by rate: see `Agent::copies`"
    );
    // A denial of copies does not apply to a hit.
    kit.full("sandbox", "acme");
    let denied = rate.hit("acme").expect_err("a mistake as before");
    assert_eq!(denied.cause(), Cause::NotRate);
    kit.agent().kill_switch(KillSwitch::On);
    assert!(rate.hit("acme").is_ok());
}

#[test]
fn a_hold_of_a_resource_that_is_limited_by_rate_is_an_error() {
    let kit = TestAgent::new();
    let copies = kit.agent().copies("api.search");
    assert!(copies.reserve("acme", 1).is_ok(), "nobody knows yet");
    kit.most_at_once("api.search", 5);
    let refused = copies.reserve("acme", 1).expect_err("a mistake");
    assert!(matches!(refused, Refused::Misuse(Misuse::NotCopies)));
    assert_eq!(
        refused.to_string(),
        "the resource is limited by rate, not by copies"
    );
    let waker = std::task::Waker::noop();
    let mut seizing = std::pin::pin!(copies.seize(TransferId(7)));
    let seized = seizing
        .as_mut()
        .poll(&mut std::task::Context::from_waker(waker));
    let is_mistake = |seized: &Result<_, SeizeError>| matches!(seized, Err(SeizeError::NotCopies));
    assert!(matches!(seized, std::task::Poll::Ready(ref seized) if is_mistake(seized)));
    assert!(kit.held().is_empty(), "nothing is held by mistake");
}

#[test]
fn near_its_limit_each_call_shows_what_is_left_after_it() {
    let kit = TestAgent::new();
    let rate = kit.agent().rate("api.search");
    let left = |domain| rate.hit(domain).expect("allowed").remaining();
    assert_eq!(left("acme"), None);
    kit.near("api.search", "acme", 20, 100, MINUTE);
    assert_eq!((left("acme"), left("globex")), (Some(19), None));
    assert_eq!(
        rate.hit_n("acme", 4).expect("allowed").remaining(),
        Some(15)
    );
    let peeked = rate.peek("acme").expect("allowed");
    assert_eq!((peeked.remaining(), peeked.is_near()), (Some(15), true));
    rate.record("acme", 5);
    let estimate = rate.hit_estimated("acme", 2).expect("allowed");
    assert_eq!(estimate.allowed().remaining(), Some(8));
    // Of several pairs, what the nearest to its limit has left.
    let other = kit.agent().rate("api.export");
    kit.near("api.export", "acme", 3, 10, MINUTE);
    let both = kit.agent().hit_all(&[(&rate, "acme"), (&other, "acme")]);
    assert_eq!(both.expect("allowed").remaining(), Some(2));
    // It is information only: a domain with nothing left is refused only by a denial.
    assert_eq!(
        rate.hit_n("acme", 50).expect("allowed").remaining(),
        Some(0)
    );
    let headers = rate.hit("acme").expect("allowed").headers();
    assert_eq!(headers.rate_limit(), Some("\"window-0\";r=0;t=60"));
    kit.deny("api.search", "acme", MINUTE);
    assert!(rate.hit("acme").is_err());
    kit.lift("api.search", "acme");
    kit.advance(MINUTE);
    assert_eq!(left("acme"), None, "the notice has ended");
    kit.near("api.search", "acme", 20, 100, MINUTE);
    kit.go_blind();
    assert_eq!(left("acme"), None, "nobody says so any more");
}
