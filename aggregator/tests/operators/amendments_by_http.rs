//! Amendments by HTTP, as programs send them that are not `tollgate`: a request that is wrong changes nothing, and the
//! answer says why. So does the command.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use tollgate_log::clock::wall;

use crate::support::{DEADLINE, LIMITS, directory, run, serve, serve_of};

/// Posts an amendment; returns status and body.
fn amend(address: SocketAddr, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    let head = "POST /v1/amendments HTTP/1.1\r\nHost: localhost\r\nConnection: close";
    let length = body.len();
    write!(
        stream,
        "{head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split_whitespace().nth(1).map(str::parse);
    (
        status.expect("a status").expect("a number"),
        body.to_owned(),
    )
}

#[test]
fn a_ban_ends_after_now_or_is_refused() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let ban = |until_us: u64| {
        let body = format!(
            r#"{{"act":"ban","domain":"mallory","until_us":{until_us},"who":"ann","why":"a test"}}"#
        );
        amend(served.http, &body)
    };
    let end = wall().as_micros() + 60_000_000;
    // Somebody states milliseconds.
    let (status, body) = ban(end / 1_000);
    assert_eq!(status, 400, "{body}");
    assert!(
        body.contains("the end of the ban is not after now"),
        "{body}"
    );
    let (status, body) = ban(end);
    assert_eq!(status, 200, "{body}");
}

#[test]
fn an_array_in_place_of_an_object_is_refused() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let row = r#"{"resource":"api.search","domain":"acme","rate":"9/s"}"#;
    let set = |rows: &str| format!(r#"{{"act":"set","who":"ann","why":"a test","rows":{rows}}}"#);
    for wrong in [
        r#"["lift","api.search","acme"]"#.to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        set(r#"[["api.search","acme","9/s",null,null]]"#),
        set(row),
    ] {
        let (status, body) = amend(served.http, &wrong);
        assert_eq!(status, 400, "{wrong}: {body}");
        let expected = if wrong.ends_with("\"}}") {
            "expected a sequence"
        } else {
            "expected an object"
        };
        assert!(body.contains(expected), "{wrong}: {body}");
    }
    let (status, body) = amend(served.http, &set(&format!("[{row}]")));
    assert_eq!(status, 200, "{body}");
}

#[test]
fn rows_that_state_one_limit_twice_are_refused() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let set = |rows: &[(&str, &str)]| {
        let rows = rows.iter().map(|(domain, own)| {
            format!(r#"{{"resource":"api.search","domain":"{domain}",{own}}}"#)
        });
        let rows = rows.collect::<Vec<_>>().join(",");
        let body = format!(r#"{{"act":"set","who":"ann","why":"a test","rows":[{rows}]}}"#);
        amend(served.http, &body)
    };
    let (rate, other, hard) = (r#""rate":"9/s""#, r#""rate":"8/s""#, r#""hard":"7/s""#);
    let twice = [
        ("2001:DB8::/32", rate),
        ("acme", rate),
        ("2001:db8::/32", other),
    ];
    let (status, body) = set(&twice);
    assert_eq!(status, 400, "{body}");
    let expected = "rows[0] and rows[2] both state rate of 2001:db8::/32 of api.search";
    assert!(body.contains(expected), "{body}");
    let (status, body) = set(&[twice[0], twice[1], ("2001:db8::/32", hard)]);
    assert_eq!(status, 200, "{body}");
}

/// No call is on a pattern, so an act on one would change nothing and be reported as done.
#[test]
fn an_act_on_a_pattern_is_refused() {
    let limits = format!("{LIMITS}[rate.\"p.*\"]\nrate = \"2/h\"\n");
    let dir = directory(&limits);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    for act in [
        r#""act":"ban""#,
        r#""act":"lift""#,
        r#""act":"reset""#,
        r#""act":"refund","hits":1"#,
    ] {
        let who = r#""domain":"x","who":"ann","why":"a test""#;
        let body = format!(r#"{{{act},"resource":"p.*",{who}}}"#);
        let (status, answer) = amend(served.http, &body);
        assert_eq!(status, 400, "{act}: {answer}");
        assert!(answer.contains("one of the resources"), "{act}: {answer}");
    }
    let url = format!("http://{}", served.http);
    let ban = ["ban", "p.*", "x", "--reason", "a test", "--url", &url];
    let (code, out, err) = run(dir.path(), &ban);
    assert_eq!(code, 65, "{out}{err}");
    assert!(err.contains("--everywhere"), "{err}");
    let (code, out, err) = run(dir.path(), &["denials", "--url", &url]);
    assert_eq!((code, out.contains("banned")), (0, false), "{out}{err}");
    // A resource under the pattern can be banned.
    let ban = ["ban", "p.a", "x", "--reason", "a test", "--url", &url];
    assert_eq!(run(dir.path(), &ban).0, 0);
}

#[test]
fn an_act_without_a_reason_or_author_is_refused_by_the_option() {
    let dir = directory(LIMITS);
    let set = [
        "limits",
        "set",
        "api.search",
        "--domain",
        "d",
        "--rate",
        "1/s",
    ];
    let import = ["limits", "import", "rows.csv"];
    let ban = ["ban", "api.search", "d"];
    for act in [&set[..], &import, &ban] {
        for (more, says) in [
            (["--reason", "", "--by", "ann"], "'--reason <TEXT>'"),
            (["--reason", "a bug", "--by", " "], "'--by <NAME>'"),
        ] {
            let (code, _, stderr) = run(dir.path(), &[act, &more].concat());
            assert_eq!(code, 64, "{act:?}: {stderr}");
            assert!(stderr.contains(says), "{act:?}: no {says} in {stderr}");
        }
    }
}

/// It would be void in the log, and be answered as if the aggregator were away.
#[test]
fn an_act_before_the_first_limits_is_refused() {
    let dir = directory(LIMITS);
    let served = serve_of(dir.path(), &["--partitions", "4"]);
    let url = format!("http://{}", served.http);
    let is_read = |view: &serde_json::Value| view["bans"].is_array();
    served.await_json("/v1/bans", is_read);
    for act in ["ban --everywhere mallory", "namespaces kill api"] {
        for more in [&["--dry-run"][..], &[]] {
            let words = act.split(' ').collect::<Vec<_>>();
            let args = [&words, &["--reason", "a test", "--url", &url][..], more].concat();
            let (code, out, err) = run(dir.path(), &args);
            assert_eq!(code, 1, "{args:?}: {out}{err}");
            assert!(err.contains("expected a limits document first"), "{err}");
        }
    }
    assert_eq!(served.metric("tollgate_amendments_total"), 0.0);
}
