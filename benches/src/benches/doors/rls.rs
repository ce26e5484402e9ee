//! gRPC over loopback, as Envoy's rate limit filter sends it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::Channel;

use super::{CONNECTIONS, DOMAINS, DoorRounds, FOUND_AGAIN, LIMITS, ROUNDS, RunningGateway};
use super::{WARM_UP, time_of};
use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::figure::{Figure, Target};
use crate::harness::peers::ratelimit::{RateLimit, request_about};
use crate::harness::peers::{Peer as _, StartError, grpc_channel};
use crate::load::names::domain;

const PEER: &str = "envoyproxy/ratelimit, Redis";

/// Runs the benchmark.
///
/// # Errors
///
/// If a process does not start, or a request is refused.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let time = time_of(session);
    let mut aggregator = Aggregator::start(LIMITS, 16)?;
    let gateway = RunningGateway::start(&aggregator.agents)?;
    let of_gateway = gateway.rls.to_string();
    let (peer, why_none) = match RateLimit::start() {
        Ok(peer) => (Some(peer), None),
        Err(StartError::Absent { reason }) => (None, Some(reason)),
        Err(StartError::Failed(error)) => return Err(error).context("starting the peer"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (mut ours, mut theirs) = (DoorRounds::default(), DoorRounds::default());
    let mut without = DoorRounds::default();
    runtime.block_on(async {
        for round in 1..=ROUNDS {
            session.step(&format!("round {round} of {ROUNDS}"));
            measure(&of_gateway, time, &mut ours).await?;
            if let Some(peer) = &peer {
                measure(&peer.address(), time, &mut theirs).await?;
            }
            aggregator.kill()?;
            measure(&of_gateway, time, &mut without).await?;
            aggregator.again()?;
            tokio::time::sleep(FOUND_AGAIN).await;
        }
        anyhow::Ok(())
    })?;
    let of_theirs = [&theirs.p50_us, &theirs.p99_us, &theirs.per_second];
    let figures = ours.figures("ShouldRateLimit").into_iter().zip(of_theirs);
    for (figure, of_theirs) in figures {
        if let Some(figure) = figure {
            session.add(figure.peer(PEER, of_theirs));
        }
    }
    let against = [
        (
            "p50 against the peer's",
            &ours.p50_us,
            &theirs.p50_us,
            Target::AtMost(0.7),
        ),
        (
            "decisions a second against the peer's",
            &ours.per_second,
            &theirs.per_second,
            Target::AtLeast(2.0),
        ),
    ];
    for (name, over, under, target) in against {
        let name = format!("ShouldRateLimit, {name}");
        let figure = match &why_none {
            Some(why) => Some(Figure::absent(name, "×", why.clone())),
            None => Figure::of_ratio(name, over, under),
        };
        if let Some(figure) = figure {
            session.add(figure.target(target));
        }
    }
    let without = without.without_aggregator(&ours, "ShouldRateLimit");
    without
        .into_iter()
        .flatten()
        .for_each(|figure| session.add(figure));
    Ok(())
}

/// One round against one address.
async fn measure(address: &str, time: Duration, into: &mut DoorRounds) -> anyhow::Result<()> {
    let mut client = connect(address).await?;
    for number in 0..WARM_UP {
        decide(&mut client, number).await?;
    }
    let (mut took, begin) = (Vec::new(), Instant::now());
    for number in 0.. {
        if time < begin.elapsed() {
            break;
        }
        let sent_at = Instant::now();
        decide(&mut client, number).await?;
        took.push(u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let mut asking = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let mut client = connect(address).await?;
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
    into.add(took, all);
    Ok(())
}

async fn connect(address: &str) -> anyhow::Result<RateLimitServiceClient<Channel>> {
    let channel = grpc_channel(address).await?;
    Ok(RateLimitServiceClient::new(channel))
}

async fn decide(client: &mut RateLimitServiceClient<Channel>, number: u32) -> anyhow::Result<()> {
    let request = request_about(domain(number % DOMAINS));
    let answer = client.should_rate_limit(request).await?.into_inner();
    ensure!(
        answer.overall_code == Code::Ok as i32,
        "refused: {answer:?}"
    );
    Ok(())
}
