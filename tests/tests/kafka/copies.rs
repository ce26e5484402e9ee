//! Copies on a real Kafka: agents that hold are killed; and no agent counts as gone because Kafka stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Confirmation, Hold};
use tollgate_tests::holders::kills::{LIMITS, Order, kill_holders};
use tollgate_tests::holders::{Endpoints, SOON};
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::serving::Serving;

fn endpoints_on(kafka: &LocalKafka, prefix: &str, serving: &Serving) -> Endpoints {
    Endpoints {
        kafka: Some((kafka.bootstrap().to_owned(), prefix.to_owned())),
        ..Endpoints::of(serving)
    }
}

pub fn agents_that_hold_are_killed_and_no_copy_is_lost(kafka: &LocalKafka) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let prefix = kafka.fresh_name("copies-killed");
    let serving = Serving::start_on(kafka, &prefix, dir.path(), LIMITS, 4);
    let endpoints = endpoints_on(kafka, &prefix, &serving);
    let order = Order::from_environment();
    let report = kill_holders(&endpoints, &order);
    println!("kafka: {report}");
    report.check(&order);
}

/// How long Kafka is suspended.
const STOPPED: Duration = Duration::from_secs(10);

/// The agent timeout. Twice the default: a hundred agents in one process on a busy machine are late
/// by a second, which is not tested here.
const AGENT_TIMEOUT: Duration = Duration::from_secs(4);

/// Agents that hold a copy all the while.
const HOLDERS: u64 = 100;

/// One in this many agents writes to Kafka directly; the others go through the aggregator.
const DIRECT: u64 = 10;

/// Silence is counted in ticks, and a log that stands still has none.
pub fn while_kafka_stands_still_no_holder_is_gone(_: &LocalKafka) {
    // A broker of its own: other tests must not stand still with it.
    let kafka = LocalKafka::start().expect("another one starts");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let prefix = kafka.fresh_name("copies-stopped");
    let seconds = AGENT_TIMEOUT.as_secs();
    let limits = format!("{LIMITS}\n[engine]\nagent_timeout = \"{seconds}s\"\n");
    let serving = Serving::start_on(&kafka, &prefix, dir.path(), &limits, 4);
    let endpoints = endpoints_on(&kafka, &prefix, &serving);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let agents: Vec<Agent> = (0..HOLDERS)
        .map(|number| agent(&endpoints, number))
        .collect();
    let holds = runtime.block_on(take_one_each(&agents));
    assert_eq!(endpoints.counted("sandbox").expect("ruled").total, HOLDERS);

    let over = Arc::new(AtomicBool::new(false));
    let watching = {
        let (endpoints, over) = (endpoints.clone(), Arc::clone(&over));
        std::thread::spawn(move || least_counted(&endpoints, &over))
    };
    let paused = kafka.pause().expect("it can be stopped");
    std::thread::sleep(STOPPED);
    drop(paused);
    // The log goes on, for longer than an agent may be silent.
    let witness = agent(&endpoints, HOLDERS);
    let witness_hold = runtime.block_on(take_one_each(std::slice::from_ref(&witness)));
    await_log_time(&endpoints, &format!("d{HOLDERS}"), AGENT_TIMEOUT * 3 / 2);
    over.store(true, Ordering::Relaxed);
    let (least, looks) = watching.join().expect("no panic");
    println!("least copies counted {least} of {HOLDERS}, in {looks} looks");
    assert_eq!(least, HOLDERS, "in {looks} looks");
    assert!(10 < looks, "{looks}");
    assert_eq!(endpoints.metric("tollgate_copies_back_total"), 0.0);

    // Agents that stop in order release everything at once.
    drop((holds, witness_hold));
    runtime.block_on(async {
        for agent in agents.iter().chain([&witness]) {
            agent.shutdown(SOON).await;
        }
    });
    let until = Instant::now() + SOON;
    while endpoints
        .counted("sandbox")
        .is_none_or(|counted| counted.total != 0)
    {
        assert!(Instant::now() < until, "{:?}", endpoints.counted("sandbox"));
        std::thread::yield_now();
    }
    assert_eq!(endpoints.metric("tollgate_copies_back_total"), 0.0);
}

fn agent(endpoints: &Endpoints, number: u64) -> Agent {
    let mut builder = Agent::builder()
        .name(format!("holder-{number}"))
        .aggregator(&endpoints.agents);
    if let Some((bootstrap, prefix)) = &endpoints.kafka
        && number.is_multiple_of(DIRECT)
    {
        builder = builder.kafka(bootstrap).kafka_topic_prefix(prefix);
    }
    let agent = builder.build().expect("good settings");
    let _ = agent.copies("sandbox");
    agent
}

/// Each agent takes a copy of a domain of its own, and waits for its confirmation.
async fn take_one_each(agents: &[Agent]) -> Vec<Hold> {
    let mut holds = Vec::new();
    for agent in agents {
        assert!(agent.ready(SOON).await, "{agent:?} hears the aggregator");
        let domain = agent.name().replace("holder-", "d");
        holds.push(agent.copies("sandbox").reserve(&domain, 1).expect("room"));
    }
    for hold in &holds {
        let verdict = tokio::time::timeout(SOON, hold.confirmed()).await;
        assert_eq!(verdict.expect("a verdict"), Confirmation::Confirmed);
    }
    holds
}

/// The least count of the holders at any time, and the number of observations.
fn least_counted(endpoints: &Endpoints, over: &AtomicBool) -> (u64, u64) {
    let (mut least, mut looks) = (u64::MAX, 0);
    while !over.load(Ordering::Relaxed) {
        if let Some(counted) = endpoints.counted("sandbox") {
            let of_holders: u64 = (0..HOLDERS)
                .filter_map(|number| counted.agents.get(&format!("holder-{number}")))
                .sum();
            least = least.min(of_holders);
            looks += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (least, looks)
}

/// Waits until the log's time is `on` after a domain's hold was taken.
fn await_log_time(endpoints: &Endpoints, domain: &str, on: Duration) {
    let until = Instant::now() + SOON;
    let path = format!("/v1/holds?resource=sandbox&domain={domain}");
    loop {
        let view = tollgate_tests::http::get(endpoints.http.as_str(), &path).unwrap_or_default();
        let age = view["holds"][0]["age_us"].as_u64().unwrap_or(0);
        if on <= Duration::from_micros(age) {
            return;
        }
        assert!(Instant::now() < until, "{view}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
