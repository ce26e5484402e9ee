//! libzmq as the peer of an aggregator and of an agent, by way of Python's pyzmq.
//!
//! Ignored if pyzmq is missing; `TOLLGATE_PROGRAMS=required` fails instead.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Trial};
use tollgate_agent::Agent;
use tollgate_shared::epoch::EpochSecret;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::frame::Topic;
use tollgate_shared::wire::link::FromAgent;
use tollgate_tests::serving::Serving;

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"5/m\"\n";

fn main() -> ExitCode {
    let found = Command::new("python3")
        .args(["-c", "import zmq"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_there = found.is_ok_and(|status| status.success());
    let is_required = std::env::var("TOLLGATE_PROGRAMS").is_ok_and(|value| value == "required");
    let trial = |name: &'static str, body: fn()| {
        Trial::ignorable_test(name, move || match (is_there, is_required) {
            (true, _) => {
                body();
                Ok(Completion::Completed)
            }
            (false, false) => Ok(Completion::ignored_with("python3 with pyzmq: not found")),
            (false, true) => {
                Err("TOLLGATE_PROGRAMS=required, and python3 with pyzmq: not found".into())
            }
        })
    };
    let trials = vec![
        trial(
            "libzmq_talks_to_an_aggregator",
            libzmq_talks_to_an_aggregator,
        ),
        trial("an_agent_talks_to_libzmq", an_agent_talks_to_libzmq),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The aggregator answers a DEALER's hello; a SUB receives the control topic, with heartbeats
/// enabled on top.
const AGAINST_AGGREGATOR: &str = r#"
import sys, zmq
agents, feed, topic, hello = sys.argv[1:]
context = zmq.Context()
dealer = context.socket(zmq.DEALER)
dealer.setsockopt(zmq.IDENTITY, b"ignored")
dealer.connect("tcp://" + agents)
dealer.send(bytes.fromhex(hello))
assert dealer.poll(30000), "no welcome"
answer = dealer.recv_multipart()
assert len(answer) == 1 and answer[0][:2] == b"\x01\x41", answer
sub = context.socket(zmq.SUB)
sub.setsockopt(zmq.HEARTBEAT_IVL, 100)
sub.setsockopt(zmq.HEARTBEAT_TIMEOUT, 5000)
sub.setsockopt(zmq.SUBSCRIBE, topic.encode())
sub.connect("tcp://" + feed)
for n in range(8):
    assert sub.poll(30000), "no frame"
    frame = sub.recv_multipart()
    assert frame[0] == topic.encode() and len(frame) == 2, frame
sub.setsockopt(zmq.UNSUBSCRIBE, topic.encode())
print("well")
"#;

/// A ROUTER receives an agent's hello, and sends it a given answer.
const AGAINST_AGENT: &str = r#"
import sys, zmq
context = zmq.Context()
router = context.socket(zmq.ROUTER)
router.setsockopt(zmq.HEARTBEAT_IVL, 100)
port = router.bind_to_random_port("tcp://127.0.0.1")
print(port, flush=True)
for n in range(2):
    assert router.poll(30000), "no hello"
    peer, message = router.recv_multipart()
    assert message[:2] == b"\x01\x01", message
    router.send_multipart([peer, b"no answer"])
print("well", flush=True)
sys.stdin.read()
"#;

fn libzmq_talks_to_an_aggregator() {
    let dir = tempfile::tempdir().unwrap();
    let serving = Serving::start(dir.path(), LIMITS, 4);
    let mut writer = Writer::new();
    FromAgent::Hello {
        nonce: 5,
        agent: "python",
        secret: EpochSecret::new([1; 32]),
        before: None,
    }
    .encode(&mut writer);
    let hello: String = writer
        .as_slice()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let output = Command::new("python3")
        .args(["-c", AGAINST_AGGREGATOR, &serving.agents, &serving.feed])
        .args([Topic::CONTROL.as_str(), &hello])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.stdout, b"well\n");
}

fn an_agent_talks_to_libzmq() {
    let mut python = Command::new("python3")
        .args(["-c", AGAINST_AGENT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let port = lines.next().unwrap().unwrap();
    let agent = Agent::builder().name("a");
    let agent = agent
        .aggregator(format!("127.0.0.1:{port}"))
        .build()
        .unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "well");
    let begun = Instant::now();
    while agent.stats().frames_refused == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "what is no answer is counted"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        agent.stats().connections_ended,
        0,
        "it kept to the protocol"
    );
    drop(python.stdin.take());
    python.wait().unwrap();
}
