//! Hits that were taken back count in no window, and a call without room is not said to have had some.

use super::*;

/// Explains a pair until it is denied, and returns the hits of its window by agent.
fn filled_by(world: &World, pair: (&str, &str), offset: u64) -> Vec<(String, u64)> {
    loop {
        let found = world.explain(&[pair.0, pair.1]);
        let code = found["code"].as_str().unwrap_or_default();
        if code.contains(&format!("-{offset}-")) {
            let agents = found["window"]["by_agent"].as_array().expect("agents");
            let agents = agents.iter();
            let hits = agents.map(|of| {
                let agent = of["agent"].as_str().expect("an agent");
                (agent.to_owned(), number(&of["hits"]))
            });
            return hits.collect();
        }
        assert!(wall() < world.at(60_000), "{found:#}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_that_an_operator_took_back_filled_no_window() {
    let mut world = World::new().await;
    let url = format!("http://{}", world.served.http);
    // A window of an hour, and a tier of four seconds.
    for (resource, limit) in [("api.six", 6), ("api.search", 5)] {
        let pair = (resource, "refunded");
        world.batch("alpha", pair, &[0, 100, 200], None).await;
        let args = [
            "refund", pair.0, pair.1, "2", "--reason", "a test", "--url", &url,
        ];
        let (exit, stdout, stderr) = run(world.dir.path(), &args);
        assert_eq!(exit, 0, "{stdout}{stderr}");
        let hits: Vec<u64> = (1..limit).map(|n| 300 + n).collect();
        world.batch("beta", pair, &hits, None).await;
        // In tiers, these three fill the next tier, so that the pair is denied.
        let closing = match resource {
            "api.search" => world.batch("beta", pair, &[400, 400, 400], None).await,
            _ => continue,
        };
        let by_agent = filled_by(&world, pair, closing);
        assert_eq!(by_agent, [("beta".to_owned(), 3)], "the second tier's");
    }
    let six = ("api.six", "refunded");
    let found = world.explain(&[six.0, six.1]);
    let hits = &found["window"]["hits"];
    assert_eq!(number(hits), 6, "{found:#}");
    let sentences = found["sentences"].to_string();
    assert!(sentences.contains("5 by beta, 1 by alpha"), "{sentences}");
    // After the call, the first tier had one hit left of alpha, and one of beta.
    let search = ("api.search", "refunded");
    let found = world.explain(&[search.0, search.1, "--at", &world.at_us(301)]);
    let sentences = found["sentences"].to_string();
    assert!(sentences.contains("tier 1: 2 of 5 in 4s"), "{sentences}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_too_many_hits_is_refused_without_a_denial() {
    let mut world = World::new().await;
    let acme = ("api.second", "acme");
    world.batch("alpha", acme, &[0], None).await;
    let refused = Refused {
        resource: 0,
        domain: acme.1,
        calls: 4,
        copies: 12,
        first: world.at(5_000),
        last: world.at(6_000),
        cause: Cause::TooMany,
        position: None,
    };
    world.send("alpha", acme, &[], Some(refused)).await;
    let at = world.at_us(5_500);
    for args in [&[acme.0, acme.1][..], &[acme.0, acme.1, "--at", &at]] {
        let found = world.explain(args);
        assert_eq!(found["reason"], "too-many", "{found:#}");
        let sentences = found["sentences"].to_string();
        let expected = "agents refused 4 calls that wanted more hits at once than its limits can ever grant (2)";
        assert!(sentences.contains(expected), "{sentences}");
    }
}
