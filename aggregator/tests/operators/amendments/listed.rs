//! The list of bans.

use super::*;

fn bans(world: &World, more: &[&str]) -> Vec<String> {
    let url = format!("http://{}", world.served.http);
    let args = [&["bans", "--url", &url, "--format", "json"], more].concat();
    let (code, out, err) = run(world.dir.path(), &args);
    assert_eq!((code, &*err), (0, ""), "{more:?}");
    let read = |line: &str| {
        let ban: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(ban["schema"], "tollgate.bans/1");
        let is_lasting = ban["remaining_us"].is_null();
        assert_eq!(ban["end_us"].is_null(), is_lasting, "{ban}");
        let resource = ban["resource"].as_str().unwrap_or("*");
        let lasts = if is_lasting { "never" } else { "ends" };
        format!(
            "{resource} {} {lasts} {}",
            ban["domain"].as_str().unwrap_or_default(),
            ban["version"]
        )
    };
    out.lines().map(read).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_of_names_addresses_and_networks_are_listed_until_they_end() {
    let mut world = World::new().await;
    assert_eq!(bans(&world, &[]), [""; 0]);
    let url = format!("http://{}", world.served.http);
    let (code, out, _) = run(world.dir.path(), &["bans", "--url", &url]);
    assert_eq!((code, out.trim()), (0, "no bans are in force"));
    for ban in [
        "api.search mallory",
        "api.search 203.0.113.0/24 --for 1h",
        "--everywhere 2001:DB8::9",
        "sandbox mallory --for 1h",
        "api.export eve --for 2s",
    ] {
        world.done(&format!("ban {ban}"));
    }
    let first = world.version() - 4;
    let all = [
        format!("* 2001:db8::9 never {}", first + 2),
        format!("api.search 203.0.113.0/24 ends {}", first + 1),
        format!("api.search mallory never {first}"),
        format!("sandbox mallory ends {}", first + 3),
    ];
    until("the short one has ended", || bans(&world, &[]) == all).await;
    assert_eq!(bans(&world, &["--resource", "api.search"]), all[..3]);
    assert_eq!(bans(&world, &["--domain", "mallory"]), all[2..]);
    assert_eq!(bans(&world, &["--domain", "203.0.113.7"]), all[1..2]);
    let of = ["--resource", "api.export", "--domain", "2001:db8:0::9"];
    assert_eq!(bans(&world, &of), all[..1], "another spelling");
    // Page by page.
    let page = world.served.json("/v1/bans?limit=3");
    assert_eq!(page["bans"].as_array().map(Vec::len), Some(3));
    let next = page["next"].as_str().expect("there are more");
    let page = world.served.json(&format!("/v1/bans?limit=3&after={next}"));
    assert_eq!(page["bans"].as_array().map(Vec::len), Some(1));
    assert!(page["next"].is_null(), "{page}");
    let (code, out, _) = run(world.dir.path(), &["bans", "--url", &url]);
    assert_eq!(code, 0);
    let shown: Vec<_> = out.lines().collect();
    assert!(shown[0].starts_with("LEFT") && shown.len() == 5, "{out}");
    assert!(
        shown[1].starts_with("never") && shown[1].contains("(every resource)"),
        "{out}"
    );
    // A restart reads them from the log.
    world.served.signal("TERM");
    world.served.await_end();
    world.served = serve(world.dir.path(), &["--config", "t.toml"]);
    world.served.await_ready();
    assert_eq!(bans(&world, &[]), all);
    world.done("unban api.search mallory");
    world.done("unban --everywhere 2001:db8::9");
    assert_eq!(bans(&world, &[]), [all[1].clone(), all[3].clone()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_that_ends_an_earlier_one_sooner_names_it() {
    let world = World::new().await;
    world.done("ban api.search mallory --until 2125-01-02T03:04:05Z");
    let version = world.version();
    let named = format!("sooner than that of version {version}, until 2125-01-02T03:04:05");
    world.refuses("ban api.search mallory --for 1h --dry-run", 0, &named);
    world.refuses("ban api.search mallory --for 1h", 0, &named);
    let (_, text) = world.operator("ban api.search mallory --for 2h");
    assert!(!text.contains("sooner"), "{text}");
    world.done("ban api.search mallory");
    let named = format!(
        "sooner than that of version {}, until it is ended",
        version + 3
    );
    world.refuses("ban api.search mallory --for 2h", 0, &named);
    world.refuses(
        "ban api.search eve --for 213503982d",
        65,
        "after the year 9999",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_that_reaches_no_caller_is_marked_in_the_list() {
    let mut world = World::new().await;
    for ban in [
        "203.0.113.9",
        "203.0.113.64/26",
        "203.0.112.0/23",
        "mallory",
    ] {
        world.done(&format!("ban api.export {ban}"));
    }
    let marked = |world: &World| {
        let bans = &world.served.json("/v1/bans")["bans"];
        let bans = bans.as_array().expect("a list").iter();
        let without = bans.filter(|ban| ban["reaches_nobody"] == true);
        without
            .map(|ban| ban["domain"].as_str().expect("a domain").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(marked(&world), [""; 0]);
    let wide = "rate = \"1000/s\"\naddresses = { v4 = 24, v6 = 64 }";
    let limits = LIMITS.replace("rate = \"1000/s\"", wide);
    std::fs::write(world.dir.path().join("limits.toml"), limits).expect("written");
    world.served.signal("HUP");
    let expected = ["203.0.113.64/26", "203.0.113.9"];
    until("the limits are in force", || marked(&world) == expected).await;
    let url = format!("http://{}", world.served.http);
    let (code, out, _) = run(world.dir.path(), &["bans", "--url", &url]);
    assert_eq!(code, 0);
    assert_eq!(out.matches("(reaches nobody)").count(), 2, "{out}");
    world.served.signal("TERM");
    world.served.await_end();
}
