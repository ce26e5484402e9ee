//! Keys and tokens that change while they are in use: what is taken, what is refused, and what it costs.

mod support;

use support::tls::{CONFIG, Fleet, KEYS, keys, until};
use support::{LIMITS, directory, run};

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
    let hears = |rate: &tollgate_agent::Rate| rate.hit("acme").is_ok_and(|answer| !answer.blind());
    until("both hear", || hears(&leaving) && hears(&staying));
    keys(fleet.path(), &["revoke", "checkout"]);
    until("its connections end", || {
        let _ = (leaving.hit("acme"), staying.hit("acme"));
        2.0 <= fleet.served.metric("tollgate_connections_revoked_total")
    });
    until("it is not let in again", || {
        2 <= leaver.stats().connections_refused
    });
    assert!(leaving.hit("acme").is_ok(), "its calls are let through");
    let stats = stayer.stats();
    assert_eq!((stats.links_lost, stats.connections_refused), (0, 0));
}

#[test]
fn rotating_certificates_and_tokens_under_load_refuses_nobody() {
    let fleet = Fleet::start();
    let agent = fleet.agent("checkout", "checkout-1");
    let wide = agent.rate("api.free");
    until("the agent hears", || {
        wide.hit("acme").is_ok_and(|answer| !answer.blind())
    });
    let rotations =
        std::env::var("TOLLGATE_TEST_ROTATIONS").map_or(4, |n| n.parse().expect("a number"));
    let mut blind = 0;
    for n in 1..=rotations {
        keys(fleet.path(), &["cert", "tollgate"]);
        keys(
            fleet.path(),
            &["token", &format!("more-{n}"), "--role", "viewer"],
        );
        until("the rotation is in force", || {
            for _ in 0..20 {
                let answer = wide
                    .hit("acme")
                    .expect("nobody is over a limit of a million");
                blind += usize::from(answer.blind());
            }
            let metric = |name| fleet.served.metric(name) as usize;
            n <= metric("tollgate_tls_reloads_total")
                && n <= metric("tollgate_tokens_reloads_total")
        });
        // Whoever comes now is served by the new certificate.
        assert_eq!(
            fleet
                .command(Some("viewer"), &["denials", "--url", &fleet.url()])
                .0,
            0
        );
    }
    assert_eq!(blind, 0);
    assert_eq!(
        fleet.served.metric("tollgate_connections_revoked_total"),
        0.0
    );
    assert_eq!(agent.stats().connections_refused, 0);
    assert_eq!(agent.stats().links_lost, 0);
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

#[test]
fn what_is_wrong_with_a_file_is_said_before_anything_listens() {
    let dir = directory(LIMITS);
    let path = dir.path();
    keys(path, &["ca"]);
    keys(path, &["cert", "tollgate"]);
    keys(path, &["cert", "other"]);
    keys(path, &["token", "a", "--role", "agent"]);
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
    for (from, to, says) in [
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
    ] {
        let (code, _, stderr) = start(from, to);
        assert_eq!((code, stderr.contains(says)), (78, true), "{to}: {stderr}");
    }
    let exposed = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(path.join("keys/tollgate.key"), exposed).expect("set");
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
    // A CA is not overwritten, and a certificate is not made under another one.
    let (code, _, stderr) = run(path, &[&KEYS[..], &["ca"]].concat());
    assert_eq!(
        (code, stderr.contains("never overwritten")),
        (65, true),
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
