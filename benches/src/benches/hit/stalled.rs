//! The log stalled, and gone: calls must cost the same, and memory must not grow.
//!
//! ```text
//! stalled   the aggregator is stopped (SIGSTOP) and resumed, round by round, under one agent
//! gone      an agent that never finds its aggregator, and the agent of the loop, each first in every second round
//! memory    such an agent in a process of its own, a million calls a second, until its buffers are full
//! ```
//!
//! What stays true: both sides are measured in the same way, each time on a new thread that calls one agent only, after
//! as many calls that are not measured.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::looped::{Loop, SEARCH};
use super::{BLOCKS, Calls, ROUNDS, Setting};
use crate::harness::Session;
use crate::harness::agents::connected;
use crate::harness::calls::{BLOCK_CALLS, Pace, by_blocks};
use crate::harness::child::{argument, ask, send_to_parent};
use crate::harness::figure::{Figure, Target};
use crate::harness::memory::resident_bytes;

/// A port without a listener: the reserved one.
const NOBODY: &str = "127.0.0.1:1";
/// Within this ratio latency counts as unchanged.
const UNCHANGED: Target = Target::AtMost(1.1);
/// How much memory a process may gain for other reasons.
const FLAT_MIB: f64 = 1.0;

/// How long an aggregator that was stopped works on what came meanwhile, after it has acknowledged that.
const CAUGHT_UP: Duration = Duration::from_millis(250);

/// For how many seconds a million calls are made until memory is first measured, and again until it
/// is measured a second time.
const FILL_SECONDS: u32 = 6;

pub(super) fn run(session: &mut Session, looped: Loop, setting: &Setting) -> anyhow::Result<()> {
    session.step("the log stalled");
    let calls = Calls::on(0, setting.pairs);
    let (mut well, mut stalled) = (Vec::new(), Vec::new());
    let aggregator = Stoppable::new(looped.aggregator.id())?;
    for round in 0..ROUNDS {
        well.push(cost(&looped.search, &calls, round)?);
        aggregator.stop()?;
        stalled.push(cost(&looped.search, &calls, round)?);
        aggregator.go_on()?;
        looped.settle()?;
        std::thread::sleep(CAUGHT_UP);
    }
    report(
        session,
        "with the log stalled, against at work",
        &stalled,
        &well,
    );

    session.step("the log gone");
    let lonely = connected("lonely", NOBODY)?;
    let search = lonely.rate(SEARCH);
    let (mut well, mut gone) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut sides = [(&looped.search, &mut well), (&search, &mut gone)];
        if round % 2 == 1 {
            sides.reverse();
        }
        for (rate, costs) in sides {
            costs.push(cost(rate, &calls, round)?);
            looped.settle()?;
        }
    }
    report(session, "with the log gone, against at work", &gone, &well);
    drop((looped, lonely));

    session.step("memory with the log gone");
    let memory: Memory = ask("hit-gone", &[setting.pairs.to_string()])?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    session.add(
        Figure::single("memory gained at the bound, log gone", "MiB", mib(memory.later.saturating_sub(memory.full)))
            .target(Target::AtMost(FLAT_MIB))
            .note(format!(
                "{FILL_SECONDS} s at a million calls a second after as many to fill it; {:.1} MiB at the start, {:.1} \
                 when full, {} hits dropped and counted",
                mib(memory.start),
                mib(memory.full),
                memory.dropped
            )),
    );
    Ok(())
}

fn cost(rate: &tollgate_agent::Rate, calls: &Calls, round: usize) -> anyhow::Result<f64> {
    let blocks = |shift: usize| {
        by_blocks(BLOCKS, Pace::million_per_second(), |number| {
            let _ = std::hint::black_box(rate.hit(calls.at(shift + number)));
        })
    };
    let measured = || {
        let shift = 2 * round * BLOCKS * BLOCK_CALLS;
        blocks(shift);
        blocks(shift + BLOCKS * BLOCK_CALLS).wall_ns
    };
    std::thread::scope(|scope| scope.spawn(measured).join())
        .map_err(|_| anyhow::anyhow!("a calling thread panicked"))
}

fn report(session: &mut Session, name: &str, changed: &[f64], well: &[f64]) {
    if let Some(figure) = Figure::of_ratio(format!("a call {name}"), changed, well) {
        session.add(
            figure
                .target(UNCHANGED)
                .peer("at work, ns", well)
                .peer("without, ns", changed)
                .note("by wall time; each side on a thread of its own"),
        );
    }
}

/// A process that is stopped for a while, and resumed at the latest when this is dropped.
struct Stoppable(Pid);

impl Stoppable {
    fn new(process: u32) -> anyhow::Result<Self> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        pid.map(Self)
            .ok_or_else(|| anyhow::anyhow!("no process {process}"))
    }

    fn stop(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.0, Signal::STOP)?)
    }

    fn go_on(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.0, Signal::CONT)?)
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        let _ = self.go_on();
    }
}

/// Resident bytes of an agent without aggregator.
#[derive(Debug, Serialize, Deserialize)]
struct Memory {
    start: u64,
    full: u64,
    later: u64,
    dropped: u64,
}

/// The child with an agent without aggregator.
///
/// # Errors
///
/// If the agent's settings are invalid, or nothing was dropped, so that its bound was not reached.
pub fn child_gone(args: &[String]) -> anyhow::Result<()> {
    let calls = Calls::on(0, argument(args, 0, "pairs")?);
    let agent = connected("gone", NOBODY)?;
    let search = agent.rate(SEARCH);
    let start = resident_bytes()?;
    let fill = || {
        by_blocks(
            FILL_SECONDS as usize * 1_000,
            Pace::million_per_second(),
            |number| {
                let _ = std::hint::black_box(search.hit(calls.at(number)));
            },
        );
    };
    fill();
    let full = resident_bytes()?;
    let dropped_before = agent.stats().hits_dropped();
    fill();
    // The flusher may still be working.
    std::thread::sleep(Duration::from_millis(100));
    let dropped = agent.stats().hits_dropped();
    anyhow::ensure!(
        0 < dropped_before && dropped_before < dropped,
        "the bound was not reached: {:?}",
        agent.stats()
    );
    send_to_parent(&Memory {
        start,
        full,
        later: resident_bytes()?,
        dropped,
    })
}
