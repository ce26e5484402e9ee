//! Tests of copies over real sockets, beside an aggregator that sends what the test chooses.

use std::time::Duration;

use tollgate_agent::{Agent, AgentBuilder, Cause, Confirmation, FullScope, Refused};
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::link::Refusal;
use tollgate_shared::wire::public::{BlindPolicy, Kind, Public, PublicCopies, Reserving};
use tollgate_shared::wire::statement::Scope;
use tollgate_shared::wire::verdict::HoldStatus;

use crate::support::{Aggregator, PARTITIONS};

const SOON: Duration = Duration::from_secs(20);

fn counted(number: u64, copies: u32) -> HoldStatus {
    HoldStatus {
        number,
        copies,
        ..HoldStatus::default()
    }
}

async fn beside(aggregator: &Aggregator, reserve: Reserving) -> Agent {
    built_beside(aggregator, reserve, Agent::builder()).await
}

async fn built_beside(aggregator: &Aggregator, reserve: Reserving, builder: AgentBuilder) -> Agent {
    let public = Public {
        version: 1,
        kind: Kind::Copies,
        blind: BlindPolicy::Closed,
        copies: Some(PublicCopies {
            limit: 10,
            reserve,
            agent_timeout: Span::from_secs(2),
            ..PublicCopies::default()
        }),
        ..Public::default()
    };
    aggregator.set_public("sandbox", public);
    let agent = builder
        .name("a")
        .aggregator(aggregator.agents.to_string())
        .build()
        .expect("good settings");
    let _ = agent.copies("sandbox");
    assert!(agent.ready(SOON).await);
    agent
}

fn texts(aggregator: &Aggregator) -> Vec<String> {
    aggregator
        .hold_records()
        .into_iter()
        .map(|one| one.text)
        .collect()
}

async fn until_recorded(aggregator: &Aggregator, text: &str) {
    aggregator
        .until(text, |one| texts(one).iter().any(|line| line == text))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_recorded_confirmed_listed_and_released() {
    let aggregator = Aggregator::start(1).await;
    let agent = beside(&aggregator, Reserving::Optimistic).await;
    let sandbox = agent.copies("sandbox");
    let hold = sandbox.reserve("acme", 2).expect("not full");
    until_recorded(&aggregator, "hold 1 acme x2").await;
    let excess = HoldStatus {
        excess: 1,
        scope: Some(Scope::Resource),
        ..counted(1, 2)
    };
    aggregator.rule("a", "sandbox", excess).await;
    let confirmed = tokio::time::timeout(SOON, hold.confirmed()).await;
    let scope = Some(FullScope::Resource);
    assert_eq!(
        confirmed.expect("a verdict"),
        Confirmation::Excess { copies: 1, scope }
    );
    until_recorded(&aggregator, "heartbeat sandbox [\"1x2\"]").await;
    drop(hold);
    // After the first notice about it, so that this is a separate one.
    let last = sandbox.reserve("beta", 1).expect("not full");
    let expected = format!("hold {} beta x1", last.number().expect("on record"));
    aggregator
        .until("a release before the next hold", |one| {
            let all = texts(one).join(", ");
            let (release, hold) = (all.find("release 1 x2"), all.find(&expected));
            release.is_some() && release < hold
        })
        .await;
    let partition = partition_of_resource("sandbox", PARTITIONS);
    let all = aggregator.hold_records();
    assert!(all.iter().all(|one| one.partition == partition));
    assert!(all.iter().map(|one| one.sequence).is_sorted());
    agent.shutdown(SOON).await;
    assert_eq!(texts(&aggregator).pop().as_deref(), Some("heartbeat last"));
    drop(last);
    let passes = sandbox.reserve("acme", 1);
    assert!(passes.is_ok(), "the agent has ended: closed does not count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_copies_wait_for_the_verdict() {
    let aggregator = Aggregator::start(1).await;
    let agent = beside(&aggregator, Reserving::Strict).await;
    let sandbox = agent.copies("sandbox");
    let asking = {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.reserve_confirmed("acme", 3, SOON).await })
    };
    until_recorded(&aggregator, "reserve 1 acme x3").await;
    aggregator.rule("a", "sandbox", counted(1, 3)).await;
    let hold = asking.await.expect("no panic").expect("granted");
    assert_eq!((hold.copies(), sandbox.held("acme")), (3, 3));
    // No verdict arrives for this one.
    let late = sandbox
        .reserve_confirmed("beta", 1, Duration::from_millis(50))
        .await;
    assert!(
        matches!(late, Err(Refused::Denied(denied)) if denied.cause() == Cause::Blind),
        "{late:?}"
    );
    aggregator
        .until("a cancel", |one| texts(one).join(", ").contains("cancel "))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_record_is_followed_by_a_list() {
    let aggregator = Aggregator::start(1).await;
    let agent = beside(&aggregator, Reserving::Optimistic).await;
    let sandbox = agent.copies("sandbox");
    aggregator.refuse(Some(Refusal::Never));
    let _hold = sandbox.reserve("acme", 2).expect("not full");
    aggregator
        .until("a refusal", |_| 1 <= agent.stats().batches_refused)
        .await;
    assert!(texts(&aggregator).is_empty());
    aggregator.refuse(None);
    until_recorded(&aggregator, "heartbeat sandbox [\"1x2\"]").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_callbacks_are_counted_and_heartbeats_go_on() {
    let aggregator = Aggregator::start(1).await;
    let builder = Agent::builder()
        .on_hold(|news| panic!("of {}", news.number()))
        .on_statement(|_| panic!("of a denial"));
    let agent = built_beside(&aggregator, Reserving::Optimistic, builder).await;
    let sandbox = agent.copies("sandbox");
    let hold = sandbox.reserve("acme", 2).expect("not full");
    until_recorded(&aggregator, "hold 1 acme x2").await;
    let excess = HoldStatus {
        excess: 1,
        ..counted(1, 2)
    };
    aggregator.rule("a", "sandbox", excess).await;
    aggregator
        .until("a panic", |_| agent.stats().callbacks_panicked == 1)
        .await;
    aggregator.deny("sandbox", "beta", SOON).await;
    aggregator
        .until("another", |_| agent.stats().callbacks_panicked == 2)
        .await;
    let heartbeats = |one: &Aggregator| {
        let all = texts(one).into_iter();
        all.filter(|text| text.starts_with("heartbeat sandbox"))
            .count()
    };
    let before = heartbeats(&aggregator);
    aggregator
        .until("two heartbeats more", |one| before + 2 <= heartbeats(one))
        .await;
    assert!(sandbox.reserve("beta", 1).is_err(), "what was heard counts");
    let confirmed = tokio::time::timeout(SOON, hold.confirmed()).await;
    assert!(matches!(confirmed, Ok(Confirmation::Excess { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_copies_may_be_granted_in_part() {
    let aggregator = Aggregator::start(1).await;
    let agent = beside(&aggregator, Reserving::Strict).await;
    let sandbox = agent.copies("sandbox");
    let ask = |copies| {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.reserve_confirmed_up_to("acme", copies, SOON).await })
    };
    let asking = ask(2..=9);
    until_recorded(&aggregator, "reserve 1 acme x2..9").await;
    let granted = |number, copies| HoldStatus {
        scope: Some(Scope::Resource),
        ..counted(number, copies)
    };
    aggregator.rule("a", "sandbox", granted(1, 5)).await;
    let hold = asking.await.expect("no panic").expect("granted");
    assert_eq!((hold.copies(), sandbox.held("acme")), (5, 5));
    until_recorded(&aggregator, "heartbeat sandbox [\"1x5\"]").await;
    let asking = ask(6..=9);
    until_recorded(&aggregator, "reserve 2 acme x6..9").await;
    aggregator.rule("a", "sandbox", granted(2, 0)).await;
    let refused = asking.await.expect("no panic");
    assert!(
        matches!(refused, Err(Refused::Denied(denied)) if denied.cause() == Cause::Full),
        "{refused:?}"
    );
    drop(hold);
    until_recorded(&aggregator, "release 1 x5").await;
}
