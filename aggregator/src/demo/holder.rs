//! A process of the demonstration's part with copies: holds copies on command, or waits for those that another
//! process holds.
//!
//! ```text
//! stdin    take | follow MILLIS | end of file: release all and end
//! stdout   JSON lines: {"ready":..}, then {"held":..} or {"denied":..} with the monotonic clock
//! ```
//!
//! It knows nothing of why it may be killed. What stays true: copies are reported as held only when the aggregators
//! have confirmed them.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tollgate_agent::{Cause, Confirmation, Copies, Hold, Refused};

use super::clock::monotonic_ns;
use super::part::AgentPart;

/// How long to wait for the resource's limits, and for each answer of the aggregators.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a denied call is repeated, whatever the agent receives.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The task of a holder.
#[derive(Clone, Debug)]
pub struct HolderPart {
    /// Its agent.
    pub agent: AgentPart,
    /// The resource.
    pub resource: String,
    /// The domain.
    pub domain: String,
    /// Its copies.
    pub copies: u32,
    /// Whether the resource is strict.
    pub strict: bool,
}

/// A line on a holder's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HolderNotice {
    /// Whether it received the resource's limits in time.
    Ready(bool),
    /// It was refused, because the domain is full.
    Denied {
        /// The monotonic clock.
        at_ns: u64,
    },
    /// It holds copies, confirmed by the aggregators.
    Held {
        /// The number of copies.
        copies: u32,
        /// The monotonic clock.
        at_ns: u64,
    },
}

struct Holder {
    copies: Copies,
    domain: String,
    wanted: u32,
    strict: bool,
    changes: Receiver<()>,
    runtime: Runtime,
}

/// Carries out commands until its input ends.
///
/// # Errors
///
/// Errors of its pipes, and invalid settings of the agent.
pub fn hold(part: &HolderPart) -> anyhow::Result<()> {
    let (sender, changes) = channel();
    let builder = part.agent.builder().on_statement(move |_| {
        let _ = sender.send(());
    });
    let agent = builder.build()?;
    let holder = Holder {
        copies: agent.copies(&part.resource),
        domain: part.domain.clone(),
        wanted: part.copies,
        strict: part.strict,
        changes,
        runtime: tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?,
    };
    report(HolderNotice::Ready(
        holder.runtime.block_on(agent.ready(PATIENCE)),
    ))?;
    let mut held = Vec::new();
    for line in io::stdin().lines() {
        let line = line?;
        if line == "take" {
            held.extend(holder.take_and_report()?);
        } else if let Some(within) = line.strip_prefix("follow ").and_then(|ms| ms.parse().ok()) {
            held.extend(holder.follow(Duration::from_millis(within))?);
        }
    }
    drop(held);
    holder.runtime.block_on(agent.shutdown(PATIENCE));
    Ok(())
}

impl Holder {
    fn take_and_report(&self) -> io::Result<Option<Hold>> {
        let (hold, copies) = self.take();
        let at_ns = monotonic_ns();
        report(HolderNotice::Held { copies, at_ns })?;
        Ok(hold)
    }

    /// Waits until others have filled the domain, and then until all its copies can be taken.
    fn follow(&self, within: Duration) -> io::Result<Option<Hold>> {
        let until = Instant::now() + within;
        while !self.is_full() {
            if until < Instant::now() {
                return Ok(None);
            }
            let _ = self.changes.recv_timeout(ASK_AGAIN);
        }
        let at_ns = monotonic_ns();
        report(HolderNotice::Denied { at_ns })?;
        loop {
            while self.is_full() && Instant::now() < until {
                let _ = self.changes.recv_timeout(ASK_AGAIN);
            }
            let (hold, copies) = self.take();
            if copies == self.wanted || until < Instant::now() {
                let at_ns = monotonic_ns();
                report(HolderNotice::Held { copies, at_ns })?;
                return Ok(hold);
            }
        }
    }

    fn is_full(&self) -> bool {
        let peeked = self.copies.peek(&self.domain);
        matches!(peeked, Err(Refused::Denied(denied)) if denied.cause() == Cause::Full)
    }

    /// Takes all copies; returns how many of them the aggregators confirmed.
    fn take(&self) -> (Option<Hold>, u32) {
        if self.strict {
            let asked = self
                .copies
                .reserve_confirmed(&self.domain, self.wanted, PATIENCE);
            return match self.runtime.block_on(asked) {
                Ok(hold) => (Some(hold), self.wanted),
                Err(_) => (None, 0),
            };
        }
        let Ok(hold) = self.copies.reserve(&self.domain, self.wanted) else {
            return (None, 0);
        };
        let word = async { tokio::time::timeout(PATIENCE, hold.confirmed()).await };
        let counted = match self.runtime.block_on(word) {
            Ok(Confirmation::Confirmed) => self.wanted,
            Ok(Confirmation::Excess { copies, .. }) => self.wanted.saturating_sub(copies),
            _ => 0,
        };
        (Some(hold), counted)
    }
}

fn report(notice: HolderNotice) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &notice)?;
    out.write_all(b"\n")?;
    out.flush()
}
