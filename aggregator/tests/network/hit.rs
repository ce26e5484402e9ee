//! Tests of `tollgate hit`, with real processes: an agent and an aggregator.

use crate::support::{self, LIMITS, directory, serve};

#[test]
fn hit_is_let_through_until_the_denial_comes_and_then_refused() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let address = served.agents.to_string();
    let hit = |domain: &str, more: &[&str]| {
        let args = ["hit", "api.search", domain, "--aggregator", &address];
        support::run(dir.path(), &[&args[..], more].concat())
    };
    let (code, stdout, stderr) = hit("acme", &["-n", "30", "--format", "json"]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    let answers: Vec<serde_json::Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 30);
    assert!(
        answers[..5]
            .iter()
            .all(|answer| answer["allowed"] == true && answer["blind"] == false)
    );
    let refused: Vec<_> = answers
        .iter()
        .filter(|answer| answer["allowed"] == false)
        .collect();
    // Between the filling hit and the denial's arrival some are let through, and none after it.
    assert_eq!(answers[29]["allowed"], false, "{stdout}");
    let first = answers.len() - refused.len();
    assert_eq!(answers[first]["allowed"], false, "{stdout}");
    assert_eq!(refused[0]["cause"], "window:0");
    // The code leads to the denial that the aggregator shows.
    let shown = served.json("/v1/denials?domain=acme");
    assert_eq!(shown["denials"][0]["code"], refused[0]["code"]);
    // Another process starts with the deny list, and is refused with its first hit.
    let (code, stdout, _) = hit("acme", &[]);
    assert_eq!(code, 1);
    assert!(
        stdout.contains("refused: window:0, open again in 5"),
        "{stdout}"
    );
    let (code, stdout, _) = hit("globex", &[]);
    assert_eq!(
        (code, stdout.trim_end().ends_with("allowed")),
        (0, true),
        "{stdout}"
    );
}

#[test]
fn hit_goes_on_without_an_aggregator_only_when_asked() {
    let dir = directory(LIMITS);
    let nobody = [
        "hit",
        "api.search",
        "acme",
        "--aggregator",
        "127.0.0.1:1",
        "--wait",
        "200ms",
    ];
    let (code, _, stderr) = support::run(dir.path(), &nobody);
    assert_eq!(code, 69, "{stderr}");
    assert!(
        stderr.contains("no aggregator answers at 127.0.0.1:1 within 200ms; --blind"),
        "{stderr}"
    );
    let (code, stdout, _) = support::run(dir.path(), &[&nobody[..], &["--blind"]].concat());
    assert_eq!(code, 0);
    assert!(stdout.contains("allowed (blind)"), "{stdout}");
    let (code, _, stderr) = support::run(dir.path(), &["hit", "api.*", "acme"]);
    assert_eq!(code, 64, "{stderr}");
}

#[test]
fn hit_holds_copies_for_so_long_and_is_refused_while_all_are_held() {
    let dir = directory("version = 1\nrules = 2\n[copies.\"api.render\"]\nlimit = 2\n");
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let address = served.agents.to_string();
    let args = ["hit", "api.render", "acme", "--aggregator", &address];
    let hit = |more: &[&str]| support::run(dir.path(), &[&args[..], more].concat());
    let (code, stdout, stderr) = hit(&["--hold", "5s", "-n", "4", "--rate", "20/s"]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(stdout.contains("2 allowed, 2 refused"), "{stdout}");
    assert!(stdout.contains("refused: full"), "{stdout}");
    // They are released when their time is over.
    let (code, stdout, stderr) = hit(&["--hold", "10ms"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    // A copy-limited resource takes no hits, and the message says so.
    let (code, stdout, _) = hit(&[]);
    assert_eq!(code, 1, "{stdout}");
    assert!(
        stdout.contains("not a rate; the resource is limited by copies: expected --hold"),
        "{stdout}"
    );
}

#[test]
fn hit_reports_an_unreachable_feed() {
    let dir = directory(LIMITS);
    // Nothing listens at the advertised address.
    let served = serve(dir.path(), &["--advertise", "127.0.0.9"]);
    let address = served.agents.to_string();
    let args = [
        "hit",
        "api.search",
        "acme",
        "--wait",
        "700ms",
        "--aggregator",
        &address,
    ];
    let (code, _, stderr) = support::run(dir.path(), &args);
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("its feed cannot be reached"), "{stderr}");
}

#[test]
fn a_flag_overrides_its_own_variable_only() {
    let dir = directory(LIMITS);
    let epoch = dir.path().join("epoch");
    let hit = |env: &[(&str, &str)]| {
        let line = "hit api.search acme --aggregator 127.0.0.1:1 --wait 1ms --blind";
        let args: Vec<&str> = line.split_whitespace().collect();
        support::run_with(dir.path(), &args, env)
    };
    let (code, _, stderr) = hit(&[("TOLLGATE_KILL_SWITCH", "maybe")]);
    let expected = "TOLLGATE_KILL_SWITCH=\"maybe\": expected `on` or `off`";
    assert!(code == 64 && stderr.contains(expected), "{stderr}");
    let (code, _, stderr) = hit(&[("TOLLGATE_EPOCH_FILE", &epoch.to_string_lossy())]);
    assert!(code == 0 && epoch.exists(), "{stderr}");
    // The address of the flag is where hits go.
    let (code, _, stderr) = hit(&[("TOLLGATE_AGGREGATORS", "x"), ("TOLLGATE_KAFKA", "y")]);
    assert_eq!(code, 0, "{stderr}");
}
