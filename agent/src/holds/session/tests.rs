//! Tests of what the hold session promises to the log and to holders.

use tokio::sync::oneshot;
use tollgate_shared::holdings::{Holdings, TransferId};
use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::verdict::{EndedBy, HoldReason, Why};

use super::bench::{
    EPOCH, NOW, SessionBench, counted, digest, exceeded, full, over, seized, text_of,
};
use super::*;
use crate::batch::holds::HeartbeatContent;
use tollgate_shared::wire::public::OnExcess;

#[test]
fn operations_are_sent_in_order_and_heartbeats_follow_them() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 3);
    let two = bench.hold("beta", 1);
    bench.release(one, 1);
    assert_eq!(bench.sent(), ["hold 1, hold 2, release 1"]);
    bench.say(counted(one, 3));
    bench.say(counted(two, 1));
    assert_eq!(bench.half_second(), ["heartbeat list [1x2 2x1]"]);
    assert_eq!(bench.half_second(), [digest(&[(1, 2), (2, 1)])]);
    bench.release(one, 2);
    assert_eq!(bench.sent(), ["release 1"]);
    assert_eq!(bench.half_second(), [digest(&[(2, 1)])]);
    bench.release(two, 1);
    let last = bench.half_second();
    assert_eq!(last, ["release 2".to_owned(), digest(&[])]);
    assert_eq!(bench.sent_after(Span::from_secs(60)), [] as [String; 0]);
}

#[test]
fn everything_is_listed_every_ten_seconds_and_when_it_is_wanted() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 1);
    bench.sent();
    bench.say(counted(one, 1));
    let lists: Vec<bool> = (0..42)
        .map(|_| bench.half_second() == ["heartbeat list [1x1]"])
        .collect();
    let at: Vec<usize> = (0..42).filter(|n| lists[*n]).collect();
    assert_eq!(at, [0, 20, 40]);
    bench.say(None);
    assert_eq!(bench.sent(), ["heartbeat list [1x1]"], "at once");
}

#[test]
fn heartbeats_wait_behind_operations_and_do_not_pile_up() {
    let mut bench = SessionBench::new();
    bench.hold("acme", 1);
    bench.under_way.holdings = EAGER;
    assert_eq!(bench.sent_after(Span::from_secs(5)), [] as [String; 0]);
    bench.under_way.holdings = EAGER - 1;
    assert_eq!(bench.sent(), ["hold 1"]);
    assert_eq!(bench.sent(), ["heartbeat list [1x1] asked [1]"]);
    assert_eq!(bench.sent(), [] as [String; 0]);
}

#[test]
fn what_may_have_been_lost_is_healed_by_a_list() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 1);
    bench.sent();
    bench.say(counted(one, 1));
    bench.half_second();
    let partition = partition_of_resource("sandbox", 4);
    bench.session.heal(partition, bench.now);
    assert_eq!(bench.sent_after(HEAL_AFTER), ["heartbeat list [1x1]"]);
    // Even if the last release may have been lost.
    bench.release(one, 1);
    bench.sent();
    bench.session.heal(partition, bench.now);
    assert_eq!(bench.sent_after(HEAL_AFTER), ["heartbeat list []"]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
}

#[test]
fn after_the_last_release_one_heartbeat_is_empty() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 1);
    bench.release(one, 1);
    bench.sent();
    // The release may have been overtaken on its way, and no verdict would state that.
    assert_eq!(bench.half_second(), ["heartbeat list []"]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
    let one = bench.hold("acme", 1);
    bench.sent();
    assert_eq!(bench.half_second(), [digest(&[(one, 1)])]);
    bench.release(one, 1);
    bench.sent();
    assert_eq!(bench.half_second(), [digest(&[])]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
}

#[test]
fn in_a_recreated_log_all_holds_are_listed_again() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 1);
    bench.sent();
    bench.say_at(900, counted(one, 1));
    assert_eq!(bench.half_second(), ["heartbeat list [1x1]"]);
    let log = |random| LogId {
        generation: 1,
        random,
    };
    bench.session.know_logs(|_| Some(log(7)), bench.now);
    assert_eq!(bench.half_second(), [digest(&[(one, 1)])]);
    bench.session.know_logs(|_| Some(log(8)), bench.now);
    assert_eq!(bench.sent_after(HEAL_AFTER), ["heartbeat list [1x1]"]);
    bench.say_at(3, over(one, HoldReason::Ended(EndedBy::Operator)));
    assert!(bench.session.held[&bench.resource.id].holds.is_empty());
}

#[test]
fn a_reserve_is_awaited_until_its_verdict_and_only_then_held() {
    let mut bench = SessionBench::new();
    let (number, mut verdict) = bench.reserve("acme", 2);
    assert_eq!(bench.sent(), ["reserve 1"]);
    assert_eq!(bench.half_second(), ["heartbeat list [] awaiting [1]"]);
    assert_eq!(
        bench.half_second(),
        [format!("{} awaiting [1]", digest(&[]))]
    );
    bench.say(counted(number, 2));
    let granted = HoldAnswer::Granted {
        domain: "acme".into(),
        copies: 2,
    };
    assert_eq!(verdict.try_recv(), Ok(granted));
    assert_eq!(bench.half_second(), [digest(&[(1, 2)])]);
    // Repeated, the grant is no second hold, and no change.
    bench.say(counted(number, 2));
    assert_eq!(bench.half_second(), [digest(&[(1, 2)])]);
}

#[test]
fn a_reserve_that_is_refused_or_was_never_ruled_holds_nothing() {
    let mut bench = SessionBench::new();
    let (refused, mut verdict) = bench.reserve("acme", 2);
    let (lost, mut other) = bench.reserve("acme", 2);
    bench.sent();
    bench.say(exceeded(refused, 0, 0));
    let by = full().expect("a scope");
    assert_eq!(verdict.try_recv(), Ok(HoldAnswer::Full(by)));
    bench.say(counted(lost, 0));
    assert_eq!(other.try_recv(), Ok(HoldAnswer::Lost));
    assert_eq!(bench.half_second(), ["heartbeat list []"]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
}

#[test]
fn a_cancelled_wait_leaves_nothing_behind() {
    let mut bench = SessionBench::new();
    // The call cancels.
    let (number, verdict) = bench.reserve("acme", 2);
    bench.give(Some(number), NoticeKind::Cancel);
    drop(verdict);
    assert_eq!(bench.sent(), ["reserve 1, cancel 1"]);
    bench.say(counted(number, 2));
    assert_eq!(bench.half_second(), ["heartbeat list []"]);
    // The caller is gone before the verdict arrives, and has not cancelled yet.
    let (number, verdict) = bench.reserve("acme", 2);
    bench.sent();
    drop(verdict);
    bench.say(counted(number, 2));
    assert_eq!(bench.sent(), [format!("cancel {number}")]);
    bench.give(Some(number), NoticeKind::Cancel);
    assert_eq!(bench.half_second(), [digest(&[])]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
}

#[test]
fn a_seized_hold_is_listed_with_its_transfer_and_first_stamp() {
    let mut bench = SessionBench::new();
    let (number, mut verdict) = bench.seize(9);
    assert_eq!(bench.sent(), ["seize 1"]);
    assert_eq!(bench.half_second(), ["heartbeat list [] awaiting [1]"]);
    bench.say(seized(number, 4));
    let granted = HoldAnswer::Granted {
        domain: "acme".into(),
        copies: 4,
    };
    assert_eq!(verdict.try_recv(), Ok(granted));
    let kept = &bench.session.held[&bench.resource.id].holds[&number];
    let expected = (Some(TransferId(9)), Timestamp::from_millis(5));
    assert_eq!((kept.seized, kept.start), expected);
    assert_eq!(bench.half_second(), [digest(&[(number, 4)])]);
    // The log has lost the transfer that it was seized from: it is then listed like any other hold.
    let refused = over(number, HoldReason::Refused(None, Why::UnknownTransfer));
    bench.say_at(50, refused.clone());
    assert_eq!(bench.sent(), [format!("heartbeat list [{number}x4]")]);
    let kept = &bench.session.held[&bench.resource.id].holds[&number];
    assert_eq!(kept.seized, None);
    // A second list was on its way before that one, and is refused as well.
    bench.say_at(52, refused);
    assert_eq!(bench.half_second(), [digest(&[(number, 4)])]);
    let (unknown, mut verdict) = bench.seize(10);
    let op = Some(tollgate_shared::wire::holds::Op::Seize);
    let refused = HoldReason::Refused(op, Why::UnknownTransfer);
    bench.say(over(unknown, refused));
    assert_eq!(
        verdict.try_recv(),
        Ok(HoldAnswer::Refused(Why::UnknownTransfer))
    );
}

#[test]
fn a_transfer_takes_copies_from_the_hold_at_once() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 3);
    let transfer = |copies| {
        NoticeKind::Rare(Box::new(RareNotice::Transfer {
            copies,
            to: TransferId(5),
            ttl: Span::from_secs(9),
        }))
    };
    bench.give(Some(one), transfer(2));
    assert_eq!(bench.sent(), ["hold 1, transfer 1"]);
    assert_eq!(bench.half_second(), ["heartbeat list [1x1]"]);
    bench.give(Some(one), transfer(2));
    assert_eq!(bench.sent(), [] as [String; 0], "more than it has");
}

#[test]
fn an_ended_hold_is_neither_listed_nor_released() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 2);
    let two = bench.hold("acme", 1);
    bench.sent();
    let mut watch = bench.watch(one);
    bench.say(over(one, HoldReason::Ended(EndedBy::Operator)));
    assert_eq!(watch.try_recv(), Ok(HoldStanding::Ended(EndedBy::Operator)));
    bench.say(counted(two, 1));
    assert_eq!(bench.half_second(), ["heartbeat list [2x1]"]);
    bench.release(one, 1);
    assert_eq!(bench.sent(), [] as [String; 0]);
    // Its holder still has some of it, and learns why that no longer counts.
    let ended = HoldStanding::Ended(EndedBy::Operator);
    assert_eq!(bench.confirm(one).try_recv(), Ok(ended.clone()));
    assert_eq!(bench.watch(one).try_recv(), Ok(ended));
    bench.release(one, 1);
    assert_eq!(bench.sent(), [] as [String; 0]);
    // A later question about it gets no answer.
    assert_eq!(
        bench.confirm(one).try_recv(),
        Err(oneshot::error::TryRecvError::Closed)
    );
}

#[test]
fn the_verdict_at_the_later_log_position_holds() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 3);
    bench.say_at(9, exceeded(one, 3, 1));
    bench.say_at(8, counted(one, 3));
    bench.say_at(9, counted(one, 3));
    assert_eq!(
        bench.confirm(one).try_recv(),
        Ok(HoldStanding::Excess(1, full()))
    );
    bench.say_at(10, counted(one, 3));
    assert_eq!(bench.confirm(one).try_recv(), Ok(HoldStanding::Confirmed));
    bench.session.origin.epoch = 78;
    bench.say_at(11, over(one, HoldReason::Ended(EndedBy::Age)));
    assert_eq!(bench.session.held[&bench.resource.id].holds.len(), 1);
}

#[test]
fn a_missed_verdict_is_asked_for_and_unknown_holds_relisted() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 1);
    bench.sent();
    assert_eq!(bench.half_second(), ["heartbeat list [1x1]"]);
    let asked = format!("{} asked [1]", digest(&[(1, 1)]));
    assert_eq!(bench.half_second(), [asked]);
    bench.say(counted(one, 0));
    assert_eq!(bench.sent(), ["heartbeat list [1x1] asked [1]"]);
    bench.say(counted(one, 1));
    assert_eq!(bench.half_second(), [digest(&[(1, 1)])]);
    assert_eq!(bench.confirm(one).try_recv(), Ok(HoldStanding::Confirmed));
}

#[test]
fn a_missed_excess_verdict_still_reaches_the_holder() {
    let mut bench = SessionBench::new();
    bench.learn(OnExcess::GiveBack);
    let one = bench.hold("acme", 2);
    let mut watch = bench.watch(one);
    bench.sent();
    bench.say(exceeded(one, 2, 1));
    let standing = HoldStanding::Excess(1, full());
    assert_eq!(watch.try_recv(), Ok(standing.clone()));
    // Repeated, it is not news.
    bench.say(exceeded(one, 2, 1));
    assert_eq!(bench.confirm(one).try_recv(), Ok(standing));
    assert_eq!(bench.excesses(), 1);
}

#[test]
fn a_relisted_hold_is_asked_for_although_it_counted_before() {
    let mut bench = SessionBench::new();
    let one = bench.hold("acme", 2);
    bench.say(counted(one, 2));
    assert_eq!(bench.confirm(one).try_recv(), Ok(HoldStanding::Confirmed));
    // Its agent was counted as gone. Counted again, the hold is too much, and that verdict was
    // lost.
    bench.say(None);
    let heartbeats = [bench.half_second(), bench.half_second()].concat();
    assert!(
        heartbeats
            .iter()
            .any(|heartbeat| heartbeat.contains("asked [1]")),
        "{heartbeats:?}"
    );
    bench.say(exceeded(one, 2, 2));
    assert_eq!(
        bench.confirm(one).try_recv(),
        Ok(HoldStanding::Excess(2, full()))
    );
}

#[test]
fn a_new_epoch_names_the_old_one_as_soon_as_a_resource_is_used() {
    let mut bench = SessionBench::after(Some(3));
    let resource = Arc::clone(&bench.resource);
    bench.session.use_resource(&resource, NOW);
    assert_eq!(bench.sent(), ["heartbeat replaces 3 list []"]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
    bench.hold("acme", 1);
    assert_eq!(bench.sent(), ["hold 1"]);
    let again = bench.half_second();
    assert!(again[0].starts_with("heartbeat replaces 3 "), "{again:?}");
}

#[test]
fn a_graceful_end_releases_everything_recorded() {
    let mut bench = SessionBench::new();
    bench.hold("acme", 1);
    bench.sent();
    let two = bench.hold("acme", 1);
    bench.release(two, 1);
    let last: Vec<String> = bench.session.end().iter().map(text_of).collect();
    assert_eq!(last, ["hold 2, release 2", "heartbeat last"]);
    assert_eq!(bench.half_second(), [] as [String; 0]);
}

#[test]
fn operations_keep_their_order_until_partitions_are_known() {
    let resources = Arc::new(Resources::new(1, 10));
    let resource = resources.get("sandbox").0.expect("room");
    let origin = Origin {
        epoch: EPOCH,
        replaces: None,
    };
    let mut bench = SessionBench::new();
    bench.session = HoldSession::new(origin, resources, Arc::default(), Arc::default(), None);
    bench.resource = resource;
    let one = bench.hold("acme", 1);
    bench.release(one, 1);
    let _ = bench.hold("acme", 1);
    assert_eq!(bench.sent(), [] as [String; 0]);
    bench.session.set_partitions(8, bench.now);
    assert_eq!(bench.sent()[0], "hold 1, release 1, hold 3");
}

#[test]
fn too_many_operations_become_one_list() {
    let mut bench = SessionBench::new();
    let kept = bench.hold("acme", 1);
    let (_, mut verdict) = bench.reserve("acme", 1);
    for _ in 0..OPERATIONS_MAX / 2 {
        let one = bench.hold("acme", 1);
        bench.release(one, 1);
    }
    assert!(bench.session.waiting() < OPERATIONS_MAX);
    let dropped = bench
        .session
        .counters
        .hold_operations_dropped
        .load(Ordering::Relaxed);
    assert_eq!(dropped, OPERATIONS_MAX as u64 + 1);
    assert_eq!(verdict.try_recv(), Ok(HoldAnswer::Lost));
    let _ = bench.sent();
    let heartbeat = bench.half_second().pop().expect("a heartbeat");
    assert!(
        heartbeat.starts_with(&format!("heartbeat list [{kept}x1")),
        "{heartbeat}"
    );
}

#[test]
fn a_long_list_is_cut_into_records_that_each_stand_alone() {
    let mut bench = SessionBench::new();
    let domain = "d".repeat(200);
    for _ in 0..6_000 {
        bench.hold(&domain, 1);
    }
    let (awaited, _verdict) = bench.reserve("acme", 1);
    while bench.session.waiting() != 0 {
        bench.sent();
    }
    bench.now = bench.now.plus(Span::from_millis(500));
    let payloads = bench.session.next(bench.now, |_| UnderWay::default());
    assert!(3 < payloads.len(), "{}", payloads.len());
    let (mut next, mut listed, mut awaiting) = (0, 0, Vec::new());
    for payload in &payloads {
        assert!(
            text_of(payload).starts_with("heartbeat more"),
            "{}",
            text_of(payload)
        );
        let Payload::Heartbeat(heartbeat) = payload else {
            panic!("no heartbeat");
        };
        for part in &heartbeat.parts {
            let HeartbeatContent::List {
                from,
                upto,
                listed: holds,
            } = &part.content
            else {
                panic!("no list");
            };
            assert_eq!(*from, next);
            assert!(
                part.awaiting
                    .iter()
                    .all(|one| (*from..=*upto).contains(one))
            );
            (next, listed) = (upto.wrapping_add(1), listed + holds.len());
            awaiting.extend(&part.awaiting);
        }
    }
    assert_eq!((next, listed, awaiting), (0, 6_000, vec![awaited]));
}

#[test]
fn a_digest_is_that_of_the_list_after_any_run_of_notices() {
    use rand::{Rng as _, SeedableRng as _};
    for seed in 0..200 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let mut bench = SessionBench::new();
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..100 {
            let some = model.keys().nth(random.random_range(0..4)).copied();
            match (random.random_range(0..3), some) {
                (0, Some(number)) => {
                    let copies = random.random_range(1..4);
                    bench.release(number, copies);
                    let held = model[&number];
                    if copies < held {
                        model.insert(number, held - copies);
                    } else if copies == held {
                        model.remove(&number);
                    }
                }
                (1, Some(number)) if random.random() => {
                    bench.say(over(number, HoldReason::Ended(EndedBy::Age)));
                    model.remove(&number);
                }
                _ => {
                    let copies = random.random_range(1..5);
                    model.insert(bench.hold("acme", copies), copies);
                }
            }
        }
        let held = &bench.session.held[&bench.resource.id];
        let expected = model
            .iter()
            .fold(Holdings::default(), |sum, (number, copies)| {
                sum.with(*number, *copies)
            });
        assert_eq!(held.digest, expected, "seed {seed}");
        let listed: Vec<(u64, u32)> = held.holds.iter().map(|(n, one)| (*n, one.copies)).collect();
        assert_eq!(listed, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
    }
}
