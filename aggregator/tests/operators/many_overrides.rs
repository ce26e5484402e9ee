//! Documents with as many overrides as fit are read fast, wherever the overrides stand in them; and rows beside a
//! document may be more.
//!
//! Reading once took time with the square of their number: minutes. A test waits for half a minute
//! ([`DEADLINE`]), so that such a time fails it and a busy machine does not.

use std::fmt::Write as _;
use std::time::Instant;

use tollgate_shared::wire::limits_document::DOCUMENT_BYTES_MAX;

use crate::support::{DEADLINE, LIMITS, directory, run, run_with, serve};

/// Rows beside a document.
const ROWS: usize = 20_000;

/// A document that has no room for another line.
fn document(head: &str, line: impl Fn(&mut String, usize)) -> String {
    let mut text = format!("version = 1\nrules = 2\n{head}\n");
    for n in 0.. {
        let mut more = String::new();
        line(&mut more, n);
        if DOCUMENT_BYTES_MAX < text.len() + more.len() + 100 {
            break;
        }
        text = text + &more + "\n";
    }
    text
}

/// A document in which each override is a dotted key from the root.
fn dotted(default: u32) -> String {
    let head = format!("rate.\"api.search\".rate = \"{default}/s\"");
    document(&head, |text, n| {
        let rate = 5 + n % 50;
        let _ = write!(
            text,
            "rate.\"api.search\".domains.\"tenant-{n}\".rate = \"{rate}/s\""
        );
    })
}

fn documents() -> [(&'static str, String); 4] {
    let domains = document(
        "[rate.\"api.search\"]\nrate = \"100/s\"\n[rate.\"api.search\".domains]",
        |text, n| {
            let _ = write!(text, "\"tenant-{n}\" = {{ rate = \"{}/s\" }}", 5 + n % 50);
        },
    );
    let copies = document(
        "[copies.sandbox]\nlimit = 10\n[copies.sandbox.domains]",
        |text, n| {
            let _ = write!(text, "\"tenant-{n}\" = {}", 1 + n % 50);
        },
    );
    let plans = document("[plans]\ngold = [", |text, n| {
        let _ = write!(text, "\"tenant-{n}\",");
    });
    let plans = plans + "]\n[rate.\"api.search\"]\nrate = \"100/s\"\nplans.gold.rate = \"9/s\"\n";
    [
        ("dotted", dotted(100)),
        ("domains", domains),
        ("copies", copies),
        ("plans", plans),
    ]
}

#[test]
fn as_many_overrides_as_fit_are_checked_wherever_they_stand() {
    for (place, text) in documents() {
        let dir = directory(&text);
        let began = Instant::now();
        let (code, stdout, stderr) = run(dir.path(), &["check", "limits.toml", "--format", "json"]);
        assert_eq!(code, 0, "{place}: {stderr}");
        assert!(stdout.contains("\"good\":true"), "{place}: {stdout}");
        assert!(began.elapsed() < DEADLINE, "{place}");
    }
}

#[test]
fn many_rows_are_served_and_outlast_a_full_document() {
    let dir = directory("[rate.\"api.search\"]\nrate = \"100/s\"\n");
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let rows = (0..ROWS).map(|n| format!("api.search,row-{n},{}/s\n", 5 + n % 50));
    let rows = "resource,domain,rate\n".to_owned() + &rows.collect::<String>();
    std::fs::write(dir.path().join("many.csv"), rows).unwrap();
    let url = format!("http://{}", served.http);
    let import = ["limits", "import", "many.csv", "--url", &url];
    let (code, _, stderr) = run(dir.path(), &[&import[..], &["--reason", "many"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let before = served.metric("tollgate_limits_version");
    std::fs::write(dir.path().join("limits.toml"), dotted(101)).unwrap();
    served.signal("HUP");
    // Requests are answered meanwhile, and the version in force stays.
    let began = Instant::now();
    while served.metric("tollgate_limits_version") == before {
        let (status, body) = served.get("/readyz");
        assert_eq!(status, 200, "{body}");
        assert!(began.elapsed() < DEADLINE, "it is not read again");
    }
    let limits = served.json("/v1/limits");
    assert_eq!(limits["rows"], ROWS);
    let normalised = limits["normalised"].as_str().unwrap();
    for expected in [
        "rate = \"101/s\"",
        "row-7 = { rate = \"12/s\" }",
        "tenant-7 = { rate = \"12/s\" }",
    ] {
        assert!(normalised.contains(expected), "{expected}");
    }
    // In the middle of reading it once more.
    std::fs::write(dir.path().join("limits.toml"), dotted(102)).unwrap();
    served.signal("HUP");
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
    // A document that is too long is refused with advice.
    let long = dotted(103) + &dotted(103);
    std::fs::write(dir.path().join("limits.toml"), &long).unwrap();
    let (code, stdout, stderr) = run(dir.path(), &["check", "limits.toml"]);
    let output = stdout + &stderr;
    assert_eq!(code, 65, "{output}");
    let expected = format!("{} bytes, expected at most 524288", long.len());
    assert!(
        output.contains(&expected) && output.contains("tollgate limits import"),
        "{output}"
    );
}

/// All rows are checked before the first is sent, and a fault is named by its line.
#[test]
fn an_import_with_a_fault_near_its_end_changes_nothing() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let row = |n: usize| match n {
        2_500 => format!("api.search,tenant-{n},9/fortnight\n"),
        _ => format!("api.search,tenant-{n},9/s\n"),
    };
    let rows: String = (2..=3_000).map(row).collect();
    let text = format!("resource,domain,rate\n{rows}");
    std::fs::write(dir.path().join("bad.csv"), text).expect("written");
    let before = served.json("/v1/limits")["version"].clone();
    let url = format!("http://{}", served.http);
    let args = [
        "limits", "import", "bad.csv", "--reason", "x", "--url", &url,
    ];
    let (code, out, err) = run(dir.path(), &args);
    assert_eq!(code, 65, "{out}{err}");
    assert!(err.contains("bad.csv:2500"), "{err}");
    assert_eq!(served.json("/v1/limits")["version"], before);
}

/// A pattern may have rows, by command as by import.
#[test]
fn a_row_of_a_pattern_is_set_and_removed() {
    let dir = directory(&format!("{LIMITS}[rate.\"p.*\"]\nrate = \"2/h\"\n"));
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    for change in [["--rate", "5/h"].as_slice(), &["--remove"]] {
        let args = [
            "limits", "set", "p.*", "--domain", "acme", "--reason", "x", "--url", &url,
        ];
        let (code, out, err) = run(dir.path(), &[&args[..], change].concat());
        assert_eq!(code, 0, "{out}{err}");
    }
}

/// Who expects no version is not refused because another act came first.
#[test]
fn an_import_and_bans_at_once_all_come_into_force() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut csv = "resource,domain,rate\n".to_owned();
    for n in 0..4_000 {
        let _ = writeln!(csv, "api.search,tenant-{n},9/s");
    }
    std::fs::write(dir.path().join("rows.csv"), csv).expect("written");
    let url = format!("http://{}", served.http);
    let more = ["--reason", "x", "--url", &url];
    let names: Vec<String> = (0..6).map(|n| format!("bad-{n}")).collect();
    let mut all = vec![vec!["limits", "import", "rows.csv"]];
    all.extend(
        names
            .iter()
            .map(|name| vec!["ban", "--everywhere", name, "--for", "1h"]),
    );
    std::thread::scope(|scope| {
        let path = dir.path();
        let mut running = Vec::new();
        for args in &all {
            let args = [&args[..], &more].concat();
            running.push(scope.spawn(move || run(path, &args)));
        }
        for (args, one) in all.iter().zip(running) {
            let (code, _, stderr) = one.join().expect("it runs");
            assert_eq!(code, 0, "{args:?}: {stderr}");
        }
    });
    assert_eq!(served.json("/v1/limits")["rows"], 4_000);
    assert_eq!(served.metric("tollgate_amendments_refused_total"), 0.0);
}

/// What a journal has in force is read beside its aggregator, and taken to another log.
#[test]
fn document_and_rows_of_a_journal_are_written_to_files() {
    let document = LIMITS.replace('\n', "\r\n");
    let dir = directory(&document);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let rows = "resource,domain,rate,hard,limit\napi.search,\"a, b\",9/s,,\napi.search,c,,7/s,\n";
    std::fs::write(dir.path().join("rows.csv"), rows).expect("written");
    let import = [
        "limits", "import", "rows.csv", "--reason", "x", "--url", &url,
    ];
    let (code, out, err) = run(dir.path(), &import);
    assert_eq!(code, 0, "{out}{err}");
    let show = |more: &[&str]| {
        let show = ["limits", "show", "--journal", "tollgate-data"];
        run(dir.path(), &[&show[..], more].concat())
    };
    let (code, out, err) = show(&["--rows"]);
    assert_eq!((code, &*out), (0, rows), "{err}");
    let (code, out, err) = show(&[]);
    assert_eq!((code, out), (0, document), "{err}");
    assert!(err.contains("2 domains have rows of their own"), "{err}");
    for (more, schema) in [
        (&[][..], "tollgate.limits_version/1"),
        (&["--rows"], "tollgate.limits_row/1"),
    ] {
        let (_, out, err) = show(&[more, &["--format", "json"]].concat());
        for line in out.lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(line["schema"], schema, "{err}");
        }
        assert!(!out.is_empty(), "{err}");
    }
    let (code, out, err) = show(&["--rows", "1"]);
    let heading = rows.lines().next();
    assert_eq!((code, out.lines().next()), (0, heading), "{err}");
    assert_eq!(out.lines().count(), 1, "the first version has no rows");
    let (code, _, err) = show(&["77"]);
    assert!(code == 65 && err.contains("version 77"), "{err}");
}

#[test]
fn rows_are_set_through_the_aggregator_of_the_environment() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    std::fs::write(
        dir.path().join("rows.csv"),
        "resource,domain,rate\napi.search,e,1/s\n",
    )
    .unwrap();
    let url = format!("http://{}", served.http);
    let env = [("TOLLGATE_URL", &*url)];
    let set = [
        "limits",
        "set",
        "api.search",
        "--rate",
        "1/s",
        "--reason",
        "x",
    ];
    let of_domain = [&set[..], &["--domain", "d"]].concat();
    let import = ["limits", "import", "rows.csv", "--reason", "x"];
    for (rows, args) in [(1, &of_domain[..]), (2, &import[..])] {
        let (code, _, stderr) = run_with(dir.path(), args, &env);
        assert_eq!(code, 0, "{args:?}: {stderr}");
        assert_eq!(served.json("/v1/limits")["rows"], rows, "{args:?}");
        // An option goes before it, and so does the other aggregator of --url.
        let journal = [args, &["--journal", "data"]].concat();
        let (code, _, stderr) = run_with(dir.path(), &journal, &env);
        assert_eq!(code, 64, "{args:?}: {stderr}");
        let nobody = [args, &["--url", "http://127.0.0.1:1"]].concat();
        let (code, _, stderr) = run_with(dir.path(), &nobody, &env);
        assert!(code == 69 && stderr.contains("127.0.0.1:1"), "{stderr}");
        let both = [&nobody[..], &["--kafka", "127.0.0.1:1"]].concat();
        let (code, _, stderr) = run_with(dir.path(), &both, &[]);
        assert!(
            code == 64 && stderr.contains("expected one of them"),
            "{stderr}"
        );
        let (code, _, stderr) = run_with(dir.path(), args, &[("TOLLGATE_URL", "localhost")]);
        assert_eq!(code, 64, "{args:?}: {stderr}");
        let says = "TOLLGATE_URL = \"localhost\": expected an aggregator's address";
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
    // Limits of all domains stand in the document, which no aggregator writes.
    let (code, _, stderr) = run_with(dir.path(), &set, &env);
    assert!(
        code == 64 && stderr.contains("expected --domain"),
        "{stderr}"
    );
    let journal = [&set[..], &["--journal", "data"]].concat();
    let (code, _, stderr) = run_with(dir.path(), &journal, &env);
    assert_eq!(code, 64, "{stderr}");
}
