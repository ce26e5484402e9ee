//! What the listener promises, without sockets: a publisher is played, message by message.

use std::sync::Arc;

use tollgate_shared::names::partition_of_pair;
use tollgate_shared::place::{LogId, Place};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::{Evidence, Frame, Told, Topic};
use tollgate_shared::wire::link::{FromAggregator, Snapshot, TopicSnapshot};
use tollgate_shared::wire::public::Public;
use tollgate_shared::wire::statement::{Cause, Denial, Says, Scope, Statement};

use super::*;
use crate::deny::DenyView;
use crate::resource::Resource;

const PARTITIONS: u32 = 4;
const LOG: LogId = LogId {
    generation: 1,
    random: 7,
};

/// The publishers' monotonic clock, while ours shows this.
const CLOCK: u64 = 5_000_000;
const BEGIN: Mono = Mono(1_000_000);

fn second(n: u64) -> Span {
    Span::from_secs(n)
}

struct Bench {
    listener: Listener,
    view: Arc<DenyView>,
    resource: Arc<Resource>,
    now: Mono,
    /// Of each publisher: the sequence of the control topic and of the resource's.
    sequences: Vec<(u64, u64)>,
}

impl Bench {
    /// A listener with so many aggregators that have welcomed it, joined at offset 10.
    fn joined(publishers: usize) -> Self {
        let resources = Arc::new(Resources::new(1, 10));
        let resource = resources.get("r").0.unwrap();
        let view = Arc::new(DenyView::new(1_000));
        let around = Surroundings {
            agent: "a".into(),
            epoch: 1,
            clock: Arc::new(Clock::by_hand(Timestamp::from_millis(5))),
            resources,
            sight: Arc::new(Sight::new(BEGIN)),
            counters: Arc::new(Counters::default()),
            on_heard: None,
        };
        let deny = DenyList::new(Arc::clone(&view), 1_000);
        let listener = Listener::new(around, deny, publishers, 100);
        let mut bench = Self {
            listener,
            view,
            resource,
            now: BEGIN,
            sequences: vec![(0, 0); publishers],
        };
        for peer in 0..publishers {
            bench.welcome(peer);
            bench
                .listener
                .feed_up(peer, vec![bench.resource.id], bench.now);
            bench.snapshot(peer, 10, &[]);
        }
        bench.listener.take_acts();
        bench
    }

    fn instance(peer: usize) -> u128 {
        7_000 + peer as u128
    }

    fn clock(&self) -> Span {
        Span::from_micros(CLOCK).saturating_add(self.now.since(BEGIN))
    }

    fn welcome(&mut self, peer: usize) {
        self.listener.link_up(peer, self.now);
        self.answer_hello(peer, Self::instance(peer));
    }

    fn answer_hello(&mut self, peer: usize, instance: u128) {
        let nonce = self.listener.peers[peer]
            .hello
            .expect("a hello is under way")
            .nonce;
        let welcome = FromAggregator::Welcome {
            nonce,
            instance,
            partitions: PARTITIONS,
            feeds: vec!["tcp://feed:1".into()],
            clock: self.clock(),
        };
        self.listener.link_said(peer, welcome, self.now);
    }

    fn asked(&self, peer: usize) -> Option<u64> {
        self.listener.peers[peer]
            .ask
            .as_ref()
            .map(|ask| ask.asked.nonce)
    }

    /// Answers the ask that is under way: true at the publisher's sequences, ruled up to an offset.
    fn snapshot(&mut self, peer: usize, ruled: u64, told: &[Told]) {
        self.snapshot_part(peer, ruled, told, false);
    }

    fn snapshot_part(&mut self, peer: usize, ruled: u64, told: &[Told], more: bool) {
        let (control, sequence) = self.sequences[peer];
        let snapshot = Snapshot {
            nonce: self.asked(peer).expect("an ask is under way"),
            more,
            instance: Self::instance(peer),
            clock: self.clock(),
            evidence: evidence(LOG, ruled),
            control_sequence: control,
            topics: vec![TopicSnapshot {
                resource: "r".into(),
                sequence,
                public: Public {
                    version: 1,
                    ..Public::default()
                },
                told: told.to_vec(),
            }],
        };
        self.listener
            .link_said(peer, FromAggregator::Snapshot(snapshot), self.now);
    }

    fn next_frame(
        &mut self,
        peer: usize,
        resource: &str,
        evidence: Vec<Evidence>,
        told: &[Told],
    ) -> Frame {
        let (control, of_resource) = &mut self.sequences[peer];
        let sequence = if resource.is_empty() {
            control
        } else {
            of_resource
        };
        *sequence += 1;
        let (sequence, sent) = (*sequence, self.clock());
        Frame {
            instance: Self::instance(peer),
            sequence,
            sent,
            resource: resource.into(),
            evidence,
            told: told.to_vec(),
        }
    }

    fn hear(&mut self, peer: usize, frame: &Frame) {
        let mut writer = Writer::new();
        frame.encode(&mut writer);
        let topic = if frame.resource.is_empty() {
            Topic::CONTROL
        } else {
            topic_of(&self.resource)
        };
        self.listener
            .feed_said(peer, topic, writer.as_slice(), self.now);
    }

    /// A frame of the resource's topic that is heard at once.
    fn frame(&mut self, peer: usize, ruled: u64, told: &[Told]) {
        let frame = self.next_frame(peer, "r", evidence(LOG, ruled), told);
        self.hear(peer, &frame);
    }

    fn heartbeat(&mut self, peer: usize, ruled: u64) {
        let frame = self.next_frame(peer, "", evidence(LOG, ruled), &[]);
        self.hear(peer, &frame);
    }

    fn advance(&mut self, by: Span) {
        self.now = self.now.plus(by);
        self.listener.tick(self.now);
    }

    /// For how long a domain is still refused.
    fn refused(&self, domain: &str) -> Option<Span> {
        let fingerprint = self.resource.fingerprint(domain);
        let found = self
            .view
            .refusal(&self.resource, fingerprint, domain, || self.now)?;
        assert!(self.view.maybe(fingerprint));
        Some(found.remaining)
    }

    fn is_blind(&self, domain: &str) -> bool {
        self.listener.around.sight.is_blind("r", domain, self.now)
    }

    fn gaps(&self) -> u64 {
        self.listener.around.counters.gaps.load(Ordering::Relaxed)
    }
}

fn evidence(log: LogId, ruled: u64) -> Vec<Evidence> {
    (0..PARTITIONS)
        .map(|partition| Evidence {
            partition,
            log,
            ruled,
            appended: Timestamp::ZERO,
        })
        .collect()
}

fn told(domain: &str, offset: u64, remaining: Option<Span>) -> Told {
    told_in(1, domain, offset, remaining)
}

fn told_in(generation: u32, domain: &str, offset: u64, remaining: Option<Span>) -> Told {
    let says = match remaining {
        Some(_) => Says::Denied(Denial {
            end: Timestamp::MAX,
            cause: Cause::Hard,
            version: 1,
            limit: 1,
            window: Span::from_secs(1),
        }),
        None => Says::Open,
    };
    Told {
        partition: partition_of_pair("r", domain, PARTITIONS),
        remaining: remaining.unwrap_or(Span::ZERO),
        statement: Statement {
            scope: Scope::Pair(domain.into()),
            place: Place {
                generation,
                offset,
                entry: 0,
            },
            says,
        },
    }
}

fn denied(domain: &str, offset: u64) -> Told {
    told(domain, offset, Some(second(30)))
}

#[test]
fn a_denial_holds_for_what_is_left_of_it_and_a_lift_ends_it() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), Some(second(30)));
    bench.advance(second(10));
    assert_eq!(bench.refused("acme"), Some(second(20)));
    bench.frame(0, 13, &[told("acme", 12, None)]);
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn what_a_frame_is_late_is_taken_off() {
    let mut bench = Bench::joined(1);
    let frame = bench.next_frame(
        0,
        "r",
        evidence(LOG, 12),
        &[denied("acme", 11), told("beta", 11, Some(second(7)))],
    );
    bench.advance(second(8));
    bench.hear(0, &frame);
    // 200 ppm of eight seconds are taken off for the clocks.
    assert_eq!(
        bench.refused("acme"),
        Some(Span::from_micros(22_000_000 - 1_600))
    );
    assert_eq!(bench.refused("beta"), None);
}

#[test]
fn a_gap_is_asked_about_and_counts_as_nothing_heard() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let _lost = bench.next_frame(0, "r", evidence(LOG, 13), &[told("acme", 12, None)]);
    bench.frame(0, 15, &[denied("beta", 14)]);
    assert_eq!((bench.gaps(), bench.asked(0).is_some()), (1, true));
    // What was said still holds, but no longer than the last evidence without a gap.
    assert!(bench.refused("acme").is_some() && bench.refused("beta").is_some());
    bench.snapshot(0, 15, &[denied("beta", 14), denied("lost", 13)]);
    assert_eq!(bench.refused("acme"), None, "the snapshot does not list it");
    assert!(bench.refused("beta").is_some() && bench.refused("lost").is_some());
    assert_eq!(bench.asked(0), None);
}

#[test]
fn a_gap_that_is_never_filled_lets_the_lease_run_out() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[told("acme", 11, Some(second(3_600)))]);
    let _lost = bench.next_frame(0, "r", evidence(LOG, 13), &[]);
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
fn evidence_that_does_not_advance_renews_nothing() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[told("acme", 11, Some(second(3_600)))]);
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
fn an_older_statement_about_an_open_scope_says_nothing() {
    let mut bench = Bench::joined(2);
    bench.frame(0, 13, &[denied("acme", 11)]);
    bench.frame(0, 14, &[told("acme", 13, None)]);
    // The other owner is behind.
    bench.frame(1, 12, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), None);
    // So is its snapshot, which fills no gap, since the first one's topic has none.
    let _lost = bench.next_frame(1, "r", evidence(LOG, 12), &[]);
    bench.frame(1, 13, &[]);
    bench.snapshot(1, 13, &[denied("acme", 11)]);
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn a_snapshot_that_fills_a_gap_is_heard_whatever_the_age_of_what_it_says() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 20, &[]);
    let _lost = bench.next_frame(0, "r", evidence(LOG, 21), &[]);
    bench.frame(0, 22, &[]);
    bench.snapshot(0, 22, &[denied("acme", 15)]);
    assert!(bench.refused("acme").is_some());
}

#[test]
fn a_snapshot_in_parts_ends_nothing_before_its_last() {
    let mut bench = Bench::joined(1);
    bench.frame(
        0,
        13,
        &[denied("one", 11), denied("two", 12), denied("gone", 12)],
    );
    let _lost = bench.next_frame(0, "r", evidence(LOG, 14), &[]);
    bench.frame(0, 15, &[]);
    bench.snapshot_part(0, 15, &[denied("one", 11)], true);
    assert!(bench.refused("two").is_some() && bench.refused("gone").is_some());
    bench.snapshot_part(0, 15, &[denied("two", 12)], false);
    assert!(bench.refused("one").is_some() && bench.refused("two").is_some());
    assert_eq!(bench.refused("gone"), None);
}

#[test]
fn frames_of_somebody_who_answered_no_hello_are_not_heard() {
    let mut bench = Bench::joined(1);
    let mut frame = bench.next_frame(0, "r", evidence(LOG, 12), &[denied("acme", 11)]);
    frame.instance = 1;
    bench.hear(0, &frame);
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
    // And a topic is that of its resource.
    let frame = Frame {
        instance: Bench::instance(0),
        resource: "other".into(),
        ..frame
    };
    bench.hear(0, &frame);
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
fn a_log_made_anew_voids_what_was_said_and_an_old_one_is_not_heard() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let anew = LogId {
        generation: 2,
        random: 9,
    };
    let frame = bench.next_frame(
        0,
        "r",
        evidence(anew, 3),
        &[told_in(2, "beta", 2, Some(second(30)))],
    );
    bench.hear(0, &frame);
    assert_eq!(bench.refused("acme"), None);
    assert!(bench.refused("beta").is_some());
    bench.frame(0, 40, &[denied("acme", 39)]);
    assert_eq!(bench.refused("acme"), None);
}

#[test]
fn a_silent_feed_is_made_anew_and_a_silent_link_too() {
    let mut bench = Bench::joined(1);
    bench.advance(Span::from_millis(749));
    assert!(
        bench
            .listener
            .take_acts()
            .iter()
            .all(|act| !matches!(act, Act::OpenFeed { .. }))
    );
    bench.advance(Span::from_millis(1));
    let acts = bench.listener.take_acts();
    assert!(
        acts.iter()
            .any(|act| matches!(act, Act::OpenFeed { peer: 0, topics, .. } if topics.len() == 1)),
        "{acts:?}"
    );
    // The hello of after a second is not answered.
    bench.advance(second(1));
    bench.advance(Span::from_millis(1_500));
    assert!(
        bench
            .listener
            .take_acts()
            .contains(&Act::ReopenLink { peer: 0 })
    );
    assert!(!bench.listener.is_welcome(0));
}

#[test]
fn another_instance_at_the_address_is_joined_from_the_beginning() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    bench.advance(second(1));
    bench.answer_hello(0, 99);
    let acts = bench.listener.take_acts();
    assert!(
        acts.iter().any(|act| matches!(act, Act::OpenFeed { .. })),
        "{acts:?}"
    );
    assert!(
        bench.refused("acme").is_some(),
        "what was said holds as long as its lease"
    );
    assert!(!bench.listener.peers[0].is_joined(TopicKey::Control));
}

#[test]
fn a_newer_version_in_a_statement_asks_for_the_limits() {
    let mut bench = Bench::joined(1);
    let mut newer = denied("acme", 11);
    if let Says::Denied(denial) = &mut newer.statement.says {
        denial.version = 5;
    }
    bench.frame(0, 12, &[newer]);
    assert!(bench.asked(0).is_some());
}

#[test]
fn a_near_notice_opens_a_scope_and_is_counted() {
    let mut bench = Bench::joined(1);
    bench.frame(0, 12, &[denied("acme", 11)]);
    let mut near = denied("acme", 12);
    near.statement.says = Says::Near(tollgate_shared::wire::statement::Near {
        left: 3,
        end: Timestamp::MAX,
        since: Timestamp::ZERO,
    });
    bench.frame(0, 13, &[near]);
    assert_eq!(bench.refused("acme"), None);
    assert_eq!(
        bench
            .listener
            .around
            .counters
            .near_notices
            .load(Ordering::Relaxed),
        1
    );
}

#[test]
fn an_ask_that_is_not_answered_is_asked_again() {
    let mut bench = Bench::joined(1);
    let _lost = bench.next_frame(0, "r", evidence(LOG, 12), &[]);
    bench.frame(0, 13, &[]);
    let first = bench.asked(0).expect("asked");
    bench.heartbeat(0, 13);
    bench.advance(Span::from_millis(700));
    assert_eq!(bench.asked(0), Some(first));
    bench.heartbeat(0, 14);
    bench.advance(Span::from_millis(700));
    bench.answer_hello(0, Bench::instance(0));
    bench.heartbeat(0, 15);
    bench.advance(Span::from_millis(700));
    assert!(bench.asked(0).is_some_and(|again| again != first));
}
