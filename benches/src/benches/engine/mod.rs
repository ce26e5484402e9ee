//! The engine on one core: the cost of an entry, from the bytes of a batch to its rulings, and the
//! longest time for which one record blocks its partition.
//!
//! ```text
//! lane      a partition with this many known pairs, and a log at 500 k offered hits per second
//!           under limits of 100 a second and domain, entries not merged
//! round     each lane in turn: half a million entries are written ahead, then decoded and applied;
//!           then governor decides on the same keys
//! ```
//!
//! Of two kinds of log, `followed` is what a working fleet writes: agents that follow denials let
//! through what the limit allows. `unheeded` is plain Zipf's law, so that most hits of frequent pairs
//! are excess. The limit is a tier where no other constraint is named. Times are the thread's CPU times.

mod pauses;

use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use rand::seq::SliceRandom as _;
use rand::{SeedableRng as _, rngs::SmallRng};

use crate::harness::Session;
use crate::harness::clock::{Took, took};
use crate::harness::figure::{Figure, Target};
use crate::load::SEED;
use crate::load::batches::{BEGIN_US, Courier, ENTRIES, Offered};
use crate::load::names::domain;
use crate::load::partition::{Partition, limits_text, limits_with};

/// Entries of a round: long compared with the timer's resolution, short enough for many rounds.
const ROUND_ENTRIES: usize = 500_000;
/// Rounds that count, after one warm-up round.
const ROUNDS: usize = 9;
/// Hits offered a second of log time: one partition's share in a busy fleet.
const OFFERED_PER_SECOND: u64 = 500_000;
/// The limit of a domain per second.
const LIMIT: u16 = 100;
/// No pair leaves for want of room.
const PAIRS_MAX: u64 = 4_000_000_000;

const SMALL: u32 = 10_000;
const LARGE: u32 = 1_000_000;
const HUGE: u32 = 10_000_000;

/// Runs the benchmark.
///
/// # Errors
///
/// If the engine did not apply the records.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let mut kinds = vec![
        (SMALL, true, Constraint::Tier),
        (LARGE, true, Constraint::Tier),
        (LARGE, false, Constraint::Tier),
        (LARGE, true, Constraint::Window),
        (LARGE, true, Constraint::Bucket),
        (LARGE, true, Constraint::Quota),
    ];
    if session.is_full() {
        kinds.push((HUGE, true, Constraint::Tier));
    }
    let mut partitions = Vec::new();
    for (pairs, follows, constraint) in kinds {
        session.step(&format!("filling a partition with {pairs} pairs"));
        partitions.push(MeasuredPartition::new(pairs, follows, constraint)?);
    }
    for round in 0..=ROUNDS {
        session.step(&format!("round {round} of {ROUNDS}"));
        for partition in &mut partitions {
            partition.round(0 < round)?;
        }
    }
    for partition in &partitions {
        partition.report(session);
    }
    report_cost_ratios(session, &partitions);
    drop(partitions);
    pauses::run(session)
}

/// The constraint of each domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Constraint {
    Tier,
    Window,
    Bucket,
    /// As much as a month of the rate, so that it is never full.
    Quota,
}

impl Constraint {
    fn limits(self) -> String {
        let text = match self {
            Self::Tier => return limits_text(LIMIT.into(), "1s", PAIRS_MAX),
            Self::Window => format!("rate = \"{LIMIT}/s\""),
            Self::Bucket => format!("bucket = {{ rate = \"{LIMIT}/s\", burst = {LIMIT} }}"),
            Self::Quota => format!("quota = [\"{}/month\"]", u64::from(LIMIT) * 30 * 86_400),
        };
        limits_with(&text, PAIRS_MAX)
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Tier => "",
            Self::Window => ", a window",
            Self::Bucket => ", a bucket",
            Self::Quota => ", a quota",
        }
    }
}

/// A partition with this many pairs, and its peer.
struct MeasuredPartition {
    pairs: u32,
    follows: bool,
    constraint: Constraint,
    partition: Partition,
    courier: Courier,
    offered: Offered,
    peer: DefaultKeyedRateLimiter<String>,
    keys: Vec<String>,
    new_pairs_per_second: f64,
    entries_per_second: Vec<f64>,
    entries_per_wall_second: Vec<f64>,
    bytes_per_entry: f64,
    excess_percent: f64,
    peer_per_second: Vec<f64>,
}

impl MeasuredPartition {
    fn new(pairs: u32, follows: bool, constraint: Constraint) -> anyhow::Result<Self> {
        let mut partition = Partition::new(&constraint.limits())?;
        let mut courier = Courier::default();
        let (took, upto_us) = fill(&mut partition, &mut courier, pairs)?;
        anyhow::ensure!(
            partition.engine.pairs() == u64::from(pairs),
            "not every pair was taken in"
        );
        let peer = RateLimiter::keyed(Quota::per_second(
            NonZeroU32::MIN.saturating_add(u32::from(LIMIT) - 1),
        ));
        let keys: Vec<String> = (0..pairs).map(domain).collect();
        for key in &keys {
            let _ = peer.check_key(key);
        }
        Ok(Self {
            pairs,
            follows,
            constraint,
            partition,
            courier,
            offered: Offered::new(
                pairs,
                SEED,
                OFFERED_PER_SECOND,
                follows.then_some(LIMIT),
                upto_us,
            ),
            peer,
            keys,
            new_pairs_per_second: per_second(pairs as usize, took.cpu_ns),
            entries_per_second: Vec::new(),
            entries_per_wall_second: Vec::new(),
            bytes_per_entry: 0.0,
            excess_percent: 0.0,
            peer_per_second: Vec::new(),
        })
    }

    fn round(&mut self, counts: bool) -> anyhow::Result<()> {
        let mut batches = Vec::with_capacity(ROUND_ENTRIES / ENTRIES);
        let mut pairs_of_round = Vec::with_capacity(ROUND_ENTRIES);
        while pairs_of_round.len() < ROUND_ENTRIES {
            let (pairs, from_us, upto_us) = self.offered.next_batch();
            batches.push(self.courier.batch(&pairs, 1, from_us, upto_us));
            pairs_of_round.extend(pairs);
        }
        let bytes: usize = batches.iter().map(|batch| batch.bytes.len()).sum();
        let records = self.partition.with_ticks(batches);
        let (mut granted, mut excess, mut all) = (0, 0, true);
        let ((), ours) = took(|| {
            for record in &records {
                all &= self.partition.apply(&record.bytes, record.at);
                for resource in &self.partition.rulings.counts {
                    granted += resource.counts.granted;
                    excess += resource.counts.excess;
                }
            }
        });
        let ruled = granted + excess;
        anyhow::ensure!(
            all && ruled == pairs_of_round.len() as u64,
            "{ruled} entries were ruled"
        );
        let (let_through, peers) = took(|| {
            let of = |pair: &&u32| self.peer.check_key(&self.keys[**pair as usize]).is_ok();
            pairs_of_round.iter().filter(of).count()
        });
        std::hint::black_box(let_through);
        if counts {
            self.entries_per_second
                .push(per_second(ROUND_ENTRIES, ours.cpu_ns));
            self.entries_per_wall_second
                .push(per_second(ROUND_ENTRIES, ours.wall_ns));
            self.peer_per_second
                .push(per_second(ROUND_ENTRIES, peers.cpu_ns));
            self.bytes_per_entry = bytes as f64 / ROUND_ENTRIES as f64;
            self.excess_percent = excess as f64 * 100.0 / ruled as f64;
        }
        Ok(())
    }

    fn name(&self) -> String {
        let log = if self.follows { "followed" } else { "unheeded" };
        format!(
            "{} pairs, {log}{}",
            count_text(self.pairs),
            self.constraint.suffix()
        )
    }

    fn report(&self, session: &mut Session) {
        let name = format!("decode and apply, {}", self.name());
        let Some(mut figure) = Figure::of_rounds(name, "entries/s", &self.entries_per_second)
        else {
            return;
        };
        if self.pairs == LARGE && self.follows {
            figure = figure.target(Target::AtLeast(5_000_000.0));
        }
        let wall = crate::harness::stats::Spread::of(&self.entries_per_wall_second);
        let wall = wall.map_or(0.0, |wall| wall.median);
        let note = format!(
            "per second of the thread's running ({} of the wall); {:.1} bytes an entry, one hit an entry, {:.1} % excess; \
             a new pair comes in at {}/s",
            crate::harness::figure::number(wall),
            self.bytes_per_entry,
            self.excess_percent,
            crate::harness::figure::number(self.new_pairs_per_second),
        );
        session.add(
            figure
                .peer("governor check_key, key ready", &self.peer_per_second)
                .note(note),
        );
    }
}

/// Creates every pair by one hit, in random order. Returns how long that took, and the instant at
/// which it ends.
pub(super) fn fill(
    partition: &mut Partition,
    courier: &mut Courier,
    pairs: u32,
) -> anyhow::Result<(Took, u64)> {
    let mut numbers: Vec<u32> = (0..pairs).collect();
    numbers.shuffle(&mut SmallRng::seed_from_u64(SEED));
    let mut now_us = BEGIN_US;
    let mut total = Took::default();
    for chunk in numbers.chunks(ENTRIES) {
        let upto_us = now_us + chunk.len() as u64 * 1_000_000 / OFFERED_PER_SECOND;
        let batch = courier.batch(chunk, 1, now_us, upto_us);
        now_us = upto_us;
        for record in partition.with_ticks(vec![batch]) {
            let (applied, took) = took(|| partition.expect_applied(&record.bytes, record.at));
            applied?;
            total.cpu_ns += took.cpu_ns;
            total.wall_ns += took.wall_ns;
        }
    }
    Ok((total, now_us))
}

fn report_cost_ratios(session: &mut Session, partitions: &[MeasuredPartition]) {
    let rounds_of = |pairs| {
        let mut partitions = partitions.iter();
        partitions
            .find(|partition| {
                let is_tier = partition.constraint == Constraint::Tier;
                partition.pairs == pairs && partition.follows && is_tier
            })
            .map(|partition| &partition.entries_per_second)
    };
    let Some(small) = rounds_of(SMALL) else {
        return;
    };
    for (pairs, target) in [(LARGE, None), (HUGE, Some(Target::AtMost(3.0)))] {
        let Some(rounds) = rounds_of(pairs) else {
            continue;
        };
        let name = format!(
            "cost of an entry, {} pairs against {}",
            count_text(pairs),
            count_text(SMALL)
        );
        // Costs are the inverse of rates.
        let Some(figure) = Figure::of_ratio(name, small, rounds) else {
            continue;
        };
        session.add(match target {
            Some(target) => figure.target(target),
            None => figure,
        });
    }
}

fn per_second(count: usize, ns: u64) -> f64 {
    count as f64 * 1e9 / ns.max(1) as f64
}

/// `10 k`, `1 M`.
pub(super) fn count_text(count: u32) -> String {
    match count {
        millions if millions.is_multiple_of(1_000_000) => format!("{} M", millions / 1_000_000),
        thousands if thousands.is_multiple_of(1_000) => format!("{} k", thousands / 1_000),
        ones => ones.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_short() {
        assert_eq!(count_text(10_000), "10 k");
        assert_eq!(count_text(10_000_000), "10 M");
        assert_eq!(count_text(1_500), "1500");
    }

    #[test]
    fn a_rate_is_a_count_over_seconds() {
        assert!((per_second(500, 1_000_000) - 500_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_round_rules_every_entry() {
        let mut partition = MeasuredPartition::new(1_000, true, Constraint::Tier).expect("a lane");
        partition.round(true).expect("a round");
        assert_eq!(partition.entries_per_second.len(), 1);
        assert_eq!(partition.peer_per_second.len(), 1);
    }
}
