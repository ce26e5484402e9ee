//! What no domain may have, and what an agent does not track.

use std::pin::pin;
use std::task::Poll;

use tollgate_agent::testing::WhenBlind;
use tollgate_agent::{Cause, KillSwitch, Refused, Why};

use super::{SECOND, denied};
use crate::sandbox::{kit, poll};

#[test]
fn what_no_domain_may_have_is_refused_as_that_whether_or_not_there_is_room() {
    let (kit, sandbox) = kit();
    kit.copies_limit("sandbox", 4);
    kit.full("sandbox", "acme");
    for domain in ["acme", "globex"] {
        let refused = sandbox.reserve(domain, 5).expect_err("never");
        assert!(
            matches!(refused, Refused::TooMany(too_many) if too_many.most() == 4),
            "{domain}"
        );
        let waiting = poll(pin!(sandbox.until_ready(domain, 5, SECOND)));
        assert!(
            matches!(waiting, Poll::Ready(Err(Refused::TooMany(_)))),
            "{domain}"
        );
    }
    assert_eq!(denied(sandbox.reserve("acme", 4)).0, Cause::Full);
    assert_eq!(sandbox.reserve_up_to("acme", 0..=9).unwrap().copies(), 0);
    kit.go_blind();
    assert!(sandbox.reserve("acme", 5).is_ok(), "no limit holds");
}

#[test]
fn an_agent_without_room_for_another_hold_is_not_blind() {
    let (kit, _) = kit();
    let licences = kit.agent().copies("licences");
    kit.strict("licences");
    let ask = || Box::pin(licences.reserve_confirmed("acme", 1, SECOND));
    let mut waiting = Vec::new();
    loop {
        let mut asked = ask();
        if poll(asked.as_mut()).is_ready() {
            break;
        }
        waiting.push(asked);
    }
    for blind in [WhenBlind::Closed, WhenBlind::Open] {
        kit.when_blind("licences", blind);
        let Poll::Ready(Err(refused)) = poll(ask().as_mut()) else {
            panic!("{blind:?}: it was not refused at once");
        };
        assert!(
            matches!(refused, Refused::Uncounted(Why::AtCapacity)),
            "{blind:?}: {refused}"
        );
    }
    kit.agent().kill_switch(KillSwitch::On);
    assert!(
        matches!(poll(ask().as_mut()), Poll::Ready(Ok(_))),
        "nobody is refused"
    );
}
