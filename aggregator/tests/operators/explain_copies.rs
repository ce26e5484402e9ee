//! `tollgate explain` for copy limits: what was full, by which holds, and when it had room again.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_agent::{Agent, Confirmation, Copies, Denied, Hold, Refused};
use tollgate_shared::log_position::Code;
use tollgate_shared::wire::statement::Cause;
use tollgate_shared::wire::{Writer, hits};

use crate::support::{DEADLINE, Dealer, Served, directory, run, serve, wall};

const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 3
groups.probation = { limit = 4, members = ["new-1", "new-2"] }
"#;

pub(crate) async fn sandbox(served: &Served, name: &str) -> (Agent, Copies) {
    on(served, name, "sandbox").await
}

async fn on(served: &Served, name: &str, resource: &str) -> (Agent, Copies) {
    let agent = Agent::builder()
        .name(name)
        .aggregator(served.agents.to_string())
        .build()
        .expect("good settings");
    let copies = agent.copies(resource);
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

const SHARED: &str = r#"
version = 1
rules = 2
[copies.shared]
limit = 2
global = 3
groups.probation = { limit = 2, members = ["b"] }
"#;

/// A directory with a journal, and the code of a hold of two copies that filled `b`, its group, and all domains
/// together. By now all of them have room again.
async fn filled_at_once() -> (tempfile::TempDir, String) {
    let dir = directory(SHARED);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (_web, copies) = on(&served, "web", "shared").await;
    let first = take(&copies, "a", 1).await;
    // Fills b, its group, and all domains together.
    let second = take(&copies, "b", 2).await;
    let denied = until(&copies, "zed", true).await.expect("full");
    let code = denied.code().expect("stated").to_string();
    drop(first);
    until(&copies, "zed", false).await;
    drop(second);
    until(&copies, "b", false).await;
    (dir, code)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_of_several_denials_is_explained_by_each_of_them() {
    let (dir, code) = filled_at_once().await;
    let found = explain(dir.path(), &[&code]);
    assert_eq!(
        (&found["code"], &found["domain"]),
        (&code.clone().into(), &"b".into())
    );
    assert_eq!(found["denial"]["limit"], 2, "{found:#}");
    assert_eq!(holders(&found), [("web", 2)]);
    let others = found["same_code"].as_array().expect("a list");
    let named = |of: &Value| {
        (
            of["scope"].clone(),
            of["group"].clone(),
            of["denial"]["limit"].clone(),
        )
    };
    let named: Vec<_> = others.iter().map(named).collect();
    let group = ("group".into(), "probation".into(), 2.into());
    assert_eq!(named, [group, ("resource".into(), Value::Null, 3.into())]);
    let of_all = &others[1];
    assert_eq!(holders(of_all), [("web", 3)]);
    // All domains together had room again before `b` had.
    let until = |of: &Value| of["denial"]["until_us"].as_u64().expect("it was lifted");
    assert!(until(of_all) < until(&found), "{found:#}");
    assert!(of_all["denial"]["recorded_us"].is_u64(), "{found:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_denial_of_a_code_has_sentences_of_its_own() {
    let (dir, code) = filled_at_once().await;
    let found = explain(dir.path(), &[&code]);
    let sentences = found["sentences"].as_array().expect("a list");
    let said = |start: &str, end: &str| {
        let mut all = sentences.iter().filter_map(Value::as_str);
        all.any(|one| one.starts_with(start) && one.contains(end))
    };
    let list = "caused 3 denials, which have the same code: \
                shared of b; group probation of shared; shared of all domains together";
    assert!(
        said("a hold of web: 2 copies for b (offset", list),
        "{found:#}"
    );
    assert!(
        said("shared of b was full", "its limit is 2 copies"),
        "{found:#}"
    );
    let of_all = "shared of all domains together was full";
    assert!(said(of_all, "its limit is 3 copies"), "{found:#}");
    assert!(
        said("3 copies of it were held then: 3 by web", ""),
        "{found:#}"
    );

    let (_, text, _) = run(
        dir.path(),
        &["explain", &code, "--journal", "tollgate-data"],
    );
    let (_, of_all) = text
        .split_once("also denied  all domains together, under the same code\n")
        .expect("the denial of all domains");
    assert!(
        of_all.starts_with("limit        3 copies at a time\n"),
        "{text}"
    );
}

/// Who held copies when the denial began, not who holds them by now; and how many calls were refused under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_domain_is_explained_as_of_its_denial() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (_web, ours) = sandbox(&served, "web").await;
    let (_job, theirs) = sandbox(&served, "job").await;
    let _kept = take(&ours, "acme", 2).await;
    let released = take(&theirs, "acme", 1).await;
    until(&theirs, "acme", true).await;
    let code = |denied: Option<Denied>| denied.and_then(|denied| denied.code());
    let before = code(until(&ours, "acme", true).await);
    let lowered = LIMITS.replace("limit = 3", "limit = 1");
    let first = served.json("/v1/limits")["version"].as_u64();
    std::fs::write(dir.path().join("limits.toml"), lowered).expect("written");
    served.signal("HUP");
    served.await_json("/v1/limits", |limits| first < limits["version"].as_u64());
    // The denial under the new limit has a code of its own.
    let end = Instant::now() + DEADLINE;
    while code(until(&ours, "acme", true).await) == before {
        assert!(Instant::now() < end, "{before:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for _ in 0..4 {
        assert!(ours.reserve("acme", 1).is_err(), "it is full");
    }
    drop(released);
    served.await_json("/v1/holds", |shown| {
        shown["holds"]
            .as_array()
            .is_some_and(|holds| holds.len() == 1)
    });
    let end = Instant::now() + DEADLINE;
    let found = loop {
        let found = explain(dir.path(), &["sandbox", "acme"]);
        if found["refused"]["calls"] == 4 {
            break found;
        }
        assert!(Instant::now() < end, "{found:#}");
    };
    assert_eq!(holders(&found), [("web", 2), ("job", 1)], "{found:#}");
    let code = found["code"].as_str().expect("a code");
    let by_code = explain(dir.path(), &[code]);
    for same in ["holders", "refused", "statements", "sentences"] {
        assert_eq!(by_code[same], found[same], "{same}");
    }
    let url = format!("http://{}", served.http);
    let kill = [
        "namespaces",
        "kill",
        "sandbox",
        "--reason",
        "a test",
        "--url",
        &url,
    ];
    let (exit, stdout, stderr) = run(dir.path(), &kill);
    assert_eq!(exit, 0, "{stdout}{stderr}");
    let found = explain(dir.path(), &["sandbox", "acme"]);
    assert_eq!(
        (&found["denied"], &found["reason"]),
        (&false.into(), &"ignored".into())
    );
    let sentence = found["sentences"][0].as_str().expect("a sentence");
    assert!(
        sentence.contains("its namespace ignores limits"),
        "{sentence}"
    );
}

/// However many calls under other codes agents report at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_reservations_under_a_code_are_all_counted() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let (_web, copies) = sandbox(&served, "web").await;
    let _kept = take(&copies, "acme", 3).await;
    let denied = until(&copies, "acme", true).await.expect("full");
    let text = denied.code().expect("stated").to_string();
    let code: Code = text.parse().expect("a code");

    let now = wall();
    let report = |domain, position| hits::Refused {
        resource: 0,
        domain,
        calls: 2,
        copies: 3,
        first: now,
        last: now,
        cause: Cause::Full,
        position,
    };
    let ours = std::iter::repeat_n(report("acme", Some(code.position)), 3);
    let others = std::iter::repeat_n(report("other", None), 12_000);
    let reports: Vec<_> = ours.chain(others).collect();
    let mut dealer = Dealer::connect(served.agents, b'r').await;
    for (sequence, batch) in (1..).zip(reports.chunks(5_000)) {
        let mut writer = Writer::new();
        let (sender, batch) = (dealer.sender(sequence), batch.iter().copied());
        let none = [].into_iter();
        hits::write_hits(&mut writer, &sender, &["sandbox"], none, batch);
        dealer.append(code.partition, writer.as_slice()).await;
    }
    for question in [&[&*text][..], &["sandbox", "acme"]] {
        let found = explain(dir.path(), question);
        let refused = &found["refused"];
        assert_eq!(
            (&refused["calls"], &refused["hits"]),
            (&6.into(), &9.into()),
            "{question:?}: {found:#}"
        );
        assert_eq!(refused["by_agent"][0]["agent"], "by-hand", "{found:#}");
    }
}
