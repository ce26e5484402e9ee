//! Networks in the limits of copies.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_limits_the_copies_of_each_of_its_addresses() {
    let world = World::new().await;
    world.done("limits set sandbox --domain 10.1.0.0/16 --limit 1");
    let sandbox = world.agent.copies("sandbox");
    let mut held = Vec::new();
    for domain in ["10.1.2.3", "10.1.2.4", "10.2.0.1"] {
        let one = sandbox.reserve(domain, 1).expect("room");
        assert_eq!(one.confirmed().await, Confirmation::Confirmed, "{domain}");
        held.push(one);
    }
    until("addresses of the network are full", || {
        ["10.1.2.3", "10.1.2.4"]
            .iter()
            .all(|domain| sandbox.peek(domain).is_err())
    })
    .await;
    assert!(sandbox.peek("10.2.0.1").is_ok(), "2 is its limit");
    assert_eq!(world.audit()["equal"], true);
}
