//! Candidates through a real aggregator on its journal: ruled and counted, shown only on request, and put in
//! force by one command.

use std::path::Path;

use serde_json::Value;

use crate::support::{Dealer, Served, directory, run, run_line, serve};

const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "1000/m"
[rate."api.search".candidate]
rate = "3/m"
[rate."api.loose"]
rate = "2/m"
candidate = { rate = "4/m" }
[rate."api.plain"]
rate = "9/m"
"#;

const PARTITIONS: u32 = 4;

/// A field of a resource, summed over partitions.
fn of(view: &Value, resource: &str, field: &str) -> u64 {
    let rows = view["candidates"].as_array().expect("a list").iter();
    let rows = rows.filter(|row| row["resource"] == resource);
    rows.map(|row| row[field].as_u64().expect("a number")).sum()
}

fn numbers(view: &Value, resource: &str) -> [u64; 4] {
    let fields = [
        "excess",
        "candidate_refused",
        "newly_refused",
        "no_longer_refused",
    ];
    fields.map(|field| of(view, resource, field))
}

fn let_through(view: &Value) -> u64 {
    let resources = ["api.search", "api.loose", "api.plain"].iter();
    resources.map(|name| of(view, name, "let_through")).sum()
}

async fn traffic(served: &Served) {
    let mut agent = Dealer::connect(served.agents, 7).await;
    for domain in ["acme", "globex"] {
        agent.hit("api.search", domain, 5, PARTITIONS).await;
    }
    agent.hit("api.loose", "acme", 5, PARTITIONS).await;
    agent.hit("api.plain", "acme", 5, PARTITIONS).await;
    served.await_json("/v1/candidates", |view| let_through(view) == 15);
}

/// The report of an audit of the journal, which finds nothing wrong.
fn audit(dir: &Path, more: &str) -> Value {
    let line = format!("audit --journal tollgate-data --format json {more}");
    let (code, out, err) = run_line(dir, &line);
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str(&out).expect("an object")
}

/// `limits compare` shows what `/v1/candidates` counted.
fn the_command_shows_what_is_counted(dir: &Path, served: &Served, view: &Value) {
    let compare = |more: &str| {
        let line = format!("limits compare --url http://{} {more}", served.http);
        run_line(dir, &line)
    };
    let (code, text, err) = compare("");
    assert_eq!((code, &*err), (0, ""), "{text}");
    let row = text.lines().find(|line| line.starts_with("api.search"));
    let cells: Vec<&str> = row.expect("a row").split_whitespace().collect();
    let since = cells
        .last()
        .and_then(|since| since.parse::<jiff::Timestamp>().ok());
    let counted = view["counting_from_us"].as_i64().expect("counted");
    assert!(
        since.is_some_and(|since| counted / 1_000 <= since.as_millisecond()),
        "{text}"
    );
    assert_eq!(
        cells[..8],
        ["api.search", "10", "0", "0", "4", "4", "0", "2"],
        "{text}"
    );
    assert!(text.contains("api.search: the newest denials"), "{text}");
    let (code, json, _) = compare("--resource api.loose --format json");
    let report: Value = serde_json::from_str(&json).expect("one object");
    assert_eq!((code, &report["no_longer_refused"]), (0, &2.into()));
    let (_, json, _) = compare("--resource api.search --format json");
    let report: Value = serde_json::from_str(&json).expect("one object");
    let domains: Vec<&Value> = (0..2).map(|at| &report["newest"][at]["domain"]).collect();
    assert_eq!(domains, ["globex", "acme"], "{report:#}");
    let (code, out, err) = compare("--resource api.plain");
    assert_eq!((code, &*out), (65, ""), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_is_counted_and_never_announced() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    traffic(&served).await;

    let view = served.json("/v1/candidates");
    assert_eq!(view["schema"], "tollgate.candidates/1");
    assert_eq!(
        view["configured"],
        serde_json::json!(["api.loose", "api.search"])
    );
    assert_eq!(numbers(&view, "api.search"), [0, 4, 4, 0], "{view:#}");
    assert_eq!(of(&view, "api.search", "candidate_denials"), 2);
    assert_eq!(numbers(&view, "api.loose"), [3, 1, 0, 2], "{view:#}");

    // Denials come only from the limits in force.
    let denials = served.json("/v1/denials");
    let denied: Vec<&Value> = denials["denials"]
        .as_array()
        .expect("a list")
        .iter()
        .collect();
    assert_eq!(denied.len(), 1, "{denials:#}");
    assert_eq!(denied[0]["resource"], "api.loose");

    let labelled = |name: &str| served.metric(&format!("{name}{{resource=\"api.search\"}}"));
    assert_eq!(labelled("tollgate_candidate_hits_newly_refused_total"), 4.0);
    assert_eq!(labelled("tollgate_candidate_denials_total"), 2.0);

    the_command_shows_what_is_counted(dir.path(), &served, &view);

    // The log has nothing of it, and an audit with the model for everything reports equality, also after a restart
    // from a snapshot.
    served.signal("TERM");
    served.await_end();
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 8).await;
    agent.hit("api.search", "acme", 2, PARTITIONS).await;
    served.await_json("/v1/candidates", |view| {
        2 <= of(view, "api.search", "newly_refused")
    });
    drop(served);
    let report = audit(dir.path(), "--model all");
    assert_eq!(report["denials"], 1, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_candidate_rules() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let promote = |more: &[&str]| {
        let args = [
            "limits",
            "promote",
            "api.search",
            "--file",
            "limits.toml",
            "--reason",
            "it fits",
        ];
        run(dir.path(), &[&args, more].concat())
    };
    let file = || std::fs::read_to_string(dir.path().join("limits.toml")).expect("a file");
    let (code, text, _) = promote(&["--dry-run"]);
    assert_eq!(code, 0);
    assert!(
        text.contains("rate = \"3/m\"") && !text.contains("1000/m"),
        "{text}"
    );
    assert_eq!(file(), LIMITS);
    let (_, shown, _) = promote(&["--dry-run", "--format", "json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (&shown["done"], &shown["text"]),
        (&false.into(), &text.as_str().into())
    );
    assert_eq!(file(), LIMITS);
    let (code, shown, _) = promote(&["--format", "json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (code, &shown["schema"]),
        (0, &"tollgate.limits_promoted/1".into())
    );
    assert_eq!(
        (&shown["resource"], &shown["done"]),
        (&"api.search".into(), &true.into())
    );
    assert_eq!(file().trim(), text.trim());
    // Only once: afterwards it is not a candidate any more.
    let (code, _, err) = promote(&[]);
    assert_eq!(code, 65, "{err}");
    assert!(
        err.contains("limits.toml: resource \"api.search\" has no candidate"),
        "{err}"
    );

    let before = served.json("/v1/digests")["limits_version"].clone();
    served.signal("HUP");
    let in_force = |view: &Value| {
        let mut partitions = view["partitions"].as_array().expect("a list").iter();
        let latest = &view["limits_version"];
        before != *latest && partitions.all(|of| of["version"] == *latest)
    };
    served.await_json("/v1/digests", in_force);
    let view = served.json("/v1/candidates");
    assert_eq!(view["configured"], serde_json::json!(["api.loose"]));
    let mut agent = Dealer::connect(served.agents, 7).await;
    agent.hit("api.search", "acme", 3, PARTITIONS).await;
    let denied = |view: &Value| view["denials"][0]["domain"] == "acme";
    let denials = served.await_json("/v1/denials", denied);
    assert_eq!(denials["denials"][0]["limit"], 3);
    served.signal("TERM");
    served.await_end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_candidate_of_a_pattern_is_compared_and_promoted() {
    let text = "version = 1\nrules = 2\n[rate.\"a.plain\"]\nrate = \"9/m\"\n\
        [rate.\"a.*\"]\nrate = \"1000/m\"\n[rate.\"a.*\".candidate]\nrate = \"3/m\"\n";
    let dir = directory(text);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let compare = |more: &str| {
        let line = format!("limits compare --url http://{} {more}", served.http);
        let (code, out, err) = run_line(dir.path(), &format!("{line} --format json"));
        let rows = out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let rows = rows.map(|row| format!("{} {}", row["resource"], row["candidate_refused"]));
        (code, rows.collect::<Vec<_>>().join(", "), err)
    };
    assert_eq!(compare("").1, r#""a.*" 0"#, "before the first hit");
    assert_eq!(compare("--resource a.b").1, r#""a.b" 0"#);
    let mut agent = Dealer::connect(served.agents, 7).await;
    for (resource, hits) in [("a.b", 5), ("a.c", 4), ("a.plain", 5)] {
        agent.hit(resource, "acme", hits, PARTITIONS).await;
    }
    let counted = |view: &Value| of(view, "a.b", "let_through") + of(view, "a.c", "let_through");
    served.await_json("/v1/candidates", |view| counted(view) == 9);
    for all in ["", "--resource a.*"] {
        assert_eq!(compare(all).1, r#""a.b" 2, "a.c" 1"#, "{all}");
    }
    assert_eq!(compare("--resource a.c").1, r#""a.c" 1"#);
    for none in ["a.plain", "b", "b*"] {
        let (code, _, err) = compare(&format!("--resource {none}"));
        assert_eq!(code, 65, "{none}: {err}");
    }
    let line = "limits promote a.* --file limits.toml --reason fits";
    let (code, _, err) = run_line(dir.path(), line);
    assert_eq!(code, 0, "{err}");
    let promoted = std::fs::read_to_string(dir.path().join("limits.toml")).expect("a file");
    assert!(
        promoted.contains("[rate.\"a.*\"]\nrate = \"3/m\""),
        "{promoted}"
    );
}

#[test]
fn a_promoted_file_keeps_all_that_is_not_promoted() {
    let crlf = |text: &str| text.replace('\n', "\r\n");
    // With a character that has no glyph, and blank lines at the end.
    let text = format!("# ann\u{200d}e{LIMITS}\n\n");
    let dir = directory(&crlf(&text));
    let old = "rate = \"1000/m\"\n[rate.\"api.search\".candidate]\nrate = \"3/m\"\n";
    let expected = text.replace(old, "rate = \"3/m\"\n");
    assert_ne!(expected, text);
    let promote = "limits promote api.search --file limits.toml --reason fits";
    let (code, shown, err) = run_line(dir.path(), &format!("{promote} --dry-run"));
    assert_eq!(code, 0, "{err}");
    assert_eq!(
        shown,
        crlf(&expected),
        "what is no terminal gets it as it is"
    );
    assert_eq!(run_line(dir.path(), promote).0, 0);
    let file = std::fs::read_to_string(dir.path().join("limits.toml")).expect("a file");
    assert_eq!(file, crlf(&expected));
}

#[test]
fn a_promoted_file_keeps_mode_and_owner() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
    let dir = directory(LIMITS);
    let file = dir.path().join("limits.toml");
    // Others than root cannot give the file away.
    let _ = chown(&file, Some(65_534), Some(65_534));
    let found = || {
        let found = std::fs::metadata(&file).expect("a file");
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    for (resource, mode) in [("api.search", 0o640), ("api.loose", 0o664)] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("ours");
        let before = found();
        let line = format!("limits promote {resource} --file limits.toml --reason fits");
        let (code, _, err) = run_line(dir.path(), &line);
        assert_eq!((code, found(), before.0), (0, before, mode), "{err}");
    }
}

#[test]
fn check_prints_candidates_without_warnings() {
    let dir = directory(LIMITS);
    let (code, text, err) = run(dir.path(), &["check", "limits.toml"]);
    assert_eq!((code, &*err), (0, ""), "{text}");
    assert!(text.contains("3 resources, 0 warnings"), "{text}");
    for rate in ["3/m", "4/m"] {
        let section = format!(".candidate]\nrate = \"{rate}\"");
        assert!(text.contains(&section), "{text}");
    }
    assert!(!text.contains("not ruled"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_before_the_first_limits_report_no_wrong_clock() {
    let dir = directory("version = 1\nrules = 2\n");
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let mut agent = Dealer::connect(served.agents, 7).await;
    agent.hit("api.plain", "acme", 5, PARTITIONS).await;
    std::fs::write(dir.path().join("limits.toml"), LIMITS).expect("written");
    served.signal("HUP");
    served.await_json("/v1/digests", |view| {
        let mut partitions = view["partitions"].as_array().expect("a list").iter();
        partitions.all(|of| of["version"] == 2)
    });
    agent.hit("api.plain", "acme", 5, PARTITIONS).await;
    agent.hit("api.search", "acme", 5, PARTITIONS).await;
    served.signal("TERM");
    served.await_end();
    let report = audit(dir.path(), "");
    let remarks = report["remarks"].as_array().expect("a list").iter();
    let kinds: Vec<&Value> = remarks.map(|remark| &remark["kind"]).collect();
    assert!(!kinds.iter().any(|kind| **kind == "clocks"), "{report:#}");
    assert_eq!(
        (&report["granted"], &report["entries"]),
        (&10.into(), &15.into())
    );
}
