//! Tests of what holders learn of their holds: whether they count, and how much of them is too
//! much.

use tollgate_shared::holdings::TransferId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::public::OnExcess;
use tollgate_shared::wire::verdict::VerdictSays;

use super::bench::{SessionBench, counted, digest, full};
use super::*;

fn exceeded(number: u64, excess: u32) -> VerdictSays {
    let by = full();
    VerdictSays::Counted { number, excess, by }
}

/// The answer to a question about a hold.
fn is_held(number: u64, copies: u32, excess: u32) -> VerdictSays {
    let by = (0 < excess).then(full).flatten();
    VerdictSays::Held {
        number,
        copies,
        excess,
        by,
    }
}

/// Whether the agent asks about a hold within this many heartbeats.
fn is_asked_for_within(beats: u32, bench: &mut SessionBench, number: u64) -> bool {
    let question = format!("asked [{number}]");
    let beats: Vec<String> = (0..beats).flat_map(|_| bench.half_second()).collect();
    beats.iter().any(|beat| beat.ends_with(&question))
}

/// Whether the agent asks about a hold as soon as its verdict is in doubt for a second.
fn is_asked_for(bench: &mut SessionBench, number: u64) -> bool {
    is_asked_for_within(5, bench, number)
}

#[test]
fn a_hold_learns_whether_it_counts_or_exceeds() {
    let mut bench = SessionBench::new();
    let (one, two) = (bench.hold("acme", 1), bench.hold("acme", 3));
    let mut early = bench.confirm(one);
    bench.say(counted(one));
    assert_eq!(early.try_recv(), Ok(HoldStanding::Confirmed));
    assert_eq!(
        bench.confirm(one).try_recv(),
        Ok(HoldStanding::Confirmed),
        "late"
    );
    let mut kept = bench.watch(two);
    let excess = VerdictSays::Counted {
        number: two,
        excess: 2,
        by: full(),
    };
    bench.say(excess);
    let word = HoldStanding::Excess(2, full());
    assert_eq!(bench.confirm(two).try_recv(), Ok(word.clone()));
    assert!(kept.try_recv().is_err(), "excess is kept");
    bench.learn(OnExcess::GiveBack);
    assert_eq!(bench.watch(two).try_recv(), Ok(word.clone()));
    assert!(kept.try_recv().is_err(), "nothing has happened since");
    bench.half_second();
    assert_eq!(kept.try_recv(), Ok(word), "with the next beat");
}

#[test]
fn an_excess_is_asked_about_until_it_is_given_back() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    let one = bench.hold("acme", 5);
    bench.say(exceeded(one, 3));
    let word = |copies| Ok(HoldStanding::Excess(copies, full()));
    assert_eq!(bench.watch(one).try_recv(), word(3));
    bench.release(one, 1);
    assert_eq!(bench.watch(one).try_recv(), word(2), "one is given back");
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

#[test]
fn no_more_is_asked_for_than_is_left_when_the_verdict_comes() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    for (excess, expected) in [
        (4, HoldStanding::Excess(1, full())),
        (3, HoldStanding::Confirmed),
    ] {
        // It has given back some meanwhile, and the verdict did not know that: so the agent asks.
        let one = bench.hold("acme", 5);
        let mut asked = bench.watch(one);
        bench.release(one, 3);
        bench.say(exceeded(one, excess));
        assert!(asked.try_recv().is_err(), "nobody knows how much is left");
        assert!(is_asked_for_within(2, &mut bench, one));
        // The answer states of how many copies it is: here one of three is still on its way back.
        bench.say(is_held(one, 3, excess - 2));
        assert_eq!(bench.confirm(one).try_recv(), Ok(expected));
        bench.release(one, 2);
        bench.half_second();
    }
}

#[test]
fn an_excess_verdict_comes_into_doubt_too() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    let one = bench.hold("acme", 5);
    bench.say(exceeded(one, 2));
    bench.say(VerdictSays::BeatWanted);
    // Counted again, all of it was too much, and that verdict was lost.
    bench.release(one, 2);
    let mut asked = bench.confirm(one);
    assert!(asked.try_recv().is_err(), "not confirmed");
    bench.say(is_held(one, 3, 3));
    assert_eq!(asked.try_recv(), Ok(HoldStanding::Excess(3, full())));
    assert_eq!(bench.excesses(), 2);
    // The same verdict once more is not news, nor is its remainder.
    bench.say(VerdictSays::BeatWanted);
    bench.say(is_held(one, 3, 3));
    bench.say(VerdictSays::BeatWanted);
    bench.release(one, 1);
    bench.say(is_held(one, 2, 2));
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
    bench.say(counted(one));
    for _ in 0..10 {
        assert!(!is_asked_for(&mut bench, one), "it beats as it should");
    }
    // The agent stood still: the list in its next heartbeat is counted, and the verdict on that is
    // lost.
    bench.now = bench.now.plus(Span::from_secs(12));
    assert!(is_asked_for(&mut bench, one));
    bench.say(is_held(one, 5, 3));
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
    bench.say(is_held(one, 5, 3));
    assert!(!is_asked_for(&mut bench, one));
    assert_eq!(bench.excesses(), 1);
}

#[test]
fn a_slow_log_or_an_idle_agent_is_no_silence() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.say(counted(one));
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
    bench.say(counted(two));
    bench.under_way.acknowledged += 1;
    bench.half_second();
    assert_eq!(bench.confirm(two).try_recv(), Ok(HoldStanding::Confirmed));
}

#[test]
fn what_counts_in_another_log_is_asked_for() {
    let log = |random| {
        Some(LogId {
            generation: 1,
            random,
        })
    };
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 5);
    bench.sent();
    bench.session.know_logs(|_| log(1), bench.now);
    bench.say(counted(one));
    assert!(!is_asked_for(&mut bench, one));
    bench.session.know_logs(|_| log(2), bench.now);
    assert!(is_asked_for(&mut bench, one));
}

#[test]
fn a_verdict_on_a_list_is_about_all_that_it_listed() {
    for (stood_still, is_wanted) in [(true, false), (true, true), (false, false)] {
        let mut bench = SessionBench::new();
        bench.learn(OnExcess::GiveBack);
        let one = bench.hold("acme", 5);
        bench.say(counted(one));
        bench.sent();
        if stood_still {
            bench.now = bench.now.plus(Span::from_secs(12));
            assert_eq!(bench.sent(), ["beat list [1x5]"]);
        }
        bench.release(one, 3);
        if is_wanted {
            bench.say(VerdictSays::BeatWanted);
        }
        let mut asked = bench.watch(one);
        bench.say(exceeded(one, 4));
        assert!(asked.try_recv().is_err(), "nobody knows how much is left");
        assert!(is_asked_for(&mut bench, one));
        bench.say(is_held(one, 2, 1));
        assert_eq!(asked.try_recv(), Ok(HoldStanding::Excess(1, full())));
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
    let seized = || VerdictSays::Seized {
        number,
        domain: "acme".into(),
        copies: 4,
        start: Timestamp::from_millis(5),
    };
    bench.say(seized());
    bench.half_second();
    bench.say(VerdictSays::BeatWanted);
    bench.sent();
    let asks = |beats: &[String]| beats.iter().any(|beat| beat.contains("asked [1]"));
    let asked: Vec<bool> = (0..6).map(|_| asks(&bench.half_second())).collect();
    assert!(asked[5], "it is in doubt: {asked:?}");
    bench.say(seized());
    assert_eq!(bench.half_second(), [digest(&[(number, 4)])]);
    assert_eq!(
        bench.confirm(number).try_recv(),
        Ok(HoldStanding::Confirmed)
    );
}
