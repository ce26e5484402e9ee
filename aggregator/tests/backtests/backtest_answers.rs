//! More tests of `tollgate backtest`, with the binary: what it reads from a log that is being written, which limits
//! it suggests, and that its page agrees with the report.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::Value;

use crate::support::{LIMITS, directory, run, serve};

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

/// What a plain sliding window refuses, counted in the slow and obvious way.
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
fn the_suggested_limit_is_the_least_within_the_allowance() {
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
fn a_bucket_and_a_quota_are_suggested_where_limits_state_them() {
    let limits = "[rate.api]\nhard = \"3/s\"\nbucket = { rate = \"1/s\", burst = 40 }\nquota = [\"9/day\"]\n";
    let calls = calls(7, 2_000);
    let mut csv = "t,resource,domain\n".to_owned();
    for (at, domain) in &calls {
        let _ = writeln!(csv, "{at},api,{domain}");
    }
    let dir = directory(limits);
    std::fs::write(dir.path().join("calls.csv"), csv).unwrap();
    let args = ["--limits", "limits.toml", "calls.csv", "--suggest", "1%"];
    let report = report(dir.path(), &args);
    let found = report["suggestions"].as_array().unwrap();
    let kinds: Vec<_> = found
        .iter()
        .map(|of| of["constraint"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["window", "bucket", "quota"]);
    let allowed = calls.len() as u64 / 100;
    // The straightforward computation with the same numbers: a whole microsecond refills a millionth of a copy.
    let refused_by_bucket = |burst: u64| -> u64 {
        let full = burst as i64 * 1_000_000;
        let mut levels: HashMap<u64, (u64, i64)> = HashMap::new();
        let refused = calls.iter().filter(|(at, domain)| {
            let (last, level) = levels.entry(*domain).or_insert((*at, full));
            *level = full.min(*level + (*at - *last) as i64);
            *last = *at;
            let is_granted = 1_000_000 <= *level;
            *level -= if is_granted { 1_000_000 } else { 0 };
            !is_granted
        });
        refused.count() as u64
    };
    let least = (1..)
        .find(|burst| refused_by_bucket(*burst) <= allowed)
        .unwrap();
    assert_eq!(
        (&found[1]["limit"], &found[1]["refused"]),
        (&least.into(), &refused_by_bucket(least).into())
    );
    let written = format!("bucket = {{ rate = \"1/s\", burst = {least} }}");
    assert_eq!(found[1]["written"], written);
    let quota = found[2]["limit"].as_u64().unwrap();
    assert_eq!(found[2]["written"], format!("quota = [\"{quota}/day\"]"));
    assert!(found[2]["refused"].as_u64().unwrap() <= allowed);
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
    // Of those 25, only what was let through when it was recorded is excess.
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
fn the_page_is_self_contained_and_plots_the_report() {
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

fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

/// Two minutes of a client that calls three times a second, as a server logs it: with whole seconds.
fn steady_log(line: impl Fn(u64, usize) -> String) -> String {
    (0..360u64)
        .map(|call| line(1_455_944_400 + call / 3, (call % 7) as usize) + "\n")
        .collect()
}

#[test]
fn a_steady_client_is_not_refused_for_stamps_of_whole_seconds() {
    let five = "version = 1\nrules = 2\n[rate.\"http.requests\"]\nwindows = [\"5/s\"]\n";
    let log = steady_log(|second, _| {
        let at = second % 3_600;
        let (minute, second) = (at / 60, at % 60);
        format!(
            "203.0.113.7 - - [20/Feb/2016:05:{minute:02}:{second:02} +0000] \"GET / HTTP/1.1\" 200 5"
        )
    });
    let csv = steady_log(|second, _| format!("{second},http.requests,acme"));
    let dir = files(&[
        ("five.toml", five),
        ("access.log", &log),
        ("calls.csv", &format!("t,resource,domain\n{csv}")),
    ]);
    for file in ["access.log", "calls.csv"] {
        let spread = report(dir.path(), &["--limits", "five.toml", file]);
        assert_eq!(spread["results"][0]["refused"], 0, "{file}");
        assert_eq!(
            (
                &spread["inputs"]["spread_files"],
                &spread["inputs"]["spread_us"]
            ),
            (&1.into(), &1_000_000.into())
        );
        let written = report(
            dir.path(),
            &["--limits", "five.toml", "--stamps", "as-written", file],
        );
        // A closed window of a second has two of the log's seconds in it.
        assert_eq!(written["results"][0]["refused"], 60, "{file}");
        assert_eq!(written["inputs"]["spread_files"], 0);
        let (_, text, _) = run(dir.path(), &["backtest", "--limits", "five.toml", file]);
        assert!(
            text.contains("stamps are whole seconds: the calls of one are spread evenly over it"),
            "{text}"
        );
    }
}

/// Twelve clients of one network, each once a second, with stamps of whole seconds; one forges a forwarding list.
fn neighbours() -> String {
    let line = |at: u64, n: u64| {
        let forged = if n == 3 {
            format!("198.51.100.{at}")
        } else {
            "-".to_owned()
        };
        format!(
            "{{\"time\":{},\"remote_addr\":\"203.0.113.{n}\",\"http_x_forwarded_for\":\"{forged}\"}}\n",
            1_763_632_800 + at
        )
    };
    (0..60)
        .flat_map(|at| (1..=12).map(move |n| line(at, n)))
        .collect()
}

#[test]
fn a_network_is_one_client_and_a_filter_changes_no_figures() {
    let networks = "[rate.\"http.requests\"]\nrate = \"6/s\"\naddresses = { v4 = 24, v6 = 64 }\n";
    let alone = "[rate.\"http.requests\"]\nrate = \"1/10s\"\n";
    let dir = files(&[
        ("networks.toml", networks),
        ("alone.toml", alone),
        ("access.json", &neighbours()),
    ]);
    let of = |args: &[&str]| report(dir.path(), &[&["access.json"], args].concat());
    let refused = |report: &Value| report["results"][0]["refused"].as_u64().expect("a number");
    // Evenly spread, twelve a second are a call each 83 ms: of thirteen in any closed second six are let through.
    let together = of(&["--limits", "networks.toml"]);
    assert_eq!(together["inputs"]["domains"], 12);
    assert!((350..=400).contains(&refused(&together)), "{together}");
    assert_eq!(together["inputs"]["read_as"][0]["disbelieved"], 60);
    let suggested = of(&["--limits", "networks.toml", "--suggest", "0%"]);
    assert_eq!(
        suggested["suggestions"][0]["limit"], 13,
        "a closed second has thirteen"
    );

    let all = of(&["--limits", "alone.toml", "--limit", "20"]);
    let one = of(&["--limits", "alone.toml", "--domain", "203.0.113.3"]);
    assert_eq!(one["inputs"]["spread_files"], 1);
    assert_eq!(12 * refused(&one), refused(&all));
    let worst = all["results"][0]["worst"].as_array().expect("a list");
    let of_three = worst.iter().find(|pair| pair["domain"] == "203.0.113.3");
    assert_eq!(
        of_three.expect("it is refused")["first_refused_us"],
        one["results"][0]["worst"][0]["first_refused_us"]
    );
}

#[test]
fn a_report_says_that_the_only_domain_shares_limits_with_others() {
    let limits = "[rate.\"http.requests\"]\nrate = \"6/s\"\n";
    let dir = files(&[
        ("alone.toml", limits),
        ("global.toml", &(limits.to_owned() + "global = \"9/s\"\n")),
        (
            "networks.toml",
            &(limits.to_owned() + "addresses = { v4 = 24, v6 = 64 }\n"),
        ),
        ("access.json", &neighbours()),
    ]);
    let says = |document: &str, domain: &[&str]| {
        let args = [&["backtest", "access.json", "--limits", document], domain].concat();
        let (code, _, stderr) = run(dir.path(), &args);
        assert_eq!(code, 0, "{stderr}");
        stderr.contains("shares limits with others")
    };
    let domain = ["--domain", "203.0.113.3"];
    assert!(says("global.toml", &domain) && says("networks.toml", &domain));
    assert!(!says("alone.toml", &domain) && !says("global.toml", &[]));
}

#[test]
fn a_report_is_json_whatever_a_client_is_called() {
    let name = "tab\u{7f}\u{202e}\u{200d}evil\u{1b}[2J";
    let row = format!("{{\"t\":1763632800,\"domain\":{}}}\n", Value::from(name));
    let dir = files(&[
        ("limits.toml", "[rate.\"http.requests\"]\nrate = \"1/m\"\n"),
        ("calls.jsonl", &row.repeat(3)),
    ]);
    let report = report(dir.path(), &["--limits", "limits.toml", "calls.jsonl"]);
    assert_eq!(report["results"][0]["worst"][0]["domain"], name);
}

/// Recordings of clients that the formats name in different places.
fn recordings() -> tempfile::TempDir {
    let date = "[20/Feb/2016:05:00:45 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"curl\"";
    let addresses = [
        "::ffff:203.0.113.1",
        "203.0.113.1",
        "2001:DB8::1",
        "2001:db8:0::1",
        "[2001:db8::2]:80",
        "2001:db8::1",
        "203.0.113.1",
    ];
    let vhost = steady_log(|_, n| format!("www.example.com:443 203.0.113.{n} - - {date}"));
    let proxy = steady_log(|_, n| format!("10.0.0.5 - - {date} \"203.0.113.{n}, 10.0.0.9\""));
    let v6 = steady_log(|_, n| format!("{} - - {date}", addresses[n]));
    let caddy = steady_log(|at, n| {
        format!(
            "{{\"ts\":{at}.5,\"request\":{{\"remote_ip\":\"10.0.0.5\",\"client_ip\":\"203.0.113.{n}\"}}}}"
        )
    });
    let limits = "version = 1\nrules = 2\n[rate.\"http.requests\"]\nrate = \"1/s\"\n";
    files(&[
        ("limits.toml", limits),
        ("vhost.log", &vhost),
        ("proxy.log", &proxy),
        ("v6.log", &v6),
        ("caddy.log", &caddy),
    ])
}

const VHOST_PATTERN: &str = "%v:%p %h %l %u %t \"%r\" %>s %b";

#[test]
fn the_report_names_a_guessed_client() {
    let dir = recordings();
    let domains = |args: &[&str]| {
        let report = report(dir.path(), &[&["--limits", "limits.toml"], args].concat());
        let read = &report["inputs"]["read_as"][0];
        let number = report["inputs"]["domains"].as_u64().unwrap_or_default();
        (number, read["form"].clone(), read["client"].clone())
    };
    let expected = |domains, form: &str, client: &str| (domains, form.into(), client.into());
    for (args, expected) in [
        (
            &["vhost.log"][..],
            expected(7, "vhost_combined", "remote_addr"),
        ),
        (
            &["proxy.log"],
            expected(7, "combined_forwarded", "http_x_forwarded_for"),
        ),
        (&["v6.log"], expected(3, "combined", "remote_addr")),
        (&["caddy.log"], expected(7, "jsonl", "request.client_ip")),
        (
            &["vhost.log", "--log-format", VHOST_PATTERN, "--client", "%v"],
            expected(1, "pattern", "%v"),
        ),
    ] {
        assert_eq!(domains(args), expected);
    }
    for (args, expected) in [
        (["proxy.log", "--client", "remote_addr"], 1),
        (["v6.log", "--addresses", "v4=24,v6=64"], 2),
        (["caddy.log", "--column", "domain=request.remote_ip"], 1),
    ] {
        assert_eq!(domains(&args).0, expected, "{args:?}");
    }
}

#[test]
fn a_stated_client_that_no_row_has_is_reported() {
    let dir = recordings();
    let backtest = ["backtest", "--limits", "limits.toml"];
    let one_client = ["vhost.log", "--client", "%v", "--log-format", VHOST_PATTERN];
    let (_, text, _) = run(dir.path(), &[&backtest[..], &one_client].concat());
    assert!(text.contains("WARNING: all rows name one client"), "{text}");
    for (args, note) in [
        (
            ["--column", "domain=request.ip", "caddy.log"],
            "--column domain=request.ip: none of the first",
        ),
        (
            ["--client", "nobody", "caddy.log"],
            "--client nobody: none of the first",
        ),
        (
            ["--client", "nobody", "vhost.log"],
            "--client nobody: no such field with an instant beside it, expected one of host, remote_addr, time_local, ",
        ),
        (
            ["--client", "nobody", "proxy.log"],
            "request, status, bytes, referer, agent, ",
        ),
        (
            ["--log-format", "combind", "vhost.log"],
            "--log-format \"combind\": expected combined",
        ),
    ] {
        let (code, _, stderr) = run(dir.path(), &[&backtest[..], &args].concat());
        assert_eq!(code, 65, "{stderr}");
        assert!(stderr.contains(note), "{stderr}");
    }
}
