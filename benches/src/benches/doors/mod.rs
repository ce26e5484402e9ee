//! Doors: calls as Envoy, a web server or another language makes them.
//!
//! ```text
//! doors     the agent in the process   C, LuaJIT, Go, Python; also with the aggregator killed
//! rls       gRPC over loopback         Envoy's rate limit filter; beside envoyproxy/ratelimit and Redis
//! gateway   HTTP over a Unix socket    a web server's request
//! ```
//!
//! Each also with the aggregator killed: rounds with an aggregator and without alternate.
//!
//! The gateway is the process that operators run, beside an aggregator; the client shares the machine with both. No
//! call is refused: 1,000 domains, each far below its limit.

mod gateway;
mod languages;
mod rls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use crate::harness::Session;
use crate::harness::beside;
use crate::harness::figure::{Figure, Target};
use crate::harness::peers::free_address;
use crate::harness::stats::percentile;

pub use gateway::run as gateway;
pub use languages::run as languages;
pub use rls::run as rls;

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"1000000/s\"\n";
const DOMAINS: u32 = 1_000;
const CONNECTIONS: u32 = 16;
/// Requests that are not timed, while connections and names are new.
const WARM_UP: u32 = 2_000;
const ROUNDS: usize = 3;
const USUAL: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(10);
const START_WITHIN: Duration = Duration::from_secs(10);
/// After this time a gateway has found a restarted aggregator.
const FOUND_AGAIN: Duration = Duration::from_secs(2);
/// Within this ratio a decision counts as costing the same with the aggregator killed.
const UNCHANGED: Target = Target::AtMost(1.10);

/// A gateway that runs during a benchmark.
struct RunningGateway {
    process: Child,
    /// Its HTTP socket.
    socket: PathBuf,
    /// Its gRPC address.
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

fn time_of(session: &Session) -> Duration {
    if session.is_full() { FULL } else { USUAL }
}

/// The results of one side, one value per round.
#[derive(Clone, Debug, Default)]
struct DoorRounds {
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    /// The rate of [`CONNECTIONS`] connections together.
    per_second: Vec<f64>,
}

impl DoorRounds {
    /// Adds a round: how long successive requests took, and the rate of many connections.
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

    /// Figures of decisions with the aggregator killed (`self`), relative to those with a connected aggregator.
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
