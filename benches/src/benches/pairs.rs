//! Resident bytes of a pair: with one tier and one hit remembered, and what a further hit adds.
//!
//! ```text
//! child    measures itself, adds this many pairs, measures itself again
//! figure   (after − before) ÷ pairs
//! ```
//!
//! Each child is a process of its own, so that memory freed by something else does not distort the
//! figure. The peer is `governor` with its usual keyed store and the domain as an owned key.

use std::num::NonZeroU32;

use governor::{Quota, RateLimiter};

use crate::harness::Session;
use crate::harness::child::{argument, ask, send_to_parent};
use crate::harness::figure::{Figure, Target};
use crate::harness::memory::resident_bytes;
use crate::load::batches::{BEGIN_US, Courier, ENTRIES};
use crate::load::names::domain;
use crate::load::partition::{Partition, limits_text};

const LARGE: u32 = 1_000_000;
/// Further hits of a pair, in the second measurement: enough to average out the allocator's size
/// classes.
const FURTHER: u32 = 16;
/// The tier's window; every hit stays in it.
const WINDOW: &str = "60s";
/// The time between a pair's hits.
const BETWEEN_US: u64 = 3_000_000;

/// Runs the benchmark.
///
/// # Errors
///
/// If a child fails.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let mut sizes = vec![10_000, LARGE];
    if session.is_full() {
        sizes.push(10_000_000);
    }
    let largest = sizes.last().copied();
    for pairs in sizes {
        session.step(&format!("{pairs} pairs"));
        let ours = engine(pairs, 0)?;
        let peer: f64 = ask("pairs-governor", &[pairs.to_string()])?;
        let name = format!(
            "a pair, one tier, one hit, of {}",
            super::engine::count_text(pairs)
        );
        let figure = Figure::single(name, "bytes", ours)
            .peer("governor, DashMap store, String key", &[peer]);
        // A small table is rounded up to whole segments and chunks: the target is for large ones.
        session.add(match largest == Some(pairs) {
            true => figure.target(Target::AtMost(48.0)),
            false => figure,
        });
    }
    flood(session)?;
    session.step("further hits");
    let (one, more) = (engine(LARGE, 0)?, engine(LARGE, FURTHER)?);
    let note = format!(
        "{FURTHER} further hits of each of {} pairs, {} s apart; sizes go in steps",
        super::engine::count_text(LARGE),
        BETWEEN_US / 1_000_000
    );
    session.add(
        Figure::single("a further hit", "bytes", (more - one) / f64::from(FURTHER))
            .target(Target::AtMost(4.0))
            .note(note),
    );
    Ok(())
}

/// The size of a pair at the cap after a flood of other names.
fn flood(session: &mut Session) -> anyhow::Result<()> {
    let names: u32 = if session.is_full() {
        100_000_000
    } else {
        10_000_000
    };
    session.step(&format!("a flood of {names} names"));
    let bytes: f64 = ask("pairs-flood", &[LARGE.to_string(), names.to_string()])?;
    let count = super::engine::count_text;
    let name = format!(
        "a pair at a cap of {}, after {} other names",
        count(LARGE),
        count(names)
    );
    session.add(Figure::single(name, "bytes", bytes).target(Target::AtMost(48.0)));
    Ok(())
}

/// Bytes per pair of the engine.
fn engine(pairs: u32, further: u32) -> anyhow::Result<f64> {
    ask("pairs-engine", &[pairs.to_string(), further.to_string()])
}

/// The child that fills an engine.
///
/// # Errors
///
/// If the engine did not apply the records.
pub fn child_engine(args: &[String]) -> anyhow::Result<()> {
    let (pairs, further) = (
        argument(args, 0, "pairs")?,
        argument(args, 1, "further hits")?,
    );
    let mut courier = Courier::default();
    warm_up(&mut courier)?;
    let mut partition = Partition::new(&limits_text(500, WINDOW, 4_000_000_000))?;
    let before = resident_bytes()?;
    fill(&mut partition, &mut courier, pairs, further)?;
    let after = resident_bytes()?;
    anyhow::ensure!(
        partition.engine.pairs() == u64::from(pairs),
        "not every pair was taken in"
    );
    send_to_parent(&bytes_each(before, after, pairs))
}

/// Memory that is needed once (buffers of batches, pages of the program) is not part of a pair.
fn warm_up(courier: &mut Courier) -> anyhow::Result<()> {
    let mut partition = Partition::new(&limits_text(500, WINDOW, 4_000_000_000))?;
    fill(&mut partition, courier, 2 * ENTRIES as u32, 1)
}

fn fill(
    partition: &mut Partition,
    courier: &mut Courier,
    pairs: u32,
    further: u32,
) -> anyhow::Result<()> {
    let mut batch_pairs = Vec::with_capacity(ENTRIES);
    for hit in 0..=further {
        let begin_us = BEGIN_US + u64::from(hit) * BETWEEN_US;
        for first in (0..pairs).step_by(ENTRIES) {
            batch_pairs.clear();
            batch_pairs.extend(first..pairs.min(first + ENTRIES as u32));
            let from_us = begin_us + u64::from(first) * (BETWEEN_US - 1_000) / u64::from(pairs);
            let batch = courier.batch(&batch_pairs, 1, from_us, from_us + 100);
            for record in partition.with_ticks(vec![batch]) {
                partition.expect_applied(&record.bytes, record.at)?;
            }
        }
    }
    Ok(())
}

/// The child that floods an engine at its cap.
///
/// # Errors
///
/// If the engine exceeded the cap.
pub fn child_flood(args: &[String]) -> anyhow::Result<()> {
    let (cap, names): (u32, u32) = (argument(args, 0, "cap")?, argument(args, 1, "names")?);
    let mut courier = Courier::default();
    warm_up(&mut courier)?;
    let mut partition = Partition::new(&limits_text(500, WINDOW, cap.into()))?;
    let before = resident_bytes()?;
    fill(&mut partition, &mut courier, cap, 0)?;
    let mut now_us = BEGIN_US + BETWEEN_US;
    let mut turned_away = 0;
    for first in (cap..cap.saturating_add(names)).step_by(ENTRIES) {
        let strangers: Vec<u32> = (first..first + ENTRIES as u32).collect();
        let batch = courier.batch(&strangers, 1, now_us, now_us + 100);
        now_us += 100;
        for record in partition.with_ticks(vec![batch]) {
            partition.expect_applied(&record.bytes, record.at)?;
            let counts = partition.rulings.counts.iter();
            turned_away += counts.map(|resource| resource.counts.at_cap).sum::<u64>();
        }
    }
    let after = resident_bytes()?;
    anyhow::ensure!(
        partition.engine.pairs() == u64::from(cap),
        "the cap did not hold"
    );
    anyhow::ensure!(
        u64::from(names) <= turned_away,
        "{turned_away} hits were turned away"
    );
    send_to_parent(&bytes_each(before, after, cap))
}

/// The child that fills a `governor`.
///
/// # Errors
///
/// If the kernel does not report memory use.
pub fn child_governor(args: &[String]) -> anyhow::Result<()> {
    let pairs: u32 = argument(args, 0, "pairs")?;
    let quota = Quota::per_minute(NonZeroU32::MIN.saturating_add(499));
    let first = RateLimiter::keyed(quota);
    let _ = first.check_key(&domain(0));
    let before = resident_bytes()?;
    let limiter = RateLimiter::keyed(quota);
    for number in 0..pairs {
        let _ = limiter.check_key(&domain(number));
    }
    let after = resident_bytes()?;
    anyhow::ensure!(
        limiter.len() == pairs as usize,
        "not every key was taken in"
    );
    send_to_parent(&bytes_each(before, after, pairs))
}

fn bytes_each(before: u64, after: u64, pairs: u32) -> f64 {
    after.saturating_sub(before) as f64 / f64::from(pairs.max(1))
}
