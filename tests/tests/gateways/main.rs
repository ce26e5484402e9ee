//! Web servers in front of a service, with the shipped configurations of `deploy/gateways` and a gateway beside them.
//!
//! One table for all of them: calls let through and refused, headers, a body, a forged address, a gateway that has
//! ended. And schemathesis, which sends the gateway and an aggregator everything that their API descriptions allow.
//! Each is ignored if its program is missing; `TOLLGATE_PROGRAMS=required` fails instead.

mod concurrent;
mod fronts;
mod openapi;
mod service;

use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Trial};
use tollgate_tests::binary;
use tollgate_tests::http::ask;
use tollgate_tests::serving::Serving;

use fronts::{ENVOY_RLS, FRONTS, Front, Ports};
use service::Service;

/// How many calls a minute one address may make.
const LIMIT: usize = 6;

/// By this call an address must be refused: a denial takes milliseconds, and so does a web server.
const CALLS_MAX: usize = 400;

/// How long a web server may take to start, or to notice that the gateway has ended.
const WITHIN: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let is_required = std::env::var("TOLLGATE_PROGRAMS").is_ok_and(|value| value == "required");
    let trial = |front: &'static Front, name: &str, body: fn(&Front)| {
        let name = format!("{}_{name}", front.name);
        Trial::ignorable_test(name, move || match (front.is_there(), is_required) {
            (true, _) => {
                body(front);
                Ok(Completion::Completed)
            }
            (false, true) if front.is_required => {
                let program = front.program;
                Err(format!("TOLLGATE_PROGRAMS=required, and {program}: not found").into())
            }
            (false, _) => Ok(Completion::ignored_with(format!(
                "{}: not found",
                front.program
            ))),
        })
    };
    let limits = "limits_fails_open_and_is_not_fooled";
    let all = FRONTS.iter();
    let mut trials: Vec<Trial> = all
        .map(|front| trial(front, limits, limits_and_fails_open))
        .collect();
    let concurrent = "limits_requests_at_a_time_and_counts_once";
    trials.push(trial(&ENVOY_RLS, concurrent, concurrent::limits_and_counts));
    trials.push(openapi::trial(is_required));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Process {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process(child.spawn().expect("a program that is there"))
}

/// The answer to a request through the web server: status, head, body.
fn call(web: &str, request: &str) -> Option<(u16, String)> {
    ask(web, request.as_bytes())
}

fn get(headers: &str) -> String {
    format!(
        "GET /search?domain=name:other&cost=0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"
    )
}

fn await_status(web: &str, expected: u16, why: &str) {
    let until = Instant::now() + WITHIN;
    loop {
        let answered = call(web, &get("")).map(|(status, _)| status);
        if answered == Some(expected) {
            return;
        }
        assert!(
            Instant::now() < until,
            "{why}: {answered:?}, expected {expected}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn start_gateway(front: &Front, aggregator: &str, ports: &Ports) -> Process {
    let mut gateway = binary::tollgate();
    gateway.args(["gateway", "--aggregator", aggregator]);
    match front.by_socket {
        true => gateway.arg("--socket").arg(&ports.socket),
        false => gateway.args(["--listen", &format!("127.0.0.1:{}", ports.gateway)]),
    };
    gateway.args(["--rls", &format!("127.0.0.1:{}", ports.rls)]);
    if let Some(networks) = front.trusted_proxies {
        gateway.args(["--trusted-proxies", networks]);
    }
    start(&mut gateway)
}

fn limits_and_fails_open(front: &Front) {
    let dir = std::env::temp_dir().join(format!("tollgate-{}-{}", front.name, std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let limits = format!("version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"{LIMIT}/m\"\n");
    let aggregator = Serving::start(&dir, &limits, 2);
    let service = Service::start();
    let ports = Ports::choose(&dir, service.port());
    let mut gateway = start_gateway(front, &aggregator.agents, &ports);
    let web = format!("127.0.0.1:{}", ports.web);
    let _front = front.start(&dir, &ports);
    await_status(&web, 200, "it starts");

    // A body reaches the service whole, although the gateway is asked first.
    let body = "x".repeat(10_000);
    let post = format!(
        "POST /search HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, answer) = call(&web, &post).expect("an answer");
    assert_eq!(
        (status, answer.trim()),
        (200, "served 10000"),
        "{}",
        front.program
    );

    // Whatever a client writes before its address or after its path.
    let forged = get("X-Forwarded-For: 203.0.113.7\r\nX-Tenant: other\r\n");
    let refused = (0..CALLS_MAX).any(|_| {
        std::thread::sleep(Duration::from_millis(2));
        call(&web, &forged).is_some_and(|(status, _)| status == 429)
    });
    assert!(
        refused,
        "{}: {CALLS_MAX} calls, and none refused",
        front.program
    );
    let (status, head) = service::head(&web, &forged).expect("an answer");
    assert_eq!(status, 429, "{head}");
    for field in ["retry-after: ", "ratelimit-policy: \"", "ratelimit: \""] {
        assert!(
            head.to_ascii_lowercase().contains(field),
            "{}: {field}: {head}",
            front.program
        );
    }

    // Another client has a limit of its own.
    let status = service::status_from([127, 0, 3, 2], &web, &forged);
    assert_eq!(status, Some(200), "{}: another address", front.program);

    // Without a gateway requests go on.
    let _ = gateway.0.kill();
    let _ = gateway.0.wait();
    await_status(&web, 200, "the gateway is gone");
    let _ = std::fs::remove_dir_all(&dir);
}
