//! Tests of the agent on real sockets, beside an aggregator that sends what the test chooses.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod copies_sockets;
mod example;
#[cfg(feature = "kafka")]
mod kafka;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use support::Aggregator;
use tollgate_agent::{Agent, Cause, Change};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::wire::link::Refusal;
use tollgate_shared::wire::public::{BlindPolicy, Public};

const SOON: Duration = Duration::from_secs(20);

fn agent(aggregators: &[&Aggregator]) -> Agent {
    let builder = aggregators.iter().fold(
        Agent::builder().name("a").denials_max(1_000),
        |builder, one| builder.aggregator(one.agents.to_string()),
    );
    builder.build().expect("good settings")
}

/// An agent, and the changes of its deny list as they happen.
fn listening(
    aggregator: &Aggregator,
) -> (
    Agent,
    tokio::sync::mpsc::UnboundedReceiver<(String, Change)>,
) {
    let (sender, events) = tokio::sync::mpsc::unbounded_channel();
    let sender = Mutex::new(sender);
    let agent = Agent::builder()
        .name("a")
        .aggregator(aggregator.agents.to_string())
        .on_statement(move |events| {
            let what = (events.domain().unwrap_or("*").to_owned(), events.change());
            let _ = sender.lock().expect("not poisoned").send(what);
        })
        .build()
        .expect("good settings");
    (agent, events)
}

async fn next(
    events: &mut tokio::sync::mpsc::UnboundedReceiver<(String, Change)>,
) -> (String, Change) {
    tokio::time::timeout(SOON, events.recv())
        .await
        .expect("soon")
        .expect("the agent lives")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_reach_the_aggregator_and_its_denial_the_agent() {
    let aggregator = Aggregator::start(1).await;
    let (agent, mut events) = listening(&aggregator);
    let rate = agent.rate("api.search");
    // Blind or not: the test does not depend on which comes first.
    assert!(rate.hit("acme").is_ok(), "fails open");
    assert!(agent.ready(SOON).await);
    assert!(!rate.hit("acme").expect("not denied").blind());
    assert_eq!(rate.hit_n("beta", 5).expect("not denied").copies(), 5);
    aggregator.until("all hits", |one| one.copies() == 7).await;
    for one in aggregator.appended() {
        for (resource, domain, _) in &one.hits {
            assert_eq!(
                one.partition,
                partition_of_pair(resource, domain, support::PARTITIONS)
            );
        }
    }
    aggregator
        .deny("api.search", "acme", Duration::from_secs(30))
        .await;
    assert_eq!(next(&mut events).await, ("acme".to_owned(), Change::Denied));
    let denied = rate.hit("acme").expect_err("denied");
    assert_eq!(denied.cause(), Cause::Tier(1));
    assert!(denied.retry_after().expect("it ends") <= Duration::from_secs(30));
    assert!(rate.hit("beta").is_ok());
    aggregator
        .until("the refused call", |one| {
            one.appended().iter().any(|one| !one.refused.is_empty())
        })
        .await;
    aggregator.open("api.search", "acme").await;
    assert_eq!(next(&mut events).await, ("acme".to_owned(), Change::Opened));
    assert!(rate.hit("acme").is_ok());
    let flushed = agent.shutdown(SOON).await;
    assert_eq!((flushed.sent, flushed.dropped), (5, 0));
    assert_eq!(aggregator.copies(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_frame_is_noticed_and_recovered() {
    let aggregator = Aggregator::start(1).await;
    let (agent, mut events) = listening(&aggregator);
    let rate = agent.rate("r");
    assert!(agent.ready(SOON).await);
    aggregator.deny("r", "one", Duration::from_secs(30)).await;
    assert_eq!(next(&mut events).await.0, "one");
    aggregator.deny_unheard("r", "two", Duration::from_secs(30));
    // The next heartbeat of the topic shows the gap, and a snapshot fills it.
    assert_eq!(next(&mut events).await, ("two".to_owned(), Change::Denied));
    assert!(rate.hit("two").is_err());
    assert!(1 <= agent.stats().gaps);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_is_used_later_is_asked_for() {
    let aggregator = Aggregator::start(1).await;
    aggregator
        .deny("late", "acme", Duration::from_secs(30))
        .await;
    let (agent, mut events) = listening(&aggregator);
    assert!(agent.ready(SOON).await);
    let rate = agent.rate("late");
    assert_eq!(next(&mut events).await, ("acme".to_owned(), Change::Denied));
    assert!(agent.ready(SOON).await);
    assert!(rate.hit("acme").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregator_is_found_by_a_name() {
    let aggregator = Aggregator::start(1).await;
    let name = format!("localhost:{}", aggregator.agents.port());
    let agent = Agent::builder().name("a").aggregator(name).build();
    let agent = agent.expect("good settings");
    assert!(agent.ready(SOON).await);
    let _ = agent.rate("r").hit("acme");
    aggregator.until("the hit", |one| one.copies() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregator_that_returns_gets_the_missed_batches() {
    let aggregator = Aggregator::start(1).await;
    let agent = agent(&[&aggregator]);
    let rate = agent.rate("r");
    assert!(agent.ready(SOON).await);
    let _ = rate.hit("before");
    aggregator
        .until("the first hit", |one| one.copies() == 1)
        .await;
    let addresses = (aggregator.agents.to_string(), aggregator.feed.to_string());
    // A log only grows: statements of the next aggregator below this position would rightly count
    // as known.
    aggregator.be_quiet(true);
    let ruled = aggregator.ruled();
    drop(aggregator);
    for n in 0..100 {
        let _ = rate.hit(&format!("t{n}"));
    }
    let back = Aggregator::start_at(2, ruled, &addresses.0, &addresses.1).await;
    back.until("all that was missed", |one| 100 <= one.copies())
        .await;
    back.deny("r", "acme", Duration::from_secs(30)).await;
    // It arrives by a frame or a snapshot, whichever is first.
    let until = Instant::now() + SOON;
    while rate.peek("acme").is_ok() && Instant::now() < until {
        tokio::task::yield_now().await;
    }
    assert!(rate.hit("acme").is_err());
    let flushed = agent.shutdown(SOON).await;
    assert_eq!(flushed.dropped, 0);
    assert_eq!(flushed.sent, 101);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_answer_is_lost_is_sent_again_the_same() {
    let aggregator = Aggregator::start(1).await;
    let agent = agent(&[&aggregator]);
    assert!(agent.ready(SOON).await);
    aggregator.swallow(1);
    let _ = agent.rate("r").hit("acme");
    aggregator
        .until("the batch again", |one| 2 <= one.appended().len())
        .await;
    let appended = aggregator.appended();
    assert_eq!(appended[0], appended[1]);
    assert_eq!(agent.shutdown(SOON).await.sent, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_now_is_retried_and_never_is_counted() {
    let aggregator = Aggregator::start(1).await;
    let agent = agent(&[&aggregator]);
    let rate = agent.rate("r");
    assert!(agent.ready(SOON).await);
    aggregator.refuse(Some(Refusal::NotNow));
    let _ = rate.hit("acme");
    aggregator
        .until("some attempts", |_| 2 <= agent.stats().batches_sent_again)
        .await;
    aggregator.refuse(None);
    aggregator.until("the hit", |one| one.copies() == 1).await;
    aggregator.refuse(Some(Refusal::Never));
    let _ = rate.hit("acme");
    aggregator
        .until("the refusal", |_| agent.stats().batches_refused == 1)
        .await;
    let flushed = agent.shutdown(SOON).await;
    assert_eq!((flushed.sent, flushed.dropped), (1, 1));
}

/// As one that is cut off from Kafka: it serves its agents, and passes nothing on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregator_that_passes_nothing_on_is_left_for_another() {
    let (one, other) = (Aggregator::start(1).await, Aggregator::start(2).await);
    let agent = agent(&[&one, &other]);
    let rate = agent.rate("r");
    assert!(agent.ready(SOON).await);
    // Either may carry at first.
    for (cut_off, works) in [(&one, &other), (&other, &one)] {
        cut_off.refuse(Some(Refusal::NotNow));
        let before = works.copies();
        let _ = rate.hit("acme");
        works
            .until("the hit", |works| before < works.copies())
            .await;
        cut_off.refuse(None);
    }
    for (cut_off, works) in [(&one, &other), (&other, &one)] {
        cut_off.swallow(u32::MAX);
        let before = works.copies();
        let _ = rate.hit("acme");
        works
            .until("the hit", |works| before < works.copies())
            .await;
        cut_off.swallow(0);
    }
    assert_eq!(agent.shutdown(SOON).await.dropped, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_fail_over_and_denials_come_from_all_aggregators() {
    let one = Aggregator::start(1).await;
    let other = Aggregator::start(2).await;
    let agent = agent(&[&one, &other]);
    let rate = agent.rate("r");
    assert!(agent.ready(SOON).await);
    let _ = rate.hit("acme");
    // Without the answer the agent would rightly send it to the other, too.
    other
        .until("the hit's answer, from either", |_| {
            agent.stats().hits_acknowledged == 1
        })
        .await;
    let (gone, left) = if one.copies() == 1 {
        (one, other)
    } else {
        (other, one)
    };
    drop(gone);
    for _ in 0..10 {
        let _ = rate.hit("beta");
    }
    left.until("the rest", |left| left.copies() == 10).await;
    assert_eq!(agent.shutdown(SOON).await.sent, 11);
}

fn agent_without_anybody() -> Agent {
    Agent::builder()
        .aggregator(support::NOBODY)
        .build()
        .expect("no network is needed")
}

#[test]
fn without_aggregators_calls_pass_and_are_accounted_for() {
    let agent = agent_without_anybody();
    let rate = agent.rate("r");
    for _ in 0..1_000 {
        assert!(rate.hit("acme").expect("fails open").blind());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without timers");
    assert!(!runtime.block_on(agent.ready(Duration::from_millis(50))));
    let flushed = runtime.block_on(agent.shutdown(Duration::from_millis(200)));
    assert_eq!((flushed.sent, flushed.dropped), (0, 1_000));
    // From here on nothing drains the recorder.
    assert!(rate.hit("acme").is_ok());
    let stats = agent.stats();
    assert_eq!((stats.hits_accepted, stats.hits_dropped()), (1_000, 1_001));
}

#[test]
fn every_call_is_sent_or_dropped_by_the_time_shutdown_answers() {
    for _ in 0..20 {
        let agent = agent_without_anybody();
        let calls: Vec<_> = (0..2)
            .map(|_| {
                let rate = agent.rate("r");
                std::thread::spawn(move || {
                    (0..5_000).for_each(|_| {
                        let _ = rate.hit("acme");
                    });
                })
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime without timers");
        runtime.block_on(agent.shutdown(Duration::ZERO));
        calls
            .into_iter()
            .for_each(|one| one.join().expect("called"));
        // Nothing is in flight any more: a second answer is final.
        let flushed = runtime.block_on(agent.shutdown(Duration::ZERO));
        assert_eq!((flushed.sent, flushed.dropped), (0, 10_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregator_of_a_later_release_is_understood() {
    let aggregator = Aggregator::start(1).await;
    aggregator.is_of_a_later_release();
    let public = |refused| Public {
        version: 1,
        refused,
        ..Public::default()
    };
    aggregator.set_public("open", public(false));
    aggregator.set_public("closed", public(true));
    aggregator.deny_unheard("open", "acme", Duration::from_secs(30));
    let agent = agent(&[&aggregator]);
    let (open, closed) = (agent.rate("open"), agent.rate("closed"));
    assert!(agent.ready(SOON).await);
    assert!(open.hit("acme").is_err(), "the snapshot was read");
    assert!(open.hit("globex").is_ok());
    assert!(closed.hit("globex").is_err(), "public limits were read");
    assert_eq!(agent.stats().frames_refused, 0);
}

/// A service that closes its agent and answers its last requests must not refuse them by what was true before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_pass_after_the_agent_has_ended() {
    let aggregator = Aggregator::start(1).await;
    for (name, blind) in [("r", BlindPolicy::Open), ("closed", BlindPolicy::Closed)] {
        let public = Public {
            version: 1,
            blind,
            ..Public::default()
        };
        aggregator.set_public(name, public);
    }
    aggregator.deny_unheard("r", "acme", Duration::from_secs(30));
    let agent = agent(&[&aggregator]);
    let (open, closed) = (agent.rate("r"), agent.rate("closed"));
    assert!(agent.ready(SOON).await);
    assert!(open.hit("acme").is_err(), "the snapshot was read");
    let waiting = open.clone();
    let waiting = tokio::spawn(async move { waiting.until_ready("acme", 2 * SOON).await });
    agent.shutdown(SOON).await;
    for (rate, domain) in [(&open, "acme"), (&closed, "acme"), (&closed, "globex")] {
        let allowed = rate.hit(domain);
        assert!(allowed.expect("let through").blind(), "{domain}");
    }
    assert!(waiting.await.expect("no panic").is_ok(), "it waits no more");
}
