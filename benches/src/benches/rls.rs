//! What Envoy waits for: a decision of the gateway's rate limit service, over loopback.
//!
//! ```text
//! one connection        one request after the other        p50, p99
//! sixteen connections   each one request after the other   decisions a second
//! ```
//!
//! The gateway is the process that operators run, beside an aggregator; the client shares the machine with both. No
//! call is refused: 1,000 domains, each far below its limit.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::Channel;

use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::beside;
use crate::harness::figure::Figure;
use crate::harness::stats::percentile;
use crate::load::names::domain;

const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"1000000/s\"\n";
const DOMAINS: u32 = 1_000;
const CONNECTIONS: u32 = 16;
/// Requests that nobody times: connections and names are new.
const WARM_UP: u32 = 2_000;
const USUAL: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(20);
const START_WITHIN: Duration = Duration::from_secs(10);

/// A gateway for the time of the benchmark.
struct RunningGateway {
    process: Child,
    rls: SocketAddr,
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Measures it.
///
/// # Errors
///
/// Where a process does not start, or a request is refused.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let time = if session.is_full() { FULL } else { USUAL };
    let aggregator = Aggregator::start(LIMITS, 16)?;
    let gateway = start(&aggregator.agents)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        session.step("one connection");
        let mut client = connect(gateway.rls).await?;
        for number in 0..WARM_UP {
            decide(&mut client, number).await?;
        }
        let mut took = Vec::new();
        let begin = Instant::now();
        for number in 0.. {
            if time < begin.elapsed() {
                break;
            }
            let asked = Instant::now();
            decide(&mut client, number).await?;
            took.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        let requests = took.len();
        for (name, share) in [
            ("ShouldRateLimit, p50", 0.5),
            ("ShouldRateLimit, p99", 0.99),
        ] {
            if let Some(ns) = percentile(&mut took, share) {
                let note = format!("1 connection, {requests} requests, one after the other");
                session.add(Figure::single(name, "µs", ns as f64 / 1e3).note(note));
            }
        }
        session.step("sixteen connections");
        let mut asking = tokio::task::JoinSet::new();
        for connection in 0..CONNECTIONS {
            let mut client = connect(gateway.rls).await?;
            asking.spawn(async move {
                let (begin, mut decided) = (Instant::now(), 0u32);
                while begin.elapsed() < time {
                    decide(&mut client, connection * 61 + decided).await?;
                    decided += 1;
                }
                anyhow::Ok(f64::from(decided) / begin.elapsed().as_secs_f64())
            });
        }
        let mut all = 0.0;
        while let Some(each) = asking.join_next().await {
            all += each??;
        }
        let note = format!("{CONNECTIONS} connections, {} s", time.as_secs());
        session.add(Figure::single("ShouldRateLimit", "decisions/s", all).note(note));
        anyhow::Ok(())
    })
}

fn start(aggregator: &str) -> anyhow::Result<RunningGateway> {
    // Both are bound before they are given up, so that they differ.
    let bound = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0"));
    let [http, rls] = bound.map(|bound| bound.and_then(|listener| listener.local_addr()));
    let (http, rls) = (http?, rls?);
    let program = beside::program("tollgate", "tollgate")?;
    let process = Command::new(program)
        .args(["gateway", "--aggregator", aggregator])
        .args(["--listen", &http.to_string(), "--rls", &rls.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("starting a gateway")?;
    Ok(RunningGateway { process, rls })
}

async fn connect(address: SocketAddr) -> anyhow::Result<RateLimitServiceClient<Channel>> {
    let endpoint = Channel::from_shared(format!("http://{address}"))?;
    let until = Instant::now() + START_WITHIN;
    loop {
        match endpoint.connect().await {
            Ok(channel) => return Ok(RateLimitServiceClient::new(channel)),
            Err(error) if until < Instant::now() => return Err(error).context("the gateway"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn decide(client: &mut RateLimitServiceClient<Channel>, number: u32) -> anyhow::Result<()> {
    let entry = |key: &str, value: String| Entry {
        key: key.to_owned(),
        value,
    };
    let descriptor = RateLimitDescriptor {
        entries: vec![
            entry("resource", "api.search".to_owned()),
            entry("domain", domain(number % DOMAINS)),
        ],
        ..RateLimitDescriptor::default()
    };
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![descriptor],
        hits_addend: 0,
    };
    let answer = client.should_rate_limit(request).await?.into_inner();
    ensure!(
        answer.overall_code == Code::Ok as i32,
        "refused: {answer:?}"
    );
    Ok(())
}
