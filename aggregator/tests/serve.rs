//! Promises of `tollgate serve`, kept by a real process: the loop closes, kills lose nothing, ends are
//! quick.

mod support;

use std::time::Duration;

use support::{Dealer, LIMITS, Subscriber, directory, serve};
use tollgate_shared::wire::link::{FromAgent, FromAggregator, Refusal};
use tollgate_shared::wire::public::Kind;
use tollgate_shared::wire::statement::{Cause, Says, Scope};

const RESOURCE: &str = "api.search";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_of_one_process_become_a_denial_that_another_one_hears() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut subscriber = Subscriber::connect(served.feed).await;
    // The subscription has arrived once a heartbeat has.
    let (_, first) = subscriber.frame().await;
    let mut agent = Dealer::connect(served.agents, 1).await;
    let (instance, partitions, feed) = agent.hello().await;
    assert_eq!((first.instance, partitions), (instance, 4));
    assert_eq!(feed, format!("tcp://{}", served.feed));

    agent.hit(RESOURCE, "acme", 5, partitions).await;
    let (topic, told) = loop {
        let (topic, frame) = subscriber.frame().await;
        if !frame.told.is_empty() {
            break (topic, frame);
        }
    };
    assert_eq!(&*told.resource, RESOURCE);
    assert_eq!(topic.as_bytes()[0], b'r');
    assert_eq!(told.sequence, 1);
    let statement = &told.told[0].statement;
    assert_eq!(statement.scope, Scope::Pair("acme".into()));
    let Says::Denied(denial) = statement.says else {
        panic!("{statement:?}");
    };
    assert_eq!(denial.cause, Cause::Tier(1));
    let remaining = told.told[0].remaining.to_std();
    assert!(
        Duration::from_secs(50) < remaining && remaining <= Duration::from_secs(61),
        "{remaining:?}"
    );
    // Evidence reaches beyond the statement's own place.
    let evidence = told
        .evidence
        .iter()
        .find(|e| e.partition == told.told[0].partition);
    assert!(statement.place.offset < evidence.unwrap().ruled);

    let shown = served.json("/v1/denials?resource=api.search&domain=acme");
    assert_eq!(shown["schema"], "tollgate.denials/1");
    assert_eq!(shown["denials"][0]["domain"], "acme");
    assert_eq!(shown["denials"][0]["cause"], "tier 1");
    let pair = served.json("/v1/pairs/api.search/acme");
    assert_eq!(pair["state"]["tier_hits"], 5);
    assert_eq!(pair["denial"]["code"], shown["denials"][0]["code"]);
    assert_eq!(
        served.json("/v1/denials?domain=globex")["denials"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_in_force_and_the_control_topic_send_heartbeats_without_gaps() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 1).await;
    agent.hit(RESOURCE, "acme", 9, 4).await;
    let mut subscriber = Subscriber::connect(served.feed).await;
    let (mut control, mut resource) = (Vec::new(), Vec::new());
    let mut ruled = Vec::new();
    while control.len() < 4 || resource.len() < 4 {
        let (topic, frame) = subscriber.frame().await;
        match topic.as_bytes()[0] {
            b'c' => control.push(frame.sequence),
            _ => resource.push(frame.sequence),
        }
        assert_eq!(frame.evidence.len(), 4, "every partition is ready");
        ruled.push(frame.evidence[0].ruled);
    }
    for sequences in [control, resource] {
        assert!(
            sequences.windows(2).all(|two| two[0] + 1 == two[1]),
            "{sequences:?}"
        );
    }
    assert!(
        ruled.first() < ruled.last(),
        "ticks make places advance: {ruled:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_joins_is_given_what_is_in_force() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 1).await;
    for n in 0..3_000 {
        let (partition, record) = agent.batch(RESOURCE, &format!("tenant-{n}"), 5, 4);
        agent.append(partition, &record).await;
    }
    served.await_json("/v1/denials?limit=0", |shown| shown["omitted"] == 3_000);
    let parts = agent.ask(&[RESOURCE, "api.none"]).await;
    assert!(1 < parts.len(), "3,000 statements do not fit one part");
    let told: usize = parts
        .iter()
        .flat_map(|part| &part.topics)
        .map(|topic| topic.told.len())
        .sum();
    assert_eq!(told, 3_000);
    let topic = &parts[0].topics[0];
    assert_eq!(
        (&*topic.resource, topic.public.kind),
        (RESOURCE, Kind::Rate)
    );
    assert_eq!(topic.public.tiers[0].limit, 5);
    assert!(1 <= topic.sequence);
    let last = parts.last().unwrap().topics.last().unwrap();
    assert_eq!(
        (&*last.resource, last.public.kind, last.sequence),
        ("api.none", Kind::Unconfigured, 0)
    );
    assert!(
        parts
            .iter()
            .all(|part| part.nonce == 9 && part.evidence.len() == 4)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn global_limits_are_ruled_over_all_partitions() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut subscriber = Subscriber::connect(served.feed).await;
    subscriber.frame().await;
    let mut agent = Dealer::connect(served.agents, 1).await;
    for domain in ["a", "b", "c", "d", "e", "f"] {
        agent.hit("api.wide", domain, 1, 4).await;
    }
    loop {
        let (_, frame) = subscriber.frame().await;
        if let Some(told) = frame.told.first() {
            assert_eq!(told.statement.scope, Scope::Resource);
            assert!(
                matches!(told.statement.says, Says::Denied(denial) if denial.cause == Cause::Global)
            );
            break;
        }
    }
    // Every total is in the log, once.
    served.await_json("/readyz", |_| {
        served.metric("tollgate_totals_waiting") == 0.0
    });
    assert_eq!(served.metric("tollgate_totals_total"), 6.0);
    assert_eq!(served.metric("tollgate_totals_out_of_order_total"), 0.0);
}

/// The state of all partitions at one offset each: what a replay must come back to.
fn digests(served: &support::Served) -> Vec<serde_json::Value> {
    let view = served.json("/v1/digests");
    view["partitions"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_9_the_journal_brings_back_the_same_state() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    for n in 0..400 {
        agent
            .hit(RESOURCE, &format!("t{}", n % 90), 1 + n % 3, 4)
            .await;
        agent.hit("api.wide", &format!("t{}", n % 7), 1, 4).await;
    }
    // Everything appended has been ruled, and what followed from it was appended.
    served.await_json("/readyz", |_| {
        served.metric("tollgate_hits_granted_total") + served.metric("tollgate_hits_excess_total")
            >= 1_199.0
            && served.metric("tollgate_totals_waiting") == 0.0
    });
    let granted = served.metric("tollgate_hits_granted_total");
    let denials = served.json("/v1/denials?resource=api.search&limit=1000");
    let before = digests(&served);
    served.signal("KILL");
    served.await_end();

    let again = serve(dir.path(), &[]);
    again.await_ready();
    assert_eq!(again.metric("tollgate_hits_granted_total"), granted);
    let place = |view: &serde_json::Value| -> Vec<(String, String, u64)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let list = view["denials"].as_array().unwrap();
        list.iter()
            .map(|d| {
                (
                    text(&d["domain"]),
                    text(&d["code"]),
                    d["end_us"].as_u64().unwrap(),
                )
            })
            .collect()
    };
    let denials_again = again.json("/v1/denials?resource=api.search&limit=1000");
    assert!(!place(&denials).is_empty());
    assert_eq!(place(&denials_again), place(&denials));
    for (old, new) in before.iter().zip(digests(&again)) {
        assert_eq!(old["log_random"], new["log_random"]);
        assert_eq!(
            old["generation"], new["generation"],
            "killed, and the machine went on"
        );
        assert!(old["offset"].as_u64() <= new["offset"].as_u64());
    }
    // A hit that was counted before the kill is not counted again: the same batch is a duplicate.
    assert_eq!(again.metric("tollgate_entries_duplicate_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_ends_within_5_s_and_nothing_acknowledged_is_lost() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let agents = served.agents;
    let load = tokio::spawn(async move {
        let mut agent = Dealer::connect(agents, 3).await;
        let mut acknowledged = 0u64;
        let mut ids = 0;
        loop {
            // 32 on their way at once; the socket's end ends the load.
            let mut sent = 0;
            for n in 0..32 {
                let (partition, record) = agent.batch("api.wide", &format!("t{n}"), 10, 4);
                ids += 1;
                let mut writer = tollgate_shared::wire::Writer::new();
                let append = FromAgent::Append {
                    id: ids,
                    partition,
                    record: &record,
                };
                append.encode(&mut writer);
                if agent.try_send(writer.as_slice()).await.is_err() {
                    return acknowledged;
                }
                sent += 1;
            }
            for _ in 0..sent {
                match agent.try_receive().await {
                    Some(FromAggregator::Appended { .. }) => acknowledged += 10,
                    Some(_) => {}
                    None => return acknowledged,
                }
            }
        }
    });
    served.await_json("/readyz", |_| {
        5_000.0 < served.metric("tollgate_entries_total")
    });
    served.signal("TERM");
    let (status, took) = served.await_end();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let acknowledged = load.await.unwrap();
    assert!(5_000 < acknowledged);

    let again = serve(dir.path(), &[]);
    again.await_ready();
    let ruled = again.metric("tollgate_entries_total");
    assert!(
        acknowledged as f64 <= ruled,
        "{acknowledged} were acknowledged, {ruled} are there"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agents_may_not_write_is_refused_for_ever_with_a_reason() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 1).await;
    for (partition, record) in [
        (99, &b"\x01\x02"[..]),
        (0, b"\x01\x05"),
        (0, b"\x01\x02\x93"),
        (0, b""),
    ] {
        agent
            .send(&FromAgent::Append {
                id: 1,
                partition,
                record,
            })
            .await;
        let answer = agent.receive().await;
        assert!(
            matches!(&answer, FromAggregator::Refused { reason: Refusal::Never, text, .. } if !text.is_empty()),
            "{answer:?}"
        );
    }
    // What is no message at all is counted, and the connection goes on.
    agent.send_raw(b"\xffgarbage").await;
    agent.hello().await;
    assert_eq!(served.metric("tollgate_link_garbage_total"), 1.0);
    assert_eq!(served.metric("tollgate_link_refused_total"), 4.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limits_file_is_pushed_on_sighup_and_a_bad_one_changes_nothing() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let first = served.json("/v1/limits")["version"].as_u64().unwrap();
    let mut agent = Dealer::connect(served.agents, 1).await;
    agent.hit(RESOURCE, "acme", 5, 4).await;
    served.await_json("/v1/denials", |shown| {
        !shown["denials"].as_array().unwrap().is_empty()
    });

    let path = dir.path().join("limits.toml");
    std::fs::write(
        &path,
        "version = 1\nrules = 1\n[rate.\"api.search\"]\nrat = \"9/m\"\nhard = 7\n",
    )
    .unwrap();
    served.signal("HUP");
    served.line_with("did you mean `rate`");
    served.line_with("hard = 7");
    assert_eq!(served.json("/v1/limits")["version"], first);
    assert_eq!(served.metric("tollgate_limits_file_bad"), 1.0);

    std::fs::write(
        &path,
        "version = 1\nrules = 1\n[rate.\"api.search\"]\nrate = \"9/m\"\n",
    )
    .unwrap();
    served.signal("HUP");
    let limits = served.await_json("/v1/limits", |limits| {
        limits["version"].as_u64() > Some(first)
    });
    assert!(limits["text"].as_str().unwrap().contains("9/m"));
    // The denial is lifted by the version's record: its partition has room again.
    served.await_json("/v1/denials", |shown| {
        shown["denials"].as_array().unwrap().is_empty()
    });
    assert_eq!(served.metric("tollgate_limits_file_bad"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_followed_is_a_warning_and_a_metric() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    served.await_end();
    std::fs::write(dir.path().join("limits.toml"), "version = 1\nrules = 1\n").unwrap();
    std::fs::write(
        dir.path().join("tollgate.toml"),
        "limits.follow_file = false\n",
    )
    .unwrap();
    let mut served = serve(dir.path(), &["--config", "tollgate.toml"]);
    served.line_with("differs from the limits version in force");
    served.await_ready();
    assert_eq!(served.metric("tollgate_limits_file_differs"), 1.0);
    assert!(
        served.json("/v1/limits")["text"]
            .as_str()
            .unwrap()
            .contains("5/m")
    );
}
