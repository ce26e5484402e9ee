//! Tests of limits that a listener learns: when it asks for them, and which aggregator's answer it
//! accepts.

use tollgate_shared::time::Span;
use tollgate_shared::wire::link::FromAggregator;
use tollgate_shared::wire::public::{Kind, Public};
use tollgate_shared::wire::statement::{Cause, StatementKind};

use super::bench::{LOG, ListenerBench, PARTITIONS, denied, second, watermarks};
use crate::resource::REFUSED;

#[test]
fn a_newer_version_in_a_statement_asks_for_the_limits() {
    let mut bench = ListenerBench::joined(1);
    let mut newer = denied("acme", 11);
    if let StatementKind::Denied(denial) = &mut newer.statement.kind {
        denial.version = 5;
    }
    bench.frame(0, 12, &[newer]);
    assert!(bench.open_ask(0).is_some());
}

#[test]
fn a_ban_where_denials_are_ignored_asks_for_the_limits() {
    let mut bench = ListenerBench::joined(1);
    let ignored = Public {
        version: 9,
        ignored: true,
        ..Public::default()
    };
    bench.ask_again(0, 12, ignored);
    let old = denied("acme", 12);
    bench.frame(0, 13, std::slice::from_ref(&old));
    assert!(bench.open_ask(0).is_none(), "it was ruled before");
    // The ban has the version that it came with, which may be older than the version that obeys
    // bans again.
    let mut ban = denied("globex", 13);
    if let StatementKind::Denied(denial) = &mut ban.statement.kind {
        denial.cause = Cause::Banned;
    }
    bench.frame(0, 14, &[ban]);
    assert!(bench.open_ask(0).is_some());
}

#[test]
fn denials_of_a_rate_hold_no_longer_than_those_of_copies_once_these_are_limited() {
    let mut bench = ListenerBench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let _lost = bench.next_frame(0, "r", watermarks(LOG, 12), &[]);
    bench.frame(0, 12, &[]);
    bench.public = Public {
        version: 9,
        kind: Kind::Copies,
        ..Public::default()
    };
    bench.snapshot(0, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), Some(second(30)));
    // Nothing arrives any more.
    bench.advance(second(2));
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn limits_that_refused_a_call_are_refreshed_now_and_then() {
    let mut bench = ListenerBench::joined(2);
    let doubt = |bench: &ListenerBench| {
        let resources = &bench.listener.around.resources;
        resources.doubt_limits(&bench.resource);
    };
    let asked = |bench: &ListenerBench| [bench.open_ask(0).is_some(), bench.open_ask(1).is_some()];
    let five_seconds = |bench: &mut ListenerBench| {
        for _ in 0..10 {
            bench.advance(Span::from_millis(500));
            for peer in 0..2 {
                bench.heartbeat(peer, 10);
                if bench.listener.peers[peer].hello.is_some() {
                    bench.answer_hello(peer, ListenerBench::instance(peer));
                }
            }
        }
    };
    doubt(&bench);
    bench.advance(Span::from_millis(100));
    assert_eq!(asked(&bench), [false, true], "one of them knows");
    bench.snapshot(1, 10, &[]);
    doubt(&bench);
    bench.advance(Span::from_millis(100));
    assert_eq!(asked(&bench), [false, false]);
    // A refusal in the meantime is not forgotten, and the listener asks another aggregator.
    five_seconds(&mut bench);
    assert_eq!(asked(&bench), [true, false]);
    bench.snapshot(0, 10, &[]);
    // An aggregator whose link is down is not asked.
    bench.listener.link_down(1);
    doubt(&bench);
    five_seconds(&mut bench);
    assert_eq!(asked(&bench), [true, false]);
    bench.snapshot(0, 10, &[]);
    five_seconds(&mut bench);
    assert_eq!(
        asked(&bench),
        [false, false],
        "nobody has been refused since"
    );
}

/// Limits under which a resource that is not configured is refused, or not.
fn limits(version: u64, refused: bool) -> Public {
    Public {
        version,
        refused,
        ..Public::default()
    }
}

fn is_refused(bench: &ListenerBench) -> bool {
    bench.resource.flags() & REFUSED != 0
}

#[test]
fn an_agent_asks_again_once_an_aggregator_has_newer_limits() {
    let mut bench = ListenerBench::joined(2);
    let greet = |bench: &mut ListenerBench, limits: u64| {
        bench.limits = limits;
        for _ in 0..2 {
            bench.advance(Span::from_millis(500));
            bench.heartbeat(0, 12);
            bench.heartbeat(1, 12);
        }
        for peer in 0..2 {
            bench.answer_hello(peer, ListenerBench::instance(peer));
        }
        [0, 1].map(|peer| bench.open_ask(peer).is_some())
    };
    assert_eq!(greet(&mut bench, 1), [false, false]);
    assert_eq!(greet(&mut bench, 4), [true, true]);
    bench.public = limits(4, true);
    bench.snapshot(0, 12, &[]);
    bench.snapshot(1, 12, &[]);
    assert!(is_refused(&bench));
    // Limits that teach agents nothing new, and older ones.
    assert_eq!(greet(&mut bench, 4), [false, false]);
    assert_eq!(greet(&mut bench, 0), [false, false]);
    // What one of them has taught by now, the agent does not ask the other.
    bench.ask_again(1, 12, limits(6, false));
    assert_eq!(greet(&mut bench, 6), [false, false]);
}

#[test]
fn limits_that_change_while_a_snapshot_arrives_are_asked_for_again() {
    let mut bench = ListenerBench::joined(1);
    bench.listener.feed_down(0);
    bench
        .listener
        .feed_up(0, vec![bench.resource.id], bench.now);
    bench.public = limits(4, false);
    bench.snapshot_part(0, 12, &[], true);
    bench.limits = 5;
    for _ in 0..2 {
        bench.advance(Span::from_millis(500));
        bench.heartbeat(0, 12);
    }
    bench.answer_hello(0, ListenerBench::instance(0));
    bench.snapshot_part(0, 12, &[], false);
    assert_eq!(bench.resource.public().version, 4);
    bench.advance(Span::from_millis(100));
    assert!(bench.open_ask(0).is_some());
}

#[test]
fn limits_do_not_outlive_the_log_of_their_snapshot() {
    let mut bench = ListenerBench::joined(1);
    bench.ask_again(0, 12, limits(5, true));
    assert!(is_refused(&bench));
    // The aggregator returns with an empty log. For two seconds it may be another fleet's.
    bench.log.random = 8;
    bench.ask_again(0, 3, limits(1, false));
    assert!(is_refused(&bench), "another fleet teaches nothing");
    for _ in 0..4 {
        bench.advance(Span::from_millis(500));
        bench.heartbeat(0, 3);
    }
    assert!(bench.open_ask(0).is_some(), "now it is the log");
    bench.snapshot(0, 4, &[]);
    assert!(!is_refused(&bench));
    assert_eq!(bench.resource.public().version, 1);
}

#[test]
fn limits_go_back_where_the_log_lost_its_end() {
    let mut bench = ListenerBench::joined(1);
    bench.ask_again(0, 12, limits(5, true));
    bench.log.generation = 2;
    bench.ask_again(0, 3, limits(4, false));
    assert!(!is_refused(&bench));
}

#[test]
fn an_aggregator_that_has_read_less_does_not_take_limits_back() {
    let mut bench = ListenerBench::joined(2);
    bench.ask_again(0, 12, limits(5, true));
    bench.ask_again(1, 12, limits(4, false));
    assert_eq!(bench.resource.public().version, 5);
    // Nor after the log was recreated, whichever aggregator answers first.
    bench.log.generation = 2;
    bench.ask_again(0, 3, limits(3, false));
    bench.ask_again(1, 3, limits(2, true));
    assert_eq!(bench.resource.public().version, 3);
    assert!(!is_refused(&bench));
}

#[test]
fn an_aggregator_of_a_log_that_is_given_up_teaches_nothing() {
    let mut bench = ListenerBench::joined(2);
    bench.log.generation = 2;
    bench.ask_again(0, 3, limits(1, false));
    bench.log = LOG;
    bench.ask_again(1, 40, limits(9, true));
    assert_eq!(bench.resource.public().version, 1);
    assert!(!is_refused(&bench));
}

#[test]
fn limits_are_of_another_log_where_there_are_other_partitions() {
    let mut bench = ListenerBench::joined(1);
    bench.ask_again(0, 12, limits(5, true));
    bench.advance(second(1));
    let nonce = bench.listener.peers[0].hello.expect("a hello").nonce;
    let welcome = FromAggregator::Welcome {
        nonce,
        instance: ListenerBench::instance(0),
        partitions: PARTITIONS + 1,
        feeds: vec!["tcp://feed:1".into()],
        clock: bench.clock(),
        members: Vec::new(),
        limits: 0,
    };
    bench.listener.take_message(0, welcome, bench.now);
    bench
        .listener
        .feed_up(0, vec![bench.resource.id], bench.now);
    bench.public = limits(1, false);
    bench.snapshot(0, 3, &[]);
    assert_eq!(bench.resource.public().version, 1);
    assert!(!is_refused(&bench));
}

#[test]
fn limits_close_domains_and_open_them_again() {
    let closing = |version, closed: &[&str]| Public {
        version,
        kind: Kind::Rate,
        closed: closed.iter().map(|name| (*name).into()).collect(),
        ..Public::default()
    };
    let mut bench = ListenerBench::joined(1);
    let closed = |bench: &ListenerBench| {
        let all = ["acme", "globex", "initech"].into_iter();
        let asked = all.filter(|domain| bench.view.maybe(bench.resource.fingerprint(domain)));
        let asked: Vec<&str> = asked.collect();
        // The filter has no other domain among so few.
        assert!(asked.iter().all(|domain| bench.resource.is_closed(domain)));
        asked
    };
    assert_eq!(closed(&bench), [""; 0]);
    bench.ask_again(0, 12, closing(3, &["acme", "globex"]));
    assert_eq!(closed(&bench), ["acme", "globex"]);
    bench.ask_again(0, 12, closing(2, &[]));
    assert_eq!(closed(&bench), ["acme", "globex"], "older limits");
    bench.ask_again(0, 12, closing(4, &["globex", "initech"]));
    assert_eq!(closed(&bench), ["globex", "initech"]);
    bench.ask_again(0, 12, limits(5, false));
    assert_eq!(closed(&bench), [""; 0]);
}
