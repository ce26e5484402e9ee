//! What a holder learns of its hold without waiting: the same as by waiting, from the first call on.

use std::pin::pin;
use std::task::Poll;

use tollgate_agent::testing::{Ruling, TestAgent};
use tollgate_agent::{Copies, EndedBy, FullScope, Hold, Revoked, Scope, Why};

use super::{SECOND, poll_with};
use crate::sandbox::kit;

/// A hold of five copies, and its number.
fn taken(sandbox: &Copies) -> (Hold, u64) {
    let hold = sandbox.reserve("acme", 5).unwrap();
    let number = hold.number().unwrap();
    (hold, number)
}

/// What a hold's revocation is, in both ways of asking.
fn asked(kit: &TestAgent, hold: &Hold) -> Option<Revoked> {
    let now = hold.revoked_now();
    let waited = match poll_with(kit, pin!(hold.revoked())) {
        Poll::Ready(why) => Some(why),
        Poll::Pending => None,
    };
    assert_eq!(now, waited, "two answers");
    now
}

fn give_back(copies: u32) -> Option<Revoked> {
    Some(Revoked::GiveBack {
        copies,
        scope: Some(FullScope::Domain),
    })
}

#[test]
fn what_is_too_many_is_known_until_it_is_given_back() {
    let (kit, sandbox) = kit();
    let (mut hold, number) = taken(&sandbox);
    assert_eq!(asked(&kit, &hold), None);
    kit.rule("sandbox", number, Ruling::Excess(3, Scope::Pair));
    assert_eq!(asked(&kit, &hold), None, "excess is kept");
    kit.give_back_excess("sandbox");
    assert_eq!(asked(&kit, &hold), give_back(3));
    hold.release(1).unwrap();
    assert_eq!(hold.revoked_now(), give_back(2), "before the agent acts");
    assert_eq!(asked(&kit, &hold), give_back(2));
    hold.transfer(2, SECOND).unwrap();
    assert_eq!((asked(&kit, &hold), hold.copies()), (None, 2));
    kit.rule("sandbox", number, Ruling::Excess(1, Scope::Pair));
    assert_eq!(asked(&kit, &hold), give_back(1), "counted again");
    kit.rule("sandbox", number, Ruling::NotHeld);
    assert_eq!(asked(&kit, &hold), None, "in doubt");
    kit.rule("sandbox", number, Ruling::Excess(1, Scope::Pair));
    assert_eq!(asked(&kit, &hold), give_back(1));
    kit.rule("sandbox", number, Ruling::Confirmed);
    assert_eq!(asked(&kit, &hold), None);
}

#[test]
fn a_hold_that_no_longer_counts_is_known_at_the_first_call() {
    let (kit, sandbox) = kit();
    kit.give_back_excess("sandbox");
    for (ruling, revoked) in [
        (Ruling::Ended, Revoked::Ended(EndedBy::Operator)),
        (Ruling::EndedByAge, Revoked::Ended(EndedBy::Age)),
        (Ruling::Uncounted, Revoked::Uncounted(Why::AtCapacity)),
    ] {
        let (mut hold, number) = taken(&sandbox);
        kit.rule("sandbox", number, Ruling::Excess(2, Scope::Pair));
        kit.rule("sandbox", number, ruling);
        assert_eq!(asked(&kit, &hold), Some(revoked.clone()));
        assert!(hold.release(1).is_err());
        assert_eq!(asked(&kit, &hold), Some(revoked), "until it is dropped");
    }
}

#[test]
fn the_end_of_the_agent_is_known_and_nothing_of_no_copies() {
    let (kit, sandbox) = kit();
    kit.give_back_excess("sandbox");
    let (mut none, number) = taken(&sandbox);
    kit.rule("sandbox", number, Ruling::Excess(5, Scope::Pair));
    none.release(5).unwrap();
    assert_eq!(asked(&kit, &none), None);
    let (kept, _) = taken(&sandbox);
    drop(kit);
    assert_eq!(kept.revoked_now(), Some(Revoked::AgentEnded));
    assert_eq!(none.revoked_now(), None);
}
