//! Bans of addresses, which operators and gateways may spell in different ways.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_of_an_address_has_its_canonical_spelling() {
    let world = World::new().await;
    let search = world.agent.rate("api.search");
    world.done("ban api.search 2001:DB8:7:0::9");
    until("it is banned", || is_denied(&search, "2001:db8:7::9")).await;
    world.done("unban api.search 2001:0DB8:7::9");
    until("it is not banned", || !is_denied(&search, "2001:db8:7::9")).await;
    world.done("ban --everywhere ::ffff:203.0.113.9");
    until("it is banned", || is_denied(&search, "203.0.113.9")).await;
    world.done("unban --everywhere ::FFFF:203.0.113.9");
    until("it is not banned", || !is_denied(&search, "203.0.113.9")).await;
}
