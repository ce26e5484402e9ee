//! Doors: what Envoy, a web server or another language waits for.
//!
//! ```text
//! doors     the agent in the process   C, LuaJIT, Go, Python; also with the aggregator killed
//! rls       gRPC over loopback         Envoy's rate limit filter; beside envoyproxy/ratelimit and Redis
//! gateway   HTTP over a Unix socket    a web server's question
//! ```
//!
//! Each also with the aggregator killed: a round at work, and one without, in turn.
//!
//! The gateway is the process that operators run, beside an aggregator; the client shares the machine with both. No
//! call is refused: 1,000 domains, each far below its limit.

mod gateway;
mod languages;
mod ratelimit;
mod rls;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::harness::Session;
use crate::harness::beside;
use crate::harness::figure::{Figure, Target};
use crate::harness::stats::percentile;

pub use gateway::run as gateway;
pub use languages::run as languages;
pub use rls::run as rls;

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"1000000/s\"\n";
const DOMAINS: u32 = 1_000;
const CONNECTIONS: u32 = 16;
/// Requests that nobody times: connections and names are new.
const WARM_UP: u32 = 2_000;
const ROUNDS: usize = 3;
const USUAL: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(10);
const START_WITHIN: Duration = Duration::from_secs(10);
/// After that a gateway has found an aggregator again that was killed and started.
const FOUND_AGAIN: Duration = Duration::from_secs(2);
/// A decision costs the same with the aggregator killed if it is within this.
const UNCHANGED: Target = Target::AtMost(1.10);

/// A gateway for the time of a benchmark.
struct RunningGateway {
    process: Child,
    /// Where it answers HTTP.
    socket: PathBuf,
    /// Where it answers gRPC.
    rls: SocketAddr,
    _dir: tempfile::TempDir,
}

impl RunningGateway {
    fn start(aggregator: &str) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("gateway.sock");
        let rls = free_address()?;
        let program = beside::program("tollgate", "tollgate")?;
        let process = Command::new(program)
            .args(["gateway", "--aggregator", aggregator])
            .args(["--rls", &rls.to_string(), "--socket"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a gateway")?;
        Ok(Self {
            process,
            socket,
            rls,
            _dir: dir,
        })
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of loopback that nobody listened at a moment ago.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn time_of(session: &Session) -> Duration {
    if session.is_full() { FULL } else { USUAL }
}

/// What one side came to, a value a round.
#[derive(Clone, Debug, Default)]
struct DoorRounds {
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    /// Of [`CONNECTIONS`] connections together.
    per_second: Vec<f64>,
}

impl DoorRounds {
    /// Adds a round: how long requests took, one after the other, and what many connections came to.
    fn add(&mut self, mut took_ns: Vec<u64>, per_second: f64) {
        let micros = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
        self.p50_us.extend(micros(percentile(&mut took_ns, 0.5)));
        self.p99_us.extend(micros(percentile(&mut took_ns, 0.99)));
        self.per_second.push(per_second);
    }

    /// As figures: p50, p99, decisions a second.
    fn figures(&self, name: &str) -> [Option<Figure>; 3] {
        let one = "1 connection, one request after the other";
        let many = format!("{CONNECTIONS} connections, each one request after the other");
        [
            Figure::of_rounds(format!("{name}, p50"), "µs", &self.p50_us).map(|f| f.note(one)),
            Figure::of_rounds(format!("{name}, p99"), "µs", &self.p99_us).map(|f| f.note(one)),
            Figure::of_rounds(name, "decisions/s", &self.per_second).map(|f| f.note(many)),
        ]
    }

    /// As figures: what a decision takes with the aggregator killed, of `self`, against these at work.
    fn without_aggregator(&self, at_work: &Self, name: &str) -> [Option<Figure>; 2] {
        let p50 = format!("{name}, p50 with the aggregator killed, against at work");
        let many = format!("{name}, a decision's time with the aggregator killed, against at work");
        [
            Figure::of_ratio(p50, &self.p50_us, &at_work.p50_us),
            Figure::of_ratio(many, &at_work.per_second, &self.per_second)
                .map(|figure| figure.note(format!("{CONNECTIONS} connections"))),
        ]
        .map(|figure| figure.map(|figure| figure.target(UNCHANGED)))
    }
}
