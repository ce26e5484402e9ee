//! The example for actix-web, which cargo builds with the tests of the workspace.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::kit::Kit;

const WITHIN: Duration = Duration::from_secs(20);

/// Examples are in a directory beside that of tests.
fn example() -> PathBuf {
    let here = std::env::current_exe().expect("this test");
    let profile = here.parent().and_then(|deps| deps.parent());
    profile
        .expect("a profile's directory")
        .join("examples/actix")
}

pub fn missing() -> Option<&'static str> {
    (!example().exists()).then_some("the example actix of tollgate-tower")
}

struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It lets a tenant's calls through up to its limit, and refuses the next with a complete answer.
pub fn example_limits() {
    let kit = Kit::start("actix");
    let mut command = Command::new(example());
    command
        .arg("127.0.0.1:0")
        .env_clear()
        .env("TOLLGATE_AGGREGATORS", &kit.aggregator.agents)
        .stdout(Stdio::piped());
    let mut example = Example(command.spawn().expect("the example starts"));
    let mut line = String::new();
    let output = example.0.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on ").expect(&line);
    let mut passed = 0;
    let until = Instant::now() + WITHIN;
    let refused = loop {
        let answer = get(address, "acme");
        if answer.starts_with("HTTP/1.1 429") {
            break answer;
        }
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("found\n"), "{answer}");
        passed += 1;
        assert!(Instant::now() < until, "{passed} let through, none refused");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(6 <= passed, "{passed} of 6 let through");
    for expected in [
        "retry-after: ",
        "ratelimit: ",
        "x-tollgate-code: ",
        "\"status\":429",
    ] {
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    let other = get(address, "globex");
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
}

fn get(address: &str, tenant: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("a timeout");
    write!(
        stream,
        "GET /search HTTP/1.1\r\nhost: x\r\nx-tenant: {tenant}\r\nconnection: close\r\n\r\n"
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    answer
}
