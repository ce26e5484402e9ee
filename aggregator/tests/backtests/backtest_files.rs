//! Tests of `tollgate backtest` on several files, and of the files that it writes: nothing is left of an incomplete one.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{directory, run, tollgate};

const HEAD: &str = "version = 1\nrules = 2\n";

fn report(dir: &Path, args: &[&str]) -> (Value, String) {
    let args = [&["backtest", "--limits", "limits.toml"], args].concat();
    let (code, stdout, stderr) = run(dir, &[&args[..], &["--format", "json"]].concat());
    assert_eq!(code, 0, "{args:?}: {stderr}");
    (serde_json::from_str(&stdout).expect("an object"), stderr)
}

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).expect("written");
}

/// A minute of a client that calls once a second.
fn steady() -> String {
    let line = |second: u64| {
        format!("203.0.113.7 - - [20/Feb/2016:05:00:{second:02} +0000] \"GET / HTTP/1.1\" 200 5\n")
    };
    (0..60).map(line).collect()
}

#[test]
fn files_of_several_servers_are_spread_together() {
    let dir = directory(&format!("{HEAD}[rate.\"http.requests\"]\nrate = \"5/s\"\n"));
    let one: String = steady()
        .lines()
        .map(|line| [line, "\n"].concat().repeat(3))
        .collect();
    write(dir.path(), "one.log", &one);
    let servers = ["a.log", "b.log", "c.log"];
    for server in servers {
        write(dir.path(), server, &steady());
    }
    let (of_one, _) = report(dir.path(), &["one.log"]);
    let (of_three, _) = report(dir.path(), &servers);
    assert_eq!(of_three["inputs"]["spread_files"], 3);
    for (found, files) in [(of_one, 1), (of_three, 3)] {
        let result = &found["results"][0];
        assert_eq!(
            (&result["calls"], &result["refused"]),
            (&180.into(), &0.into()),
            "{files}"
        );
    }
}

#[test]
fn an_empty_file_among_others_is_a_remark() {
    let dir = directory(&format!("{HEAD}[rate.\"http.requests\"]\nrate = \"5/s\"\n"));
    write(dir.path(), "access.log", &steady());
    write(dir.path(), "access.log.1", "");
    let (found, _) = report(dir.path(), &["access.log.1", "access.log"]);
    assert_eq!(found["results"][0]["calls"], 60);
    assert_eq!(found["inputs"]["empty_files"][0], "access.log.1");
    let args = [
        "backtest",
        "--limits",
        "limits.toml",
        "access.log.1",
        "access.log",
    ];
    let (_, text, _) = run(dir.path(), &args);
    assert!(text.contains("without rows: access.log.1\n"), "{text}");
    let (code, _, err) = run(dir.path(), &args[..4]);
    assert_eq!(code, 65, "{err}");
    assert!(err.contains("no rows"), "{err}");
}

#[test]
fn a_row_with_more_fields_than_columns_is_skipped() {
    let dir = directory(&format!("{HEAD}[rate.api]\nrate = \"5/s\"\n"));
    let rows = "t,resource,domain\n1,api,a\n2,api,a,b\n3,api,a,\n4,api\n";
    write(dir.path(), "calls.csv", rows);
    let (found, _) = report(dir.path(), &["calls.csv"]);
    assert_eq!(found["inputs"]["skipped"], 2);
    let lines = [3, 5].map(Value::from);
    let skipped = found["inputs"]["skipped_shown"].as_array().expect("a list");
    assert!(skipped.iter().map(|of| &of["line"]).eq(&lines), "{found:#}");
}

#[test]
fn suggested_limits_are_valid_in_a_document() {
    let written_of = |rate: &str| {
        let limits = format!("{HEAD}[rate.api]\nbucket = {{ rate = \"{rate}\", burst = 9 }}\n");
        let dir = directory(&limits);
        write(
            dir.path(),
            "calls.csv",
            "t,resource,domain\n1,api,a\n2,api,a\n",
        );
        let (found, err) = report(dir.path(), &["calls.csv", "--suggest", "0.00001%"]);
        assert_eq!(err, "");
        let written = found["suggestions"][0]["written"].as_str().expect("a line");
        let document = format!("{HEAD}[rate.api]\n{written}\n");
        write(dir.path(), "suggested.toml", &document);
        let (code, out, err) = run(dir.path(), &["check", "suggested.toml"]);
        assert_eq!(code, 0, "{document}{out}{err}");
        let args = ["backtest", "--limits", "limits.toml", "calls.csv"];
        let (_, text, _) = run(
            dir.path(),
            &[&args[..], &["--suggest", "0.00001%"]].concat(),
        );
        assert!(text.contains("at most 0.00001% as"), "{text}");
        written.to_owned()
    };
    for rate in ["100000/m", "5/s"] {
        let expected = format!("bucket = {{ rate = \"{rate}\", burst = 1 }}");
        assert_eq!(written_of(rate), expected);
    }
    // No unit has a whole number of them.
    let odd = "bucket = { rate = \"70/1ms100us\", burst = 1 }";
    assert_eq!(written_of("70/1100us"), odd);
}

#[test]
fn limits_without_a_suggestion_are_named() {
    let dir = directory(&format!("{HEAD}[rate.api]\nglobal = \"5/s\"\n"));
    write(dir.path(), "calls.csv", "t,resource,domain\n1,api,a\n");
    let (found, err) = report(dir.path(), &["calls.csv", "--suggest", "1%"]);
    assert_eq!(found["suggestions"], Value::Array(Vec::new()));
    assert!(err.contains("no suggestion for api"), "{err}");
    write(
        dir.path(),
        "limits.toml",
        &format!("{HEAD}[copies.api]\nlimit = 5\n"),
    );
    let args = ["backtest", "--limits", "limits.toml", "calls.csv"];
    let (code, _, err) = run(dir.path(), &args);
    assert_eq!(code, 65, "{err}");
    assert!(err.contains("copies are not played"), "{err}");
}

/// The names of a directory's files.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("UTF-8")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// Waits for a temporary file, and sends the command a signal.
fn signal_under_way(signal: &str, dir: &Path, child: &Child) {
    const DEADLINE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    while !names(dir).iter().any(|name| name.ends_with(".tmp")) {
        assert!(began.elapsed() < DEADLINE, "no temporary file");
        std::thread::yield_now();
    }
    let mut kill = std::process::Command::new("kill");
    let sent = kill.args(["-s", signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// The command, which a closed terminal ends also where these tests run under `nohup`.
fn tollgate_that_hangs_up() -> std::process::Command {
    let tollgate = tollgate();
    let mut command = std::process::Command::new("env");
    command
        .arg("--default-signal=HUP")
        .arg(tollgate.get_program());
    for (name, _) in tollgate.get_envs() {
        command.env_remove(name);
    }
    command
}

#[test]
fn an_interrupted_backtest_leaves_no_file() {
    let dir = directory(&format!("{HEAD}[rate.api]\nrate = \"5/s\"\n"));
    let before = names(dir.path());
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        // It waits for its input.
        let mut child = tollgate_that_hangs_up()
            .current_dir(dir.path())
            .args(["backtest", "--limits", "limits.toml"])
            .args(["-o", "report", "--html", "page", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("it runs");
        // To wait would close it, and the command would end by itself.
        let input = child.stdin.take();
        signal_under_way(signal, dir.path(), &child);
        let ended = child.wait().expect("it ends");
        drop(input);
        assert_eq!(ended.code(), Some(code), "{signal}");
        assert_eq!(names(dir.path()), before, "{signal}");
    }
}

#[test]
fn an_interrupted_follow_writes_its_report() {
    let dir = directory(&format!("{HEAD}[rate.api]\nrate = \"5/s\"\n"));
    let mut served = crate::support::serve(dir.path(), &[]);
    served.await_ready();
    let mut child = tollgate()
        .current_dir(dir.path())
        .args([
            "backtest",
            "--limits",
            "limits.toml",
            "--journal",
            "tollgate-data",
        ])
        .args([
            "--follow", "--for", "1h", "--format", "json", "-o", "report",
        ])
        .spawn()
        .expect("it runs");
    signal_under_way("INT", dir.path(), &child);
    let ended = child.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0));
    let text = std::fs::read_to_string(dir.path().join("report")).expect("a report");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["schema"], "tollgate.backtest_follow/1");
    assert!(!names(dir.path()).iter().any(|name| name.ends_with(".tmp")));
    served.signal("TERM");
    served.await_end();
}

#[test]
fn a_dash_is_stdout_where_results_are_written() {
    let dir = directory(&format!("{HEAD}[rate.api]\nrate = \"5/s\"\n"));
    let (code, to_stdout, err) = run(dir.path(), &["check", "limits.toml"]);
    assert_eq!(code, 0, "{err}");
    let before = names(dir.path());
    let (_, to_dash, _) = run(dir.path(), &["check", "limits.toml", "-o", "-"]);
    assert_eq!(to_dash, to_stdout);
    assert_eq!(names(dir.path()), before);
}
