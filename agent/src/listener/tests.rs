//! Tests of what the listener promises, without sockets.

use std::sync::atomic::Ordering;

use tollgate_shared::log_position::LogId;
use tollgate_shared::time::Span;
use tollgate_shared::wire::frame::Frame;
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Member};

use super::ListenerAct;
use super::bench::{LOG, ListenerBench, denied, second, stated, stated_in, watermarks};
use super::ledger::TopicKey;

#[test]
fn a_denial_holds_for_its_remaining_time_unless_lifted() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), Some(second(30)));
    bench.advance(second(10));
    assert_eq!(bench.refused("acme"), Some(second(20)));
    bench.frame(0, 13, &[stated("acme", 12, None)]);
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn a_frames_delay_shortens_its_denials() {
    let mut bench = ListenerBench::joined(1);
    let frame = bench.next_frame(
        0,
        "r",
        watermarks(LOG, 12),
        &[denied("acme", 11), stated("beta", 11, Some(second(7)))],
    );
    bench.advance(second(8));
    bench.receive(0, &frame);
    // 200 ppm of eight seconds are subtracted for the drift of the clocks.
    assert_eq!(
        bench.refused("acme"),
        Some(Span::from_micros(22_000_000 - 1_600))
    );
    assert_eq!(bench.refused("beta"), None);
}

#[test]
fn leases_hold_while_one_of_two_ruling_aggregators_is_silent() {
    let mut bench = ListenerBench::joined(2);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let until = bench.refused("acme");
    bench.frame(1, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), until, "said twice, and one denial");
    // The aggregator that is ahead lifts it; the one behind repeats its earlier statement.
    bench.frame(0, 13, &[stated("acme", 12, None)]);
    bench.frame(1, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), None);
    bench.frame(1, 13, &[stated("acme", 12, None)]);
    // One dies without announcing a denial; the other one announces it, and renews the lease alone.
    bench.listener.feed_down(0);
    bench.listener.link_down(0);
    let long = stated("acme", 14, Some(second(600)));
    bench.frame(1, 15, std::slice::from_ref(&long));
    // Longer than a lease.
    for ruled in 16..216 {
        bench.advance(Span::from_millis(500));
        bench.frame(1, ruled, &[]);
        assert!(bench.refused("acme").is_some(), "ruled up to {ruled}");
    }
    // With both silent the agent fails open.
    bench.advance(second(61));
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn a_gap_requests_a_snapshot_and_renews_no_lease() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 13), &[stated("acme", 12, None)]);
    bench.frame(0, 15, &[denied("beta", 14)]);
    assert_eq!((bench.gaps(), bench.open_ask(0).is_some()), (1, true));
    // The denials still hold, but no longer than the last watermark without a gap.
    assert!(bench.refused("acme").is_some() && bench.refused("beta").is_some());
    bench.snapshot(0, 15, &[denied("beta", 14), denied("lost", 13)]);
    assert_eq!(bench.refused("acme"), None, "the snapshot does not list it");
    assert!(bench.refused("beta").is_some() && bench.refused("lost").is_some());
    assert_eq!(bench.open_ask(0), None);
}

#[test]
fn a_gap_that_is_never_filled_lets_the_lease_run_out() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[stated("acme", 11, Some(second(3_600)))]);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 13), &[]);
    for half in 1..=140 {
        bench.advance(Span::from_millis(500));
        bench.frame(0, 20 + half, &[]);
        bench.heartbeat(0, 20 + half);
        assert_eq!(
            bench.refused("acme").is_some(),
            half < 120,
            "after {half} half seconds"
        );
    }
    assert!(
        !bench.is_blind("acme"),
        "the control topic is heard all the while"
    );
}

#[test]
fn watermarks_that_do_not_advance_renew_no_lease() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[stated("acme", 11, Some(second(3_600)))]);
    for half in 1..=120 {
        bench.advance(Span::from_millis(500));
        bench.frame(0, 12, &[]);
        bench.heartbeat(0, 10);
        assert!(
            bench.listener.peers[0].is_joined(TopicKey::Control),
            "nothing was missed"
        );
        assert_eq!(bench.refused("acme").is_some(), half < 120);
        assert_eq!(bench.is_blind("acme"), 120 <= half);
    }
}

#[test]
fn an_older_statement_about_an_open_scope_is_ignored() {
    let mut bench = ListenerBench::joined(2);
    bench.frame(0, 13, &[denied("acme", 11)]);
    bench.frame(0, 14, &[stated("acme", 13, None)]);
    // The other aggregator is behind.
    bench.frame(1, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), None);
    // So is its snapshot, which fills no gap, since the first one's topic has no gap.
    let _lost = bench.next_frame(1, "r", watermarks(LOG, 12), &[]);
    bench.frame(1, 13, &[]);
    bench.snapshot(1, 13, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn a_snapshot_that_fills_a_gap_counts_whatever_its_age() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 20, &[]);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 21), &[]);
    bench.frame(0, 22, &[]);
    bench.snapshot(0, 22, &[denied("acme", 15)]);
    assert!(bench.refused("acme").is_some());
}

#[test]
fn a_snapshot_in_parts_ends_denials_only_with_its_last() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(
        0,
        13,
        &[denied("one", 11), denied("two", 12), denied("gone", 12)],
    );
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 14), &[]);
    bench.frame(0, 15, &[]);
    bench.snapshot_part(0, 15, &[denied("one", 11)], true);
    assert!(bench.refused("two").is_some() && bench.refused("gone").is_some());
    bench.snapshot_part(0, 15, &[denied("two", 12)], false);
    assert!(bench.refused("one").is_some() && bench.refused("two").is_some());
    assert_eq!(bench.refused("gone"), None);
}

#[test]
fn a_snapshot_that_lacks_a_part_is_requested_again() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[denied("one", 11)]);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 13), &[denied("two", 12)]);
    bench.frame(0, 14, &[]);
    let torn = bench.open_ask(0);
    // The first part is lost.
    bench.parts.insert(torn.unwrap(), 1);
    bench.snapshot_part(0, 14, &[denied("two", 12)], false);
    assert!(
        bench.refused("one").is_some(),
        "nothing is ended by a torn snapshot"
    );
    bench.advance(Span::from_millis(100));
    assert!(bench.open_ask(0).is_some() && bench.open_ask(0) != torn);
    bench.snapshot(0, 14, &[denied("two", 12)]);
    assert!(bench.refused("one").is_none() && bench.refused("two").is_some());
}

#[test]
fn requests_on_a_lost_link_are_repeated() {
    let mut bench = ListenerBench::joined(1);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 12), &[denied("acme", 11)]);
    bench.frame(0, 13, &[]);
    assert!(bench.open_ask(0).is_some());
    bench.listener.link_down(0);
    bench.listener.link_up(0, bench.now);
    bench.answer_hello(0, ListenerBench::instance(0));
    bench.snapshot(0, 13, &[denied("acme", 11)]);
    assert!(bench.refused("acme").is_some());
}

#[test]
fn frames_of_a_peer_without_a_welcome_are_ignored() {
    let mut bench = ListenerBench::joined(1);
    let mut frame = bench.next_frame(0, "r", watermarks(LOG, 12), &[denied("acme", 11)]);
    frame.instance = 1;
    bench.receive(0, &frame);
    assert_eq!(bench.refused("acme"), None);
    assert_eq!(
        bench
            .listener
            .around
            .counters
            .frames_refused
            .load(Ordering::Relaxed),
        1
    );
    // And a frame's topic has to be that of its resource.
    let frame = Frame {
        instance: ListenerBench::instance(0),
        resource: "other".into(),
        ..frame
    };
    bench.receive(0, &frame);
    assert_eq!(
        bench
            .listener
            .around
            .counters
            .frames_refused
            .load(Ordering::Relaxed),
        2
    );
}

#[test]
fn a_recreated_log_voids_denials_and_an_old_one_is_ignored() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let recreated = LogId {
        generation: 2,
        random: 9,
    };
    let frame = bench.next_frame(
        0,
        "r",
        watermarks(recreated, 3),
        &[stated_in(2, "beta", 2, Some(second(30)))],
    );
    bench.receive(0, &frame);
    assert_eq!(bench.refused("acme"), None);
    assert!(bench.refused("beta").is_some());
    bench.frame(0, 40, &[denied("acme", 39)]);
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn a_silent_feed_or_link_is_reopened() {
    let mut bench = ListenerBench::joined(1);
    bench.advance(Span::from_millis(749));
    assert!(
        bench
            .listener
            .take_acts()
            .iter()
            .all(|act| !matches!(act, ListenerAct::OpenFeed { .. }))
    );
    bench.advance(Span::from_millis(1));
    let acts = bench.listener.take_acts();
    assert!(
        acts.iter().any(
            |act| matches!(act, ListenerAct::OpenFeed { peer: 0, topics, .. } if topics.len() == 1)
        ),
        "{acts:?}"
    );
    // The hello after a second gets no answer.
    bench.advance(second(1));
    bench.advance(second(2));
    bench.listener.link_alive(0, bench.now);
    bench.advance(Span::from_millis(2_999));
    assert!(
        !bench
            .listener
            .take_acts()
            .contains(&ListenerAct::ReopenLink { peer: 0 }),
        "something came"
    );
    bench.advance(Span::from_millis(1));
    assert!(
        bench
            .listener
            .take_acts()
            .contains(&ListenerAct::ReopenLink { peer: 0 })
    );
    assert!(!bench.listener.is_welcome(0));
}

#[test]
fn an_unanswered_hello_is_resent_on_a_live_link() {
    let mut bench = ListenerBench::joined(1);
    bench.listener.take_acts();
    let says_hello = |bench: &mut ListenerBench| {
        bench.listener.take_acts().iter().any(|act| match act {
            ListenerAct::Send { message, .. } => {
                matches!(FromAgent::decode(message), Ok(FromAgent::Hello { .. }))
            }
            ListenerAct::ReopenLink { .. } => panic!("the link is alive"),
            _ => false,
        })
    };
    bench.advance(second(1));
    assert!(says_hello(&mut bench), "once a second");
    for _ in 0..5 {
        bench.advance(second(1));
        bench.listener.link_alive(0, bench.now);
        assert!(!says_hello(&mut bench), "it is awaited");
    }
    bench.advance(second(1));
    assert!(says_hello(&mut bench));
}

#[test]
fn another_instance_at_the_address_is_joined_from_the_beginning() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    bench.advance(second(1));
    bench.answer_hello(0, 99);
    let acts = bench.listener.take_acts();
    assert!(
        acts.iter()
            .any(|act| matches!(act, ListenerAct::OpenFeed { .. })),
        "{acts:?}"
    );
    assert!(
        bench.refused("acme").is_some(),
        "what was said holds as long as its lease"
    );
    assert!(!bench.listener.peers[0].is_joined(TopicKey::Control));
}

#[test]
fn statements_about_a_replaced_log_do_not_hold_for_the_next() {
    let mut bench = ListenerBench::joined(2);
    bench.log.generation = 2;
    bench.frame(1, 17, &[stated_in(2, "acme", 16, Some(second(30)))]);
    bench.snapshot(1, 18, &[stated_in(2, "acme", 16, Some(second(30)))]);
    assert!(bench.refused("acme").is_some());
    bench.advance(Span::from_millis(100));
    // The other one has not yet received the log that replaces its own, and answers about its own.
    bench.log.generation = 1;
    bench.snapshot(0, 400, &[]);
    assert!(bench.refused("acme").is_some() && bench.open_ask(0).is_none());
    // When it has, it does not announce what was lifted in between: the listener has to ask.
    bench.log.generation = 2;
    bench.frame(0, 67, &[]);
    bench.advance(Span::from_millis(100));
    assert!(bench.open_ask(0).is_some());
    bench.snapshot(0, 67, &[]);
    assert!(bench.refused("acme").is_none());
}

#[test]
fn an_unanswered_request_is_repeated() {
    let mut bench = ListenerBench::joined(1);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 12), &[]);
    bench.frame(0, 13, &[]);
    let first = bench.open_ask(0).expect("asked");
    bench.heartbeat(0, 13);
    bench.advance(Span::from_millis(700));
    assert_eq!(bench.open_ask(0), Some(first));
    bench.heartbeat(0, 14);
    bench.advance(Span::from_millis(700));
    bench.answer_hello(0, ListenerBench::instance(0));
    bench.heartbeat(0, 15);
    bench.advance(Span::from_millis(700));
    assert!(bench.open_ask(0).is_some_and(|again| again != first));
}

#[test]
fn members_are_followed_only_after_a_welcome() {
    let mut bench = ListenerBench::joined(1);
    bench.advance(second(1));
    let asked = bench.listener.peers[0].hello.expect("a hello").nonce;
    bench.listener.take_acts();
    let mut say = |nonce: u64| {
        let welcome = FromAggregator::Welcome {
            nonce,
            instance: ListenerBench::instance(0),
            partitions: super::bench::PARTITIONS,
            feeds: vec!["tcp://feed:1".into()],
            clock: bench.clock(),
            members: vec![Member {
                instance: 9,
                address: "other:1".into(),
            }],
            limits: 1,
        };
        bench.listener.take_message(0, welcome, bench.now);
        let acts = bench.listener.take_acts().into_iter();
        acts.filter(|act| matches!(act, ListenerAct::FollowMember { .. }))
            .count()
    };
    assert_eq!(say(asked.wrapping_add(1)), 0, "nobody asked");
    assert_eq!(say(asked), 1);
    assert_eq!(say(asked), 0, "it has been answered");
}

#[test]
fn a_resource_that_answers_leave_out_is_asked_for_less_and_less_often() {
    let mut bench = ListenerBench::joined(1);
    let other = bench.listener.around.resources.get("other").0.unwrap();
    bench.listener.subscribed(0, other.id, bench.now);
    let mut asked_at = Vec::new();
    for step in 0..520_u64 {
        if bench.open_ask(0).is_some() {
            asked_at.push(step / 4);
            bench.snapshot(0, 10, &[]);
        }
        bench.advance(Span::from_millis(250));
        if bench.listener.peers[0].hello.is_some() {
            bench.answer_hello(0, ListenerBench::instance(0));
        }
        bench.heartbeat(0, 10);
    }
    assert_eq!(asked_at, [0, 1, 3, 7, 15, 31, 63, 123]);
    // Another connection may have another token.
    bench.listener.link_down(0);
    bench.welcome(0);
    assert!(bench.open_ask(0).is_some());
}
