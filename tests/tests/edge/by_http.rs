//! Requests that anybody who can connect may send: foreign hosts, long lists, floods, names that need escaping.
//!
//! One server for all tests: each checks counters of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tollgate_shared::names::partition_of_pair;
use tollgate_tests::http;

use crate::attacked::Attacked;
use crate::peer::Hitter;

/// The number of denials in a list that is requested again and again.
const DENIED: usize = 12_000;

/// A name that would clear a terminal and forge a line of a log.
const EVIL: &str = "acme\u{1b}[2J\u{7}\nforged line\r\u{202e}evil";

fn get(attacked: &Attacked, path: &str, headers: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    let answer = http::ask(&*attacked.serving.http, request.as_bytes());
    answer.expect("an answer").0
}

fn post(attacked: &Attacked, body: &str, headers: &str) -> (u16, String) {
    let request = format!(
        "POST /v1/amendments HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    http::ask(&*attacked.serving.http, request.as_bytes()).expect("an answer")
}

fn act(act: &str, more: Value) -> String {
    let mut body = json!({"act": act, "who": "ann", "why": "a test"});
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body.to_string()
}

#[test]
fn requests_of_strangers_are_refused_and_counted() {
    let mut attacked = Attacked::start("");
    foreign_hosts_and_pages(&attacked);
    large_bodies_and_headers(&attacked);
    attacked.denials_arrive();
    names_that_terminals_obey(&mut attacked);
    amendments_without_end(&attacked);
    attacked.denials_arrive();
    long_lists(&mut attacked);
    attacked.denials_arrive();
    // Ten thousand rows per page, as values and as text.
    attacked.has_grown_at_most(64 << 20);
}

fn foreign_hosts_and_pages(attacked: &Attacked) {
    let before = attacked.metric("tollgate_http_strange_hosts_total ");
    let paths = [
        "/v1/denials",
        "/v1/log",
        "/v1/limits",
        "/v1/top",
        "/metrics",
    ];
    for path in paths {
        assert_eq!(
            get(attacked, path, "Host: rebind.evil.example\r\n"),
            421,
            "{path}"
        );
        assert_eq!(get(attacked, path, "Host: localhost\r\n"), 200, "{path}");
    }
    let refused = attacked.metric("tollgate_http_strange_hosts_total ") - before;
    assert_eq!(refused, paths.len() as u64);
    let ban = act("ban", json!({"domain": "acme"}));
    for origin in ["Origin: http://evil.example\r\n", "Origin: null\r\n"] {
        assert_eq!(post(attacked, &ban, origin).0, 403, "{origin}");
    }
    for path in [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
    ] {
        let status = get(attacked, path, "Host: localhost\r\n");
        assert!((400..500).contains(&status), "{path}: {status}");
    }
}

fn large_bodies_and_headers(attacked: &Attacked) {
    let before = attacked.metric("tollgate_http_bodies_too_large_total ");
    let body = format!("{{\"why\":\"{}\"}}", "a".repeat(1 << 20));
    assert_eq!(post(attacked, &body, "").0, 413);
    assert_eq!(
        attacked.metric("tollgate_http_bodies_too_large_total "),
        before + 1
    );
    let chunks = "POST /v1/amendments HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                  Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n";
    let (status, text) = http::ask(&*attacked.serving.http, chunks.as_bytes()).expect("an answer");
    assert_eq!(status, 400, "{text}");
    assert_eq!(
        attacked.metric("tollgate_http_bodies_too_large_total "),
        before + 1
    );
    let nested = "[".repeat(20_000);
    let (status, _) = post(attacked, &nested, "");
    assert!((400..500).contains(&status), "{status}");
    let header = format!("X-A: {}\r\n", "a".repeat(512 << 10));
    let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    let answer = http::ask(&*attacked.serving.http, request.as_bytes());
    assert!(answer.is_none_or(|(status, _)| 400 <= status));
}

fn names_that_terminals_obey(attacked: &mut Attacked) {
    let partition = partition_of_pair("api.day", EVIL, 4);
    let mut hitter = Hitter::new(&attacked.serving.agents);
    let record = hitter.record("api.day", &[EVIL.to_owned()]);
    hitter.append(partition, &record);
    let is_denied = |now: &mut Attacked| {
        let list = now.page("/v1/denials?resource=api.day");
        list["denials"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["domain"] == EVIL)
    };
    attacked.until("it is denied", is_denied);
    for (name, more) in [
        ("lift", json!({"resource": "api.day", "domain": EVIL})),
        ("ban", json!({"domain": EVIL})),
        ("unban", json!({"domain": EVIL})),
        ("reset", json!({"resource": "api.day", "domain": EVIL})),
    ] {
        let (status, body) = post(attacked, &act(name, more), "");
        assert_eq!(status, 200, "{name}: {body}");
    }
    assert!(!is_denied(attacked));
    for path in ["/v1/denials", "/v1/top", "/v1/limits", "/metrics"] {
        let text = http::get_text(&*attacked.serving.http, path).expect("an answer");
        assert!(
            !text.contains(['\u{1b}', '\u{7}', '\r']),
            "{path}: {text:?}"
        );
        assert!(
            !text.lines().any(|line| line.starts_with("forged")),
            "{path}"
        );
    }
}

fn amendments_without_end(attacked: &Attacked) {
    let before = attacked.metric("tollgate_amendments_refused_total ");
    // There is nothing to lift, so the log is unchanged. Twenty a second are accepted, and a second's worth at once; what
    // is malformed, or a dry run, does not count.
    let free = [
        act("nothing", json!({})),
        act("ban", json!({"domain": "acme", "dry_run": true})),
    ];
    for status in (0..60).map(|n| post(attacked, &free[n % 2], "").0) {
        assert!([200, 400].contains(&status), "{status}");
    }
    let nothing = act("lift", json!({"resource": "api.day", "domain": "nobody"}));
    let statuses: Vec<u16> = (0..400).map(|_| post(attacked, &nothing, "").0).collect();
    assert!(
        statuses.iter().all(|status| [422, 429].contains(status)),
        "{statuses:?}"
    );
    let too_many = statuses.iter().filter(|status| **status == 429).count() as u64;
    assert!(0 < too_many, "all 400 were taken");
    let refused = attacked.metric("tollgate_amendments_refused_total ") - before;
    assert_eq!(refused, too_many);
}

fn long_lists(attacked: &mut Attacked) {
    Hitter::of_secret(&attacked.serving.agents, [9; 32]).deny("api.day", DENIED, 4);
    attacked.until("all are denied", |now| {
        DENIED as u64 <= now.metric("tollgate_statements_live ")
    });
    let host = "Host: localhost\r\n";
    assert_eq!(get(attacked, "/v1/denials?limit=100000", host), 400);
    let over = AtomicBool::new(false);
    let http = attacked.serving.http.clone();
    let ask = |path: &str| {
        while !over.load(Ordering::Relaxed) {
            let page = http::get(&*http, path).expect("an answer");
            assert!(
                page["denials"]
                    .as_array()
                    .is_some_and(|rows| rows.len() <= 10_000)
            );
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| ask("/v1/denials?limit=10000"));
        }
        attacked.denials_arrive();
        attacked.denials_arrive();
        over.store(true, Ordering::Relaxed);
    });
}
