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
