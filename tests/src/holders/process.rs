//! The process of a holder: takes copies, releases some, stages some, all at random, until it is killed.
//!
//! ```text
//! stdin    settle | go | end of file: end at once, releasing nothing
//! stdout   JSON lines, see HolderLine
//! ```
//!
//! Knows no limits. What stays true: from the first line on it holds at least one copy.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tollgate_agent::{Agent, Confirmation, Copies, Hold};

use super::SOON;
use crate::simulation::random::Random;

/// Domains that holders take copies of: `d0` and so on.
pub const DOMAINS: u64 = 10;

/// The most holds of one holder, beside the one that it keeps.
const HOLDS_MAX: u64 = 5;

/// The most copies of one hold.
pub const COPIES_MAX: u64 = 4;

/// How long staged copies wait; no agent seizes them.
const STAGED_FOR: Duration = Duration::from_millis(500);

/// How long to wait for a strict reserve.
const STRICT_WITHIN: Duration = Duration::from_secs(20);

/// The arguments.
#[derive(Clone, Debug, clap::Parser)]
pub struct Part {
    /// The agent's name
    #[arg(long)]
    pub name: String,
    /// The aggregator's address for agents
    #[arg(long)]
    pub aggregator: String,
    /// Kafka, if holds go to it directly
    #[arg(long)]
    pub kafka: Option<String>,
    /// The prefix of Kafka's topics
    #[arg(long, default_value = "tollgate")]
    pub topic_prefix: String,
    /// The seed of everything random
    #[arg(long)]
    pub seed: u64,
    /// The resource
    #[arg(long, default_value = "sandbox")]
    pub resource: String,
    /// Takes copies of one domain, strictly, and says when
    #[arg(long)]
    pub strict: bool,
}

/// A line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderLine {
    /// It holds copies that the aggregators have confirmed.
    Holding,
    /// What it holds and keeps holding.
    Holds(BTreeMap<String, u64>),
    /// A strict reserve was granted, at this instant of the machine's monotonic clock.
    Granted(u64),
    /// It is about to release what was granted.
    Gives(u64),
}

struct Holder {
    copies: Copies,
    random: Random,
    kept: Vec<(String, Hold)>,
    churned: Vec<(String, Hold)>,
}

/// Runs until it is killed or its input ends.
///
/// # Errors
///
/// Bad settings of the agent; an aggregator that cannot be reached; errors of writing output.
pub fn run(part: &Part) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(act(part))
}

async fn act(part: &Part) -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Agent::builder()
        .name(&part.name)
        .aggregator(&part.aggregator);
    if let Some(bootstrap) = &part.kafka {
        builder = builder
            .kafka(bootstrap)
            .kafka_topic_prefix(&part.topic_prefix);
    }
    let agent = builder.build()?;
    let copies = agent.copies(&part.resource);
    if !agent.ready(SOON).await {
        return Err("the aggregator is not heard".into());
    }
    let commands = listen();
    let random = Random::of(part.seed, "holder", 0);
    if part.strict {
        return use_strictly(&copies, random).await;
    }
    let mut holder = Holder {
        copies,
        random,
        kept: Vec::new(),
        churned: Vec::new(),
    };
    holder.keep_one().await?;
    holder.churn(commands).await
}

/// Lines of standard input. At its end the process ends, and releases nothing.
fn listen() -> UnboundedReceiver<String> {
    let (sender, commands) = unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        std::process::exit(0);
    });
    commands
}

fn write_line(line: &HolderLine) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(line)?)?;
    out.flush()
}

impl Holder {
    async fn keep_one(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let domain = self.domain();
        let hold = self.copies.reserve(&domain, 1)?;
        let verdict = hold.confirmed().await;
        if verdict != Confirmation::Confirmed {
            return Err(format!("{domain}: {verdict:?}").into());
        }
        self.kept.push((domain, hold));
        write_line(&HolderLine::Holding)?;
        Ok(())
    }

    async fn churn(
        &mut self,
        mut commands: UnboundedReceiver<String>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut settled = false;
        loop {
            let pause = Duration::from_millis(self.random.between(2, 40));
            let line = if settled {
                commands.recv().await
            } else {
                tokio::time::timeout(pause, commands.recv())
                    .await
                    .unwrap_or(Some(String::new()))
            };
            match line.as_deref() {
                Some("settle") => {
                    settled = true;
                    write_line(&HolderLine::Holds(self.held()))?;
                }
                Some("go") => settled = false,
                Some(_) => self.step(),
                None => return Ok(()),
            }
        }
    }

    fn step(&mut self) {
        let full = HOLDS_MAX <= self.churned.len() as u64;
        if self.churned.is_empty() || (!full && self.random.one_in(2)) {
            let domain = self.domain();
            let copies = self.random.between(1, COPIES_MAX) as u32;
            if let Ok(hold) = self.copies.reserve(&domain, copies) {
                self.churned.push((domain, hold));
            }
            return;
        }
        let at = self.random.below(self.churned.len() as u64) as usize;
        let (domain, mut hold) = self.churned.swap_remove(at);
        let part = self.random.between(1, u64::from(hold.copies())) as u32;
        // The part may be the whole hold. None of these calls can be refused here.
        match self.random.below(4) {
            0 => drop(hold),
            1 => {
                let _ = hold.transfer(part, STAGED_FOR);
                self.churned.push((domain, hold));
            }
            _ => {
                let _ = hold.release(part);
                self.churned.push((domain, hold));
            }
        }
        self.churned.retain(|(_, hold)| hold.copies() != 0);
    }

    fn held(&self) -> BTreeMap<String, u64> {
        let mut held = BTreeMap::new();
        for (domain, hold) in self.kept.iter().chain(&self.churned) {
            *held.entry(domain.clone()).or_default() += u64::from(hold.copies());
        }
        held
    }

    fn domain(&mut self) -> String {
        format!("d{}", self.random.below(DOMAINS))
    }
}

/// Uses one copy after the other, each for some milliseconds.
async fn use_strictly(
    copies: &Copies,
    mut random: Random,
) -> Result<(), Box<dyn std::error::Error>> {
    loop {
        match copies.reserve_confirmed("all", 1, STRICT_WITHIN).await {
            Ok(hold) => {
                write_line(&HolderLine::Granted(monotonic_ns()))?;
                tokio::time::sleep(Duration::from_millis(random.between(1, 60))).await;
                // Written before the release: until the line is out, the copy is still in use.
                write_line(&HolderLine::Gives(monotonic_ns()))?;
                drop(hold);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(random.between(1, 10))).await,
        }
    }
}

/// The monotonic clock that all processes of a machine share.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}
