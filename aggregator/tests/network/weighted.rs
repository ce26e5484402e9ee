//! Calls that cost more than one copy, charges that cannot be refused, and what is left, through an aggregator on its
//! journal and agents beside it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, AgentBuilder, Near, Refused, Settled};

use crate::support::{DEADLINE, Served, directory, serve, serve_of, until};

const LIMITS: &str = r#"
[rate."llm.tokens"]
rate = "100/h"
domains.gold.rate = "1000/h"
[rate."api.crowd"]
rate = "2/h"
near = "50%"
[rate."api.global"]
rate = "1000/s"
global = "10/s"
"#;

async fn world() -> (tempfile::TempDir, Served, Agent) {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let agent = ready(&served, Agent::builder().name("web")).await;
    (dir, served, agent)
}

async fn ready(served: &Served, builder: AgentBuilder) -> Agent {
    let agent = builder
        .aggregator(served.agents.to_string())
        .build()
        .expect("good settings");
    let _ = agent.rate("llm.tokens");
    assert!(agent.ready(DEADLINE).await, "it hears the aggregator");
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_above_a_domains_limit_is_too_many() {
    let (_dir, _served, agent) = world().await;
    let tokens = agent.rate("llm.tokens");
    let is_too_many = |domain, copies| match tokens.hit_n(domain, copies) {
        Err(Refused::TooMany(too_many)) => Some(too_many.most()),
        _ => None,
    };
    // The agent does not know acme's limits until a denial states them.
    assert_eq!(is_too_many("acme", 500), None);
    until("acme is told", || is_too_many("acme", 500) == Some(100)).await;
    assert_eq!(is_too_many("gold", 500), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_of_an_estimate_makes_room() {
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
async fn calls_are_guarded_while_a_quiet_aggregator_is_up() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_get_notices_of_a_domain_near_its_limit() {
    let (_dir, served, agent) = world().await;
    let notices: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let calls = Arc::clone(&notices);
    let on_near = move |near: &Near<'_>| {
        let near = (near.domain().to_owned(), near.remaining());
        calls.lock().expect("not poisoned").push(near);
    };
    let builder = Agent::builder().name("other").on_near(on_near);
    let other = ready(&served, builder).await;
    let (mine, others) = (agent.rate("llm.tokens"), other.rate("llm.tokens"));
    let _ = mine.hit_n("acme", 79).expect("room");
    until("79 are ruled", || {
        served.metric("tollgate_entries_total") == 1.0
    })
    .await;
    assert!(
        !mine.peek("acme").expect("room").is_near(),
        "21 of 100 are left"
    );
    let _ = mine.hit_n("acme", 6).expect("room");
    let remaining = |rate: &tollgate_agent::Rate| rate.peek("acme").ok()?.remaining();
    until("both are told that 15 are left", || {
        remaining(&mine) == Some(15) && remaining(&others) == Some(15)
    })
    .await;
    // An agent knows at once what it lets through itself; another agent knows it by the next notice.
    let allowed = others.hit_n("acme", 5).expect("room");
    assert_eq!((allowed.remaining(), allowed.is_near()), (Some(10), true));
    let headers = allowed.headers();
    assert_eq!(
        headers.rate_limit_policy(),
        Some("\"window-0\";q=100;w=3600")
    );
    let limit = headers.rate_limit().expect("it is known");
    assert!(limit.starts_with("\"window-0\";r=10;t="), "{limit}");
    until("both know of the five", || {
        remaining(&mine) == Some(10) && remaining(&others) == Some(10)
    })
    .await;
    assert!(!others.hit("globex").expect("room").is_near());
    assert_eq!(
        *notices.lock().expect("not poisoned"),
        [("acme".to_owned(), 15)]
    );
    assert_eq!((agent.stats().near_gaps, other.stats().near_gaps), (0, 0));
    assert!(2.0 <= served.metric("tollgate_notices_total"));
    assert_eq!(served.metric("tollgate_notices_shed_total"), 0.0);
    let near = served.metric(r#"tollgate_resource_near_total{resource="llm.tokens"}"#);
    assert!(2.0 <= near, "{near}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_share_the_room_near_a_limit_fairly() {
    // At most this many pairs of one partition wait, and far fewer are published a second; further ones are dropped,
    // and counted.
    const WAITING: usize = 4_096;
    let dir = directory(LIMITS);
    let served = serve_of(
        dir.path(),
        &["--limits", "limits.toml", "--partitions", "1"],
    );
    served.await_ready();
    let builder = Agent::builder().name("web").recorder_bytes(8 << 20);
    let agent = ready(&served, builder).await;
    let crowd = agent.rate("api.crowd");
    let mut sent = 0;
    let deadline = Instant::now() + DEADLINE;
    while served.metric("tollgate_notices_shed_total") == 0.0 {
        assert!(Instant::now() < deadline, "more than may wait came at once");
        for _ in 0..4 * WAITING {
            let _ = crowd.hit(&format!("tenant-{sent}")).expect("room");
            sent += 1;
        }
        until("all are ruled", || {
            served.metric("tollgate_entries_total") == f64::from(sent)
        })
        .await;
    }
    // As notices are published there is room again, for later pairs too; and no call was refused meanwhile.
    let mut late = 0;
    until("the notice about a later pair has come", || {
        let _ = crowd.hit(&format!("late-{late}")).expect("room");
        late += 1;
        (0..late).any(|number| {
            let answer = crowd.peek(&format!("late-{number}")).expect("room");
            answer.remaining() == Some(1)
        })
    })
    .await;
    assert_eq!(agent.stats().near_gaps, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_get_notices_near_the_global_limit() {
    let (_dir, _served, agent) = world().await;
    let global = agent.rate("api.global");
    // There are no notices about a second that is over, so this is repeated until a notice comes within it.
    let deadline = Instant::now() + DEADLINE;
    let left = loop {
        for number in 0..9 {
            let _ = global.hit(&format!("tenant-{number}"));
        }
        let second = Instant::now();
        let left = loop {
            let allowed = global.peek("somebody else");
            let left = allowed.ok().filter(|allowed| allowed.is_near());
            if left.is_some() || Duration::from_millis(1_500) < second.elapsed() {
                break left;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        if left.is_some() {
            break left;
        }
        assert!(Instant::now() < deadline, "it is told in time");
    };
    let headers = left.expect("told").headers();
    let policy = "\"global\";q=10;w=1, \"window-0\";q=1000;w=1";
    assert_eq!(headers.rate_limit_policy(), Some(policy));
    let limit = headers.rate_limit().unwrap_or_default();
    assert!(limit.starts_with("\"global\";r="), "{limit}");
}
