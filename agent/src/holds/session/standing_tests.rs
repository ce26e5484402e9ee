//! Tests of what holders learn of their holds: whether they count, and how much of them is too
//! much.

use tollgate_shared::holdings::TransferId;
use tollgate_shared::wire::holds::Op;
use tollgate_shared::wire::public::OnExcess;
use tollgate_shared::wire::verdict::{EndedBy, HoldReason, HoldStatus, Why};

use super::bench::{SessionBench, counted, digest, exceeded, full, over, seized};
use super::*;

/// Whether the agent asks about a hold as soon as its verdict is in doubt for a second.
fn is_asked_for(bench: &mut SessionBench, number: u64) -> bool {
    let question = format!("asked [{number}]");
    let heartbeats: Vec<String> = (0..5).flat_map(|_| bench.half_second()).collect();
    heartbeats
        .iter()
        .any(|heartbeat| heartbeat.ends_with(&question))
}

#[test]
fn a_hold_learns_whether_it_counts_or_exceeds() {
    let mut bench = SessionBench::new();
    let (one, two) = (bench.hold("acme", 1), bench.hold("acme", 3));
    let mut early = bench.confirm(one);
    bench.say(counted(one, 1));
    assert_eq!(early.try_recv(), Ok(HoldStanding::Confirmed));
    assert_eq!(
        bench.confirm(one).try_recv(),
        Ok(HoldStanding::Confirmed),
        "late"
    );
    let mut kept = bench.watch(two);
    bench.say(exceeded(two, 3, 2));
    let standing = HoldStanding::Excess(2, full());
    assert_eq!(bench.confirm(two).try_recv(), Ok(standing.clone()));
    assert!(kept.try_recv().is_err(), "excess is kept");
    bench.learn(OnExcess::GiveBack);
    assert_eq!(bench.watch(two).try_recv(), Ok(standing.clone()));
    assert!(kept.try_recv().is_err(), "nothing has happened since");
    bench.half_second();
    assert_eq!(kept.try_recv(), Ok(standing), "with the next heartbeat");
}

#[test]
fn an_excess_is_asked_about_until_it_is_given_back() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    let one = bench.hold("acme", 5);
    bench.say(exceeded(one, 5, 3));
    let standing = |copies| Ok(HoldStanding::Excess(copies, full()));
    assert_eq!(bench.watch(one).try_recv(), standing(3));
    bench.release(one, 1);
    assert_eq!(
        bench.watch(one).try_recv(),
        standing(2),
        "one is given back"
    );
    let transfer = RareNotice::Transfer {
        copies: 2,
        to: TransferId(5),
        ttl: Span::from_secs(9),
    };
    bench.give(Some(one), NoticeKind::Rare(Box::new(transfer)));
    let mut asked = bench.watch(one);
    assert!(asked.try_recv().is_err(), "the rest was granted");
    assert_eq!(bench.confirm(one).try_recv(), Ok(HoldStanding::Confirmed));
}

fn log(random: u64) -> Option<LogId> {
    Some(LogId {
        generation: 1,
        random,
    })
}

#[test]
fn a_holder_sees_the_excess_that_its_newest_status_has() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    let seen = |bench: &SessionBench| bench.session.revoked.excess.standing(one, 5);
    let has = |copies| Some(HoldStanding::Excess(copies, full()));
    assert_eq!(seen(&bench), None);
    bench.say(exceeded(one, 5, 3));
    assert_eq!(seen(&bench), has(3));
    bench.say(None);
    assert_eq!(seen(&bench), None, "in doubt");
    bench.say(exceeded(one, 5, 2));
    bench.say(counted(one, 0));
    assert_eq!(seen(&bench), None, "it does not count");
    bench.say(exceeded(one, 5, 2));
    bench.session.know_logs(|_| log(1), bench.now);
    assert_eq!(seen(&bench), has(2));
    bench.session.know_logs(|_| log(2), bench.now);
    assert_eq!(seen(&bench), None, "another log");
    bench.say(exceeded(one, 5, 2));
    let refused = HoldReason::Refused(Some(Op::Release), Why::TooManyCopies);
    bench.say(HoldStatus {
        reason: Some(refused),
        ..exceeded(one, 5, 1)
    });
    assert_eq!(seen(&bench), has(1), "of a refused release");
    bench.say(counted(one, 5));
    assert_eq!(seen(&bench), None);
    bench.say(exceeded(one, 5, 4));
    bench.release(one, 4);
    assert_eq!(seen(&bench), has(4), "its holder knows how many it has");
    bench.release(one, 1);
    assert_eq!(seen(&bench), None, "nothing is left");
    let two = bench.hold("acme", 5);
    bench.say(exceeded(two, 5, 2));
    bench.say(over(two, HoldReason::Ended(EndedBy::Age)));
    assert_eq!(bench.session.revoked.excess.standing(two, 5), None, "ended");
}

#[test]
fn no_more_is_asked_for_than_is_left_when_the_verdict_comes() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    for (excess, expected) in [
        (4, HoldStanding::Excess(1, full())),
        (3, HoldStanding::Confirmed),
    ] {
        // It has given back some meanwhile: the status says of how many copies it is.
        let one = bench.hold("acme", 5);
        let mut asked = bench.watch(one);
        bench.release(one, 3);
        bench.say(exceeded(one, 5, excess));
        assert_eq!(
            asked.try_recv().ok(),
            (excess == 4).then(|| expected.clone())
        );
        assert_eq!(bench.confirm(one).try_recv(), Ok(expected.clone()));
        // Here one of three is still on its way back.
        bench.say(exceeded(one, 3, excess - 2));
        assert_eq!(bench.confirm(one).try_recv(), Ok(expected));
        assert!(!is_asked_for(&mut bench, one), "nothing is in doubt");
        bench.release(one, 2);
        bench.half_second();
    }
}

#[test]
fn an_excess_verdict_comes_into_doubt_too() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    let one = bench.hold("acme", 5);
    bench.say(exceeded(one, 5, 2));
    bench.say(None);
    // Counted again, all of it was too much, and that verdict was lost.
    bench.release(one, 2);
    let mut asked = bench.confirm(one);
    assert!(asked.try_recv().is_err(), "not confirmed");
    bench.say(exceeded(one, 3, 3));
    assert_eq!(asked.try_recv(), Ok(HoldStanding::Excess(3, full())));
    assert_eq!(bench.excesses(), 2);
    // The same verdict once more is not news, nor is its remainder.
    bench.say(None);
    bench.say(exceeded(one, 3, 3));
    bench.say(None);
    bench.release(one, 1);
    bench.say(exceeded(one, 2, 2));
    assert_eq!(
        bench.watch(one).try_recv(),
        Ok(HoldStanding::Excess(2, full()))
    );
    assert_eq!(bench.excesses(), 2);
}

#[test]
fn an_agent_that_may_count_as_gone_asks_what_counts() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.say(counted(one, 5));
    for _ in 0..10 {
        assert!(
            !is_asked_for(&mut bench, one),
            "it sends heartbeats as it should"
        );
    }
    // The agent stood still: the list in its next heartbeat is counted, and the verdict on that is
    // lost.
    bench.now = bench.now.plus(Span::from_secs(12));
    assert!(is_asked_for(&mut bench, one));
    bench.say(exceeded(one, 5, 3));
    assert_eq!(
        bench.confirm(one).try_recv(),
        Ok(HoldStanding::Excess(3, full()))
    );
    assert!(!is_asked_for(&mut bench, one), "it was answered");
    // It sends heartbeats, and the log accepts none of them for a while.
    bench.is_silent = true;
    assert!(!is_asked_for(&mut bench, one));
    bench.is_silent = false;
    assert!(is_asked_for(&mut bench, one));
    bench.say(exceeded(one, 5, 3));
    assert!(!is_asked_for(&mut bench, one));
    assert_eq!(bench.excesses(), 1);
}

#[test]
fn a_slow_log_or_an_idle_agent_is_no_silence() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.say(counted(one, 5));
    bench.is_silent = true;
    // The acknowledgements take two heartbeat intervals and more, one record after the other.
    for _ in 0..20 {
        bench.half_second();
        bench.under_way.holdings = 3;
        bench.under_way.acknowledged += 1;
        assert_eq!(bench.confirm(one).try_recv(), Ok(HoldStanding::Confirmed));
    }
    bench.under_way.holdings = 0;
    bench.release(one, 5);
    bench.half_second();
    bench.half_second();
    // The agent holds nothing for an hour, and the verdict on its next hold arrives before the
    // acknowledgement.
    bench.now = bench.now.plus(Span::from_secs(3_600));
    bench.sent();
    let two = bench.hold("acme", 5);
    bench.sent();
    bench.say(counted(two, 5));
    bench.under_way.acknowledged += 1;
    bench.half_second();
    assert_eq!(bench.confirm(two).try_recv(), Ok(HoldStanding::Confirmed));
}

#[test]
fn what_counts_in_another_log_is_asked_for() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.sent();
    bench.session.know_logs(|_| log(1), bench.now);
    bench.say(counted(one, 5));
    assert!(!is_asked_for(&mut bench, one));
    bench.session.know_logs(|_| log(2), bench.now);
    assert!(is_asked_for(&mut bench, one));
}

#[test]
fn a_status_after_a_list_is_about_all_that_it_listed() {
    for (stood_still, is_wanted) in [(true, false), (true, true), (false, false)] {
        let mut bench = SessionBench::new();
        bench.learn(OnExcess::GiveBack);
        let one = bench.hold("acme", 5);
        bench.say(counted(one, 5));
        bench.sent();
        if stood_still {
            bench.now = bench.now.plus(Span::from_secs(12));
            assert_eq!(bench.sent(), ["heartbeat list [1x5]"]);
        }
        bench.release(one, 3);
        if is_wanted {
            bench.say(None);
        }
        let mut asked = bench.watch(one);
        bench.say(exceeded(one, 5, 4));
        let left = Ok(HoldStanding::Excess(1, full()));
        assert_eq!(
            asked.try_recv(),
            left,
            "three of the four are on their way back"
        );
        assert_eq!(bench.excesses(), 1);
        assert!(!is_asked_for(&mut bench, one));
    }
}

#[test]
fn a_caller_that_gave_up_waiting_is_forgotten() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 1);
    let still = (bench.watch(one), bench.confirm(one));
    for _ in 0..100 {
        drop((bench.watch(one), bench.confirm(one)));
    }
    let kept = &bench.session.held[&bench.resource.id].holds[&one];
    assert!(kept.watch.len() <= 2 && kept.confirm.len() <= 2);
    drop(still);
}

#[test]
fn a_seize_is_asked_about_until_it_is_answered() {
    let mut bench = SessionBench::new();
    let (number, _verdict) = bench.seize(9);
    bench.sent();
    bench.say(seized(number, 4));
    bench.half_second();
    bench.say(None);
    bench.sent();
    let asks = |heartbeats: &[String]| {
        heartbeats
            .iter()
            .any(|heartbeat| heartbeat.contains("asked [1]"))
    };
    let asked: Vec<bool> = (0..6).map(|_| asks(&bench.half_second())).collect();
    assert!(asked[5], "it is in doubt: {asked:?}");
    bench.say(seized(number, 4));
    assert_eq!(bench.half_second(), [digest(&[(number, 4)])]);
    assert_eq!(
        bench.confirm(number).try_recv(),
        Ok(HoldStanding::Confirmed)
    );
}

#[test]
fn where_copies_are_not_limited_as_many_as_asked_for_are_granted() {
    let mut bench = SessionBench::new();
    let (reserved, mut granted) = bench.reserve("acme", 4);
    let (taken, mut lost) = bench.seize(9);
    bench.sent();
    bench.say(counted(reserved, u32::MAX));
    bench.say(counted(taken, u32::MAX));
    let expected = HoldAnswer::Granted {
        domain: "acme".into(),
        copies: 4,
    };
    assert_eq!(granted.try_recv(), Ok(expected));
    assert_eq!(lost.try_recv(), Ok(HoldAnswer::Lost), "nothing is staged");
    assert_eq!(bench.half_second(), ["heartbeat list [1x4]"]);
}

#[test]
fn a_refused_release_ends_no_hold_and_is_corrected_by_a_list() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.say(exceeded(one, 5, 3));
    bench.half_second();
    bench.release(one, 1);
    bench.sent();
    let refused = HoldReason::Refused(Some(Op::Release), Why::TooManyCopies);
    bench.say(HoldStatus {
        reason: Some(refused),
        ..exceeded(one, 4, 2)
    });
    assert_eq!(bench.sent_after(HEAL_AFTER), ["heartbeat list [1x4]"]);
    bench.say(over(
        one,
        HoldReason::Refused(Some(Op::Release), Why::Unconfigured),
    ));
    assert_eq!(bench.sent_after(HEAL_AFTER), ["heartbeat list [1x4]"]);
    assert_eq!(bench.excesses(), 1);
}

#[test]
fn a_hold_that_is_not_known_is_confirmed_once_it_counts_again() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.say(counted(one, 5));
    bench.sent();
    bench.say(counted(one, 0));
    let mut asked = bench.confirm(one);
    assert_eq!(bench.sent(), ["heartbeat list [1x5]"]);
    assert!(asked.try_recv().is_err(), "it does not count");
    bench.say(exceeded(one, 5, 1));
    assert_eq!(asked.try_recv(), Ok(HoldStanding::Excess(1, full())));
}
