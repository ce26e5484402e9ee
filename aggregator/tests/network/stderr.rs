//! Processes whose stderr has no reader; a full disk has the same effect. They lose log lines, and nothing else.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use crate::gateway::Gateway;
use crate::support::{DEADLINE, directory, serve};

const LOST: &str = "tollgate_stderr_lines_lost_total";

/// Bytes that neither Tollgate nor ZeroMQ sends. The process logs a line about them, at most one a second.
const GARBAGE: &[u8] = &[b'x'; 128];

#[test]
fn an_aggregator_without_a_reader_of_its_log_lines_goes_on() {
    let dir = directory("version = 1\nrules = 2\nrate.\"api.search\".rate = \"5/m\"\n");
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    served.close_stderr();
    let began = Instant::now();
    while served.metric(LOST) < 2.0 {
        assert!(began.elapsed() < DEADLINE);
        for port in [served.agents, served.feed] {
            let mut stream = TcpStream::connect(port).unwrap();
            stream.write_all(GARBAGE).unwrap();
        }
    }
    served.await_ready();
    // It also rules, and sends what it ruled.
    let gateway = Gateway::start(&served.agents.to_string());
    let question = r#"{"hits":[{"resource":"api.search","domain":"acme","copies":1}]}"#;
    let began = Instant::now();
    while gateway.decide(question)["allowed"] == true {
        assert!(began.elapsed() < DEADLINE);
    }
    served.signal("TERM");
    let (status, _) = served.await_end();
    assert!(status.success(), "{status}");
}

#[test]
fn a_gateway_without_a_reader_of_its_log_lines_goes_on() {
    let aggregator = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = aggregator.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in aggregator.incoming() {
            let _ = stream.unwrap().write_all(GARBAGE);
        }
    });
    let gateway = Gateway::start(&address);
    let began = Instant::now();
    // The second line shows that the first did not end the thread that logs them.
    while gateway.metric(LOST) < 2.0 {
        assert!(began.elapsed() < DEADLINE);
    }
}
