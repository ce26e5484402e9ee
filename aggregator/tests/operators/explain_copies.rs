//! `tollgate explain` for copy limits: what was full, by which holds, and when it had room again.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_agent::{Agent, Confirmation, Copies, Denied, Hold, Refused};

use crate::support::{DEADLINE, Served, directory, run, serve};

const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 3
groups.probation = { limit = 4, members = ["new-1", "new-2"] }
"#;

pub(crate) async fn sandbox(served: &Served, name: &str) -> (Agent, Copies) {
    let agent = Agent::builder()
        .name(name)
        .aggregator(served.agents.to_string())
        .build()
        .expect("good settings");
    let copies = agent.copies("sandbox");
    assert!(agent.ready(DEADLINE).await, "{name} hears the aggregator");
    (agent, copies)
}

pub(crate) async fn take(copies: &Copies, domain: &str, n: u32) -> Hold {
    let hold = copies.reserve(domain, n).expect("room");
    assert_eq!(hold.confirmed().await, Confirmation::Confirmed);
    hold
}

/// Waits until a domain is denied, or is not denied any more.
pub(crate) async fn until(copies: &Copies, domain: &str, wanted: bool) -> Option<Denied> {
    let end = Instant::now() + DEADLINE;
    loop {
        let denied = match copies.peek(domain) {
            Err(Refused::Denied(denied)) => Some(denied),
            _ => None,
        };
        if denied.is_some() == wanted {
            return denied;
        }
        assert!(Instant::now() < end, "{domain}: {denied:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn explain(dir: &Path, args: &[&str]) -> Value {
    let all = [
        &["explain", "--format", "json"],
        args,
        &["--journal", "tollgate-data"],
    ]
    .concat();
    let (exit, stdout, stderr) = run(dir, &all);
    assert_eq!(exit, 0, "{stdout}{stderr}");
    serde_json::from_str(&stdout).expect("an object")
}

fn holders(found: &Value) -> Vec<(&str, u64)> {
    let list = found["holders"].as_array().expect("a list").iter();
    list.map(|of| {
        (
            of["agent"].as_str().unwrap_or("-"),
            of["copies"].as_u64().expect("copies"),
        )
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_domains_and_groups_are_explained_by_their_holds() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (_web, ours) = sandbox(&served, "web").await;
    let (_job, theirs) = sandbox(&served, "job").await;

    let first = take(&ours, "acme", 2).await;
    let second = take(&theirs, "acme", 1).await;
    let denied = until(&theirs, "acme", true).await.expect("full");
    let code = denied.code().expect("stated").to_string();
    let found = explain(dir.path(), &[&code]);
    assert_eq!(
        (&found["denied"], &found["reason"]),
        (&true.into(), &"full".into()),
        "{found:#}"
    );
    assert_eq!(
        (&found["code"], &found["domain"]),
        (&code.clone().into(), &"acme".into())
    );
    assert_eq!(
        (&found["denial"]["limit"], &found["denial"]["until_us"]),
        (&3.into(), &Value::Null)
    );
    assert_eq!(holders(&found), [("web", 2), ("job", 1)]);
    let sentence = found["sentences"][1].as_str().expect("a sentence");
    assert!(
        sentence.contains("a hold of job: 1 copies for acme"),
        "{sentence}"
    );

    drop(second);
    until(&theirs, "acme", false).await;
    let found = explain(dir.path(), &[&code]);
    assert!(found["denial"]["until_us"].is_u64(), "{found:#}");
    assert_eq!(found["statements"][1]["says"], "open");
    let now = explain(dir.path(), &["sandbox", "acme"]);
    assert_eq!(
        (&now["denied"], &now["reason"]),
        (&false.into(), &"room".into()),
        "{now:#}"
    );
    assert_eq!(holders(&now), [("web", 2)]);

    let of_new = [
        take(&ours, "new-1", 3).await,
        take(&theirs, "new-2", 1).await,
    ];
    until(&theirs, "new-2", true).await;
    let found = explain(dir.path(), &["sandbox", "new-2"]);
    assert_eq!(found["reason"], "full", "{found:#}");
    let sentence = found["sentences"][0].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("group probation of sandbox was full"),
        "{sentence}"
    );
    assert_eq!(holders(&found), [("web", 3), ("job", 1)]);
    let (_, text, _) = run(
        dir.path(),
        &["explain", "sandbox", "new-2", "--journal", "tollgate-data"],
    );
    assert!(text.contains("limit        4 copies at a time"), "{text}");
    drop((first, of_new));
}
