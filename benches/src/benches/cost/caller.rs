//! Processes that call at a pace: an agent, or a peer that is asked about each call.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use crate::harness::agents::{block_on, connected};
use crate::harness::child::{argument, send_to_parent};
use crate::harness::clock::thread_cpu_ns;
use crate::load::names::domain;

use super::{DOMAINS, RESOURCE};
use crate::harness::peers::PeerClient;
use crate::harness::peers::gubernator::GubernatorClient;
use crate::harness::peers::ratelimit::RateLimitClient;
use crate::harness::peers::redis::ScriptClient;

/// The task of a caller.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct CallOrder {
    /// Calls a second.
    pub rate: u64,
    pub seconds: u64,
    /// Whether it makes calls, or only waits at that pace.
    pub calls: bool,
}

/// The result of a task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Spent {
    pub decisions: u64,
    pub refused: u64,
    pub seconds: f64,
    /// CPU of the thread that calls.
    pub thread_ns: u64,
}

/// A shorter sleep would end late anyway; calls that are due meanwhile are made at once.
const SLEEP_MIN: Duration = Duration::from_micros(500);

/// The child that calls an agent.
///
/// # Errors
///
/// If its settings are invalid, or the parent sends an unexpected line.
pub fn child_agent(args: &[String]) -> anyhow::Result<()> {
    let agent = connected("cost", &argument::<String>(args, 0, "address")?)?;
    let rate = agent.rate(RESOURCE);
    send_to_parent(&block_on(agent.ready(Duration::from_secs(10)))?)?;
    obey(|domain| Ok(rate.hit(domain).is_ok()))
}

/// The child that asks Redis.
///
/// # Errors
///
/// If Redis cannot be reached, or the parent sends an unexpected line.
pub fn child_redis(args: &[String]) -> anyhow::Result<()> {
    ask(args, ScriptClient::connect)
}

/// The child that asks gubernator.
///
/// # Errors
///
/// If gubernator cannot be reached, or the parent sends an unexpected line.
pub fn child_gubernator(args: &[String]) -> anyhow::Result<()> {
    ask(args, GubernatorClient::connect)
}

/// The child that asks envoyproxy/ratelimit.
///
/// # Errors
///
/// If the service cannot be reached, or the parent sends an unexpected line.
pub fn child_ratelimit(args: &[String]) -> anyhow::Result<()> {
    ask(args, RateLimitClient::connect)
}

fn ask<C: PeerClient>(
    args: &[String],
    connect: fn(&str) -> anyhow::Result<C>,
) -> anyhow::Result<()> {
    let mut client = connect(&argument::<String>(args, 0, "address")?)?;
    send_to_parent(&true)?;
    obey(|domain| client.hit(domain))
}

fn obey(mut call: impl FnMut(&str) -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let names: Vec<String> = (0..DOMAINS).map(domain).collect();
    let mut random = SmallRng::seed_from_u64(1);
    for line in std::io::stdin().lines() {
        let line = line?;
        let order: CallOrder =
            serde_json::from_str(&line).with_context(|| format!("received {line:?}"))?;
        let (mut decisions, mut refused) = (0, 0);
        let (begun, cpu) = (Instant::now(), thread_cpu_ns());
        let wanted = order.rate * order.seconds;
        // If the caller is further behind than this, the rate is not reached, and going on is
        // useless.
        let end = begun + Duration::from_secs(order.seconds + 1);
        while decisions < wanted && Instant::now() < end {
            let due = begun + Duration::from_micros(decisions * 1_000_000 / order.rate);
            let now = Instant::now();
            if now < due {
                std::thread::sleep((due - now).max(SLEEP_MIN));
            }
            let name = &names[random.random_range(0..names.len())];
            if order.calls {
                refused += u64::from(!call(name)?);
            }
            decisions += 1;
        }
        send_to_parent(&Spent {
            decisions,
            refused,
            seconds: begun.elapsed().as_secs_f64(),
            thread_ns: thread_cpu_ns() - cpu,
        })?;
    }
    Ok(())
}
