//! Concurrent requests through Envoy: each holds a copy from its head to the end of its stream, and counts once.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tollgate_tests::serving::Serving;

use crate::fronts::{Front, Ports};
use crate::service::Service;
use crate::{WITHIN, await_status, call, get, start_gateway};

/// The shipped configuration uses `http.concurrent`, and a rule maps it to another resource: a
/// refusal shows that the gateway has learnt the rule.
const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
rate = "100000/m"
[copies."edge.concurrent"]
limit = 1
[descriptors.edge]
rules = [
  { keys = ["resource=http.concurrent", "remote_address", "request"], resource = "edge.concurrent", domain = "{remote_address}" },
]
"#;

/// Usually long enough for a request to be decided; if not, the test tries again.
const ABOUT_THERE: Duration = Duration::from_millis(50);

/// A request whose body is not sent yet, so that it holds a copy until then.
struct Open(TcpStream);

impl Open {
    fn begin(web: &str) -> Self {
        let mut stream = TcpStream::connect(web).expect("it accepts");
        let head =
            "POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("it reads");
        Self(stream)
    }

    /// Sends the body and returns the status.
    fn end(mut self) -> String {
        self.0.set_read_timeout(Some(WITHIN)).expect("a socket");
        let mut answer = String::new();
        // The server need not read the body of a refused request.
        let _ = self.0.write_all(b"body");
        let _ = self.0.read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }
}

/// Calls that the gateway has decided.
fn decided(gateway: &str) -> u64 {
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (_, text) = call(gateway, request).expect("metrics");
    let lines = text.lines();
    let counts = lines.filter(|line| line.starts_with("tollgate_gateway_answers_total{"));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

fn status(web: &str) -> Option<u16> {
    call(web, &get("")).map(|(status, _)| status)
}

pub fn limits_and_counts(front: &Front) {
    let name = format!("tollgate-{}-concurrent-{}", front.name, std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    let aggregator = Serving::start(&dir, LIMITS, 2);
    let service = Service::start();
    let ports = Ports::choose(&dir, service.port());
    let _gateway = start_gateway(front, &aggregator.agents, &ports);
    let web = format!("127.0.0.1:{}", ports.web);
    let _front = front.start(&dir, &ports);
    await_status(&web, 200, "it starts");

    // At first the gateway has not learnt yet that the resource limits copies.
    let until = Instant::now() + WITHIN;
    loop {
        let open = Open::begin(&web);
        std::thread::sleep(ABOUT_THERE);
        let beside = status(&web);
        // Envoy's report of the refused request releases nothing.
        std::thread::sleep(ABOUT_THERE);
        let still = status(&web);
        let ended = open.end();
        if (beside, still, &*ended) == (Some(429), Some(429), "200") {
            break;
        }
        assert!(
            Instant::now() < until,
            "beside an open request: {beside:?}, {still:?}, expected 429; it ended with {ended}"
        );
    }
    await_status(&web, 200, "the request is done");

    // Each request is decided once, though Envoy reports its end as well.
    let gateway = format!("127.0.0.1:{}", ports.gateway);
    let before = decided(&gateway);
    const CALLS: u64 = 20;
    for _ in 0..CALLS {
        assert!(matches!(status(&web), Some(200 | 429)));
    }
    assert_eq!(decided(&gateway) - before, CALLS);

    // Without aggregators requests go on.
    drop(aggregator);
    for _ in 0..CALLS {
        await_status(&web, 200, "no aggregator");
    }
    let _ = std::fs::remove_dir_all(&dir);
}
