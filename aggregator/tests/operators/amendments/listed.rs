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
