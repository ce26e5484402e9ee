//! Tests of copies that are used only once they are granted.

use super::*;

#[test]
fn strict_copies_are_used_once_they_are_granted() {
    let (kit, sandbox) = kit();
    kit.strict("sandbox");
    let mut reserve = pin!(sandbox.reserve_confirmed("acme", 4, SECOND));
    assert!(poll(reserve.as_mut()).is_pending());
    let waiting = kit.held();
    assert!(!waiting[0].in_use && sandbox.held("acme") == 0);
    kit.rule("sandbox", waiting[0].number, Ruling::Granted(4));
    let Poll::Ready(Ok(hold)) = poll(reserve.as_mut()) else {
        panic!("not granted");
    };
    assert_eq!((hold.copies(), sandbox.held("acme")), (4, 4));
    assert_eq!(
        poll_with(&kit, pin!(hold.confirmed())),
        Poll::Ready(Confirmation::Confirmed)
    );
    let mut refused = pin!(sandbox.reserve_confirmed("acme", 7, SECOND));
    assert!(poll(refused.as_mut()).is_pending());
    let number = kit.held()[1].number;
    kit.rule("sandbox", number, Ruling::Full(Scope::Resource));
    let Poll::Ready(refused) = poll(refused.as_mut()) else {
        panic!("no answer");
    };
    assert_eq!(denied(refused), (Cause::Full, Scope::Resource));
    drop(hold);
    assert_eq!((held(&kit), sandbox.held("acme")), (vec![], 0));
}

#[test]
fn at_its_deadline_the_policy_decides_a_strict_reserve() {
    let (kit, sandbox) = kit();
    kit.strict("sandbox");
    let mut reserve = pin!(sandbox.reserve_confirmed("acme", 4, SECOND));
    assert!(poll(reserve.as_mut()).is_pending());
    kit.advance(SECOND);
    let Poll::Ready(refused) = poll(reserve.as_mut()) else {
        panic!("no answer");
    };
    assert_eq!(denied(refused).0, Cause::Blind);
    assert!(held(&kit).is_empty());
    // A caller that goes away before has cancelled, too.
    {
        let mut gone = pin!(sandbox.reserve_confirmed("acme", 4, SECOND));
        assert!(poll(gone.as_mut()).is_pending());
        assert_eq!(held(&kit), [4]);
    }
    assert!(held(&kit).is_empty());
    kit.when_blind("sandbox", WhenBlind::Open);
    let mut reserve = pin!(sandbox.reserve_confirmed("acme", 4, SECOND));
    assert!(poll(reserve.as_mut()).is_pending());
    let cancelled = kit.held()[0].number;
    kit.advance(SECOND);
    let Poll::Ready(Ok(hold)) = poll(reserve.as_mut()) else {
        panic!("not let through");
    };
    assert_ne!(hold.number(), Some(cancelled));
    assert_eq!(kit.agent().stats().holds_beyond_strict, 4);
    assert!(kit.held()[0].in_use);
}

#[test]
fn a_strict_reserve_that_was_lost_is_asked_for_again() {
    let (kit, sandbox) = kit();
    kit.strict("sandbox");
    let mut reserve = pin!(sandbox.reserve_confirmed("acme", 4, SECOND));
    assert!(poll(reserve.as_mut()).is_pending());
    let lost = kit.held()[0].number;
    kit.rule("sandbox", lost, Ruling::NotHeld);
    assert!(poll(reserve.as_mut()).is_pending());
    let again = kit.held()[0].number;
    assert_ne!(lost, again);
    kit.rule("sandbox", again, Ruling::Granted(4));
    assert!(poll(reserve.as_mut()).is_ready());
}

#[test]
fn optimistic_and_strict_calls_are_not_mixed() {
    let (_kit, sandbox) = kit();
    let Poll::Ready(Err(refused)) = poll(pin!(sandbox.reserve_confirmed("acme", 1, SECOND))) else {
        panic!("mixed");
    };
    assert_eq!(refused, Refused::Misuse(Misuse::Optimistic));
}
