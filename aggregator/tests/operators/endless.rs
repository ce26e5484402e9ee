//! Commands that go on until a signal ends them: what they wrote by then is complete, and theirs is exit code 0.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{DEADLINE, Dealer, LIMITS, directory, serve, tollgate};

/// Runs a command that writes JSON into a file, ends it by a signal once it has written a line, and returns the lines.
fn ended_by(signal: &str, dir: &Path, args: &[&str]) -> Vec<Value> {
    let mut command = tollgate();
    command.current_dir(dir).args(args);
    let mut child = command
        .args(["--format", "json", "-o", "list"])
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
    let sent = std::process::Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{args:?}");
    assert!(!temporary.exists());
    let text = std::fs::read_to_string(dir.join("list")).expect("a file");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_completes_the_output_of_endless_commands() {
    let dir = directory(LIMITS);
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let mut dealer = Dealer::connect(served.agents, b'e').await;
    dealer.hit("api.search", "acme", 6, 4).await;

    let url = format!("http://{}", served.http);
    for signal in ["INT", "TERM"] {
        let denials = ended_by(signal, dir.path(), &["denials", "--watch", "--url", &url]);
        assert_eq!(denials[0]["domain"], "acme", "{denials:?}");
        assert_eq!(denials.len(), 1, "each is listed once");
    }
    let feed = served.feed.to_string();
    let frames = ended_by("INT", dir.path(), &["feed", "tail", "--feed", &feed]);
    assert_eq!(frames[0]["schema"], "tollgate.feed/1", "{frames:?}");
}
