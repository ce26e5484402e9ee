//! Calls of more copies than a domain's limit, after an operator's act.

use super::*;

/// A ban is a limits version that leaves limits as they are, so a denial's limit holds on under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_ban_of_another_domain_large_calls_are_refused_as_before() {
    let limits = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"10/s\"\ndomains.big.rate = \"none\"\n\
                  [rate.\"api.export\"]\nrate = \"10/s\"\n";
    let world = World::of(limits, "").await;
    world.done("ban api.export mallory");
    let later = Agent::builder()
        .name("later")
        .aggregator(world.served.agents.to_string())
        .build()
        .expect("good settings");
    let search = later.rate("api.search");
    assert!(later.ready(DEADLINE).await, "it hears the aggregator");
    let _ = search.hit_n("acme", 5_000).expect("its limit is not known");
    until("it is denied", || is_denied(&search, "acme")).await;
    until("it is open again", || !is_denied(&search, "acme")).await;
    let again = search.hit_n("acme", 5_000);
    let Err(Refused::TooMany(too_many)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(too_many.most(), 10);
}

/// Of copies, too: a tenant whose own limit is small took as many as the one with most, each time that it held none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_that_was_full_never_takes_more_copies_than_its_own_limit() {
    let limits = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"10/s\"\n[rate.\"api.export\"]\nrate = \"10/s\"\n\
                  [copies.sandbox]\nlimit = 3\ndomains.big = 30\n";
    let world = World::of(limits, "").await;
    let sandbox = world.agent.copies("sandbox");
    let own = sandbox.reserve("acme", 3).expect("it has room");
    until("it is denied", || sandbox.peek("acme").is_err()).await;
    drop(own);
    until("it is open again", || sandbox.peek("acme").is_ok()).await;
    let again = sandbox.reserve("acme", 20);
    let Err(Refused::TooMany(too_many)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(too_many.most(), 3);
    assert!(sandbox.reserve("big", 20).is_ok());
    // Its limit is raised: the next refusal makes the agent ask.
    world.done("limits set sandbox --domain acme --limit 20");
    until("the agent knows", || sandbox.reserve("acme", 20).is_ok()).await;
}
