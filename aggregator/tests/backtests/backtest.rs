//! Tests of `tollgate backtest`, with the binary: its counts are those of the independent model, whatever form the
//! recording has; and it reports what it cannot read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::Value;
use tollgate_limits::Limits;
use tollgate_model::InlineLimiter;
use tollgate_replay::model_check::to_model;

const LIMITS: &str = r#"
version = 1
rules = 2
[rate.api]
rate = "3/s"
"#;

fn tollgate(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command
        .current_dir(dir)
        .stdin(Stdio::null())
        .arg("backtest")
        .args(args)
        .output()
        .expect("runs")
}

fn report(dir: &Path, args: &[&str]) -> Value {
    let output = tollgate(dir, &[args, &["--format", "json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).expect("an object")
}

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("written");
    }
    dir
}

/// A recorded call: stamp in microseconds, resource, domain, copies, min.
type Recorded = (u64, String, String, u64, u64);

/// Bursts of calls of some pairs, with stamps that step back.
fn traffic(draw: &mut ChaCha8Rng, calls: usize) -> Vec<Recorded> {
    let mut below = |n: u64| draw.next_u64() % n;
    let mut at = 1_455_944_445_000_000;
    let call = |_| {
        at += match below(10) {
            0 => below(4_000_000),
            1..4 => below(400_000),
            4..8 => below(20_000),
            _ => 0,
        };
        let stamp = if below(8) == 0 {
            at - below(3_000_000)
        } else {
            at
        };
        let copies = if below(4) == 0 { 1 + below(4) } else { 1 };
        let min = 1 + below(copies);
        let resource = ["api", "wide", "other"][below(3) as usize];
        let domain = ["a", "b", "c", "d", "gold"][below(5) as usize];
        (stamp, resource.to_owned(), domain.to_owned(), copies, min)
    };
    (0..calls).map(call).collect()
}

/// Random limits with tiers, hard and global limits and an override.
fn limits(draw: &mut ChaCha8Rng) -> String {
    let mut below = |n: u64| draw.next_u64() % n;
    let mut text = "version = 1\nrules = 2\n".to_owned();
    for resource in ["api", "wide"] {
        let _ = writeln!(text, "[rate.{resource}]");
        if below(2) == 0 {
            let _ = writeln!(text, "hard = \"{}/s\"", 1 + below(6));
        }
        if below(2) == 0 {
            let _ = writeln!(text, "global = \"{}/s\"", 2 + below(12));
        }
        let tier = |below: &mut dyn FnMut(u64) -> u64| {
            let window_ms = 100 * (1 + below(30));
            format!(
                "{{ limit = {}, window = \"{window_ms}ms\", active = \"{}ms\", cooldown = \"{}ms\", skippable = {} }}",
                below(8),
                window_ms * (1 + below(4)),
                below(3) * 1_000,
                below(2) == 0
            )
        };
        let tiers: Vec<String> = (0..1 + below(3)).map(|_| tier(&mut below)).collect();
        let _ = writeln!(text, "tiers = [{}]", tiers.join(", "));
        let _ = writeln!(text, "domains.gold.rate = \"{}/s\"", 1 + below(20));
    }
    text
}

/// Calls and refused calls by pair, according to the model.
fn of_model(text: &str, calls: &[Recorded]) -> BTreeMap<(String, String), (u64, u64, u64)> {
    let limits = Limits::parse(text).expect("good limits");
    let resources = to_model(&limits).resources;
    let limiter = |(name, limits)| (name, InlineLimiter::new(limits));
    let mut limiters: BTreeMap<String, InlineLimiter> =
        resources.into_iter().map(limiter).collect();
    let mut pairs = BTreeMap::new();
    for (at, resource, domain, copies, min) in calls {
        let granted = match limiters.get_mut(resource) {
            Some(limiter) => limiter.grant(*at, domain, *copies, *min),
            None => *copies,
        };
        let (calls, refused, hits): &mut (u64, u64, u64) =
            pairs.entry((resource.clone(), domain.clone())).or_default();
        *calls += 1;
        *refused += u64::from(granted == 0);
        *hits += granted;
    }
    pairs
}

/// Refused pairs with their calls and refused calls, as the report lists them.
fn refused_pairs(result: &Value) -> BTreeMap<(String, String), (u64, u64)> {
    let number = |pair: &Value, field: &str| pair[field].as_u64().expect("a number");
    let name = |pair: &Value, field: &str| pair[field].as_str().expect("a name").to_owned();
    let pairs = result["worst"].as_array().expect("a list").iter();
    pairs
        .map(|pair| {
            (
                (name(pair, "resource"), name(pair, "domain")),
                (number(pair, "calls"), number(pair, "refused")),
            )
        })
        .collect()
}

#[test]
fn a_backtest_agrees_with_the_independent_model() {
    let (mut refused_in_all, mut granted_in_part) = (0, 0);
    for seed in 0..24 {
        let mut draw = ChaCha8Rng::seed_from_u64(seed);
        let calls = traffic(&mut draw, 1_500);
        let documents = [limits(&mut draw), limits(&mut draw)];
        let mut csv = "t,resource,domain,copies,min\n".to_owned();
        for (at, resource, domain, copies, min) in &calls {
            let _ = writeln!(csv, "{at},{resource},{domain},{copies},{min}");
        }
        let dir = directory(&[
            ("calls.csv", &csv),
            ("0.toml", &documents[0]),
            ("1.toml", &documents[1]),
        ]);
        let mut in_order = calls.clone();
        in_order.sort_by_key(|(at, ..)| *at);
        for (calls, more) in [(&in_order, None), (&calls, Some("--as-recorded"))] {
            let args = [
                "--limits",
                "0.toml",
                "--limits",
                "1.toml",
                "calls.csv",
                "--limit",
                "999",
            ];
            let args: Vec<&str> = args.into_iter().chain(more).collect();
            let report = report(dir.path(), &args);
            // A single file is played on all cores, and the result must not depend on that.
            let alone = [&["--limits", "0.toml"], &args[4..]].concat();
            assert_eq!(
                self::report(dir.path(), &alone)["results"][0],
                report["results"][0],
                "seed {seed} {more:?}"
            );
            for (text, result) in documents.iter().zip(report["results"].as_array().unwrap()) {
                let model = of_model(text, calls);
                let hits: u64 = model.values().map(|(_, _, hits)| hits).sum();
                let refused: BTreeMap<_, _> = model
                    .iter()
                    .filter(|(_, (_, refused, _))| 0 < *refused)
                    .map(|(pair, (calls, refused, _))| (pair.clone(), (*calls, *refused)))
                    .collect();
                assert_eq!(
                    refused_pairs(result),
                    refused,
                    "seed {seed} {more:?}\n{text}"
                );
                assert_eq!(result["hits_granted"], hits, "seed {seed}");
                let total: u64 = refused.values().map(|(_, refused)| refused).sum();
                assert_eq!(result["refused"], total, "seed {seed}");
                assert_eq!(result["granted"], 1_500 - total, "seed {seed}");
                refused_in_all += total;
                granted_in_part += u64::from(result["hits_refused"] != total);
            }
        }
    }
    // Traffic far below or above the limits would agree with anything.
    assert!(
        (10_000..120_000).contains(&refused_in_all),
        "{refused_in_all}"
    );
    assert!(0 < granted_in_part);
}

#[test]
fn the_form_of_a_recording_does_not_change_the_report() {
    let (mut csv, mut jsonl, mut log) = ("t,domain\n".to_owned(), String::new(), String::new());
    for n in 0..40u64 {
        let (second, domain) = (n / 8, ["10.0.0.1", "10.0.0.2", "::1"][n as usize % 3]);
        let t = 1_455_944_445 + second;
        let _ = writeln!(csv, "{t},{domain}");
        let _ = writeln!(
            jsonl,
            "{{\"t\":{t},\"resource\":\"api\",\"domain\":\"{domain}\"}}"
        );
        let at = 45 + second;
        let _ = writeln!(
            log,
            "{domain} - - [20/Feb/2016:00:00:{at} -0500] \"GET / HTTP/1.1\" 200 5 \"-\" \"x\""
        );
    }
    let dir = directory(&[
        ("limits.toml", LIMITS),
        ("calls.csv", &csv),
        ("calls.jsonl", &jsonl),
        ("access.log", &log),
    ]);
    let packed = std::fs::File::create(dir.path().join("access.log.gz")).unwrap();
    let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::fast());
    packed.write_all(log.as_bytes()).unwrap();
    packed.finish().unwrap();
    let packed = std::fs::File::create(dir.path().join("calls.jsonl.xz")).unwrap();
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut packed = lzma_rust2::XzWriter::new(packed, options).unwrap();
    packed.write_all(jsonl.as_bytes()).unwrap();
    packed.finish().unwrap();

    let of = |file: &str| {
        let report = report(
            dir.path(),
            &[
                "--limits",
                "limits.toml",
                "--resource",
                "api",
                "--stamps",
                "as-written",
                file,
            ],
        );
        assert_eq!(report["inputs"]["rows"], 40, "{file}");
        assert_eq!(report["inputs"]["skipped"], 0, "{file}");
        report["results"][0].clone()
    };
    let expected = of("calls.csv");
    // Fifteen pairs and seconds; three per second leave at most ten over, and there are some.
    assert!(0 < expected["refused"].as_u64().unwrap());
    assert_eq!(expected["domains"], 3);
    for file in [
        "calls.jsonl",
        "access.log",
        "access.log.gz",
        "calls.jsonl.xz",
    ] {
        assert_eq!(of(file), expected, "{file}");
    }
}

#[test]
fn limits_files_are_compared_with_the_first() {
    let calls =
        "t,resource,domain\n1,api,a\n1,api,a\n1,api,b\n1,api,b\n1,api,b\n1,api,gold\n1,api,gold\n";
    let strict_for_a = "[rate.api]\nrate = \"9/s\"\ndomains.a.rate = \"1/s\"\n";
    let dir = directory(&[
        ("calls.csv", calls),
        ("now.toml", "[rate.api]\nrate = \"2/s\"\n"),
        ("then.toml", strict_for_a),
    ]);
    let args = ["--limits", "now.toml", "--limits", "then.toml", "calls.csv"];
    let report = report(dir.path(), &args);
    let [now, then] = [0, 1].map(|n| &report["results"][n]);
    assert_eq!((&now["refused"], &then["refused"]), (&1.into(), &1.into()));
    assert_eq!(now["compared"], Value::Null);
    let compared = &then["compared"];
    assert_eq!(compared["with"], "now.toml");
    assert_eq!(compared["newly_refused"]["pairs"], 1);
    assert_eq!(compared["newly_refused"]["shown"][0]["domain"], "a");
    assert_eq!(compared["no_longer_refused"]["shown"][0]["domain"], "b");
    assert_eq!(then["domains_refused"], 1);
    let output = tollgate(dir.path(), &args);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        page.contains("newly refused, against now.toml: 1 pairs, 1 calls"),
        "{page}"
    );
    assert!(
        page.contains("no longer refused, against now.toml: 1 pairs, 1 calls"),
        "{page}"
    );
}

#[test]
fn a_call_for_copies_is_granted_whole_unless_it_says_otherwise() {
    let calls = "t,resource,domain,copies,min\n1,api,a,5,\n2,api,b,5,2\n3,api,c,5,4\n";
    let dir = directory(&[("calls.csv", calls), ("limits.toml", LIMITS)]);
    let of = |more: &[&str]| {
        let args = [&["--limits", "limits.toml", "calls.csv"], more].concat();
        let result = report(dir.path(), &args)["results"][0].clone();
        ["granted", "refused", "hits_granted", "hits_refused"]
            .map(|field| result[field].as_u64().unwrap())
    };
    assert_eq!(of(&[]), [1, 2, 3, 12]);
    assert_eq!(of(&["--min", "1"]), [2, 1, 6, 9]);
}

#[test]
fn unreadable_rows_are_counted_and_shown_or_refused() {
    let calls = "t,resource,domain\n1,api,a\nsoon,api,a\n2,api\n\n3,api,b\n4,a*i,b\n";
    let dir = directory(&[("calls.csv", calls), ("limits.toml", LIMITS)]);
    let args = ["--limits", "limits.toml", "calls.csv"];
    let report = report(dir.path(), &args);
    let inputs = &report["inputs"];
    assert_eq!(
        (&inputs["rows"], &inputs["skipped"]),
        (&5.into(), &3.into())
    );
    assert_eq!(inputs["first_skipped_line"], 3);
    let lines: Vec<u64> = inputs["skipped_shown"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bad| bad["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [3, 4, 7]);
    assert_eq!(report["results"][0]["calls"], 2);
    let page = String::from_utf8(tollgate(dir.path(), &args).stdout).unwrap();
    assert!(
        page.contains("calls.csv: line 3: expected an instant"),
        "{page}"
    );
    let strict = tollgate(dir.path(), &[&args[..], &["--strict"]].concat());
    let stderr = String::from_utf8_lossy(&strict.stderr);
    assert_eq!(strict.status.code(), Some(65), "{stderr}");
    assert!(
        stderr.contains("calls.csv: line 3: expected an instant"),
        "{stderr}"
    );
    assert!(strict.stdout.is_empty());
}

#[test]
fn an_impossible_backtest_has_an_exit_code_and_no_report() {
    let log = "10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] \"GET / HTTP/1.1\" 200 5\n";
    let dir = directory(&[
        ("limits.toml", LIMITS),
        ("bad.toml", "[rate.api]\nrats = \"1/s\"\n"),
        ("calls.csv", "t,resource,domain\n1,api,a\n"),
        ("junk.log", "one\ntwo\n"),
        ("empty.csv", "\n\n"),
        ("heading.csv", "t,resource,domain\n"),
        ("no_t.csv", "at,resource,domain\n1,api,a\n"),
        ("access.log", log),
    ]);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut draw = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..20_000 {
        let _ = writeln!(packed, "{},api,d{}", draw.next_u32(), draw.next_u32());
    }
    let packed = packed.finish().unwrap();
    std::fs::write(dir.path().join("cut.csv.gz"), &packed[..packed.len() / 2]).unwrap();
    let rows = [
        ("calls.csv", 64, "--limits"),
        ("--limits limits.toml", 64, "recorded traffic"),
        (
            "--limits limits.toml calls.csv --column x=y",
            64,
            "--column",
        ),
        ("--limits limits.toml calls.csv --min 0", 64, "--min"),
        ("--limits limits.toml none.csv", 66, "none.csv"),
        ("--limits none.toml calls.csv", 66, "none.toml"),
        (
            "--limits limits.toml --limits bad.toml calls.csv",
            65,
            "did you mean `rate`",
        ),
        (
            "--limits limits.toml junk.log",
            65,
            "none of 2 rows can be read; line 1: expected",
        ),
        ("--limits limits.toml empty.csv", 65, "no rows"),
        ("--limits limits.toml heading.csv", 65, "no rows"),
        (
            "--limits limits.toml --csv no_t.csv",
            65,
            "line 1: expected a heading with a column t",
        ),
        (
            "--limits limits.toml cut.csv.gz",
            65,
            "cut.csv.gz: damaged or cut off after line",
        ),
    ];
    for (args, code, says) in rows {
        let output = tollgate(dir.path(), &args.split(' ').collect::<Vec<_>>());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(stderr.contains(says), "{args}: no {says:?} in {stderr}");
        assert!(output.stdout.is_empty(), "{args}");
    }
    let misnamed = tollgate(dir.path(), &["--limits", "limits.toml", "access.log"]);
    let stderr = String::from_utf8_lossy(&misnamed.stderr);
    assert_eq!(misnamed.status.code(), Some(65));
    assert!(
        stderr.contains("no limits on the rate of \"http.requests\""),
        "{stderr}"
    );
    assert!(stderr.contains("expected one of: api"), "{stderr}");
}

#[test]
fn a_recording_from_stdin_is_read_like_a_file() {
    let dir = directory(&[("limits.toml", LIMITS)]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .current_dir(dir.path())
        .args([
            "backtest",
            "--limits",
            "limits.toml",
            "--format",
            "json",
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut stdin = child.stdin.take().unwrap();
    stdin
        .write_all(b"1,api,a\n1,api,a\n1,api,a\n1,api,a\n")
        .unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["results"][0]["refused"], 1);
    assert_eq!(report["inputs"]["names"][0], "(stdin)");
}
