//! Commands that go on until a signal ends them: what they wrote by then is complete, and theirs is exit code 0.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{DEADLINE, Dealer, LIMITS, directory, run, serve, tollgate};

const PARTITIONS: u32 = 4;

/// Runs a command that writes JSON into a file, ends it by a signal once it has written a line, and returns the lines,
/// and what it wrote to stderr.
fn ended_by(signal: &str, dir: &Path, args: &[&str]) -> (Vec<Value>, String) {
    ended(signal, dir, begun(dir, args))
}

/// A command that has written a line into its file.
fn begun(dir: &Path, args: &[&str]) -> Child {
    let mut command = tollgate();
    command.current_dir(dir).args(args);
    let mut child = command
        .args(["--format", "json", "-o", "list"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let temporary = dir.join(format!("list.{}.tmp", child.id()));
    let end = Instant::now() + DEADLINE;
    let has_line = || std::fs::read(&temporary).is_ok_and(|bytes| bytes.ends_with(b"\n"));
    while !has_line() {
        if end < Instant::now() {
            child.kill().expect("it is killed");
            panic!("{args:?}: no line");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

/// Ends a command by a signal; the lines of its file, and what is left of its stderr.
fn ended(signal: &str, dir: &Path, child: Child) -> (Vec<Value>, String) {
    let temporary = dir.join(format!("list.{}.tmp", child.id()));
    let sent = std::process::Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!temporary.exists());
    let text = std::fs::read_to_string(dir.join("list")).expect("a file");
    let lines = text.lines();
    let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    let stderr = String::from_utf8(output.stderr).expect("a text");
    (lines.collect(), stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_completes_the_output_of_endless_commands() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut dealer = Dealer::connect(served.agents, b'e').await;
    dealer.hit("api.search", "acme", 6, PARTITIONS).await;

    let url = format!("http://{}", served.http);
    for signal in ["INT", "TERM"] {
        let (denials, _) = ended_by(signal, dir.path(), &["denials", "--watch", "--url", &url]);
        assert_eq!(denials[0]["domain"], "acme", "{denials:?}");
        assert_eq!(denials.len(), 1, "each is listed once");
    }
    let (code, _, err) = run(dir.path(), &["feed", "tail", "--feed", "127.0.0.1:1"]);
    assert_eq!(code, 69, "nobody listens there: {err}");
    assert!(err.contains("127.0.0.1:1: Connection refused"), "{err}");
    let feed = served.feed.to_string();
    let (frames, _) = ended_by("INT", dir.path(), &["feed", "tail", "--feed", &feed]);
    assert_eq!(frames[0]["schema"], "tollgate.feed/1", "{frames:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denials_are_watched_in_a_file_however_many_there_are() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut dealer = Dealer::connect(served.agents, b'w').await;
    // More than a list without a limit shows.
    for domain in 0..1_003 {
        dealer
            .hit("api.search", &domain.to_string(), 6, PARTITIONS)
            .await;
    }
    let url = format!("http://{}", served.http);
    let watch = ["denials", "--watch", "--url", &url];
    let (lines, err) = ended_by("INT", dir.path(), &watch);
    assert_eq!((lines.len(), &*err), (1_003, ""));
    let (lines, err) = ended_by("INT", dir.path(), &[&watch[..], &["--limit", "2"]].concat());
    assert_eq!(lines.len(), 2);
    let expected = "tollgate: 1001 more; see --limit, or narrow the query\n";
    assert_eq!(err, expected, "stated once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_denials_outlasts_its_aggregator() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut dealer = Dealer::connect(served.agents, b'o').await;
    dealer.hit("api.search", "acme", 6, PARTITIONS).await;
    let url = format!("http://{}", served.http);
    let mut watch = begun(dir.path(), &["denials", "--watch", "--url", &url]);
    drop(served);
    let mut line = String::new();
    let stderr = watch.stderr.as_mut().expect("it is piped");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    assert!(line.contains("; asking again"), "{line}");
    let (denials, _) = ended("INT", dir.path(), watch);
    assert_eq!(denials.len(), 1);
    // One that never answered ends the command.
    let (code, _, err) = run(dir.path(), &["denials", "--watch", "--url", &url]);
    assert_eq!(code, 69, "{err}");
}
