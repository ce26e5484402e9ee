//! Tests of `tollgate explain`, on the journal of a real aggregator: why a call was refused, and why it was not; with
//! the same result from the journal, from an export, and by HTTP.

mod clocks;
mod counted;
mod mistyped;
mod older;
mod taken_back;

use std::path::Path;

use serde_json::Value;
use tollgate_shared::log_position::Code;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Refused, write_hits};
use tollgate_shared::wire::statement::Cause;

use crate::support::{Dealer, Served, directory, run, serve, wall};

const LIMITS: &str = r#"
version = 1
rules = 2

# A burst of three beyond five, then a rest of an hour.
[rate."api.search"]
tiers = [
  { limit = 5, window = "4s", active = "1m" },
  { limit = 3, window = "10s", active = "2s", cooldown = "1h" },
]
[rate."api.wide"]
rate = "1000000/s"
global = "3/s"
[rate."api.bucket"]
bucket = { rate = "1/h", burst = 4, debt = 4 }
[rate."api.quota"]
quota = ["3/year"]
[rate."api.dark"]
shadow = true
rate = "1/m"
[rate."api.none"]
rate = "0/s"
[rate."api.allow"]
tiers = []
domains.partner.rate = "9/s"
[rate."api.six"]
rate = "6/h"
domains.shut.rate = "0/s"
[rate."api.second"]
rate = "2/s"
[namespace.closed]
allow_unconfigured = false
"#;

const PARTITIONS: u32 = 4;

/// Two agents that stamp their hits as the test states.
struct World {
    dir: tempfile::TempDir,
    served: Served,
    dealers: [Dealer; 2],
    sequence: u64,
    /// The start of the test's times; some seconds ago, so that stamps are in the past.
    origin: Timestamp,
}

impl World {
    async fn new() -> Self {
        let dir = directory(LIMITS);
        let served = serve(dir.path(), &[]);
        served.await_ready();
        let dealers = [
            Dealer::named(served.agents, "alpha", b'a').await,
            Dealer::named(served.agents, "beta", b'b').await,
        ];
        Self {
            dir,
            served,
            dealers,
            sequence: 0,
            origin: wall().saturating_sub(Span::from_secs(20)),
        }
    }

    fn at(&self, ms: u64) -> Timestamp {
        self.origin.saturating_add(Span::from_millis(ms))
    }

    fn at_us(&self, ms: u64) -> String {
        self.at(ms).as_micros().to_string()
    }

    /// A batch with hits (milliseconds after the origin) and refused calls (calls, between).
    async fn batch(
        &mut self,
        agent: &str,
        (resource, domain): (&str, &str),
        hits: &[u64],
        refused: Option<(u64, u64, u64)>,
    ) -> u64 {
        let refused = refused.map(|(calls, first, last)| Refused {
            resource: 0,
            domain,
            calls,
            copies: calls,
            first: self.at(first),
            last: self.at(last),
            cause: Cause::Tier(1),
            position: None,
        });
        self.send(agent, (resource, domain), hits, refused).await
    }

    /// Reports calls that were refused under a code.
    async fn refused_under(
        &mut self,
        pair: (&str, &str),
        (cause, code): (Cause, &str),
        (calls, first, last): (u64, u64, u64),
    ) {
        let code: Code = code.parse().expect("a code");
        let refused = Refused {
            resource: 0,
            domain: pair.1,
            calls,
            copies: calls,
            first: self.at(first),
            last: self.at(last),
            cause,
            position: Some(code.position),
        };
        self.send("alpha", pair, &[], Some(refused)).await;
    }

    async fn send(
        &mut self,
        agent: &str,
        (resource, domain): (&str, &str),
        hits: &[u64],
        refused: Option<Refused<'_>>,
    ) -> u64 {
        self.sequence += 1;
        let dealer = usize::from(agent == "beta");
        let sender = self.dealers[dealer].sender(self.sequence);
        let hits = hits.iter().map(|ms| Hit::one(0, domain, self.at(*ms), 1));
        let mut writer = Writer::new();
        let hits: Vec<_> = hits.collect();
        let refused: Vec<_> = refused.into_iter().collect();
        write_hits(
            &mut writer,
            &sender,
            &[resource],
            hits.into_iter(),
            refused.into_iter(),
        );
        let partition = partition_of_pair(resource, domain, PARTITIONS);
        self.dealers[dealer]
            .append(partition, writer.as_slice())
            .await
    }

    /// Makes a burst, its cooldown, and the denial that follows; returns the denial's code.
    async fn denied(&mut self) -> String {
        const ACME: (&str, &str) = ("api.search", "acme");
        self.batch("alpha", ACME, &[0, 100, 200, 300, 400], None)
            .await;
        self.batch("beta", ACME, &[1_000, 1_000, 1_000], None).await;
        self.batch("alpha", ACME, &[5_000, 5_000, 5_000], None)
            .await;
        let closed = self.batch("beta", ACME, &[5_400, 5_500], None).await;
        self.batch("beta", ACME, &[6_000, 6_100], None).await;
        self.batch("alpha", ACME, &[], Some((7, 6_500, 7_000)))
            .await;
        let partition = partition_of_pair(ACME.0, ACME.1, PARTITIONS);
        let code = format!("{partition}-{closed}-1-1");
        // It is ruled and recorded once the log has grown beyond it.
        let is_past = |shown: &Value| {
            let of = &shown["partitions"][partition as usize];
            closed + 8 < of["offset"].as_u64().unwrap()
        };
        self.served.await_json("/v1/digests", is_past);
        code
    }

    fn explain(&self, args: &[&str]) -> Value {
        explain(self.dir.path(), &["--journal", "tollgate-data"], args)
    }
}

fn explain(dir: &Path, log: &[&str], args: &[&str]) -> Value {
    let mut all = vec!["explain", "--format", "json"];
    all.extend(args);
    all.extend(log);
    let (exit, stdout, stderr) = run(dir, &all);
    assert_eq!(exit, 0, "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn the_version_is_quoted_and_the_tiers_are_drawn(found: &Value) {
    assert_eq!(found["version"]["text"], Value::Null, "no other resource's");
    let excerpt = found["version"]["excerpt"].as_str().unwrap();
    assert!(excerpt.contains("cooldown = \"1h\""), "{excerpt}");
    assert!(!excerpt.contains("api.wide"), "{excerpt}");
    let picture = found["picture"].as_str().unwrap();
    let row = |name: &str| picture.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(
        row("tier 2").contains("3=") && row("tier 2").contains("--"),
        "{picture}"
    );
    assert!(row("tier 1").contains('='), "{picture}");
    assert!(row("excess").contains('1'), "{picture}");
}

/// The same by HTTP, from an export, and in words.
fn other_sources_explain_the_same(world: &World, code: &str, found: &Value) {
    let by_http = world.served.json(&format!("/v1/explain?code={code}"));
    for same in ["denial", "window", "tiers", "sentences", "statements"] {
        assert_eq!(by_http[same], found[same], "{same}");
    }
    let dir = world.dir.path();
    let args = ["audit", "export", "--journal", "tollgate-data", "-o", "all"];
    assert_eq!(run(dir, &args).0, 0);
    assert_eq!(
        explain(dir, &["--export", "all"], &[code])["window"],
        found["window"]
    );
    let url = format!("http://{}", world.served.http);
    let (exit, text, _) = run(dir, &["explain", code, "--url", &url]);
    assert_eq!(exit, 0);
    for expected in [
        "tier 1 was full (5 in 4s)",
        "tier 2 was cooling down until",
        "by a hit of beta",
        "agents refused 7 calls",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_is_explained_by_its_limit_hits_and_burst() {
    let mut world = World::new().await;
    let code = world.denied().await;
    let found = world.explain(&[&code]);
    assert_eq!(found["schema"], "tollgate.explain/1");
    assert_eq!(
        (&found["denied"], &found["reason"]),
        (&true.into(), &"tier".into())
    );
    assert_eq!(
        (&found["resource"], &found["domain"]),
        (&"api.search".into(), &"acme".into())
    );
    assert_eq!(found["code"], code.as_str());
    let denial = &found["denial"];
    assert_eq!(
        (&denial["cause"], &denial["limit"]),
        (&"tier 1".into(), &5.into())
    );
    assert_eq!(number(&denial["since_us"]), world.at(5_500).as_micros());
    // The first hit of the window, which came at 5.0 s, leaves it after 4 s.
    assert_eq!(number(&denial["until_us"]), world.at(9_000).as_micros() + 1);
    assert!(denial["recorded_us"].is_u64(), "{denial}");

    let window = &found["window"];
    assert_eq!(number(&window["hits"]), 5);
    assert_eq!(window["by_agent"][0]["agent"], "alpha");
    assert_eq!(number(&window["by_agent"][0]["hits"]), 3);
    assert_eq!(number(&window["by_agent"][1]["hits"]), 2);
    assert_eq!(number(&window["from_us"]), world.at(5_000).as_micros());

    let burst = &found["tiers"][1];
    assert_eq!(burst["phase"], "cooling");
    assert_eq!(burst["entered_by"], "beta");
    assert_eq!(number(&burst["entered_us"]), world.at(1_000).as_micros());
    assert_eq!(
        number(&burst["cooling_until_us"]),
        world.at(1_000 + 2_000 + 3_600_000).as_micros()
    );
    assert_eq!(number(&found["excess"]["hits"]), 2);
    assert_eq!(found["excess"]["by_agent"][0]["agent"], "beta");
    assert_eq!(number(&found["refused"]["calls"]), 7);
    the_version_is_quoted_and_the_tiers_are_drawn(&found);
    other_sources_explain_the_same(&world, &code, &found);

    // By the pair and an instant, and by the pair alone.
    let at = world.at_us(8_000);
    for args in [
        vec!["api.search", "acme", "--at", &at],
        vec!["api.search", "acme"],
    ] {
        assert_eq!(world.explain(&args)["code"], code.as_str(), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_not_refused_is_explained_too() {
    let mut world = World::new().await;
    let dark = ("api.dark", "acme");
    let late = ("api.search", "late");
    let shut = ("api.allow", "stranger");
    world.batch("alpha", shut, &[1_000], None).await;
    world.batch("alpha", dark, &[0, 100], None).await;
    world
        .batch("alpha", ("free.thing", "acme"), &[0], None)
        .await;
    world.batch("alpha", late, &[3_000], None).await;
    world.batch("beta", late, &[500], None).await;
    world.denied().await;
    let reason = |pair: (&str, &str), ms: u64| {
        let at = world.at_us(ms);
        let found = world.explain(&[pair.0, pair.1, "--at", &at]);
        found["reason"].as_str().unwrap().to_owned()
    };
    let acme = ("api.search", "acme");
    assert_eq!(reason(acme, 200), "room");
    assert_eq!(reason(acme, 6_100), "within_delay");
    assert_eq!(
        reason(acme, 6_700),
        "tier",
        "refused calls are no calls let through"
    );
    assert_eq!(reason(acme, 15_000), "no_call");
    assert_eq!(reason(dark, 100), "shadow");
    assert_eq!(reason(("api.none", "acme"), 100), "inaccessible");
    assert_eq!(reason(("api.six", "shut"), 100), "inaccessible");
    assert_eq!(reason(("api.six", "other"), 100), "no_call");
    assert_eq!(reason(shut, 999), "excess", "it let nobody in");
    assert_eq!(reason(("closed.door", "acme"), 100), "unconfigured");
    assert_eq!(reason(("free.thing", "acme"), 0), "no_limit");
    assert_eq!(reason(late, 500), "late");
    assert_eq!(reason(late, 3_000), "room");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_global_limit_names_the_agents_whose_hits_filled_it() {
    let mut world = World::new().await;
    for (agent, domain) in [("alpha", "a"), ("alpha", "b"), ("beta", "c")] {
        world.batch(agent, ("api.wide", domain), &[100], None).await;
    }
    let found = loop {
        let found = world.explain(&["api.wide"]);
        if found["denied"] == true {
            break found;
        }
        assert!(wall() < world.at(60_000), "{found:#}");
    };
    assert_eq!(found["reason"], "global");
    assert_eq!(number(&found["window"]["hits"]), 3);
    assert_eq!(found["window"]["by_agent"][0]["agent"], "alpha");
    assert_eq!(number(&found["window"]["by_agent"][0]["hits"]), 2);
    // A domain that was not denied itself was refused because of all domains' global limit.
    let at = world.at_us(600);
    let found = world.explain(&["api.wide", "c", "--at", &at]);
    assert_eq!(
        (&found["reason"], &found["domain"]),
        (&"global".into(), &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_and_a_quota_name_the_newest_hits_that_used_them_up() {
    let mut world = World::new().await;
    for resource in ["api.bucket", "api.quota"] {
        let pair = (resource, "acme");
        world.batch("alpha", pair, &[0, 100], None).await;
        world.batch("beta", pair, &[200, 300, 400, 500], None).await;
    }
    let explained = |resource: &str, hits: u64| loop {
        let found = world.explain(&[resource, "acme"]);
        if found["window"]["hits"] == hits {
            break found;
        }
        assert!(wall() < world.at(60_000), "{found:#}");
    };
    // The bucket's end moves with its debt of two; the quota's does not, and is stated with the third hit.
    for (resource, reason, lane, by_agent) in [
        (
            "api.bucket",
            "bucket",
            "bucket        4 at 1 in 1h",
            [("beta", 4), ("alpha", 2)],
        ),
        (
            "api.quota",
            "quota",
            "quota:0       3 a year",
            [("alpha", 2), ("beta", 1)],
        ),
    ] {
        let hits = by_agent.iter().map(|(_, hits)| hits).sum();
        let found = explained(resource, hits);
        assert_eq!(found["reason"], reason);
        let of: Vec<(&str, u64)> = { found["window"]["by_agent"].as_array().unwrap().iter() }
            .map(|of| (of["agent"].as_str().unwrap(), number(&of["hits"])))
            .collect();
        assert_eq!(of, by_agent);
        let picture = found["picture"].as_str().unwrap();
        let row = picture.lines().find(|line| line.starts_with(lane));
        assert!(row.is_some_and(|row| row.contains('#')), "{picture}");
        let sentences = found["sentences"].to_string();
        assert!(
            sentences.contains(&format!("{hits} hits used it up between")),
            "{sentences}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_after_a_reset_or_ban_are_explained_as_ruled() {
    let mut world = World::new().await;
    let acme = ("api.quota", "acme");
    let url = format!("http://{}", world.served.http);
    let act = |world: &World, verb: &str| {
        let args = [verb, acme.0, acme.1, "--reason", "a test", "--url", &url];
        let (exit, stdout, stderr) = run(world.dir.path(), &args);
        assert_eq!(exit, 0, "{stdout}{stderr}");
        assert!(!stdout.contains("not in force"), "{stdout}");
    };
    world.batch("alpha", acme, &[0, 100, 200, 300], None).await;
    act(&world, "reset");
    let now = |world: &World| wall().since(world.origin).as_micros() / 1_000 + 1;
    let reset = now(&world);
    world.batch("beta", acme, &[reset], None).await;
    // Of the four hits before the reset none counts any more.
    let found = world.explain(&[acme.0, acme.1, "--at", &world.at_us(reset)]);
    let call = &found["call"];
    assert_eq!((number(&call["granted"]), number(&call["excess"])), (1, 0));
    assert_eq!(found["denial"], Value::Null, "not banned yet: {found:#}");
    act(&world, "ban");
    let banned = now(&world);
    world.batch("alpha", acme, &[banned], None).await;
    let at = world.at_us(banned);
    let found = loop {
        let found = world.explain(&[acme.0, acme.1, "--at", &at]);
        if found["excess"]["hits"] == 1 {
            break found;
        }
        assert!(wall() < world.at(60_000), "{found:#}");
    };
    // There was room for the hit that came after the ban, and it is excess all the same.
    assert_eq!(found["denial"]["cause"], "banned");
    assert_eq!(found["excess"]["by_agent"][0]["agent"], "alpha");
    assert_eq!(number(&found["constraints"][0]["counted"]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_ends_a_denial_when_it_was_recorded_and_not_before() {
    let mut world = World::new().await;
    let acme = ("api.quota", "acme");
    let url = format!("http://{}", world.served.http);
    let act = |world: &World, verb: &str, domain: &str| {
        let args = [verb, acme.0, domain, "--reason", "a test", "--url", &url];
        let (exit, stdout, stderr) = run(world.dir.path(), &args);
        assert_eq!(exit, 0, "{stdout}{stderr}");
    };
    world.batch("alpha", acme, &[0, 100, 200], None).await;
    let asked = |world: &World, ms: u64| {
        let at = world.at_us(ms);
        world.explain(&[acme.0, acme.1, "--at", &at])
    };
    let denied = |found: &Value| found["denial"]["cause"] == "quota:0";
    let deadline = wall().saturating_add(Span::from_secs(60));
    while !denied(&asked(&world, 5_000)) {
        assert!(wall() < deadline, "{:#}", asked(&world, 5_000));
    }
    let before = asked(&world, 5_000);
    act(&world, "reset", acme.1);
    // A ban of a domain that has made no call begins with the ban.
    let banned_at = wall().as_micros();
    act(&world, "ban", "fresh");
    let ban = world.explain(&[acme.0, "fresh"]);
    let since = number(&ban["denial"]["since_us"]);
    assert!(banned_at - 1_000 <= since, "{ban:#}");
    // Twenty seconds ago it was denied, although it no longer is.
    let after = asked(&world, 5_000);
    assert_eq!(
        after["denial"]["cause"], before["denial"]["cause"],
        "{after:#}"
    );
    assert_eq!(after["denial"]["since_us"], before["denial"]["since_us"]);
    let now = wall()
        .saturating_add(Span::from_secs(1))
        .as_micros()
        .to_string();
    let open = world.explain(&[acme.0, acme.1, "--at", &now]);
    assert_eq!(open["denial"], Value::Null, "{open:#}");
}
