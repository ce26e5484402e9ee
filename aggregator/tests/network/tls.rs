//! TLS, tokens and roles, with real processes and sockets: which callers are admitted, and which are refused.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::support::tls::{CONFIG, Fleet, keys, until};
use crate::support::{DEADLINE, LIMITS, directory, run, run_with, serve};

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
fn an_agent_without_a_grant_lets_calls_through_and_says_why() {
    let fleet = Fleet::start();
    let strangers = directory(LIMITS);
    keys(strangers.path(), &["ca"]);
    let other_ca = strangers.path().join("keys/ca.pem");
    let agents = fleet.served.agents.to_string();
    let hit = |token: Option<&str>, ca: &str, name: &str| {
        let args = [
            "hit",
            "api.search",
            "acme",
            "--aggregator",
            &agents,
            "--wait",
            "500ms",
            "--blind",
        ];
        fleet.command_with(token, ca, name, &args)
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
    // Nor in what the aggregator outputs.
    let metrics = fleet.served.get("/metrics").1;
    assert!(
        4 <= fleet.ended("access") && 2 <= fleet.ended("tls"),
        "{metrics}"
    );
    assert!(!metrics.contains("tg1_") && !fleet.served.log_lines.concat().contains("tg1_"));
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
fn a_viewer_looks_at_resources_of_its_namespaces() {
    let fleet = Fleet::start();
    let url = fleet.url();
    for (args, expected) in [
        (&["denials"][..], 77),
        (&["denials", "--resource", "web.page"], 0),
        (&["denials", "--resource", "api.search"], 77),
        (&["top", "--resource", "web.page"], 0),
        (&["holds", "--resource", "api.search"], 77),
        (&["pairs", "show", "api.search", "acme"], 77),
        // Of a resource that no rate limits, nothing else is asked.
        (&["pairs", "show", "web.page", "acme"], 0),
        (&["explain", "api.search", "acme"], 77),
    ] {
        let (code, _, stderr) = fleet.command(Some("lookout"), &[args, &["--url", &url]].concat());
        assert_eq!(code, expected, "{args:?}: {stderr}");
        assert_eq!(
            stderr.contains("for some namespaces alone"),
            code != 0,
            "{stderr}"
        );
    }
}

#[test]
fn a_tokens_namespace_limits_its_subscriptions() {
    let dir_limits = "version = 1\nrules = 2\n[rate.\"web.page\"]\nrate = \"5/m\"\n";
    let fleet = Fleet::start();
    std::fs::write(fleet.path().join("limits.toml"), dir_limits).expect("written");
    fleet.served.signal("HUP");
    let agents = fleet.served.agents.to_string();
    until("a denial is heard", || {
        let args = [
            "hit",
            "web.page",
            "acme",
            "--aggregator",
            &agents,
            "-n",
            "20",
        ];
        fleet.command(Some("web"), &args).0 == 1
    });
}

#[test]
fn a_viewer_may_look_and_only_an_operator_may_act() {
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
    for (token, args, expected, says) in [
        (None, &list[..], 77, "no token"),
        (Some("checkout"), &list, 77, "roles do not allow"),
        (Some("viewer"), &list, 0, ""),
        (Some("viewer"), &ban, 77, "roles do not allow"),
        (Some("operator"), &kill, 77, "role admin"),
        (Some("operator"), &ban, 0, ""),
        (Some("admin"), &kill, 0, ""),
    ] {
        let (code, stdout, stderr) = fleet.command(token, args);
        assert_eq!(code, expected, "{token:?} {args:?}: {stdout}{stderr}");
        assert!(stderr.contains(says), "{token:?} {args:?}: {stderr}");
    }
    // The author is the token's name, followed by the name that the caller states.
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
    let args = [
        "denials",
        "--url",
        &url,
        "--tls-cert",
        "keys/checkout.internal.pem",
        "--tls-key",
        "keys/checkout.internal.key",
    ];
    let (code, stdout, stderr) = fleet.command(None, &args);
    assert_eq!(code, 0, "{stdout}{stderr}");
    keys(fleet.path(), &["revoke", "certified"]);
    until("the certificate is worth nothing any more", || {
        fleet.command(None, &args).0 == 77
    });
}

/// Members ask each other with credentials that allow nothing else.
#[test]
fn members_authenticate_by_certificate_and_may_only_look() {
    let fleet = Fleet::start();
    let url = fleet.url();
    let own = [
        "--tls-cert",
        "keys/tollgate.pem",
        "--tls-key",
        "keys/tollgate.key",
    ];
    let ask = |args: &[&str]| fleet.command(None, &[args, &own].concat());
    let list = ["denials", "--url", &url];
    let (code, _, stderr) = ask(&list);
    assert_eq!(code, 77, "no line stands for it yet: {stderr}");
    assert!(stderr.contains("no name of the certificate"), "{stderr}");
    keys(
        fleet.path(),
        &[
            "token",
            "members",
            "--role",
            "member",
            "--certificate",
            "tollgate",
        ],
    );
    until("the certificate stands for a member", || ask(&list).0 == 0);
    let ban = [
        "ban",
        "api.search",
        "acme",
        "--for",
        "1h",
        "--reason",
        "a test",
        "--url",
        &url,
    ];
    let (code, _, stderr) = ask(&ban);
    assert_eq!(code, 77, "{stderr}");
    let agents = fleet.served.agents.to_string();
    let hit = ["hit", "api.search", "acme", "--aggregator", &agents];
    let (_, stdout, stderr) = ask(&[&hit[..], &["--wait", "500ms", "--blind"]].concat());
    assert!(stdout.contains("allowed (blind)"), "{stdout}{stderr}");
    assert!(stderr.contains("roles do not allow this"), "{stderr}");
    // A certificate of the same name from another CA is refused.
    let others = directory(LIMITS);
    keys(others.path(), &["ca"]);
    keys(others.path(), &["cert", "tollgate"]);
    for file in ["tollgate.pem", "tollgate.key"] {
        let (from, to) = (others.path().join("keys"), fleet.path().join("keys"));
        std::fs::copy(from.join(file), to.join(format!("forged.{file}"))).expect("copied");
    }
    let forged = [
        "--tls-cert",
        "keys/forged.tollgate.pem",
        "--tls-key",
        "keys/forged.tollgate.key",
    ];
    let (code, stdout, stderr) = fleet.command(None, &[&list[..], &forged].concat());
    assert_eq!((code, &*stdout), (69, ""), "{stderr}");
}

#[test]
fn feed_tail_shows_a_token_over_tls() {
    let fleet = Fleet::start();
    let feed = fleet.served.feed.to_string();
    let tail = ["feed", "tail", "--frames", "2", "--feed", &feed];
    let (code, stdout, stderr) = fleet.command(Some("viewer"), &tail);
    assert_eq!((code, stdout.lines().count()), (0, 2), "{stdout}{stderr}");
    assert!(stdout.starts_with("control  "), "{stdout}");
    let certificate = [
        "--tls-cert",
        "keys/checkout.internal.pem",
        "--tls-key",
        "keys/checkout.internal.key",
    ];
    let (code, _, stderr) = fleet.command(None, &[&tail[..], &certificate].concat());
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = fleet.command(None, &tail);
    assert_eq!((code, stderr.contains("no token")), (77, true), "{stderr}");
    let (code, _, stderr) = fleet.command_with(Some("viewer"), "keys/ca.pem", "elsewhere", &tail);
    assert_eq!(
        (code, stderr.contains("for other names")),
        (69, true),
        "{stderr}"
    );
}

#[test]
fn system_cas_are_trusted_where_configured() {
    let fleet = Fleet::start();
    let url = fleet.url();
    let args = [
        "denials",
        "--url",
        &url,
        "--token-file",
        "keys/viewer.token",
    ];
    let ask = |bundle: &str| {
        let env = [
            ("TOLLGATE_TLS_CA_FILE", "system"),
            ("TOLLGATE_TLS_SERVER_NAME", "tollgate"),
            ("SSL_CERT_FILE", bundle),
        ];
        run_with(fleet.path(), &args, &env)
    };
    let (code, _, stderr) = ask("keys/ca.pem");
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = ask("keys/none.pem");
    assert_eq!(
        (code, stderr.contains("keys/none.pem: No such file")),
        (66, true),
        "{stderr}"
    );
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
        // At most an alert, and the end.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 32, "{answer:?}");
    }
    // An agent without a CA file learns what it lacks, and so does one that has a CA file too many.
    let agents = fleet.served.agents.to_string();
    let clear = serve(fleet.path(), &["--journal", "clear-data"]);
    let clear = clear.agents.to_string();
    let hit = [
        "hit",
        "api.search",
        "acme",
        "--wait",
        "500ms",
        "--blind",
        "--aggregator",
    ];
    let (_, _, stderr) = run(fleet.path(), &[&hit[..], &[&agents]].concat());
    assert!(
        stderr.contains("the aggregator speaks TLS and this agent has no CA file"),
        "{stderr}"
    );
    let (_, _, stderr) = fleet.command(None, &[&hit[..], &[&clear]].concat());
    assert!(stderr.contains("the peer does not speak TLS"), "{stderr}");
    // So does a command with a URL of the wrong scheme.
    let (code, _, stderr) = run(
        fleet.path(),
        &["denials", "--url", &format!("http://{http}")],
    );
    assert_eq!(code, 69, "{stderr}");
    assert!(
        stderr.contains("a port that speaks TLS needs https://"),
        "{stderr}"
    );
    // The probe requires no token, and shows only the state of the process.
    assert_eq!(fleet.served.get("/healthz").0, 200);
    assert_eq!(fleet.served.get("/v1/denials").0, 404);
    assert_eq!(fleet.probe, fleet.served.http);
    assert_eq!(fleet.hits(Some("checkout"), "checkout-1", &[]).0, 0);
}

#[test]
fn any_host_name_is_answered_only_over_tls() {
    let fleet = Fleet::start();
    let (code, _, stderr) = fleet.command(Some("viewer"), &["denials", "--url", &fleet.url()]);
    assert_eq!(code, 0, "by the certificate's name: {stderr}");
    // Without TLS a page in a browser could let its own name resolve to this address.
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
