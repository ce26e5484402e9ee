//! A document of 100,000 overrides is read in no more time than it takes to read it, wherever they stand.
//!
//! What took time with the square of their number once took minutes. A test waits for half a minute
//! ([`support::DEADLINE`]), so that such a time fails it and a busy machine does not.

mod support;

use std::fmt::Write as _;
use std::time::Instant;

use support::{DEADLINE, directory, run, serve};

const OVERRIDES: usize = 100_000;

fn document(head: &str, line: impl Fn(&mut String, usize)) -> String {
    let mut text = format!("version = 1\nrules = 2\n{head}\n");
    for n in 0..OVERRIDES {
        line(&mut text, n);
        text.push('\n');
    }
    text
}

/// One in which each override is a dotted key from the root of the document.
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
fn a_hundred_thousand_overrides_are_checked_wherever_they_stand() {
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
fn a_hundred_thousand_overrides_are_served_read_again_and_left_at_once() {
    let dir = directory(&dotted(100));
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let before = served.metric("tollgate_limits_version");
    std::fs::write(dir.path().join("limits.toml"), dotted(101)).unwrap();
    served.signal("HUP");
    // Whoever asks meanwhile is answered, and what was in force stays so.
    let began = Instant::now();
    while served.metric("tollgate_limits_version") == before {
        let (status, body) = served.get("/readyz");
        assert_eq!(status, 200, "{body}");
        assert!(began.elapsed() < DEADLINE, "it is not read again");
    }
    // In the middle of reading it once more.
    std::fs::write(dir.path().join("limits.toml"), dotted(102)).unwrap();
    served.signal("HUP");
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
}
