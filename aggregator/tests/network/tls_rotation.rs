//! Keys and tokens that change while they are in use: which changes take effect, which are refused, and their cost.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Rate};
use tollgate_server::security::hash_of;
use tollgate_tls::utc;

use crate::support::tls::{CONFIG, Fleet, KEYS, Load, Tap, keys, until};
use crate::support::{self, DEADLINE, LIMITS, directory, run};

#[test]
fn a_token_that_is_taken_out_ends_its_connections() {
    let fleet = Fleet::start();
    keys(fleet.path(), &["token", "second", "--role", "agent"]);
    until("the second is known", || {
        fleet.served.metric("tollgate_tokens_reloads_total") == 1.0
    });
    let (leaver, stayer) = (
        fleet.agent("checkout", "checkout-1"),
        fleet.agent("second", "web-1"),
    );
    let (leaving, staying) = (leaver.rate("api.free"), stayer.rate("api.free"));
    until("both hear", || hears(&leaving) && hears(&staying));
    // Under load of both kinds.
    let load = || {
        for n in 0..500 {
            let domain = format!("d{n}");
            assert!(leaving.hit(&domain).is_ok() && staying.hit(&domain).is_ok());
        }
    };
    keys(fleet.path(), &["revoke", "checkout"]);
    let taken_out = Instant::now();
    until("its connections end", || {
        load();
        2.0 <= fleet.served.metric("tollgate_connections_revoked_total")
    });
    println!("its connections ended within {:?}", taken_out.elapsed());
    until("it is not let in again", || {
        2 <= leaver.stats().connections_refused
    });
    assert!(leaving.hit("acme").is_ok(), "its calls are let through");
    let stats = stayer.stats();
    assert_eq!((stats.links_lost, stats.connections_refused), (0, 0));
}

fn hears(rate: &Rate) -> bool {
    rate.hit("acme").is_ok_and(|answer| !answer.blind())
}

/// Makes a token for some seconds, and an agent that shows it; `None` if the agent was not admitted before the end.
fn brief(fleet: &Fleet, seconds: u64) -> Option<(Agent, u64)> {
    let of = |file: &str| fleet.path().join("keys").join(file);
    let (token, end) = (format!("tg1_brief-{seconds}"), utc::now() + seconds);
    let entry = format!(
        "[tokens.brief-{seconds}]\nhash = \"{}\"\nroles = [\"agent\"]\nexpires = {}\n",
        hash_of(token.as_bytes()),
        utc::text(end)
    );
    let tokens = std::fs::read_to_string(of("tokens.toml")).expect("read");
    std::fs::write(of("brief.token"), &token).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(of("brief.token"), mode).expect("set");
    std::fs::write(of("tokens.new"), format!("{tokens}{entry}")).expect("written");
    std::fs::rename(of("tokens.new"), of("tokens.toml")).expect("in its place");
    let agent = fleet.agent("brief", "checkout-1");
    let rate = agent.rate("api.free");
    while utc::now() < end {
        if hears(&rate) {
            return Some((agent, end));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

#[test]
fn a_token_past_its_end_ends_its_connections() {
    let fleet = Fleet::start();
    let other = fleet.agent("checkout", "checkout-3");
    let staying = other.rate("api.free");
    until("the other hears", || hears(&staying));
    // A loaded machine may need longer than the first duration.
    let (agent, end) = [3, 20]
        .into_iter()
        .find_map(|seconds| brief(&fleet, seconds))
        .expect("it is heard while it holds");
    let loads = [Load::of(&agent), Load::of(&other)];
    let revoked = || fleet.served.metric("tollgate_connections_revoked_total");
    until("link and feed end", || 2.0 <= revoked());
    println!("{} s after its last second", utc::now() - end);
    assert!(end < utc::now(), "and not before its end");
    until("it is not let in again", || {
        2 <= agent.stats().connections_refused
    });
    for load in loads {
        assert_eq!(load.end().refused, 0, "calls are let through");
    }
    let stats = other.stats();
    assert_eq!((stats.links_lost, stats.connections_refused), (0, 0));
    let (_, stdout, stderr) =
        fleet.hits(Some("brief"), "checkout-2", &["--wait", "500ms", "--blind"]);
    assert!(stdout.contains("allowed (blind)"), "{stdout}");
    assert!(stderr.contains("the token has expired"), "{stderr}");
}

#[test]
fn a_cut_session_counts_each_call_once_and_a_replayed_one_nothing() {
    let fleet = Fleet::start();
    let tap = Tap::start(fleet.served.agents);
    let agent = fleet.agent_at(tap.address, "checkout", "checkout-1");
    let free = agent.rate("api.free");
    let mut calls = 0;
    until("the agent hears", || {
        calls += 1;
        hears(&free)
    });
    for _ in 0..3 {
        let welcomes = agent.stats().welcomes;
        for n in 0..200 {
            assert!(free.hit(&format!("d{n}")).is_ok());
            calls += 1;
        }
        tap.cut();
        until("it is welcome again", || welcomes < agent.stats().welcomes);
    }
    let granted = || fleet.served.metric("tollgate_hits_granted_total");
    until("each call counts", || f64::from(calls) <= granted());
    let recorded = tap.recorded();
    for length in [recorded.len(), recorded.len() / 2] {
        let before = fleet.ended("tls");
        let mut thief = TcpStream::connect(fleet.served.agents).expect("connected");
        thief.set_read_timeout(Some(DEADLINE)).expect("set");
        // The connection may end while there is something to be sent.
        let _ = thief.write_all(&recorded[..length]);
        let _ = thief.shutdown(Shutdown::Write);
        let _ = thief.read_to_end(&mut Vec::new());
        until("it ends", || before < fleet.ended("tls"));
    }
    assert_eq!(granted(), f64::from(calls));
    assert_eq!(agent.stats().connections_refused, 0);
}

#[test]
fn rotating_certificates_and_tokens_under_load_refuses_nobody() {
    let fleet = Fleet::start();
    let (stays, turns) = two_agents(&fleet);
    let loads = [Load::of(&stays), Load::of(&turns)];
    // As fast as they can be made, so that files are read in the middle of changes.
    for n in 1..=100 {
        keys(fleet.path(), &["cert", "tollgate"]);
        let name = format!("more-{n}");
        keys(fleet.path(), &["token", &name, "--role", "viewer"]);
    }
    let list = ["denials", "--url", &fleet.url()];
    until("the last of them are in force", || {
        let behind = fleet.served.metric("tollgate_tls_files_behind");
        behind == 0.0 && fleet.command(Some("more-100"), &list).0 == 0
    });
    // And each of them is in force before the next, including the token of one agent.
    let rotations =
        std::env::var("TOLLGATE_TEST_ROTATIONS").map_or(3, |n| n.parse().expect("a number"));
    for n in 1..=rotations {
        let metrics = [
            "tollgate_tls_reloads_total",
            "tollgate_tokens_reloads_total",
        ];
        let counted = || metrics.map(|name| fleet.served.metric(name));
        let (before, stats) = (counted(), turns.stats());
        keys(fleet.path(), &["cert", "tollgate"]);
        turn(&fleet, n);
        until("the rotation is in force", || {
            let now = counted();
            let turned = turns.stats();
            let is_new =
                stats.links_lost < turned.links_lost && stats.feeds_opened < turned.feeds_opened;
            before[0] < now[0] && before[1] < now[1] && is_new
        });
        // The agent has to be back before the next turn: otherwise it would return with the next token and lose
        // nothing with this one.
        let acknowledged = turns.stats().hits_acknowledged;
        until("its link is back", || {
            acknowledged < turns.stats().hits_acknowledged
        });
        // New connections get the new certificate.
        assert_eq!(fleet.command(Some("viewer"), &list).0, 0);
    }
    for load in loads {
        let seen = load.end();
        println!("{rotations} rotations in force, and 100 at once: {seen:?}");
        assert_eq!((seen.refused, seen.blind), (0, 0));
    }
    let ended = || fleet.served.metric("tollgate_connections_revoked_total");
    until("link and feed have ended each time, and no more", || {
        ended() == f64::from(2 * rotations)
            && turns.stats().connections_refused == u64::from(2 * rotations)
    });
    assert_eq!(fleet.ended("access"), 0, "nobody was turned away");
    assert_eq!(stays.stats().connections_refused, 0);
    assert_eq!(stays.stats().links_lost, 0, "whose token stays");
}

/// One agent whose token stays, and one whose token changes: it shows the one in `turning.token`.
fn two_agents(fleet: &Fleet) -> (Agent, Agent) {
    for name in ["turn-0", "turn-1"] {
        keys(fleet.path(), &["token", name, "--role", "agent"]);
    }
    show(fleet, 0);
    until("the first two are known", || {
        1.0 <= fleet.served.metric("tollgate_tokens_reloads_total")
    });
    let agents = (
        fleet.agent("checkout", "checkout-1"),
        fleet.agent("turning", "checkout-2"),
    );
    let (staying, turning) = (agents.0.rate("api.free"), agents.1.rate("api.free"));
    until("both hear", || hears(&staying) && hears(&turning));
    agents
}

/// From now on the next token, which aggregators know already, is shown; the previous one is revoked; and another is
/// made for the next turn.
fn turn(fleet: &Fleet, n: u32) {
    let (next, before) = (format!("turn-{}", n + 1), format!("turn-{}", n - 1));
    show(fleet, n);
    keys(fleet.path(), &["token", &next, "--role", "agent"]);
    keys(fleet.path(), &["revoke", &before]);
}

fn show(fleet: &Fleet, n: u32) {
    let of = |file: &str| fleet.path().join("keys").join(file);
    // Its mode is copied as well.
    std::fs::copy(of(&format!("turn-{n}.token")), of("turning.new")).expect("copied");
    std::fs::rename(of("turning.new"), of("turning.token")).expect("in its place");
}

#[test]
fn bad_files_keep_those_before_them_and_are_counted() {
    let fleet = Fleet::start();
    let path = |file: &str| fleet.path().join("keys").join(file);
    let served = &fleet.served;
    let before = std::fs::read_to_string(path("tollgate.pem")).expect("read");
    std::fs::write(path("tollgate.pem"), "").expect("written");
    until("an empty certificate is counted", || {
        served.metric("tollgate_tls_faults_total") == 1.0
    });
    let other = std::fs::read_to_string(path("checkout.internal.pem")).expect("read");
    std::fs::write(path("tollgate.pem"), other).expect("written");
    until("one that does not fit is counted", || {
        served.metric("tollgate_tls_faults_total") == 2.0
    });
    let tokens = std::fs::read_to_string(path("tokens.toml")).expect("read");
    std::fs::write(path("tokens.toml"), "[tokens.checkout").expect("written");
    until("bad tokens are counted", || {
        served.metric("tollgate_tokens_faults_total") == 1.0
    });
    assert_eq!(fleet.hits(Some("checkout"), "checkout-1", &[]).0, 0);
    std::fs::write(path("tollgate.pem"), before).expect("written");
    std::fs::write(path("tokens.toml"), tokens).expect("written");
    until("good ones are taken again", || {
        served.metric("tollgate_tls_reloads_total") == 1.0
    });
}

const PAIR: &str = "cert = \"keys/tollgate.pem\"\nkey = \"keys/tollgate.key\"";
const SWAPPED: &str = "cert = \"keys/tollgate.key\"\nkey = \"keys/tollgate.pem\"";

#[test]
fn a_chain_that_callers_would_refuse_is_named() {
    let dir = directory(LIMITS);
    let path = dir.path();
    keys(path, &["ca"]);
    keys(path, &["cert", "tollgate"]);
    keys(path, &["token", "a", "--role", "agent"]);
    let (code, _, stderr) = run(path, &["keys", "--dir", "others", "ca"]);
    assert_eq!(code, 0, "{stderr}");
    let start = |ca: &str| {
        let config = CONFIG.replace("keys/ca.pem", ca);
        std::fs::write(path.join("tollgate.toml"), config).expect("written");
        let served = support::serve(path, &["--config", "tollgate.toml"]);
        served.log_lines.concat()
    };
    let lacks = "lacks an intermediate certificate";
    assert!(!start("keys/ca.pem").contains(lacks));
    let line = start("others/ca.pem");
    assert!(
        line.contains("keys/tollgate.pem: no CA in others/ca.pem"),
        "{line}"
    );
    assert!(line.contains(lacks), "{line}");
}

/// A replacement in the configuration, and the message that it causes.
const FAULTS: [(&str, &str, &str); 8] = [
    (
        "keys/tollgate.key",
        "keys/other.key",
        "the key does not belong to the first certificate",
    ),
    (
        "keys/tollgate.key",
        "keys/none.key",
        "none.key: No such file",
    ),
    (
        "keys/tollgate.pem",
        "keys/tollgate.key",
        "expected PEM with at least one certificate",
    ),
    ("keys/tokens.toml", "limits.toml", "limits.toml: line"),
    (
        "keys/tollgate.key",
        "empty",
        "empty: it is empty, expected PEM",
    ),
    (
        PAIR,
        SWAPPED,
        "found a private key, as if certificate and key were swapped",
    ),
    (
        "client_ca =",
        "server_name = \"elsewhere\"\nclient_ca =",
        "is for the names tollgate, expected one that is for elsewhere",
    ),
    (
        "keys/tokens.toml",
        "open.toml",
        "mode 0666 lets every user of this machine write it",
    ),
];

/// Valid files, an empty one, and a tokens file that everybody may write.
fn files_of_every_kind() -> tempfile::TempDir {
    let dir = directory(LIMITS);
    let path = dir.path();
    keys(path, &["ca"]);
    keys(path, &["cert", "tollgate"]);
    keys(path, &["cert", "other"]);
    keys(path, &["token", "a", "--role", "agent"]);
    std::fs::write(path.join("empty"), "").expect("written");
    set_mode(&path.join("empty"), 0o600);
    std::fs::copy(path.join("keys/tokens.toml"), path.join("open.toml")).expect("copied");
    set_mode(&path.join("open.toml"), 0o666);
    dir
}

fn set_mode(path: &Path, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("set");
}

#[test]
fn a_bad_file_is_reported_before_anything_listens() {
    let dir = files_of_every_kind();
    let path = dir.path();
    let mode = |file: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::metadata(path.join("keys").join(file))
            .expect("a file")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(["ca.key", "tollgate.key", "a.token"].map(mode), [0o600; 3]);
    let start = |from: &str, to: &str| {
        std::fs::write(path.join("tollgate.toml"), CONFIG.replace(from, to)).expect("written");
        run(
            path,
            &[
                "serve",
                "--config",
                "tollgate.toml",
                "--limits",
                "limits.toml",
            ],
        )
    };
    for (from, to, says) in FAULTS {
        let (code, _, stderr) = start(from, to);
        assert_eq!((code, stderr.contains(says)), (78, true), "{to}: {stderr}");
    }
    set_mode(&path.join("keys/tollgate.key"), 0o644);
    let (code, _, stderr) = start("x-none", "");
    assert_eq!(
        (code, stderr.contains("mode 0644 lets every user")),
        (78, true),
        "{stderr}"
    );
}

#[test]
fn a_ca_is_not_overwritten_and_makes_nothing_in_anothers_name() {
    let dir = directory(LIMITS);
    let path = dir.path();
    keys(path, &["ca"]);
    // A CA is not overwritten, and a certificate is not issued under another one.
    let (code, _, stderr) = run(path, &[&KEYS[..], &["ca"]].concat());
    assert_eq!(
        (code, stderr.contains("never overwritten")),
        (73, true),
        "{stderr}"
    );
    // Nor for a name that no host can have.
    let (code, _, stderr) = run(path, &[&KEYS[..], &["cert", "x_y..z"]].concat());
    assert_eq!(
        (code, stderr.contains("x_y..z\": expected a host's name")),
        (64, true),
        "{stderr}"
    );
    let (code, _, stderr) = run(path, &["keys", "--dir", "others", "ca"]);
    assert_eq!(code, 0, "{stderr}");
    std::fs::copy(path.join("others/ca.key"), path.join("keys/ca.key")).expect("copied");
    let (code, _, stderr) = run(path, &[&KEYS[..], &["cert", "x"]].concat());
    assert_eq!(
        (code, stderr.contains("another CA's")),
        (65, true),
        "{stderr}"
    );
}
