//! More promises of `tollgate backtest`, by the binary: what it reads from a log that is being written,
//! which limits it suggests, and that its page shows what the report says.

mod support;

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::Value;
use support::{LIMITS, directory, run, serve};

fn report(dir: &Path, args: &[&str]) -> Value {
    let args = [&["backtest", "--format", "json"], args].concat();
    let (code, stdout, stderr) = run(dir, &args);
    assert_eq!(code, 0, "{args:?}: {stderr}");
    serde_json::from_str(&stdout).expect("an object")
}

/// Stamps in microseconds, with domains: bursts of some and trickles of others.
fn calls(seed: u64, count: usize) -> Vec<(u64, u64)> {
    let mut draw = ChaCha8Rng::seed_from_u64(seed);
    let mut at = 1_455_944_445_000_000;
    let call = |_| {
        let gap = if draw.next_u32().is_multiple_of(20) {
            3_000_000
        } else {
            60_000
        };
        at += draw.next_u64() % gap;
        (at, u64::from(draw.next_u32() % 97).isqrt())
    };
    (0..count).map(call).collect()
}

/// What a plain sliding window refuses: the slow and obvious count.
fn refused(calls: &[(u64, u64)], limit: usize, window_us: u64) -> u64 {
    let mut granted: HashMap<u64, VecDeque<u64>> = HashMap::new();
    let mut refused = 0;
    for (at, domain) in calls {
        let of = granted.entry(*domain).or_default();
        of.retain(|hit| *at <= hit + window_us);
        if of.len() < limit {
            of.push_back(*at);
        } else {
            refused += 1;
        }
    }
    refused
}

#[test]
fn the_suggested_limit_is_the_least_that_refuses_no_more_than_was_allowed() {
    let limits = "[rate.api]\ntiers = [\n  { limit = 1, window = \"2s\", active = \"2s\" },\n  { limit = 500, window = \"10s\", active = \"20s\", cooldown = \"1m\" },\n]\n";
    for (seed, share, permille) in [(1, "0.1%", 1), (2, "1%", 10), (3, "20%", 200), (4, "0%", 0)] {
        let calls = calls(seed, 3_000);
        let mut csv = "t,resource,domain\n".to_owned();
        for (at, domain) in &calls {
            let _ = writeln!(csv, "{at},api,{domain}");
        }
        let dir = directory(limits);
        std::fs::write(dir.path().join("calls.csv"), csv).unwrap();
        let args = ["--limits", "limits.toml", "calls.csv", "--suggest", share];
        let report = report(dir.path(), &args);
        let found = report["suggestions"].as_array().unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        for (found, window_us) in found.iter().zip([2_000_000, 10_000_000]) {
            assert_eq!(found["window_us"], window_us);
            let allowed = calls.len() as u64 * permille / 1_000;
            let least = (1..).find(|limit| refused(&calls, *limit, window_us) <= allowed);
            let least = least.unwrap();
            assert_eq!(found["limit"], least, "seed {seed}, {window_us}");
            assert_eq!(found["refused"], refused(&calls, least, window_us));
        }
    }
}

#[test]
fn a_journal_that_is_being_written_gives_hits_and_refused_calls() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &["--journal", "journal"]);
    served.await_ready();
    let address = served.agents.to_string();
    let args = ["hit", "api.search", "acme", "--aggregator", &address];
    let args = [&args[..], &["-n", "30", "--format", "json"]].concat();
    let (_, stdout, stderr) = run(dir.path(), &args);
    let answers = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let (allowed, refused): (Vec<Value>, Vec<Value>) =
        answers.partition(|answer: &Value| answer["allowed"] == true);
    let (allowed, refused) = (allowed.len() as u64, refused.len() as u64);
    assert!(5 <= allowed && 0 < refused, "{stdout}{stderr}");

    std::fs::write(
        dir.path().join("loose.toml"),
        "[rate.\"api.search\"]\nrate = \"999/s\"\n",
    )
    .unwrap();
    let args = [
        "--limits",
        "limits.toml",
        "--limits",
        "loose.toml",
        "--journal",
        "journal",
    ];
    let of_log = report(dir.path(), &args);
    let seen = &of_log["inputs"]["seen"];
    assert_eq!(seen["hits"], allowed, "{seen}");
    assert_eq!(seen["refused_calls"], refused, "{seen}");
    assert_eq!(
        (&seen["share"], &seen["lower_bound"]),
        (&1.0.into(), &false.into())
    );
    let [strict, loose] = [0, 1].map(|number| &of_log["results"][number]);
    assert_eq!(
        (&strict["granted"], &strict["refused"]),
        (&5.into(), &25.into())
    );
    // Of those 25 only what was let through when it was recorded is excess.
    assert_eq!(strict["excess"], allowed - 5);
    assert_eq!(
        (&loose["granted"], &loose["refused"]),
        (&30.into(), &0.into())
    );
    assert_eq!(loose["compared"]["no_longer_refused"]["pairs"], 1);
    let (_, page, _) = run(dir.path(), &[&["backtest"], &args[..]].concat());
    assert!(page.contains("saw 100.00% of the attempts"), "{page}");

    let no_journal = run(
        dir.path(),
        &["backtest", "--limits", "limits.toml", "--journal", "."],
    );
    assert_eq!(no_journal.0, 66, "{}", no_journal.2);
}

#[test]
fn the_page_stands_alone_and_has_a_mark_for_what_the_report_says() {
    let dir = directory(
        "[rate.api]\ntiers = [\n  { limit = 2, window = \"1s\", active = \"1s\" },\n  { limit = 3, window = \"1s\", active = \"4s\", cooldown = \"10s\" },\n]\n",
    );
    let mut csv = "t,resource,domain\n".to_owned();
    for n in 0..200 {
        let domain = ["<script>", "calm"][usize::from(n % 10 == 0)];
        let _ = writeln!(
            csv,
            "{:.1},api,{domain}",
            1_455_944_445.0 + f64::from(n) / 10.0
        );
    }
    std::fs::write(dir.path().join("calls.csv"), csv).unwrap();
    let args = [
        "--limits",
        "limits.toml",
        "calls.csv",
        "--html",
        "page.html",
    ];
    let found = report(dir.path(), &args);
    let result = &found["results"][0];
    let html = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    for outside in ["http://", "https://", "<script", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("&lt;script&gt;"), "the name is shown as text");
    let marks = |class: &str| html.matches(&format!("<rect class=\"{class}\"")).count();
    let stretches = |what: &str| {
        let stretches = result["timeline"][what].as_array().unwrap().iter();
        stretches.filter(|hits| 0 < hits.as_u64().unwrap()).count()
    };
    let plots: Vec<&str> = html.split("<svg ").skip(1).collect();
    assert_eq!(plots.len(), 3);
    let of_plot =
        |plot: &str, class: &str| plot.matches(&format!("<rect class=\"{class}\"")).count();
    assert_eq!(of_plot(plots[0], "granted"), stretches("granted"));
    assert_eq!(of_plot(plots[0], "refused"), stretches("refused"));
    assert_eq!(
        of_plot(plots[1], "refused"),
        result["pairs_refused"].as_u64().unwrap() as usize
    );
    // The second tier is entered, cools down, and is entered again once within twenty seconds.
    assert!(0 < marks("held") && 0 < marks("cooling") && 1 < marks("active"));

    let other = run(
        dir.path(),
        &[&["backtest"], &args[..], &["--pair", "api", "calm"]].concat(),
    );
    assert_eq!(other.0, 0, "{}", other.2);
    let html = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(html.contains("<h3>calm of api</h3>"));
    let nobody = run(
        dir.path(),
        &[&["backtest"], &args[..], &["--pair", "api", "none"]].concat(),
    );
    assert_eq!(nobody.0, 65, "{}", nobody.2);
    assert_eq!(
        html,
        std::fs::read_to_string(dir.path().join("page.html")).unwrap()
    );
}
