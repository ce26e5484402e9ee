//! Codes of one activation, and of refused calls: each is explained, and each call counts under one. Records that the
//! log lacks are reported.

use super::*;

/// Explains a question until the explanation is as expected.
fn awaited(world: &World, args: &[&str], is_complete: impl Fn(&Value) -> bool) -> Value {
    loop {
        let found = world.explain(args);
        if is_complete(&found) {
            return found;
        }
        assert!(wall() < world.at(60_000), "{args:?}: {found:#}");
    }
}

/// A limits activation states the denials of many pairs, numbered one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_that_an_activation_stated_explain_themselves() {
    let mut world = World::new().await;
    let partition = |domain: &String| partition_of_pair("api.six", domain, PARTITIONS);
    let domains = (0..100).map(|n| format!("tenant-{n}"));
    let domains: Vec<String> = domains.filter(|domain| partition(domain) == 0).collect();
    let domains = &domains[..3];
    for domain in domains {
        let hits = [0, 100, 200, 300, 400, 500];
        world.batch("alpha", ("api.six", domain), &hits, None).await;
    }
    for domain in domains {
        awaited(&world, &["api.six", domain], |found| {
            found["denied"] == true
        });
    }
    let codes = |world: &World, cause: &str, version: u64| -> Vec<String> {
        let of_each = domains.iter().map(|domain| {
            let found = awaited(world, &["api.six", domain], |found| {
                found["version"]["number"] == version && found["denial"]["recorded_us"].is_u64()
            });
            assert_eq!(found["denial"]["cause"], cause, "{found:#}");
            found["code"].as_str().expect("a code").to_owned()
        });
        of_each.collect()
    };
    let url = format!("http://{}", world.served.http);
    let operator = |world: &World, args: &[&str]| {
        let all = [args, &["--reason", "a test", "--url", &url]].concat();
        let (exit, stdout, stderr) = run(world.dir.path(), &all);
        assert_eq!(exit, 0, "{stdout}{stderr}");
    };
    let first = number(&world.served.json("/v1/limits")["version"]);
    let lower = LIMITS.replace("6/h", "3/h");
    std::fs::write(world.dir.path().join("limits.toml"), lower).expect("written");
    world.served.signal("HUP");
    let is_new = |limits: &Value| first < number(&limits["version"]);
    let limits = world.served.await_json("/v1/limits", is_new);
    let lowered = codes(&world, "window:0", number(&limits["version"]));
    for domain in domains {
        operator(&world, &["ban", "--everywhere", domain]);
    }
    let banned = domains.iter().map(|domain| {
        awaited(&world, &["api.six", domain], |found| {
            found["denial"]["cause"] == "banned" && found["denial"]["recorded_us"].is_u64()
        })
    });
    let banned = banned.map(|found| found["code"].as_str().expect("a code").to_owned());
    let all: Vec<String> = lowered.iter().cloned().chain(banned).collect();
    assert_eq!(
        all.iter().collect::<std::collections::BTreeSet<_>>().len(),
        6,
        "{all:?}"
    );
    for (code, domain) in all.iter().zip(domains.iter().chain(domains)) {
        let found = world.explain(&[code]);
        assert_eq!(
            (&found["code"], &found["domain"]),
            (&(&**code).into(), &(&**domain).into())
        );
        assert!(found["denial"]["recorded_us"].is_u64(), "{found:#}");
    }
}

/// What agents refused is counted once: for the code under which they refused it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_calls_are_counted_under_one_code_each() {
    let mut world = World::new().await;
    let acme = ("api.second", "acme");
    let first = world.batch("alpha", acme, &[0, 100], None).await;
    let second = world.batch("alpha", acme, &[2_000, 2_100], None).await;
    let partition = partition_of_pair(acme.0, acme.1, PARTITIONS);
    let code = |offset: u64| format!("{partition}-{offset}-1-1");
    let (first, second) = (code(first), code(second));
    let window = Cause::Window(0);
    world
        .refused_under(acme, (window, &first), (5, 200, 900))
        .await;
    // The first of these calls was refused under the first code.
    world
        .refused_under(acme, (window, &second), (4, 950, 2_500))
        .await;
    // The global limit refused these.
    world
        .refused_under(acme, (Cause::Global, &second), (1, 2_500, 2_500))
        .await;
    awaited(&world, &[&second], |found| found["refused"]["calls"] == 4);
    let found = world.explain(&[&first]);
    assert_eq!(number(&found["refused"]["calls"]), 5, "{found:#}");
    assert_eq!(number(&found["statements"][0]["refused_calls"]), 5);

    for domain in ["a", "b", "c"] {
        world
            .batch("alpha", ("api.wide", domain), &[100], None)
            .await;
    }
    let found = awaited(&world, &["api.wide"], |found| found["denied"] == true);
    let code = found["code"].as_str().expect("a code").to_owned();
    for (domain, calls) in [("a", 3), ("d", 4)] {
        let of = (Cause::Global, &*code);
        world
            .refused_under(("api.wide", domain), of, (calls, 600, 700))
            .await;
    }
    let found = awaited(&world, &[&code], |found| found["refused"]["calls"] == 7);
    assert_eq!(number(&found["refused"]["by_agent"][0]["hits"]), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_the_log_lacks_are_reported() {
    let mut world = World::new().await;
    let code = world.denied().await;
    let dir = world.dir.path();
    let exit = |args: &[&str]| {
        let mut all = vec!["explain"];
        all.extend(args);
        let (exit, stdout, stderr) = run(dir, &all);
        assert_eq!(stdout, "");
        (exit, stderr)
    };
    let journal = ["--journal", "tollgate-data"];
    let (code_of_nothing, why) = exit(&["0-999999-0-1", journal[0], journal[1]]);
    assert_eq!(code_of_nothing, 1);
    assert!(why.contains("no record there"), "{why}");
    let other_generation = format!("{}-9", code.rsplit_once('-').unwrap().0);
    let (exit_code, why) = exit(&[&other_generation, journal[0], journal[1]]);
    assert_eq!(exit_code, 1);
    assert!(why.contains("generation"), "{why}");
    assert_eq!(exit(&["9-1-1-1", journal[0], journal[1]]).0, 1);
    assert_eq!(exit(&[&code, "--journal", "nowhere"]).0, 66);
    assert_eq!(exit(&[&code, "--url", "http://127.0.0.1:1"]).0, 69);
    assert_eq!(exit(&["api.search", "acme", "--at", "then"]).0, 64);
    let (status, _) = world.served.get("/v1/explain?code=abc");
    assert_eq!(status, 400);
    let (status, _) = world.served.get("/v1/explain?code=0-999999-0-1");
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_that_are_too_many_to_be_counted_are_mentioned() {
    let mut world = World::new().await;
    let text = world.denied().await;
    let code: Code = text.parse().expect("a code");
    let at = world.at(7_100);
    let report = Refused {
        resource: 0,
        domain: "acme",
        calls: 1,
        copies: 1,
        first: at,
        last: at,
        cause: Cause::Tier(2),
        position: Some(code.position),
    };
    let is_mentioned = |found: &Value| {
        let sentences = found["sentences"].to_string();
        sentences.contains("only the newest 10000 reports of refused calls are counted")
    };
    for (reports, calls, mentioned) in [(6_000, 6_007, false), (6_000, 10_000, true)] {
        let reports = vec![report; reports];
        for batch in reports.chunks(3_000) {
            world.sequence += 1;
            let sender = world.dealers[0].sender(world.sequence);
            let mut writer = Writer::new();
            let (none, batch) = ([].into_iter(), batch.iter().copied());
            write_hits(&mut writer, &sender, &["api.search"], none, batch);
            world.dealers[0]
                .append(code.partition, writer.as_slice())
                .await;
        }
        let found = awaited(&world, &[&text], |found| found["refused"]["calls"] == calls);
        assert_eq!(is_mentioned(&found), mentioned, "{}", found["sentences"]);
    }
}
