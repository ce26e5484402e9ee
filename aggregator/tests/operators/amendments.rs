//! Amendments through a real aggregator on its journal: operators' acts reach agents, stand in the log with
//! author and reason, survive a restart, and are replayed by an audit.

mod audited;
mod copies;
mod large_calls;
mod listed;
mod networks;
mod spelled;
mod switched;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tollgate_agent::{Agent, Cause, Confirmation, Rate, Refused};

use crate::support::{DEADLINE, Served, directory, run, serve, until};
use switched::a_mistyped_namespace_is_noticed;

pub const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
tiers = [{ limit = 5, window = "10m", active = "10m" }]
[rate."api.export"]
rate = "1000/s"
[copies.sandbox]
limit = 2
"#;

pub struct World {
    pub dir: tempfile::TempDir,
    pub served: Served,
    pub agent: Agent,
    pub search: Rate,
    pub export: Rate,
}

impl World {
    pub async fn new() -> Self {
        Self::with("").await
    }

    /// A world with this configuration of the aggregator.
    async fn with(config: &str) -> Self {
        Self::of(LIMITS, config).await
    }

    pub async fn of(limits: &str, config: &str) -> Self {
        let dir = directory(limits);
        std::fs::write(dir.path().join("t.toml"), config).expect("written");
        let served = serve(dir.path(), &["--config", "t.toml"]);
        served.await_ready();
        let agent = Agent::builder()
            .name("web")
            .aggregator(served.agents.to_string())
            .build()
            .expect("good settings");
        let (search, export) = (agent.rate("api.search"), agent.rate("api.export"));
        let _ = agent.copies("sandbox");
        assert!(agent.ready(DEADLINE).await, "it hears the aggregator");
        Self {
            dir,
            served,
            agent,
            search,
            export,
        }
    }

    /// Uses up the limit of a pair of `api.search`, and waits until it is denied.
    async fn fill(&self, domain: &str, hits: u32) {
        for _ in 0..hits {
            let _ = self.search.hit(domain).expect("it has room");
        }
        until("it is denied", || is_denied(&self.search, domain)).await;
    }

    /// Runs an operator's command; returns its exit code and output.
    fn operator(&self, command: &str) -> (i32, String) {
        let url = format!("http://{}", self.served.http);
        let more = ["--url", &url, "--by", "ann", "--reason", "a test"];
        let args = command.split(' ').chain(more).collect::<Vec<_>>();
        let (code, out, err) = run(self.dir.path(), &args);
        (code, out + &err)
    }

    pub fn done(&self, command: &str) {
        let (code, text) = self.operator(command);
        assert_eq!(code, 0, "{command}: {text}");
        assert!(text.starts_with("version "), "{text}");
    }

    /// Checks that a command fails with this exit code, and says this.
    fn refuses(&self, command: &str, code: i32, says: &str) {
        let (found, text) = self.operator(command);
        assert_eq!(found, code, "{command}: {text}");
        assert!(text.contains(says), "{command}: {text}");
    }

    pub fn version(&self) -> u64 {
        let limits = self.served.json("/v1/limits");
        limits["version"].as_u64().expect("a version")
    }

    pub fn denials(&self, more: &[&str]) -> Vec<Value> {
        let url = format!("http://{}", self.served.http);
        let args = [&["denials", "--url", &url, "--format", "json"], more].concat();
        let (code, out, err) = run(self.dir.path(), &args);
        assert_eq!((code, &*err), (0, ""));
        let read = |line: &str| serde_json::from_str(line).expect("JSON");
        out.lines().map(read).collect()
    }

    /// The report of an audit of the journal, with the model for everything.
    pub fn audit(&self) -> Value {
        let args = ["audit", "--journal", "tollgate-data", "--model", "all"];
        let (code, out, err) = run(
            self.dir.path(),
            &[&args[..], &["--format", "json", "-q"]].concat(),
        );
        assert_eq!(code, 0, "{out}{err}");
        serde_json::from_str(&out).expect("JSON")
    }
}

fn is_denied(rate: &Rate, domain: &str) -> bool {
    rate.peek(domain).is_err()
}

/// In a world that denies acme.
fn refused_acts_change_nothing(world: &World) {
    let before = world.version();
    world.refuses("denials lift api.nothing acme", 65, "not limited by rate");
    world.refuses("denials lift sandbox acme", 65, "not limited by rate");
    world.refuses("denials lift api.search initech", 1, "not denied");
    world.refuses("reset api.search initech", 1, "no state of this pair");
    world.refuses("reset api.search a*", 1, "no state of this pair");
    world.refuses("unban api.search acme", 1, "not banned");
    world.refuses(
        "denials lift api.search acme --expect-version 999",
        75,
        &format!("{before} is in force"),
    );
    let (code, out) = world.operator("denials lift api.search acme --dry-run");
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("would do: lift api.search acme"), "{out}");
    assert_eq!(world.version(), before);
    assert!(is_denied(&world.search, "acme"));
}

/// An audit's report has an act once, with who did it and why.
fn assert_made_once_by_ann(report: &Value, act: &str) {
    let listed = report["amendments"].as_array().expect("a list");
    let mut of_act = listed.iter().filter(|listed| listed["amendment"] == act);
    let (found, again) = (of_act.next(), of_act.next());
    assert_eq!(again, None, "each act once: {listed:?}");
    let found = found.unwrap_or_else(|| panic!("{act}: {listed:?}"));
    assert_eq!(
        (&found["who"], &found["why"]),
        (&"ann".into(), &"a test".into())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_names_the_operator_of_a_lift_and_a_pardon() {
    let world = World::new().await;
    world.fill("acme", 5).await;
    world.fill("globex", 5).await;
    let listed = world.denials(&["--domain", "acme", "--cause", "tier 1"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["schema"], "tollgate.denials/1");
    assert!(0 < listed[0]["remaining_us"].as_u64().expect("it ends"));
    assert!(world.denials(&["--cause", "hard"]).is_empty());

    refused_acts_change_nothing(&world);
    let before = world.version();
    world.done("denials lift api.search acme");
    assert!(before < world.version());
    until("acme is let in", || !is_denied(&world.search, "acme")).await;
    // Pardoned: further hits are excess, and cause no denial until the window has room again.
    let excess = world.served.metric("tollgate_hits_excess_total");
    for _ in 0..50 {
        let _ = world.search.hit("acme").expect("pardoned");
    }
    until("50 more are excess", || {
        world.served.metric("tollgate_hits_excess_total") == excess + 50.0
    })
    .await;
    assert!(!is_denied(&world.search, "acme") && is_denied(&world.search, "globex"));

    world.done("reset api.search globex");
    until("globex is let in", || !is_denied(&world.search, "globex")).await;
    world.refuses(
        "refund api.search globex 2",
        1,
        "no limit counts a hit of this pair",
    );
    world.fill("globex", 5).await;
    world.done("refund api.search globex 2");
    until("globex has room for two", || {
        !is_denied(&world.search, "globex")
    })
    .await;
    world.fill("globex", 2).await;

    let report = world.audit();
    assert_eq!(report["equal"], true, "{report}");
    assert!(0 < report["model"]["statements"].as_u64().expect("a count"));
    for act in [
        "lift api.search acme",
        "reset api.search globex",
        "refund api.search globex 2",
    ] {
        assert_made_once_by_ann(&report, act);
    }
    world.agent.shutdown(DEADLINE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_survive_a_restart_and_a_kill_switch_suspends_them() {
    let mut world = World::new().await;
    let _ = world.search.hit("mallory").expect("not banned yet");
    until("the log has it", || {
        world.served.metric("tollgate_hits_granted_total") == 1.0
    })
    .await;
    world.done("ban api.search mallory --for 1h");
    world.done("ban --everywhere trudy");
    until("both are denied", || {
        is_denied(&world.search, "mallory")
            && is_denied(&world.search, "trudy")
            && is_denied(&world.export, "trudy")
    })
    .await;
    assert!(!is_denied(&world.export, "mallory"));
    bans_are_listed_and_explained(&world).await;
    a_killed_namespace_denies_nobody(&world).await;

    world.served.signal("TERM");
    world.served.await_end();
    world.served = serve(world.dir.path(), &[]);
    world.served.await_ready();
    world.served.await_json("/v1/denials?domain=trudy", |view| {
        let denials = view["denials"].as_array().expect("a list");
        denials.iter().any(|denial| denial["cause"] == "banned")
    });
    world.done("unban --everywhere trudy");
    world.served.await_json("/v1/denials?domain=trudy", |view| {
        view["denials"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(world.audit()["equal"], true);
}

/// In a world with a ban of mallory on `api.search`, and one of trudy everywhere.
async fn bans_are_listed_and_explained(world: &World) {
    let banned = world.denials(&["--cause", "banned"]);
    // `--everywhere` includes `sandbox`, although trudy never had copies of it.
    assert_eq!(banned.len(), 4, "{banned:?}");
    world.fill("zzz", 5).await;
    let one = ["denials", "--cause", "tier 1", "--limit", "1", "--url"];
    let none = ["denials", "--cause", "hard", "--url"];
    let url = format!("http://{}", world.served.http);
    for (args, expected) in [(&one[..], "zzz"), (&none[..], "no denials match")] {
        let (code, out, err) = run(world.dir.path(), &[args, &[&url]].concat());
        assert!(code == 0 && out.contains(expected), "{args:?}: {out}{err}");
    }
    assert_eq!(world.served.metric("tollgate_amendments_total"), 2.0);
    let of_mallory = banned.iter().find(|denial| denial["domain"] == "mallory");
    let code = of_mallory.expect("it is listed")["code"].as_str();
    let args = [
        "explain",
        code.expect("a code"),
        "--journal",
        "tollgate-data",
    ];
    let (exit, stdout, error) = run(world.dir.path(), &args);
    assert_eq!(exit, 0, "{stdout}{error}");
    for says in [
        "an operator had banned it (ban api.search mallory until",
        "by ann at",
        "a test",
    ] {
        assert!(stdout.contains(says), "{says}: {stdout}");
    }
}

/// In the same world: a switch lets everybody in, turned back it starts no denial, and bans apply again.
async fn a_killed_namespace_denies_nobody(world: &World) {
    world.fill("acme", 5).await;
    assert_eq!(world.audit()["equal"], true);
    world.done("namespaces kill api");
    let switches = &world.served.json("/v1/limits")["switches"];
    assert_eq!(switches[0]["allow_unconfigured"], true, "{switches}");
    let of_api = |denial: &Value| denial["resource"] != "sandbox";
    until("nobody is denied", || {
        !world.denials(&[]).iter().any(of_api)
    })
    .await;
    until("the agent knows", || {
        ["acme", "trudy"]
            .iter()
            .all(|domain| !is_denied(&world.search, domain))
    })
    .await;
    let excess = world.served.metric("tollgate_hits_excess_total");
    let _ = world.search.hit("acme").expect("the switch is turned");
    until("it is counted", || {
        world.served.metric("tollgate_hits_excess_total") == excess + 1.0
    })
    .await;
    let (code, text) = world.operator("namespaces kill api.search");
    assert_ne!(code, 0, "{text}");
    assert!(text.contains("contains a dot, expected the part"), "{text}");
    world.done("namespaces restore api");
    let started = world.search.hit("trudy");
    assert!(started.is_ok(), "a version starts no denial");
    until("trudy is denied again", || {
        is_denied(&world.search, "trudy")
    })
    .await;
    a_mistyped_namespace_is_noticed(world);
    let report = world.audit();
    assert_eq!(report["equal"], true);
    let mut remarks = report["remarks"].as_array().expect("a list").iter();
    let unchecked = remarks.any(|remark| remark["kind"] == "model_unenforced");
    assert!(unchecked, "the model does not know the switch: {report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_everywhere_that_would_miss_a_resource_is_refused() {
    const LOGIN: &str = "[rate.\"web.login\"]\nrate = \"5/s\"\naddresses = { v4 = 32, v6 = 64 }\n";
    let world = World::of(&format!("{LIMITS}{LOGIN}"), "").await;
    world.refuses(
        "ban --everywhere 2001:db8:1:2::5",
        65,
        "\"web.login\" limits it as \"2001:db8:1:2::/64\"",
    );
    world.done("ban --everywhere 2001:db8:1:2::/64");
    let login = world.agent.rate("web.login");
    until("its network is denied", || {
        // A ban on a network is found in the partition of a call from it.
        login.hit("2001:db8:1:2::5").is_err()
    })
    .await;
}

#[test]
fn a_missing_argument_is_reported_before_any_request() {
    const IN_BRACKETS: &str = "2125-01-02T03:04:05+05:00[Europe/Berlin]";
    let here = Path::new(".");
    let cases: [&[&str]; 7] = [
        &["reset", "api.search", "acme"],
        &["reset", "api.search", "acme", "--reason", " "],
        &["ban", "mallory", "--reason", "x"],
        &["refund", "api.search", "acme", "0", "--reason", "x"],
        &[
            "ban",
            "a.b",
            "acme",
            "--reason",
            "x",
            "--until",
            IN_BRACKETS,
        ],
        &["denials", "--cause", "Hard"],
        &["denials", "--cause", "tier:1"],
    ];
    for args in cases {
        let (code, _, stderr) = run(here, args);
        assert_eq!(code, 64, "{args:?}: {stderr}");
    }
    let args = [
        "reset",
        "a",
        "b",
        "--reason",
        "x",
        "--url",
        "http://127.0.0.1:1",
    ];
    assert_eq!(run(here, &args).0, 69);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregator_sets_limits_of_one_domain() {
    // A file that is followed would be pushed again.
    let world = World::with("[limits]\nfollow_file = false\n").await;
    world.fill("acme", 5).await;
    let url = format!("http://{}", world.served.http);
    let set = |args: &[&str]| {
        let all = ["limits", "set", "api.search", "--domain", "acme"];
        let more = ["--url", &url, "--reason", "acme pays"];
        let (code, out, err) = run(world.dir.path(), &[&all, args, &more].concat());
        (code, out + &err)
    };
    let before = world.version();
    let (code, text) = set(&["--rate", "1000/s", "--dry-run"]);
    assert_eq!((code, world.version()), (0, before), "{text}");
    let (code, text) = set(&["--rate", "1000/s"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("set api.search acme: rate 1000/s"), "{text}");
    assert_eq!(world.version(), before + 1, "one record");
    until("a raised limit lifts the denial", || {
        !is_denied(&world.search, "acme")
    })
    .await;
    let (code, text) = set(&["--rate", "9/s", "--expect-version", &before.to_string()]);
    assert_eq!(code, 75, "{text}");
    let (code, text) = set(&["--rate", "often"]);
    assert_eq!(code, 65, "{text}");
    let (code, text) = set(&[]);
    assert_eq!(code, 64, "neither stated nor taken away: {text}");
    let (code, text) = set(&["--remove"]);
    assert_eq!(code, 0, "{text}");
    let (code, text) = set(&["--remove"]);
    assert_eq!(code, 1, "there is nothing left to take away: {text}");
    assert_eq!(world.version(), before + 2);
}
