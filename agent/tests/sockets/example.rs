//! Tests of the example: it answers without an aggregator, and refuses a tenant that an aggregator denies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Aggregator, NOBODY};

struct Service {
    child: Child,
    address: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Examples are beside the directory of tests; `cargo test` builds them.
fn example() -> PathBuf {
    let here = std::env::current_exe().expect("this test");
    let profile = here
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a profile's directory");
    profile.join("examples").join("axum")
}

fn start(aggregators: &str) -> Service {
    let mut child = Command::new(example())
        .arg("127.0.0.1:0")
        .env_clear()
        .env("TOLLGATE_AGGREGATORS", aggregators)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example was built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output"))
        .read_line(&mut line)
        .expect("a line");
    let address = line
        .trim()
        .strip_prefix("listening on ")
        .expect("its address")
        .to_owned();
    Service { child, address }
}

/// Not ASCII: it must not pass as a call without a tenant.
const TENANT: &str = "Z\u{fc}rich";

fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!(
        "GET /search HTTP/1.1\r\nhost: x\r\nx-tenant: {TENANT}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}

#[test]
fn the_example_serves_without_aggregators() {
    let service = start(NOBODY);
    for _ in 0..20 {
        let answer = get(&service.address);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("found\n"), "{answer}");
    }
}

/// Asks again until an answer begins with this status.
fn get_until(address: &str, status: &str) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = get(address);
        if answer.starts_with(status) {
            return answer;
        }
        assert!(Instant::now() < until, "no {status:?}, but {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_refuses_a_denied_tenant_and_shows_how_long() {
    let aggregator = Aggregator::start(1).await;
    let service = start(&aggregator.agents.to_string());
    let address = service.address.clone();
    let of = |status: &'static str| {
        let address = address.clone();
        tokio::task::spawn_blocking(move || get_until(&address, status))
    };
    of("HTTP/1.1 200").await.expect("an answer");
    aggregator.until("its hit", |one| 1 <= one.copies()).await;
    aggregator
        .deny("api.search", TENANT, Duration::from_secs(30))
        .await;
    let refused = of("HTTP/1.1 429").await.expect("an answer");
    let wait = refused
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "))
        .and_then(|seconds| seconds.trim().parse::<u64>().ok());
    assert!(
        wait.is_some_and(|seconds| 0 < seconds && seconds <= 30),
        "{refused}"
    );
    aggregator.open("api.search", TENANT).await;
    of("HTTP/1.1 200").await.expect("an answer");
}
