//! Copies of a resource that limits do not limit for a while: they count on, so that none is granted twice.

use std::path::Path;
use std::time::Duration;

use tollgate_agent::{Agent, Copies, Hold, Refused};

use crate::support::{DEADLINE, Served, directory, run, serve};

const WITHOUT: &str = "version = 1\nrules = 2\n[copies.other]\nlimit = 1\n";
const WITH: &str = "[copies.strict]\nlimit = 4\nreserve = \"strict\"\n";

/// An agent that knows the limits of now, and its handle.
async fn fresh(served: &Served, name: &str) -> (Agent, Copies) {
    let agent = Agent::builder().name(name);
    let agent = agent.aggregator(served.agents.to_string()).build();
    let agent = agent.expect("good settings");
    let copies = agent.copies("strict");
    assert!(agent.ready(DEADLINE).await, "{name} knows the limits");
    (agent, copies)
}

async fn take(copies: &Copies, count: u32) -> Result<Hold, Refused> {
    copies.reserve_confirmed("acme", count, DEADLINE).await
}

/// Brings a document into force in every partition.
fn push(served: &Served, dir: &Path, text: &str) {
    let before = served.json("/v1/limits")["version"].as_u64();
    std::fs::write(dir.join("limits.toml"), text).expect("written");
    served.signal("HUP");
    served.await_json("/v1/digests", |digests| {
        let rows = digests["partitions"].as_array().expect("partitions");
        rows.iter().all(|row| before < row["version"].as_u64())
    });
}

/// The model rules the whole log as it was ruled.
fn assert_audited(dir: &Path) {
    let audit = ["audit", "--journal", "tollgate-data", "--model", "all"];
    let json = ["--format", "json", "-q"];
    let (code, out, err) = run(dir, &[&audit[..], &json].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("\"equal\":true"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_limits_that_are_gone_for_a_while_are_not_granted_again() {
    let both = format!("{WITHOUT}{WITH}");
    let dir = directory(&both);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (_first, holder) = fresh(&served, "first").await;
    let mut held = take(&holder, 4).await.expect("room");
    let staged = held.transfer(2, Duration::from_secs(60)).expect("it has 2");
    for round in 0..3 {
        push(&served, dir.path(), WITHOUT);
        let kept = served.await_json("/v1/holds?resource=strict", |answer| {
            answer["holds"].as_array().map(Vec::len) == Some(2)
        });
        assert_eq!(kept["resources"][0]["copies"], 4, "{round}: {kept}");
        push(&served, dir.path(), &both);
        // At once, before the first agent has listed what it holds.
        let (_other, copies) = fresh(&served, &format!("other-{round}")).await;
        let granted = take(&copies, 1).await.ok();
        assert!(granted.is_none(), "{round}: beside 4 of 4");
    }
    let (_last, copies) = fresh(&served, "last").await;
    let seized = copies.seize(staged).await.expect("still staged");
    assert_eq!(seized.copies(), 2);
    push(&served, dir.path(), WITHOUT);
    drop((held, seized));
    served.await_json("/v1/holds?resource=strict", |answer| {
        answer["resources"].as_array().is_some_and(Vec::is_empty)
    });
    push(&served, dir.path(), &both);
    let (_all, copies) = fresh(&served, "all").await;
    assert!(take(&copies, 4).await.is_ok(), "all were given back");
    assert_audited(dir.path());
}

/// Which of these domains a new agent refuses.
async fn refused(served: &Served, name: &str) -> Vec<&'static str> {
    let (agent, copies) = fresh(served, name).await;
    let mut refused = Vec::new();
    for domain in DOMAINS {
        if let Err(why) = copies.reserve_confirmed(domain, 1, DEADLINE).await {
            println!("{name}: {domain}: {why}");
            refused.push(domain);
        }
    }
    // What it took is given back before the next agent asks.
    agent.shutdown(DEADLINE).await;
    refused
}

/// Their pairs are ruled in several partitions, and their copies counted in one.
const DOMAINS: [&str; 4] = ["acme", "globex", "hooli", "initech"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_hold_until_they_are_ended_whatever_the_limits() {
    let both = format!("{WITHOUT}{WITH}");
    let dir = directory(&both);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let act = |act: &str, domain: &str| {
        let args = [act, "strict", domain, "--reason", "x", "--url", &url];
        let (code, out, err) = run(dir.path(), &args);
        assert_eq!(code, 0, "{act} {domain}: {out}{err}");
    };
    for domain in ["acme", "globex", "hooli"] {
        act("ban", domain);
    }
    assert_eq!(
        refused(&served, "limited").await,
        ["acme", "globex", "hooli"]
    );
    push(&served, dir.path(), WITHOUT);
    assert_eq!(refused(&served, "out").await, ["acme", "globex", "hooli"]);
    act("unban", "acme");
    act("unban", "globex");
    assert_eq!(refused(&served, "ended").await, ["hooli"]);
    push(&served, dir.path(), &both);
    assert_eq!(refused(&served, "again").await, ["hooli"]);
    act("unban", "hooli");
    assert_eq!(refused(&served, "none").await, [""; 0]);
    assert_audited(dir.path());
}
