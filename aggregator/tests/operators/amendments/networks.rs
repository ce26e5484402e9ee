//! Networks in the limits of copies, and bans of networks.

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_of_a_banned_network_is_let_in_and_each_once_the_ban_ends() {
    let world = World::new().await;
    let sandbox = world.agent.copies("sandbox");
    let banned = |rate: &Rate, address: &str| {
        let refused = rate.hit(address).err();
        refused.map(|denied| denied.cause()) == Some(Cause::Banned)
    };
    world.done("ban --everywhere 2001:DB8::/32 --for 1h");
    // Only looked at: no call of the network is in the log.
    until("the agent knows", || {
        world.search.peek("2001:db8::1").is_err() && sandbox.peek("2001:db8::1").is_err()
    })
    .await;
    for n in 0..1_000 {
        assert!(banned(&world.search, &format!("2001:db8:{n:x}::1")));
        assert!(sandbox.reserve(&format!("2001:db8:{n:x}::1"), 1).is_err());
    }
    assert!(!banned(&world.search, "2001:db9::1"));
    // An agent that starts later, and resources that it first uses then.
    let later = Agent::builder().name("later");
    let later = later.aggregator(world.served.agents.to_string()).build();
    let later = later.expect("good settings");
    let (search, free) = (later.rate("api.search"), later.rate("unlimited"));
    assert!(later.ready(DEADLINE).await, "it knows the limits");
    assert!(banned(&search, "2001:db8::1") && banned(&free, "2001:db8::2"));
    until("refused calls are in the log", || {
        world
            .served
            .metric("tollgate_resource_refused_total{resource=\"api.search\"}")
            == 1_001.0
    })
    .await;
    assert_eq!(world.denials(&[]), Vec::<Value>::new());
    let url = format!("http://{}", world.served.http);
    for resource in ["api.search", "sandbox", "unlimited"] {
        let explain = ["explain", resource, "2001:db8::7", "--url", &url];
        let (code, out, err) = run(world.dir.path(), &explain);
        let expected = "an operator has banned a network that it is in";
        assert!(
            code == 0 && out.contains(expected),
            "{resource}: {out}{err}"
        );
    }
    world.refuses(
        "unban --everywhere 2001:db8::7",
        1,
        "it is not banned by itself, but 2001:db8::/32 is, everywhere",
    );
    world.done("unban --everywhere 2001:db8::/32");
    until("it is let in", || {
        let is_in = |rate: &Rate| rate.peek("2001:db8::1").is_ok();
        is_in(&search) && is_in(&free) && sandbox.peek("2001:db8::1").is_ok()
    })
    .await;
    // On one resource, and for a second.
    world.done("ban api.search 203.0.113.0/24 --for 2s");
    until("the agent knows", || search.peek("203.0.113.7").is_err()).await;
    assert!(!banned(&free, "203.0.113.7"));
    until("it has ended", || !banned(&search, "203.0.113.7")).await;
    // Limits of its own close a network.
    world.done("limits set api.search --domain 198.51.100.0/24 --hard 0/s");
    until("the agent knows", || search.peek("198.51.100.7").is_err()).await;
    let denied = search.hit("198.51.100.8").expect_err("its first call");
    assert_eq!(denied.cause(), Cause::Inaccessible);
    assert_eq!(world.audit()["equal"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_that_wider_domains_leave_without_effect_are_named_and_can_be_ended() {
    let limits = |v4: u8| {
        LIMITS.replace(
            "rate = \"1000/s\"",
            &format!("rate = \"2/h\"\naddresses = {{ v4 = {v4}, v6 = 64 }}"),
        )
    };
    let mut world = World::of(&limits(32), "").await;
    let export = world.export.clone();
    for ban in [
        "api.export 10.9.9.3",
        "api.export 10.9.7.0/28",
        "--everywhere 10.9.8.3",
    ] {
        world.done(&format!("ban {ban}"));
    }
    until("the last is banned", || is_denied(&export, "10.9.8.3")).await;
    std::fs::write(world.dir.path().join("limits.toml"), limits(24)).expect("written");
    world.served.signal("HUP");
    let line = world.served.line_with("these bans have no effect");
    assert!(
        line.contains("resource=\"api.export\"") && line.contains("bans=3"),
        "{line}"
    );
    let first = "a ban of 10.9.8.3, a part of 10.9.8.0/24";
    assert!(line.contains(first), "{line}");
    until("addresses are domains no more", || {
        export.peek("10.9.8.3").is_ok()
    })
    .await;
    for ban in [
        "api.export 10.9.9.3",
        "api.export 10.9.7.0/28",
        "--everywhere 10.9.8.3",
    ] {
        world.done(&format!("unban {ban}"));
    }
    world.refuses("unban api.export 10.9.9.3", 1, "it is not banned");
    // An address is found as the domain that it is limited as.
    for _ in 0..2 {
        let _ = export.hit("10.9.9.3").expect("it has room");
    }
    until("its network is denied", || is_denied(&export, "10.9.9.3")).await;
    let of = ["--resource", "api.export", "--domain", "10.9.9.7"];
    let [denial] = &world.denials(&of)[..] else {
        panic!("one denial");
    };
    assert_eq!(denial["domain"], "10.9.9.0/24");
    assert_eq!(world.denials(&["--domain", "10.9.9.7"]).len(), 1);
}
