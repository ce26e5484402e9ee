//! What a gateway answers about resources that it did not know before, beside a real aggregator.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{DEADLINE, directory, get, metric, serve, tollgate};

/// A running gateway, whose stderr is closed once it listens. It is killed when this is dropped.
pub struct Gateway {
    child: Child,
    http: String,
}

impl Gateway {
    pub fn start(aggregator: &str) -> Self {
        let mut child = tollgate()
            .args(["gateway", "--listen", "127.0.0.1:0", "--aggregator"])
            .arg(aggregator)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines
            .map_while(Result::ok)
            .find(|line| line.contains("listening"))
            .expect("it listens");
        let (_, http) = line.split_once("http=").unwrap();
        let http = http.trim().to_owned();
        Self { child, http }
    }

    /// A gateway that also listens for gRPC, and logs to this file; returns its gRPC address.
    fn start_grpc(log: &Path) -> (Self, String) {
        let child = tollgate()
            .args(["gateway", "--listen", "127.0.0.1:0", "--rls", "127.0.0.1:0"])
            .args(["--aggregator", "127.0.0.1:1"])
            .stderr(File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut started = Self {
            child,
            http: String::new(),
        };
        let began = Instant::now();
        loop {
            let lines = std::fs::read_to_string(log).unwrap();
            let of = |name: &str| {
                let (_, found) = lines.split_once(name)?;
                found
                    .split_once('\n')
                    .map(|(address, _)| address.to_owned())
            };
            if let (Some(http), Some(grpc)) = (of("http="), of("grpc=")) {
                started.http = http;
                return (started, grpc);
            }
            assert!(began.elapsed() < DEADLINE, "{lines}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The single decision on a question.
    pub fn decide(&self, question: &str) -> Value {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let length = question.len();
        write!(
            stream,
            "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{question}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        answer["decisions"][0].clone()
    }

    /// A counter's value; 0 if it has not been counted yet.
    pub fn metric(&self, name: &str) -> f64 {
        metric(&self.metrics(), name).unwrap_or(0.0)
    }

    fn metrics(&self) -> String {
        get(self.http.parse().unwrap(), "/metrics").1
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its alert is the only one on a metric that no aggregator shows.
#[test]
fn a_gateways_agent_publishes_the_metric_of_panics() {
    let gateway = Gateway::start("127.0.0.1:1");
    let began = Instant::now();
    while !gateway
        .metrics()
        .contains("\ntollgate_agent_threads_panicked_total{")
    {
        assert!(began.elapsed() < DEADLINE, "{}", gateway.metrics());
        std::thread::sleep(Duration::from_millis(10));
    }
    let shown = gateway.metrics();
    for line in shown
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
    {
        let name = line.split(' ').next().unwrap();
        assert!(shown.contains(&format!("# HELP {name} ")), "{name}");
    }
}

#[test]
fn a_gateways_fault_is_reported_or_its_answer_is_blind() {
    let dir = directory(
        "version = 1\nrules = 2\nnamespace.closed.allow_unconfigured = false\n\
         rate.\"api.search\".rate = \"5/m\"\nrate.\"api.none\".tiers = []\ncopies.\"api.render\".limit = 2\n",
    );
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let gateway = Gateway::start(&served.agents.to_string());
    let hit = |resource: &str| {
        format!(r#"{{"hits":[{{"resource":"{resource}","domain":"acme","copies":1}}]}}"#)
    };
    let hold = |resource: &str| {
        let of = format!(r#""resource":"{resource}","domain":"acme","copies":1"#);
        format!(r#"{{"holds":[{{{of},"lease_ms":1000}}]}}"#)
    };
    for (question, cause) in [
        (hit("api.render"), "limited by copies, not by rate"),
        (hold("api.search"), "limited by rate"),
        (hit("api.none"), "inaccessible"),
        (hit("closed.unknown"), "unconfigured"),
    ] {
        // The first answers come before the aggregator has sent anything about the resource.
        let began = Instant::now();
        let refused = loop {
            let decision = gateway.decide(&question);
            if decision["allowed"] == false {
                break decision;
            }
            assert_eq!(decision["blind"], true, "{question}: {decision}");
            assert!(began.elapsed() < DEADLINE, "{question}: {decision}");
        };
        let found_cause = refused["cause"].as_str().unwrap();
        assert!(found_cause.contains(cause), "{question}: {found_cause}");
    }
    // The same holds for a resource whose limits are not reached; then the gateway is no longer blind there.
    let began = Instant::now();
    while gateway.decide(&hit("open.unknown"))["blind"] == true {
        assert!(began.elapsed() < DEADLINE);
    }
}

#[test]
fn strict_copies_are_granted_by_an_aggregator() {
    let dir =
        directory("version = 1\nrules = 2\n[copies.licences]\nlimit = 2\nreserve = \"strict\"\n");
    let served = serve(dir.path(), &[]);
    served.await_ready();
    let gateway = Gateway::start(&served.agents.to_string());
    let of = r#""resource":"licences","domain":"acme""#;
    let question =
        format!(r#"{{"holds":[{{{of},"lease_ms":60000,"confirmed_within_ms":10000}}]}}"#);
    for _ in 0..2 {
        let granted = gateway.decide(&question);
        assert_eq!(granted["allowed"], true, "{granted}");
        assert_eq!(granted["blind"], false, "{granted}");
    }
    let refused = gateway.decide(&question);
    assert_eq!(refused["allowed"], false, "{refused}");
    let cause = refused["cause"].as_str().unwrap();
    assert!(
        cause.contains("the limit on copies in use is reached"),
        "{cause}"
    );
    // Programs generate clients from it.
    let described = served.json("/v1/openapi.json");
    assert!(described["paths"]["/v1/holds"].is_object(), "{described}");
}

#[test]
fn unrequested_frames_write_no_log_lines() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let (_gateway, grpc) = Gateway::start_grpc(&log);
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 0];
        [&head[..], payload].concat()
    };
    let (settings, ping, ack) = (4, 6, 1);
    let mut stream = TcpStream::connect(&grpc).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let forged = frame(ping, ack, b"unasked!").repeat(1_000);
    let ping_frame = frame(ping, 0, b"are you?");
    let all = [preface, frame(settings, 0, b""), forged, ping_frame].concat();
    stream.write_all(&all).unwrap();
    // Its answer comes after all other answers.
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"are you?") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.extend(byte);
    }
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.lines().count() < 20, "{lines}");
    assert!(!lines.contains("h2::"), "{lines}");
}
