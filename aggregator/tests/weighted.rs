//! Calls that cost more than one copy, and calls that nobody could have refused, through an aggregator on
//! its journal and an agent beside it.

mod support;

use std::time::{Duration, Instant};

use support::{DEADLINE, Served, directory, serve};
use tollgate_agent::{Agent, HitError, Settled};

const LIMITS: &str = r#"
[rate."llm.tokens"]
rate = "100/h"
domains.gold.rate = "1000/h"
"#;

async fn world() -> (tempfile::TempDir, Served, Agent) {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let agent = Agent::builder()
        .name("web")
        .aggregator(served.agents.to_string())
        .build()
        .expect("good settings");
    let _ = agent.rate("llm.tokens");
    assert!(agent.ready(DEADLINE).await, "it hears the aggregator");
    (dir, served, agent)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_domain_can_never_be_granted_is_too_many_for_it() {
    let (_dir, _served, agent) = world().await;
    let tokens = agent.rate("llm.tokens");
    let is_too_many = |domain, copies| match tokens.hit_n(domain, copies) {
        Err(HitError::TooMany(too_many)) => Some(too_many.most()),
        _ => None,
    };
    // Nobody here knows what limits acme has, until its denial says so.
    assert_eq!(is_too_many("acme", 500), None);
    until("acme is told", || is_too_many("acme", 500) == Some(100)).await;
    assert_eq!(is_too_many("gold", 500), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_back_of_an_estimate_makes_room() {
    let (_dir, _served, agent) = world().await;
    let tokens = agent.rate("llm.tokens");
    let estimate = tokens.hit_estimated("acme", 100).expect("it has room");
    until("acme is denied", || tokens.peek("acme").is_err()).await;
    assert_eq!(estimate.settle(40), Ok(Settled::TakenBack(60)));
    until("acme is let in", || tokens.peek("acme").is_ok()).await;
    tokens.record("acme", 60);
    until("acme is denied again", || tokens.peek("acme").is_err()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_guarded_while_an_aggregator_is_heard_however_quiet() {
    let (_dir, mut served, agent) = world().await;
    let tokens = agent.rate("llm.tokens");
    let frames = agent.stats().frames;
    until("heartbeats", || frames + 12 <= agent.stats().frames).await;
    for _ in 0..5 {
        let _ = tokens.hit("acme").expect("room");
    }
    until("it is sent", || agent.stats().hits_acknowledged == 5).await;
    assert_eq!(agent.stats().hits_unguarded, 0);
    served.signal("KILL");
    served.await_end();
    until("nobody is heard", || {
        let _ = tokens.hit("globex");
        0 < agent.stats().hits_unguarded
    })
    .await;
}
