//! TLS, tokens and roles, by real processes and sockets: who is let in, and who is not.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use support::tls::{CONFIG, Fleet, keys, until};
use support::{DEADLINE, LIMITS, directory, run, serve};

#[test]
fn an_agent_with_a_token_is_limited_over_tls() {
    let fleet = Fleet::start();
    let (code, stdout, stderr) = fleet.hits(Some("checkout"), "checkout-1", &["-n", "30"]);
    assert_eq!(code, 1, "{stdout}{stderr}");
    assert!(!stdout.contains("30 allowed"), "{stdout}");
    let (code, stdout, stderr) = fleet.command(Some("viewer"), &["denials", "--url", &fleet.url()]);
    assert_eq!(
        (code, stdout.contains("acme")),
        (0, true),
        "{stdout}{stderr}"
    );
}

#[test]
fn who_has_no_right_to_report_lets_calls_through_and_says_why() {
    let fleet = Fleet::start();
    let strangers = directory(LIMITS);
    keys(strangers.path(), &["ca"]);
    let other_ca = strangers.path().join("keys/ca.pem");
    let agents = fleet.served.agents.to_string();
    let hit = |token: Option<&str>, ca: &str, name: &str| {
        let words = [
            "hit",
            "api.search",
            "acme",
            "--aggregator",
            &agents,
            "--wait",
            "500ms",
            "--blind",
        ];
        fleet.command_with(token, ca, name, &words)
    };
    std::fs::write(fleet.path().join("keys/unknown.token"), "tg1_0123\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(fleet.path().join("keys/unknown.token"), mode).expect("set");
    let other_ca = other_ca.to_str().expect("a text");
    for (token, ca, name, why) in [
        (None, "keys/ca.pem", "tollgate", "no token, expected one"),
        (
            Some("unknown"),
            "keys/ca.pem",
            "tollgate",
            "not in the aggregator's tokens file",
        ),
        (
            Some("viewer"),
            "keys/ca.pem",
            "tollgate",
            "roles do not allow this",
        ),
        (
            Some("checkout"),
            "keys/ca.pem",
            "tollgate",
            "not for agents of this name",
        ),
        (
            Some("checkout"),
            other_ca,
            "tollgate",
            "not issued by any CA",
        ),
        (
            Some("checkout"),
            "keys/ca.pem",
            "elsewhere",
            "for other names",
        ),
    ] {
        let (code, stdout, stderr) = hit(token, ca, name);
        assert_eq!(code, 0, "{why}: {stdout}{stderr}");
        assert!(stdout.contains("allowed (blind)"), "{why}: {stdout}");
        assert!(stderr.contains(why), "{why}: {stderr}");
        assert!(!stderr.contains("tg1_"), "no token is said: {stderr}");
    }
    // Nor in what the aggregator says.
    let metrics = fleet.served.get("/metrics").1;
    assert!(
        4 <= ended(&metrics, "access") && 2 <= ended(&metrics, "tls"),
        "{metrics}"
    );
    assert!(!metrics.contains("tg1_") && !fleet.served.said.concat().contains("tg1_"));
}

/// Connections of agents that ended for a reason, in an aggregator's metrics.
fn ended(metrics: &str, reason: &str) -> u64 {
    let name = format!("tollgate_connections_ended_total{{port=\"agents\",reason=\"{reason}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    let line = line.unwrap_or_else(|| panic!("{name} in {metrics}"));
    line.parse().expect("a number")
}

#[test]
fn a_token_holds_in_its_namespaces_alone() {
    let fleet = Fleet::start();
    let (code, stdout, stderr) = fleet.hits(
        Some("web"),
        "web-1",
        &["-n", "30", "--blind", "--wait", "500ms"],
    );
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(
        stdout.contains("30 allowed"),
        "nothing is heard of api.search: {stdout}"
    );
    let metrics = fleet.served.get("/metrics").1;
    let refused = "tollgate_link_refused_total{reason=\"namespace\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(refused));
    assert!(line.is_some_and(|count| count != "0"), "{metrics}");
    let shown = fleet.command(
        Some("viewer"),
        &["pairs", "show", "api.search", "acme", "--url", &fleet.url()],
    );
    assert!(!shown.1.contains("30"), "nothing is counted: {shown:?}");
}

#[test]
fn a_namespace_of_a_token_is_heard_of() {
    let dir_limits = "version = 1\nrules = 2\n[rate.\"web.page\"]\nrate = \"5/m\"\n";
    let fleet = Fleet::start();
    std::fs::write(fleet.path().join("limits.toml"), dir_limits).expect("written");
    fleet.served.signal("HUP");
    let agents = fleet.served.agents.to_string();
    until("a denial is heard", || {
        let words = [
            "hit",
            "web.page",
            "acme",
            "--aggregator",
            &agents,
            "-n",
            "20",
        ];
        fleet.command(Some("web"), &words).0 == 1
    });
}

#[test]
fn roles_say_who_looks_and_who_acts() {
    let fleet = Fleet::start();
    let url = fleet.url();
    let ban = [
        "ban",
        "api.search",
        "acme",
        "--for",
        "1h",
        "--reason",
        "a test",
        "--by",
        "ann",
        "--url",
        &url,
    ];
    let kill = [
        "namespaces",
        "kill",
        "api",
        "--reason",
        "a test",
        "--url",
        &url,
    ];
    let list = ["denials", "--url", &url];
    for (token, words, expected, says) in [
        (None, &list[..], 77, "no token"),
        (Some("checkout"), &list, 77, "roles do not allow"),
        (Some("viewer"), &list, 0, ""),
        (Some("viewer"), &ban, 77, "roles do not allow"),
        (Some("operator"), &kill, 77, "role admin"),
        (Some("operator"), &ban, 0, ""),
        (Some("admin"), &kill, 0, ""),
    ] {
        let (code, stdout, stderr) = fleet.command(token, words);
        assert_eq!(code, expected, "{token:?} {words:?}: {stdout}{stderr}");
        assert!(stderr.contains(says), "{token:?} {words:?}: {stderr}");
    }
    // Who did it is the token's name, with what the caller said of itself.
    drop(fleet.served);
    let (_, stdout, stderr) = run(fleet.dir.path(), &["audit", "--journal", "tollgate-data"]);
    assert!(
        format!("{stdout}{stderr}").contains("operator on behalf of ann"),
        "{stdout}{stderr}"
    );
}

#[test]
fn a_certificate_stands_for_a_token() {
    let fleet = Fleet::start();
    let url = fleet.url();
    let words = [
        "denials",
        "--url",
        &url,
        "--tls-cert",
        "keys/checkout.internal.pem",
        "--tls-key",
        "keys/checkout.internal.key",
    ];
    let (code, stdout, stderr) = fleet.command(None, &words);
    assert_eq!(code, 0, "{stdout}{stderr}");
    keys(fleet.path(), &["revoke", "certified"]);
    until("the certificate is worth nothing any more", || {
        fleet.command(None, &words).0 == 77
    });
}

#[test]
fn plain_bytes_to_a_port_with_tls_end_their_connection_alone() {
    let fleet = Fleet::start();
    let http: SocketAddr = fleet
        .url()
        .trim_start_matches("https://")
        .parse()
        .expect("an address");
    for (address, bytes) in [
        (
            fleet.served.agents,
            &b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01NULL"[..],
        ),
        (
            fleet.served.feed,
            &b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01NULL"[..],
        ),
        (http, b"GET /v1/denials HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ] {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        stream.write_all(bytes).expect("written");
        let mut answer = Vec::new();
        // An alert at most, and the end.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 32, "{answer:?}");
    }
    // The probe asks nobody for anything, and says nothing but how the process is.
    assert_eq!(fleet.served.get("/healthz").0, 200);
    assert_eq!(fleet.served.get("/v1/denials").0, 404);
    assert_eq!(fleet.probe, fleet.served.http);
    assert_eq!(fleet.hits(Some("checkout"), "checkout-1", &[]).0, 0);
}

#[test]
fn whatever_host_is_answered_with_tls_alone() {
    let fleet = Fleet::start();
    let (code, _, stderr) = fleet.command(Some("viewer"), &["denials", "--url", &fleet.url()]);
    assert_eq!(code, 0, "by the certificate's name: {stderr}");
    // Without TLS a page in a browser could let its own name stand for this address.
    let plain = format!("{CONFIG}\n[listen.insecure]\nhttp = \"trusted-network\"\n");
    std::fs::write(fleet.path().join("plain.toml"), plain).expect("written");
    let args = ["--config", "plain.toml", "--journal", "plain-data"];
    let served = serve(fleet.path(), &args);
    for (host, expected) in [("evil.example", "421"), ("localhost", "200")] {
        let mut stream = TcpStream::connect(served.http).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        let request =
            format!("GET /v1/denials HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{host}: {answer}");
    }
}
