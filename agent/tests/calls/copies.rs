//! Tests of what calls about copies promise, with the testing kit.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tollgate_agent::testing::{Outcome, Ruling, TestAgent, WhenBlind};
use tollgate_agent::{
    Cause, Confirmation, EndedBy, FullScope, Hold, HoldChange, HoldFault, HoldNews, KillSwitch,
    Misuse, Refused, Revoked, Scope, SeizeError, Why,
};

use crate::sandbox::{kit, poll};

mod bounds;
mod own_limit;
mod revoked;
mod strict;

const SECOND: Duration = Duration::from_secs(1);

/// Polls, lets the agent process notices, and polls once more.
fn poll_with<T>(kit: &TestAgent, mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    if let Poll::Ready(ready) = poll(future.as_mut()) {
        return Poll::Ready(ready);
    }
    kit.held();
    poll(future)
}

fn denied(result: Result<Hold, Refused>) -> (Cause, Scope) {
    match result {
        Err(Refused::Denied(denied)) => (denied.cause(), denied.scope()),
        other => panic!("{other:?}"),
    }
}

/// The copies of each tracked hold.
fn held(kit: &TestAgent) -> Vec<u32> {
    kit.held().iter().map(|one| one.copies).collect()
}

#[test]
fn copies_are_held_until_they_are_given_back_or_dropped() {
    let (kit, sandbox) = kit();
    let mut one = sandbox.reserve("acme", 3).unwrap();
    let two = sandbox.reserve("beta", 1).unwrap();
    assert_eq!((held(&kit), sandbox.held("acme")), (vec![3, 1], 3));
    one.release(2).unwrap();
    assert_eq!((held(&kit), one.copies()), (vec![1, 1], 1));
    drop(two);
    one.release(1).unwrap();
    assert_eq!((held(&kit), sandbox.held("acme")), (vec![], 0));
    drop(one);
    assert_eq!(kit.agent().stats().hold_operations, 5);
}

#[test]
fn a_hold_may_be_dropped_on_any_thread_and_kept_across_awaits() {
    fn is_free<T: Send + 'static>(_: &T) {}
    let (kit, sandbox) = kit();
    let hold = sandbox.reserve("acme", 3).unwrap();
    is_free(&hold);
    is_free(&{
        let sandbox = sandbox.clone();
        async move {
            let hold = sandbox.reserve("acme", 1);
            std::future::ready(()).await;
            drop(hold);
        }
    });
    std::thread::spawn(move || drop(hold)).join().unwrap();
    assert_eq!((held(&kit), sandbox.held("acme")), (vec![], 0));
    let late = sandbox.reserve("acme", 1).unwrap();
    drop((kit, sandbox));
    drop(late);
}

#[test]
fn an_invalid_call_is_an_error_and_changes_nothing() {
    let (kit, sandbox) = kit();
    let misuse = |result: Result<Hold, Refused>| match result {
        Err(Refused::Misuse(misuse)) => misuse,
        other => panic!("{other:?}"),
    };
    assert_eq!(misuse(sandbox.reserve("acme", 0)), Misuse::NoCopies);
    assert_eq!(
        misuse(sandbox.reserve_up_to("acme", 0..=0)),
        Misuse::NoCopies
    );
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let reversed = sandbox.reserve_up_to("acme", 3..=2);
    assert_eq!(misuse(reversed), Misuse::MinAboveMax { min: 3, max: 2 });
    let mut hold = sandbox.reserve("acme", 2).unwrap();
    let too_many = HoldFault::TooMany { asked: 3, held: 2 };
    assert_eq!(hold.release(3), Err(too_many));
    assert_eq!(hold.transfer(3, SECOND), Err(too_many));
    assert_eq!(hold.release(0), Err(HoldFault::NoCopies));
    assert_eq!(hold.transfer(0, SECOND), Err(HoldFault::NoCopies));
    assert_eq!((held(&kit), hold.copies()), (vec![2], 2));
    hold.release(2).unwrap();
    let none = HoldFault::TooMany { asked: 1, held: 0 };
    assert_eq!(hold.release(1), Err(none), "twice");
    kit.strict("sandbox");
    assert_eq!(misuse(sandbox.reserve("acme", 1)), Misuse::Strict);
    let of_rate = Refused::Misuse(Misuse::NotCopies);
    assert!(of_rate.is_caller_error(), "and no limit's refusal");
    assert_eq!(of_rate.denied(), None);
}

#[test]
fn a_process_alone_never_takes_more_than_a_domain_may_have() {
    let (kit, sandbox) = kit();
    let first = sandbox.reserve("acme", 7).unwrap();
    assert_eq!(
        denied(sandbox.reserve("acme", 4)),
        (Cause::Full, Scope::Pair)
    );
    let rest = sandbox.reserve_up_to("acme", 1..=9).unwrap();
    assert_eq!(rest.copies(), 3);
    assert_eq!(sandbox.reserve_up_to("acme", 0..=9).unwrap().copies(), 0);
    assert!(sandbox.reserve("beta", 10).is_ok());
    drop(first);
    assert!(sandbox.reserve("acme", 7).is_ok());
    let refused: Vec<Outcome> = kit.recorded().iter().map(|one| one.outcome).collect();
    let refused_of = |copies| Outcome::Refused {
        copies,
        cause: Cause::Full,
    };
    assert_eq!(refused, [refused_of(4), refused_of(9)]);
    let _full = sandbox.reserve("acme", 7).unwrap();
    kit.agent().kill_switch(KillSwitch::On);
    assert!(sandbox.reserve("acme", 7).is_ok());
}

#[test]
fn a_full_domain_group_or_resource_refuses_until_it_is_lifted() {
    let (kit, sandbox) = kit();
    kit.group("sandbox", "free", &["acme", "zeta"]);
    kit.full("sandbox", "beta");
    assert_eq!(
        denied(sandbox.reserve("beta", 1)),
        (Cause::Full, Scope::Pair)
    );
    assert!(sandbox.reserve("acme", 1).is_ok());
    kit.full_group("sandbox", "free");
    assert_eq!(
        denied(sandbox.reserve("acme", 1)),
        (Cause::Full, Scope::Group)
    );
    assert!(
        sandbox.reserve("free", 1).is_ok(),
        "a domain that is called so"
    );
    assert!(sandbox.reserve("gamma", 1).is_ok(), "of no group");
    kit.full_resource("sandbox");
    assert_eq!(
        denied(sandbox.reserve("gamma", 1)),
        (Cause::Full, Scope::Resource)
    );
    kit.lift("sandbox", "beta");
    kit.lift("sandbox", "gamma");
    kit.lift_group("sandbox", "free");
    assert_eq!(
        denied(sandbox.reserve("acme", 1)),
        (Cause::Full, Scope::Resource)
    );
    let other = kit.agent().copies("other");
    assert!(other.reserve("acme", 1).is_ok());
}

#[test]
fn a_blind_agent_follows_the_policy_and_takes_the_least() {
    let (kit, sandbox) = kit();
    kit.full("sandbox", "acme");
    let _ten = sandbox.reserve("beta", 10).unwrap();
    kit.go_blind();
    assert!(sandbox.reserve("acme", 1).is_ok(), "no denial holds");
    assert_eq!(sandbox.reserve_up_to("acme", 2..=9).unwrap().copies(), 2);
    assert!(sandbox.reserve("beta", 1).is_ok(), "nor does a limit");
    kit.when_blind("sandbox", WhenBlind::Closed);
    assert_eq!(denied(sandbox.reserve("acme", 1)).0, Cause::Blind);
    kit.see_again();
    assert_eq!(denied(sandbox.reserve("acme", 1)).0, Cause::Full);
}

#[test]
fn a_hold_gets_the_aggregators_verdict() {
    let (kit, sandbox) = kit();
    let hold = sandbox.reserve("acme", 2).unwrap();
    let number = hold.number().unwrap();
    let mut confirmed = pin!(hold.confirmed());
    assert_eq!(poll(confirmed.as_mut()), Poll::Pending);
    let mut revoked = pin!(hold.revoked());
    assert_eq!(poll(revoked.as_mut()), Poll::Pending);
    kit.rule("sandbox", number, Ruling::Confirmed);
    assert_eq!(
        poll(confirmed.as_mut()),
        Poll::Ready(Confirmation::Confirmed)
    );
    kit.rule("sandbox", number, Ruling::Excess(1, Scope::Group));
    assert_eq!(poll(revoked.as_mut()), Poll::Pending, "excess is kept");
    let mut confirmed = pin!(hold.confirmed());
    assert_eq!(poll(confirmed.as_mut()), Poll::Pending);
    kit.held();
    let group = Some(FullScope::Group("group".into()));
    let excess = Confirmation::Excess {
        copies: 1,
        scope: group.clone(),
    };
    assert_eq!(poll(confirmed.as_mut()), Poll::Ready(excess));
    kit.give_back_excess("sandbox");
    kit.rule("sandbox", number, Ruling::Excess(2, Scope::Group));
    let give_back = Revoked::GiveBack {
        copies: 2,
        scope: group,
    };
    assert_eq!(poll(revoked.as_mut()), Poll::Ready(give_back));
    let mut revoked = pin!(hold.revoked());
    let _ = poll(revoked.as_mut());
    kit.rule("sandbox", number, Ruling::Ended);
    assert!(matches!(poll(revoked.as_mut()), Poll::Ready(_)));
    assert_eq!((held(&kit), kit.agent().stats().holds_ended), (vec![], 1));
}

#[test]
fn the_callback_gets_every_change_of_a_hold() {
    let seen_changes: Arc<Mutex<Vec<(String, u64, HoldChange)>>> = Arc::default();
    let sink = Arc::clone(&seen_changes);
    let kit = TestAgent::with_on_hold(move |news: &HoldNews<'_>| {
        let (resource, change) = (news.resource().to_owned(), news.change().clone());
        sink.lock().unwrap().push((resource, news.number(), change));
    });
    let sandbox = kit.agent().copies("sandbox");
    let changes_after = |ruling| {
        let hold = sandbox.reserve("acme", 2).unwrap();
        let number = hold.number().unwrap();
        kit.rule("sandbox", number, ruling);
        let seen_changes = std::mem::take(&mut *seen_changes.lock().unwrap());
        let changes = seen_changes.into_iter().map(|(resource, of, change)| {
            assert_eq!((resource.as_str(), of), ("sandbox", number));
            change
        });
        changes.collect::<Vec<_>>()
    };
    assert_eq!(changes_after(Ruling::Confirmed), []);
    let excess = HoldChange::Excess(1, Some(FullScope::Resource));
    assert_eq!(changes_after(Ruling::Excess(1, Scope::Resource)), [excess]);
    assert_eq!(
        changes_after(Ruling::Ended),
        [HoldChange::Ended(EndedBy::Operator)]
    );
    assert_eq!(
        changes_after(Ruling::EndedByAge),
        [HoldChange::Ended(EndedBy::Age)]
    );
    let uncounted = HoldChange::Uncounted(Why::AtCapacity);
    assert_eq!(changes_after(Ruling::Uncounted), [uncounted]);
}

#[test]
fn holds_that_were_ended_leave_room_to_their_process() {
    let (kit, sandbox) = kit();
    kit.copies_limit("sandbox", 4);
    for ruling in [Ruling::Ended, Ruling::EndedByAge, Ruling::Uncounted] {
        let hold = sandbox.reserve("acme", 4).unwrap();
        assert!(sandbox.reserve("acme", 1).is_err());
        kit.rule("sandbox", hold.number().unwrap(), ruling.clone());
        // What the aggregators have no room to count is in use all the same.
        let is_ended = ruling != Ruling::Uncounted;
        assert_eq!(sandbox.peek("acme").is_ok(), is_ended, "{ruling:?}");
        let other = sandbox.reserve("acme", 4);
        assert_eq!(other.is_ok(), is_ended, "{ruling:?}");
        assert!(sandbox.reserve("acme", 1).is_err(), "{ruling:?}");
        // Once the agent has noticed that its holder has dropped it, it counts neither way.
        drop(hold);
        kit.held();
        assert_eq!(sandbox.reserve("acme", 1).is_err(), is_ended, "{ruling:?}");
    }
}

#[test]
fn a_revoked_hold_is_neither_split_nor_transferred() {
    let (kit, sandbox) = kit();
    let by = |by| (HoldFault::Ended(by), Revoked::Ended(by));
    let why = Why::AtCapacity;
    for (ruling, (fault, revoked)) in [
        (Ruling::Ended, by(EndedBy::Operator)),
        (Ruling::EndedByAge, by(EndedBy::Age)),
        (
            Ruling::Uncounted,
            (HoldFault::Uncounted(why), Revoked::Uncounted(why)),
        ),
    ] {
        let mut hold = sandbox.reserve("acme", 4).unwrap();
        hold.release(1).unwrap();
        kit.rule("sandbox", hold.number().unwrap(), ruling);
        let operations = kit.agent().stats().hold_operations;
        assert_eq!(hold.release(1), Err(fault));
        assert_eq!(hold.transfer(3, SECOND), Err(fault));
        assert_eq!(hold.release(0), Err(HoldFault::NoCopies));
        let too_many = HoldFault::TooMany { asked: 4, held: 3 };
        assert_eq!(hold.release(4), Err(too_many));
        assert_eq!((hold.copies(), sandbox.held("acme")), (3, 3));
        assert!(held(&kit).is_empty());
        assert_eq!(kit.agent().stats().hold_operations, operations);
        // A caller that asks only now learns it, too.
        {
            let mut revocation = pin!(hold.revoked());
            assert_eq!(poll(revocation.as_mut()), Poll::Pending);
            kit.held();
            assert_eq!(poll(revocation.as_mut()), Poll::Ready(revoked));
        }
        drop(hold);
        assert_eq!(sandbox.held("acme"), 0);
    }
    let aged = HoldFault::Ended(EndedBy::Age).to_string();
    assert_eq!(
        aged,
        "a hold that was ended at its greatest age: expected one that counts"
    );
}

#[test]
fn an_ended_agent_transfers_nothing() {
    let (kit, sandbox) = kit();
    let mut hold = sandbox.reserve("acme", 2).unwrap();
    drop(kit);
    assert_eq!(hold.transfer(1, SECOND), Err(HoldFault::Unrecorded));
    hold.release(1).unwrap();
    assert_eq!((hold.copies(), sandbox.held("acme")), (1, 1));
}

#[test]
fn copies_are_transferred_between_agents_by_an_id() {
    let (kit, sandbox) = kit();
    let mut giver = sandbox.reserve("acme", 3).unwrap();
    let id = giver.transfer(2, SECOND).unwrap();
    assert_eq!((held(&kit), sandbox.held("acme")), (vec![1], 1));
    let mut seize = pin!(sandbox.seize(id));
    assert!(poll(seize.as_mut()).is_pending());
    let number = kit.held()[1].number;
    kit.rule("sandbox", number, Ruling::Seized("acme".to_owned(), 2));
    let Poll::Ready(Ok(taken)) = poll(seize.as_mut()) else {
        panic!("not seized");
    };
    assert_eq!((taken.copies(), held(&kit)), (2, vec![1, 2]));
    assert_eq!(sandbox.held("acme"), 3);
    let confirmed = poll_with(&kit, pin!(taken.confirmed()));
    assert_eq!(confirmed, Poll::Ready(Confirmation::Confirmed));
    kit.rule("sandbox", number, Ruling::Ended);
    let ended = poll_with(&kit, pin!(taken.confirmed()));
    assert_eq!(
        ended,
        Poll::Ready(Confirmation::Ended(EndedBy::Operator)),
        "granted once, and over"
    );
    drop(taken);
    assert_eq!((held(&kit), sandbox.held("acme")), (vec![1], 1));
    // The id may have been faster than its transfer, so the agent asks a few times.
    let mut again = pin!(sandbox.seize(id));
    let mut polls = 0;
    let unknown = loop {
        if let Poll::Ready(answer) = poll(again.as_mut()) {
            break answer.err();
        }
        let awaited = kit.held().into_iter().find(|one| !one.in_use);
        if let Some(awaited) = awaited {
            polls += 1;
            kit.rule("sandbox", awaited.number, Ruling::NothingStaged);
        } else {
            kit.advance(Duration::from_millis(200));
        }
    };
    assert_eq!((unknown, polls), (Some(SeizeError::Unknown), 7));
    let mut late = pin!(sandbox.seize_within(id, SECOND));
    assert!(poll(late.as_mut()).is_pending());
    kit.advance(SECOND);
    assert_eq!(
        poll(late.as_mut()).map(|one| one.err()),
        Poll::Ready(Some(SeizeError::TimedOut))
    );
    assert_eq!(held(&kit), [1], "cancelled");
}

#[test]
fn a_waiting_reserve_passes_after_a_lift_or_times_out() {
    let (kit, sandbox) = kit();
    kit.full("sandbox", "acme");
    let mut waits = pin!(sandbox.until_ready("acme", 1, 3 * SECOND));
    assert!(poll(waits.as_mut()).is_pending());
    kit.advance(SECOND);
    assert!(poll(waits.as_mut()).is_pending());
    kit.lift("sandbox", "acme");
    kit.advance(SECOND);
    let Poll::Ready(Ok(hold)) = poll(waits.as_mut()) else {
        panic!("still refused");
    };
    drop(hold);
    kit.full("sandbox", "acme");
    let mut waits = pin!(sandbox.until_ready("acme", 1, SECOND));
    assert!(poll(waits.as_mut()).is_pending());
    kit.advance(SECOND);
    let Poll::Ready(refused) = poll(waits.as_mut()) else {
        panic!("waits on");
    };
    assert_eq!(denied(refused).0, Cause::Full);
    assert_eq!(
        kit.recorded().len(),
        1,
        "one refusal, however often it tried"
    );
}

#[test]
fn no_call_waits_for_more_than_a_domain_may_have() {
    let (kit, sandbox) = kit();
    let Poll::Ready(refused) = poll(pin!(sandbox.until_ready("acme", 1_000, SECOND))) else {
        panic!("waits");
    };
    let too_many = refused.unwrap_err();
    assert!(matches!(too_many, Refused::TooMany(_)), "{too_many}");
    kit.discard();
    // Nobody holds anything: the refusal says that the limit can never grant this, and is recorded.
    kit.copies_limit("sandbox", 4);
    let refused = sandbox.reserve("globex", 5).unwrap_err();
    assert!(matches!(refused, Refused::TooMany(most) if most.most() == 4));
    assert_eq!(kit.recorded().len(), 1, "{:?}", kit.recorded());
    assert!(sandbox.reserve_up_to("globex", 4..=5).is_ok());
    // A limit of nothing is a denial.
    kit.copies_limit("sandbox", 0);
    assert_eq!(denied(sandbox.reserve("hooli", 1)).0, Cause::Full);
}

#[test]
fn a_hold_without_copies_is_not_recorded() {
    let (kit, sandbox) = kit();
    let mut hold = sandbox.reserve("acme", 2).unwrap();
    hold.release(2).unwrap();
    assert_eq!(poll_with(&kit, pin!(hold.revoked())), Poll::Pending);
}

#[test]
fn several_reserves_succeed_together_or_not_at_all() {
    let (kit, sandbox) = kit();
    let gpu = kit.agent().copies("gpu");
    let search = kit.agent().rate("api.search");
    let wanted = [(&sandbox, "acme", 1), (&gpu, "acme", 2)];
    let taken = kit
        .agent()
        .reserve_all(&wanted, Some((&search, "acme")))
        .unwrap();
    assert_eq!((held(&kit), taken.allowed.is_some()), (vec![1, 2], true));
    drop(taken);
    kit.full("gpu", "acme");
    assert!(kit.agent().reserve_all(&wanted, None).is_err());
    kit.lift("gpu", "acme");
    kit.deny("api.search", "acme", SECOND);
    let refused = kit.agent().reserve_all(&wanted, Some((&search, "acme")));
    assert!(matches!(refused, Err(Refused::Denied(_))));
    assert!(held(&kit).is_empty());
}
