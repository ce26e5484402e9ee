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
fn an_agent_that_tracks_all_holds_that_it_may_is_not_blind() {
    let (kit, sandbox) = kit();
    let licences = kit.agent().copies("licences");
    kit.strict("licences");
    let mut holds = Vec::new();
    loop {
        let hold = sandbox.reserve("acme", 1).unwrap();
        if hold.number().is_none() {
            break;
        }
        holds.push(hold);
    }
    for blind in [WhenBlind::Closed, WhenBlind::Open] {
        kit.when_blind("licences", blind);
        let refused = poll(pin!(licences.reserve_confirmed("acme", 1, SECOND)));
        let Poll::Ready(Err(refused)) = refused else {
            panic!("{blind:?}: it was not refused at once");
        };
        assert!(
            matches!(refused, Refused::Uncounted(Why::AtCapacity)),
            "{blind:?}: {refused}"
        );
    }
    kit.agent().kill_switch(KillSwitch::On);
    let taken = poll(pin!(licences.reserve_confirmed("acme", 1, SECOND)));
    assert!(matches!(taken, Poll::Ready(Ok(_))), "nobody is refused");
}
