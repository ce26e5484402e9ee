//! The longest time that one record, or one snapshot, keeps a partition's thread, at a million pairs.
//!
//! ```text
//! growth      a million new pairs
//! snapshot    a copy is frozen, and records are applied while the copy is held
//! new limits  a version comes into force, in slices, while a hundred thousand pairs are denied and frozen
//! expiry      twelve minutes without a hit: ticks alone, until every pair is evicted
//! ```
//!
//! In thread CPU time, which excludes the scheduler's pauses. Each round gives its greatest pause;
//! the figure is the median of rounds, and the range shows the worst.

use tollgate_shared::time::Timestamp;

use super::{LARGE, OFFERED_PER_SECOND, PAIRS_MAX, count_text};
use crate::harness::Session;
use crate::harness::clock::took;
use crate::harness::figure::{Figure, Target};
use crate::load::SEED;
use crate::load::batches::{Appended, BEGIN_US, Courier, ENTRIES, Offered};
use crate::load::partition::{Partition, TICK_EVERY_US, limits_text};

const ROUNDS: usize = 5;
/// Entries applied while a snapshot is held: enough to touch most of the memory that it shares.
const HELD_ENTRIES: usize = 500_000;
/// Pairs denied when new limits come into force.
const DENIED: u32 = 100_000;
const LIMIT: u32 = 100;
/// Two minutes longer than an idle pair is kept.
const IDLE_US: u64 = 12 * 60 * 1_000_000;
/// The greatest allowed pause.
const PAUSE_MAX_US: f64 = 2_000.0;

/// The longest pause of each kind, in microseconds.
#[derive(Default)]
struct Longest {
    growth: Vec<f64>,
    freeze: Vec<f64>,
    held: Vec<f64>,
    freeze_denied: Vec<f64>,
    new_limits: Vec<f64>,
    /// Not a pause: all slices together.
    new_limits_whole: Vec<f64>,
    expiry: Vec<f64>,
}

pub(super) fn run(session: &mut Session) -> anyhow::Result<()> {
    let mut longest = Longest::default();
    for round in 1..=ROUNDS {
        session.step(&format!("pauses, round {round} of {ROUNDS}"));
        longest.round()?;
    }
    let Longest {
        growth,
        freeze,
        held,
        freeze_denied,
        new_limits,
        new_limits_whole,
        expiry,
    } = &longest;
    let (large, denied) = (count_text(LARGE), count_text(DENIED));
    let kinds = [
        (
            format!("longest record while growing to {large} pairs"),
            growth,
        ),
        (format!("freezing a snapshot of {large} pairs"), freeze),
        (
            format!("longest record while a snapshot of {large} pairs is held"),
            held,
        ),
        (
            format!("freezing a snapshot with {denied} pairs denied"),
            freeze_denied,
        ),
        (
            format!("longest slice of new limits with {denied} pairs denied"),
            new_limits,
        ),
        (format!("longest record while {large} pairs leave"), expiry),
    ];
    for (name, rounds) in kinds {
        if let Some(figure) = Figure::of_rounds(name, "µs", rounds) {
            session.add(figure.target(Target::AtMost(PAUSE_MAX_US)));
        }
    }
    let whole = format!("all slices of new limits with {denied} pairs denied");
    if let Some(figure) = Figure::of_rounds(whole, "µs", new_limits_whole) {
        session.add(figure);
    }
    Ok(())
}

impl Longest {
    fn round(&mut self) -> anyhow::Result<()> {
        let mut partition = Partition::new(&limits_text(LIMIT.into(), "1s", PAIRS_MAX))?;
        let mut courier = Courier::default();
        let (growth, mut now_us) = grow(&mut partition, &mut courier)?;
        self.growth.push(growth);

        let (frozen, took_freeze) = took(|| partition.engine.freeze());
        self.freeze.push(took_freeze.cpu_ns as f64 / 1_000.0);
        let mut offered = Offered::new(LARGE, SEED, OFFERED_PER_SECOND, None, now_us);
        let mut held = 0.0;
        for _ in 0..HELD_ENTRIES / ENTRIES {
            let (pairs, from_us, upto_us) = offered.next_batch();
            let batch = courier.batch(&pairs, 1, from_us, upto_us);
            held = apply(&mut partition, batch)?.max(held);
            now_us = upto_us;
        }
        self.held.push(held);
        drop(frozen);

        now_us = deny(&mut partition, &mut courier, now_us)?;
        let activation = partition.version(&limits_text(u64::from(LIMIT) / 2, "1s", PAIRS_MAX))?;
        let at = Timestamp::from_micros(now_us + TICK_EVERY_US / 2);
        let (_frozen, took_freeze) = took(|| partition.engine.freeze());
        self.freeze_denied.push(took_freeze.cpu_ns as f64 / 1_000.0);
        let (applied, took_limits) = took(|| partition.expect_begun(&activation, at));
        applied?;
        let mut pause = took_limits.cpu_ns;
        let mut whole = pause;
        while partition.engine.has_more() {
            let ((), took_slice) = took(|| partition.go_on());
            pause = pause.max(took_slice.cpu_ns);
            whole += took_slice.cpu_ns;
        }
        self.new_limits.push(pause as f64 / 1_000.0);
        self.new_limits_whole.push(whole as f64 / 1_000.0);

        let mut expiry = 0.0;
        for due_us in (now_us..now_us + IDLE_US).step_by(TICK_EVERY_US as usize) {
            while let Some(tick) = partition.tick_due(Timestamp::from_micros(due_us)) {
                expiry = one(&mut partition, &tick)?.max(expiry);
            }
        }
        anyhow::ensure!(partition.engine.pairs() == 0, "pairs are still there");
        self.expiry.push(expiry);
        Ok(())
    }
}

fn grow(partition: &mut Partition, courier: &mut Courier) -> anyhow::Result<(f64, u64)> {
    let (mut longest, mut now_us) = (0.0, BEGIN_US);
    let numbers: Vec<u32> = (0..LARGE).collect();
    for chunk in numbers.chunks(ENTRIES) {
        let upto_us = now_us + chunk.len() as u64 * 1_000_000 / OFFERED_PER_SECOND;
        let batch = courier.batch(chunk, 1, now_us, upto_us);
        longest = apply(partition, batch)?.max(longest);
        now_us = upto_us;
    }
    Ok((longest, now_us))
}

/// Fills the windows of many pairs, so that they are denied. Returns the instant at which that
/// ends.
fn deny(partition: &mut Partition, courier: &mut Courier, now_us: u64) -> anyhow::Result<u64> {
    let numbers: Vec<u32> = (0..DENIED).collect();
    let mut now_us = now_us;
    for chunk in numbers.chunks(ENTRIES) {
        let batch = courier.batch(chunk, LIMIT, now_us, now_us + 500);
        apply(partition, batch)?;
        now_us += 500;
    }
    Ok(now_us)
}

/// Applies a batch and the ticks due before it. Returns the longest of them, in microseconds.
fn apply(partition: &mut Partition, batch: Appended) -> anyhow::Result<f64> {
    let mut longest = 0.0;
    for record in partition.with_ticks(vec![batch]) {
        longest = one(partition, &record)?.max(longest);
    }
    Ok(longest)
}

fn one(partition: &mut Partition, record: &Appended) -> anyhow::Result<f64> {
    let (applied, took) = took(|| partition.expect_applied(&record.bytes, record.at));
    applied?;
    Ok(took.cpu_ns as f64 / 1_000.0)
}
