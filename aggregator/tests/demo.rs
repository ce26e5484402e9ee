//! The demonstration end to end, as a user runs it: processes, sockets, a journal, an outage, a verdict.
//!
//! In an executable of its own, since its fleets keep the processors busy and other tests wait for theirs.

mod support;

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

fn tollgate() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    // Variables of the test run are meant for the tests, not for agents.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// The command, which a closed terminal ends also where these tests run under `nohup`.
fn hung_up_by_its_terminal() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP");
    command.arg(tollgate().get_program());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn report(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).unwrap_or_else(|error| {
        panic!(
            "{error}: {text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

fn number(report: &Value, field: &str) -> u64 {
    report[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} in {report}"))
}

#[test]
fn the_demonstration_refuses_and_every_refusal_is_justified() {
    let output = tollgate()
        .args(["demo", "--seconds", "8", "--format", "json", "-q"])
        .output()
        .expect("runs");
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(number(&report, "unjustified_refusals"), 0, "{report}");
    assert!(0 < number(&report, "refused"), "{report}");
    let offered = number(&report, "offered");
    assert_eq!(
        offered,
        number(&report, "let_through")
            + number(&report, "refused")
            + number(&report, "refused_by_policy")
    );
    assert!(
        0 < number(&report, "ideal_let_through") && number(&report, "ideal_let_through") < offered
    );
    // Law 8: no window let more through than its limit and the delay of a denial explain, and not for want of windows.
    assert_eq!(number(&report, "effect_violations"), 0, "{report}");
    assert!(0 < number(&report, "effect_judged"), "{report}");
    assert!(0 < number(&report, "denials"), "{report}");
    assert!(number(&report, "denial_delay_us_p50") <= number(&report, "denial_delay_us_p99"));
    assert!(0 < number(&report, "hit_ns_p50") && 0 < number(&report, "hit_ns_p50_blind"));
    assert!(
        0 < number(&report, "outage_let_through"),
        "calls go on while the aggregator is away"
    );
    assert_eq!(number(&report, "log_records_unread"), 0);
    assert_eq!(report["accepted_percent"], 100.0, "{report}");
    // A process that held five was killed, and another one got them all, but not before the killed one was gone.
    assert_eq!(report["copies_resource"], "demo.sandbox", "{report}");
    assert_eq!(number(&report, "copies_held"), 5);
    assert_eq!(number(&report, "copies_lost"), 0, "{report}");
    let timeout = number(&report, "copies_agent_timeout_ms");
    let back = number(&report, "copies_back_ms");
    assert!(
        1_000 < back && back < timeout + 5_000,
        "{timeout}: {report}"
    );
}

#[test]
fn a_demo_attached_to_a_fleet_shows_and_releases_copies() {
    let dir = support::directory(
        "[rate.search]\nrate = \"20/s\"\n[copies.gpu]\nlimit = 3\nglobal = 40\nreserve = \"strict\"\n",
    );
    let served = support::serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let output = tollgate()
        .args(["demo", "--seconds", "4", "--format", "json", "-q"])
        .args(["--attach", &url])
        .output()
        .expect("runs");
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(report["copies_resource"], "gpu", "{report}");
    assert_eq!(number(&report, "copies_held"), 3);
    assert_eq!(number(&report, "copies_lost"), 0, "{report}");
    assert!(1_000 < number(&report, "copies_back_ms"), "{report}");
    let view = served.json("/v1/holds");
    let counted = view["resources"].as_array().expect("a list").iter();
    assert_eq!(
        counted.map(|of| number(of, "copies")).sum::<u64>(),
        0,
        "{view}"
    );
}

#[test]
fn an_access_log_is_replayed_at_the_limits_speed() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("access.log");
    let mut text = String::new();
    // 20 minutes of a log: one client that makes two requests a second, and others now and then.
    for second in 0..1_200 {
        let (minute, rest) = (second / 60, second % 60);
        let line = |client: u32| {
            format!(
                "10.0.0.{client} - - [20/Feb/2016:10:{minute:02}:{rest:02} +0000] \"GET /\" 200 1\n"
            )
        };
        text.push_str(&line(1));
        text.push_str(&line(1));
        if second % 7 == 0 {
            text.push_str(&line(2 + second % 5));
        }
    }
    text.push_str("not a line of a log\n");
    std::fs::write(&log, text).expect("written");
    let limits = dir.path().join("limits.toml");
    std::fs::write(&limits, "[rate.\"http.requests\"]\nrate = \"60/m\"\n").expect("written");
    let output = tollgate()
        .args([
            "demo",
            "--seconds",
            "6",
            "--speed",
            "60",
            "--format",
            "json",
            "-q",
        ])
        .arg("--access-log")
        .arg(&log)
        .arg("--limits")
        .arg(&limits)
        .output()
        .expect("runs");
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(
        (
            number(&report, "access_log_lines"),
            number(&report, "access_log_skipped")
        ),
        (2_573, 1)
    );
    assert_eq!(number(&report, "access_log_covered_s"), 360);
    let read = &report["access_log_read_as"][0];
    assert_eq!(
        (&read["form"], &read["client"]),
        (&"combined".into(), &"remote_addr".into())
    );
    assert_eq!(number(&report, "access_log_spread_us"), 1_000_000);
    assert_eq!(number(&report, "unjustified_refusals"), 0, "{report}");
    assert!(100 < number(&report, "refused"), "{report}");
}

#[test]
fn only_access_logs_may_have_a_stated_form() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("access.log");
    std::fs::write(
        &log,
        "10.0.0.1 - - [20/Feb/2016:10:00:00 +0000] \"GET /\" 200 1\n",
    )
    .expect("written");
    let demo = |args: &[&str]| {
        let output = tollgate().arg("demo").args(args).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), stderr)
    };
    let (code, stderr) = demo(&["--client", "remote_addr"]);
    assert_eq!(code, Some(64), "{stderr}");
    assert!(stderr.contains("--access-log"), "{stderr}");
    let log = log.to_str().expect("a path");
    let (code, stderr) = demo(&["--access-log", log, "--client", "nobody"]);
    assert_eq!(code, Some(65), "{stderr}");
    assert!(stderr.contains("expected one of remote_addr, "), "{stderr}");
    let (code, stderr) = demo(&["--access-log", log, "--time-format", "%F"]);
    assert_eq!(code, Some(65), "{stderr}");
}

#[test]
fn a_speed_that_the_limits_cannot_follow_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, limits) = (
        dir.path().join("access.log"),
        dir.path().join("limits.toml"),
    );
    std::fs::write(
        &log,
        "10.0.0.1 - - [20/Feb/2016:10:00:00 +0000] \"GET /\" 200 1\n",
    )
    .expect("written");
    std::fs::write(&limits, "[rate.\"http.requests\"]\nrate = \"10/s\"\n").expect("written");
    let demo = |limits: &Path, log: &Path, more: &[&str]| {
        let output = tollgate()
            .args(["demo", "--seconds", "4", "-q", "--access-log"])
            .arg(log)
            .arg("--limits")
            .arg(limits)
            .args(more)
            .output()
            .expect("runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, error) = demo(&limits, &log, &["--speed", "60"]);
    assert_eq!(code, Some(64), "{error}");
    assert!(
        error.contains("http.requests") && error.contains("100ms"),
        "{error}"
    );
    let (code, error) = demo(&limits, &dir.path().join("absent"), &["--speed", "2"]);
    assert_eq!(code, Some(66), "{error}");
    let (code, error) = demo(&limits, &limits, &["--speed", "2"]);
    assert_eq!(code, Some(65), "{error}");
    let (code, error) = demo(&limits, &log, &["--speed", "0"]);
    assert_eq!(code, Some(64), "{error}");
}

/// A demonstration that has printed a line, and its further output: it must not stop if its reader does.
fn demo_until_line(seconds: &str, text: &str) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut demo = hung_up_by_its_terminal()
        .args(["demo", "--seconds", seconds])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(demo.stderr.take().expect("its errors")).lines();
    let came_so_far = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains(text));
    assert!(came_so_far, "it came so far");
    (demo, lines)
}

#[test]
fn an_interrupted_demonstration_leaves_no_process_behind() {
    let (mut demo, _lines) = demo_until_line("30", "agents are ready");
    let children = children_of(demo.id());
    assert_eq!(
        children.len(),
        3,
        "an aggregator and two agents: {children:?}"
    );
    signal(&demo, Signal::INT);
    let status = demo.wait().expect("ends");
    assert_eq!(status.code(), Some(130));
    all_gone(&children);
}

#[test]
fn a_demonstration_whose_terminal_closes_leaves_no_process_behind() {
    let (mut demo, _lines) = demo_until_line("4", "one process holds 5 copies of demo.sandbox");
    let children = children_of(demo.id());
    assert!(
        (2..=3).contains(&children.len()),
        "an aggregator, one that holds unless it was killed, and one that waits: {children:?}"
    );
    signal(&demo, Signal::HUP);
    assert_eq!(demo.wait().expect("ends").code(), Some(129));
    all_gone(&children);
}

#[test]
fn a_killed_demonstration_leaves_no_process_behind() {
    // Its directory is what it might leave behind instead.
    let place = tempfile::tempdir().expect("a directory");
    let mut demo = tollgate()
        .args(["demo", "--seconds", "30"])
        .env("TMPDIR", place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(demo.stderr.take().expect("its errors")).lines();
    assert!(
        lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("agents are ready"))
    );
    let children = children_of(demo.id());
    assert_eq!(children.len(), 3, "{children:?}");
    demo.kill().expect("killed");
    demo.wait().expect("ends");
    all_gone(&children);
}

/// Sends it SIGINT, as Ctrl-C does, or another signal.
fn signal(demo: &std::process::Child, signal: Signal) {
    let pid = i32::try_from(demo.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process");
    rustix::process::kill_process(pid, signal).expect("told");
}

/// Waits until all of them have ended.
#[track_caller]
fn all_gone(children: &[u32]) {
    let until = Instant::now() + Duration::from_secs(10);
    while children.iter().any(|child| is_alive(*child)) {
        assert!(Instant::now() < until, "left behind: {children:?}");
        std::thread::yield_now();
    }
}

/// The processes whose parent is this one.
fn children_of(parent: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc")
        .expect("processes")
        .map_while(Result::ok)
    {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        if stat(pid).is_some_and(|(_, ppid)| ppid == parent) {
            children.push(pid);
        }
    }
    children
}

fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may contain anything.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
