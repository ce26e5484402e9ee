//! Log lines name the recovery, connection or request that they belong to.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::support::{LIMITS, Served, directory, serve, serve_of};

/// A line that was logged already, or will be.
fn line(served: &mut Served, text: &str) -> String {
    let said = served.log_lines.iter().find(|line| line.contains(text));
    let said = said.cloned();
    said.unwrap_or_else(|| served.line_with(text))
}

/// Makes a request that is refused with a line.
fn ask_as_a_stranger(served: &Served) {
    let mut stream = TcpStream::connect(served.http).unwrap();
    let request =
        "GET /v1/log?x=y HTTP/1.1\r\nHost: elsewhere.example\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
}

#[test]
fn log_lines_say_which_recovery_and_request_they_are_of() {
    let dir = directory(LIMITS);
    let spoil = || {
        let snapshots = dir.path().join("tollgate-data/snapshots");
        std::fs::create_dir_all(&snapshots).unwrap();
        let one = snapshots.join("00002-00000000000000000000.snap");
        std::fs::write(one, b"TGSF\x01\x04\0\0\0none").unwrap();
    };
    let stop = |mut served: Served| {
        served.signal("TERM");
        served.await_end();
    };
    stop(serve(dir.path(), &[]));

    spoil();
    let mut served = serve(dir.path(), &[]);
    let passed_over = line(&mut served, "a snapshot is skipped");
    assert!(
        passed_over.contains(" WARN recovery{partition=2}: "),
        "{passed_over}"
    );
    ask_as_a_stranger(&served);
    let refused = line(&mut served, "elsewhere.example");
    assert!(
        refused.contains(" WARN http{peer=127.0.0.1:")
            && refused.contains("}:request{method=GET path=/v1/log}: "),
        "{refused}"
    );
    stop(served);

    // The same as JSON, and more of one partition's recovery than of the others.
    let telemetry =
        "[telemetry]\nlog_format = \"json\"\nlog = \"info,[recovery{partition=1}]=debug\"\n";
    std::fs::write(dir.path().join("tollgate.toml"), telemetry).unwrap();
    spoil();
    let mut served = serve(dir.path(), &["--config", "tollgate.toml"]);
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let passed_over = json(&line(&mut served, "a snapshot is skipped"));
    let expected = serde_json::json!({ "name": "recovery", "partition": 2 });
    assert_eq!(passed_over["span"], expected, "{passed_over}");
    // Recoveries are over, and their lines come before the next line.
    served.await_ready();
    ask_as_a_stranger(&served);
    let refused = json(&line(&mut served, "elsewhere.example"));
    assert_eq!(refused["spans"][0]["name"], "http", "{refused}");
    assert_eq!(refused["span"]["path"], "/v1/log", "{refused}");
    let caught_up = served
        .log_lines
        .iter()
        .filter(|line| line.contains("caught up"));
    let of: Vec<_> = caught_up
        .map(|line| json(line)["span"]["partition"].clone())
        .collect();
    assert_eq!(of, [1]);
}

#[test]
fn a_bad_limits_file_at_a_restart_names_no_version_zero() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.signal("TERM");
    served.await_end();
    std::fs::write(dir.path().join("limits.toml"), "").unwrap();
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let fault = line(&mut served, "limits.toml: states nothing");
    let unused = line(&mut served, "the limits file is not used");
    assert!(fault.contains(" ERROR "), "{fault}");
    assert!(
        unused.ends_with("the limits in the log apply, if it has any"),
        "{unused}"
    );
    assert_eq!(served.json("/v1/limits")["version"], 1);
    // While it runs, the version in force is known.
    served.signal("HUP");
    let unused = served.line_with("the limits file is not used");
    assert!(
        unused.contains("the limits in force stay") && unused.contains("version=1"),
        "{unused}"
    );
}

#[test]
fn what_a_version_forgets_is_not_logged_again_at_a_restart() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let shorter = LIMITS.replace("5/m", "5/s");
    std::fs::write(dir.path().join("limits.toml"), shorter).unwrap();
    served.signal("HUP");
    let forgets = "forgets what was used of window";
    served.line_with(forgets);
    served.signal("TERM");
    served.await_end();
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    ask_as_a_stranger(&served);
    line(&mut served, "elsewhere.example");
    let again = served.log_lines.iter().find(|line| line.contains(forgets));
    assert_eq!(again, None);
}

#[test]
fn versions_are_logged_as_new_only_once() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let new = "limits version in the log";
    line(&mut served, new);
    served.signal("TERM");
    served.await_end();
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let known = line(&mut served, "limits in the log at the start");
    assert!(known.contains("version=1"), "{known}");
    ask_as_a_stranger(&served);
    line(&mut served, "elsewhere.example");
    let again = served.log_lines.iter().find(|line| line.contains(new));
    assert_eq!(again, None);
}

#[test]
fn an_aggregator_without_limits_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = serve_of(dir.path(), &["--partitions", "4"]);
    served.await_ready();
    let warning = line(&mut served, "there are no limits");
    assert!(
        warning.contains(" WARN ") && warning.contains("serve --limits FILE"),
        "{warning}"
    );
}

#[test]
fn closed_domains_that_agents_do_not_learn_are_logged() {
    let closed = (0..4_000).map(|n| format!("domains.d{n:04}.rate = \"0/s\"\n"));
    let limits = format!(
        "[rate.search]\nrate = \"5/s\"\n{}",
        closed.collect::<String>()
    );
    let dir = directory(&limits);
    let mut served = serve(dir.path(), &[]);
    let warned = line(&mut served, "more domains have a limit of 0");
    // Five bytes, and sixteen for each.
    let learnt = 64 * 1024 / 21;
    assert!(warned.contains(&format!("learnt={learnt}")), "{warned}");
    assert!(warned.contains("resource=\"search\""), "{warned}");
}
