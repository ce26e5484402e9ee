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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_of_a_malformed_address_or_network_says_so() {
    let world = World::new().await;
    for domain in [
        "203.0.113.0-203.0.113.255",
        "203.0.113.9:443",
        "[2001:db8::1]",
        "010.1.2.3",
        "10.*",
    ] {
        let ban = format!("ban api.search {domain} --dry-run");
        world.refuses(&ban, 0, &format!("{domain} is taken as a domain's name"));
    }
    world.refuses(
        "ban --everywhere ::ffff:10.44.0.1",
        0,
        "10.44.0.1 is banned: callers that pass ::ffff:10.44.0.1 are not",
    );
    for ban in [
        "api.search 203.0.113.9",
        "api.search acme",
        "--everywhere 2001:db8::/32",
    ] {
        let (code, text) = world.operator(&format!("ban {ban}"));
        assert!(code == 0 && !text.contains("tollgate:"), "{text}");
    }
}
