//! Hold operations on one core: from the bytes of a record to verdicts and counts, and the bytes that a
//! live hold takes.
//!
//! ```text
//! before    a partition with this many live holds of 100,000 domains, by 100 agents
//! round     each record releases 32 holds and takes 32 others, of random domains; decoded and applied
//! ```
//!
//! One domain in eight belongs to two groups, holds have a greatest age, and limits leave room. Times are
//! the thread's CPU times. A freeze shares the memory of holds; the records after it pay for what they
//! change. Memory is the growth of a process of its own while the holds were taken, beside the size that
//! the tables report.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tollgate_shared::time::Timestamp;
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::Sender;
use tollgate_shared::wire::holds::{HoldAction, HoldOp, write_holds};

use crate::harness::Session;
use crate::harness::child::{argument, ask, send_to_parent};
use crate::harness::clock::took;
use crate::harness::figure::{Figure, Target};
use crate::harness::memory::resident_bytes;
use crate::load::SEED;
use crate::load::batches::BEGIN_US;
use crate::load::names::domain;
use crate::load::partition::Partition;

const DOMAINS: u32 = 100_000;
const AGENTS: usize = 100;
/// Operations of a record, half of which are releases.
const OPS: usize = 64;
/// Records of a round: long compared with the timer's resolution.
const ROUND_RECORDS: usize = 8_000;
/// Rounds that count, after one warm-up round.
const ROUNDS: usize = 7;
/// Freezes that are timed, and the records after each.
const FREEZES: usize = 5;
const RECORDS_BEHIND: usize = 200;
const RESOURCE: &str = "sandbox";

/// Runs the benchmark.
///
/// # Errors
///
/// If the engine did not apply the records.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let holds = if session.is_full() {
        1_000_000
    } else {
        200_000
    };
    session.step(&format!("taking {holds} holds"));
    let mut fleet = Fleet::new(holds)?;
    fleet.fill()?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        session.step(&format!("round {round} of {ROUNDS}"));
        let per_second = fleet.round()?;
        if 0 < round {
            rounds.push(per_second);
        }
    }
    let name =
        format!("hold operations, decode and apply, {holds} live holds of {DOMAINS} domains");
    if let Some(figure) = Figure::of_rounds(name, "operations/s", &rounds) {
        let note = format!(
            "{OPS} operations a record, as many releases as holds; each hold with its verdict"
        );
        session.add(figure.target(Target::AtLeast(2_000_000.0)).note(note));
    }
    let pauses = fleet.pauses()?;
    let figure = Figure::single(
        format!("freeze for a snapshot, {holds} live holds"),
        "ms",
        pauses.freeze_ns as f64 / 1e6,
    );
    let note = format!(
        "longest of {FREEZES}; the longest record behind one, of {OPS} operations: {:.3} ms",
        pauses.record_ns as f64 / 1e6
    );
    session.add(figure.target(Target::AtMost(2.0)).note(note));
    session.step("what a hold takes");
    let (grown, tables): (f64, f64) = ask("holds-memory", &[holds.to_string()])?;
    let note =
        format!("what a process of its own grew by; its tables are {tables:.1} bytes a hold");
    let figure = Figure::single("bytes a live hold, all in", "bytes", grown);
    session.add(figure.target(Target::AtMost(96.0)).note(note));
    Ok(())
}

/// The child that takes holds in fresh memory. Reports its growth and the size that its tables report, in
/// bytes per hold.
///
/// # Errors
///
/// If the engine did not apply the records.
pub fn child_memory(args: &[String]) -> anyhow::Result<()> {
    let holds: usize = argument(args, 0, "holds")?;
    let mut fleet = Fleet::new(holds)?;
    let before = resident_bytes()?;
    fleet.fill()?;
    let grown = resident_bytes()?.saturating_sub(before);
    let engine = &fleet.partition.engine;
    let tables: usize = engine.copies().map(|(_, of)| of.heap_bytes()).sum();
    send_to_parent(&(grown as f64 / holds as f64, tables as f64 / holds as f64))
}

/// The longest CPU times of operations.
#[derive(Clone, Copy, Debug, Default)]
struct Pauses {
    freeze_ns: u64,
    record_ns: u64,
}

/// The agent that holds a slot: agents get slots in turn, in blocks of one record's operations.
fn holder(slot: usize) -> usize {
    slot / OPS % AGENTS
}

struct Fleet {
    partition: Partition,
    names: Vec<String>,
    agents: Vec<String>,
    sequences: Vec<u64>,
    /// The number of the hold in each slot.
    live: Vec<u64>,
    random: SmallRng,
    number: u64,
    now_us: u64,
    writer: Writer,
}

impl Fleet {
    fn new(holds: usize) -> anyhow::Result<Self> {
        let names: Vec<String> = (0..DOMAINS).map(domain).collect();
        let members: Vec<String> = names
            .iter()
            .step_by(8)
            .map(|name| format!("{name:?}"))
            .collect();
        let members = members.join(", ");
        let limits = format!(
            "version = 1\nrules = 2\n[engine]\nagent_timeout = \"1h\"\n[copies.{RESOURCE}]\nlimit = 100000\n\
             global = 4000000000\nmax_age = \"1h\"\n\
             groups.gold = {{ limit = 3000000000, members = [{members}] }}\n\
             groups.europe = {{ limit = 3000000000, members = [{members}] }}\n"
        );
        Ok(Self {
            partition: Partition::new(&limits)?,
            names,
            agents: (0..AGENTS).map(|agent| format!("agent-{agent}")).collect(),
            sequences: vec![0; AGENTS],
            // Written to in advance, so that it is not part of the growth.
            live: vec![1; holds],
            random: SmallRng::seed_from_u64(SEED),
            number: 0,
            now_us: BEGIN_US,
            writer: Writer::new(),
        })
    }

    /// Takes every hold once.
    fn fill(&mut self) -> anyhow::Result<()> {
        for first in (0..self.live.len()).step_by(OPS) {
            let upto = self.live.len().min(first + OPS);
            let record = self.record(holder(first), |fleet, ops| {
                for slot in first..upto {
                    fleet.take(slot, ops);
                }
            });
            self.expect_applied(&record)?;
        }
        let kept: u64 = self
            .partition
            .engine
            .copies()
            .map(|(_, of)| of.kept())
            .sum();
        anyhow::ensure!(kept == self.live.len() as u64, "{kept} holds were kept");
        Ok(())
    }

    /// Operations per second of releasing and taking.
    fn round(&mut self) -> anyhow::Result<f64> {
        let records: Vec<Vec<u8>> = (0..ROUND_RECORDS).map(|_| self.change()).collect();
        let at = Timestamp::from_micros(self.now_us);
        let (mut all, mut ops, mut refused) = (true, 0, 0);
        let ((), took) = took(|| {
            for record in &records {
                all &= self.partition.apply(record, at);
                for of in &self.partition.rulings.hold_counts {
                    ops += of.counts.ops;
                    refused += of.counts.refused_ops;
                }
            }
        });
        anyhow::ensure!(all && refused == 0, "{refused} operations were refused");
        Ok(ops as f64 * 1e9 / took.cpu_ns.max(1) as f64)
    }

    /// Times freezes, as for snapshots, and the records after them, which copy shared memory.
    fn pauses(&mut self) -> anyhow::Result<Pauses> {
        let mut longest = Pauses::default();
        for _ in 0..FREEZES {
            let records: Vec<Vec<u8>> = (0..RECORDS_BEHIND).map(|_| self.change()).collect();
            let at = Timestamp::from_micros(self.now_us);
            let (frozen, freeze) = took(|| self.partition.engine.freeze());
            longest.freeze_ns = longest.freeze_ns.max(freeze.cpu_ns);
            for record in &records {
                let (applied, record) = took(|| self.partition.apply(record, at));
                anyhow::ensure!(applied, "a record was not applied");
                longest.record_ns = longest.record_ns.max(record.cpu_ns);
            }
            drop(frozen);
        }
        Ok(longest)
    }

    /// A record in which one agent releases some of its holds and takes as many.
    fn change(&mut self) -> Vec<u8> {
        let agent = holder(self.random.random_range(0..self.live.len()));
        let blocks = self.live.len().div_ceil(OPS);
        self.record(agent, |fleet, ops| {
            for _ in 0..OPS / 2 {
                let round = fleet
                    .random
                    .random_range(0..(blocks - agent).div_ceil(AGENTS));
                let first = (agent + round * AGENTS) * OPS;
                let upto = fleet.live.len().min(first + OPS);
                let slot = fleet.random.random_range(first..upto);
                ops.push((fleet.live[slot], None));
                fleet.take(slot, ops);
            }
        })
    }

    fn take(&mut self, slot: usize, ops: &mut Vec<(u64, Option<u32>)>) {
        self.number += 1;
        self.live[slot] = self.number;
        ops.push((self.number, Some(self.random.random_range(0..DOMAINS))));
    }

    /// A record of an agent with these operations: a number each, and a domain if a hold is taken.
    fn record(
        &mut self,
        agent: usize,
        make: impl FnOnce(&mut Self, &mut Vec<(u64, Option<u32>)>),
    ) -> Vec<u8> {
        let mut ops = Vec::with_capacity(OPS);
        make(self, &mut ops);
        self.now_us += 10;
        self.sequences[agent] += 1;
        let sent = Timestamp::from_micros(self.now_us);
        let sender = Sender {
            agent: &self.agents[agent],
            epoch: agent as u128,
            sequence: self.sequences[agent],
            sent,
        };
        let names = &self.names;
        let ops = ops.into_iter().map(|(number, of)| HoldOp {
            resource: 0,
            number,
            at: sent,
            action: match of {
                Some(of) => HoldAction::Hold {
                    domain: &names[of as usize],
                    copies: 1,
                },
                None => HoldAction::Release { copies: 1 },
            },
        });
        write_holds(&mut self.writer, &sender, &[RESOURCE], ops);
        self.writer.as_slice().to_vec()
    }

    fn expect_applied(&mut self, record: &[u8]) -> anyhow::Result<()> {
        let at = Timestamp::from_micros(self.now_us);
        self.partition.expect_applied(record, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_applies_every_operation() {
        let mut fleet = Fleet::new(20_000).expect("a fleet");
        fleet.fill().expect("holds");
        assert!(0.0 < fleet.round().expect("a round"));
    }
}
