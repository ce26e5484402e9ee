//! Measures the cost of a call, beside the traffic of a demonstration.
//!
//! p50 from blocks of 1,000 calls; p99 from single calls, with the p99 of an empty measurement beside it, since
//! reading the clock twice costs as much as a call. A separate resource is used, in short turns, so that the
//! traffic is not disturbed; the calls are recorded and sent like all others.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollgate_agent::Rate;

use super::clock::wall_us;
use super::figures::percentile;

/// A phase of the demonstration, as the parent process announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DemoPhase {
    /// The aggregator runs.
    Normal = 0,
    /// The aggregator does not run.
    Outage = 1,
    /// The aggregator runs again; measurements until things have settled belong to neither phase.
    Back = 2,
}

impl DemoPhase {
    /// The current phase.
    pub fn load(from: &AtomicU8) -> Self {
        match from.load(Ordering::Relaxed) {
            0 => Self::Normal,
            1 => Self::Outage,
            _ => Self::Back,
        }
    }
}

/// Calls per block.
const BLOCK_CALLS: u32 = 1_000;

/// Single calls after each block.
const SINGLE_CALLS: u32 = 100;

/// Domains that the calls rotate over.
const DOMAINS: usize = 50;

/// The time from one block to the next.
const EVERY: Duration = Duration::from_millis(50);

/// The cost of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Nanoseconds per call, the median of blocks.
    pub p50_ns: u64,
    /// Nanoseconds of a single call, timer included.
    pub p99_ns: u64,
    /// Nanoseconds of the timer alone.
    pub timer_p99_ns: u64,
    /// Blocks measured.
    pub blocks: u64,
}

#[derive(Debug, Default)]
struct Samples {
    blocks: Vec<u64>,
    singles: Vec<u64>,
    timers: Vec<u64>,
}

/// Measures calls on one handle.
#[derive(Debug)]
pub struct CostMeter {
    rate: Rate,
    domains: Vec<String>,
}

impl CostMeter {
    /// A meter that calls this handle.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            domains: (0..DOMAINS)
                .map(|number| format!("tenant-{number}"))
                .collect(),
        }
    }

    /// Measures from the start to the end: the cost of calls while the aggregator ran, and while it did not.
    pub fn measure(
        &self,
        start_us: u64,
        phase: impl Fn() -> DemoPhase,
        over: &AtomicBool,
    ) -> (Option<Cost>, Option<Cost>) {
        let (mut normal, mut outage) = (Samples::default(), Samples::default());
        std::thread::sleep(Duration::from_micros(start_us.saturating_sub(wall_us())));
        while !over.load(Ordering::Relaxed) {
            let before = phase();
            let mut turn = Samples::default();
            self.turn(&mut turn);
            // A turn during which the phase changed belongs to neither.
            if before == phase() {
                match before {
                    DemoPhase::Normal => normal.take(turn),
                    DemoPhase::Outage => outage.take(turn),
                    DemoPhase::Back => {}
                }
            }
            std::thread::sleep(EVERY);
        }
        (normal.cost(), outage.cost())
    }

    fn turn(&self, samples: &mut Samples) {
        let mut domains = self.domains.iter().cycle();
        let mut call = || {
            if let Some(domain) = domains.next() {
                let _ = std::hint::black_box(self.rate.hit(std::hint::black_box(domain)));
            }
        };
        let began = Instant::now();
        for _ in 0..BLOCK_CALLS {
            call();
        }
        samples
            .blocks
            .push(nanos(began.elapsed()) / u64::from(BLOCK_CALLS));
        for _ in 0..SINGLE_CALLS {
            let began = Instant::now();
            call();
            samples.singles.push(nanos(began.elapsed()));
            let began = Instant::now();
            samples.timers.push(nanos(began.elapsed()));
        }
    }
}

impl Samples {
    fn take(&mut self, other: Self) {
        self.blocks.extend(other.blocks);
        self.singles.extend(other.singles);
        self.timers.extend(other.timers);
    }

    fn cost(mut self) -> Option<Cost> {
        Some(Cost {
            blocks: self.blocks.len() as u64,
            p50_ns: percentile(&mut self.blocks, 0.5)?,
            p99_ns: percentile(&mut self.singles, 0.99)?,
            timer_p99_ns: percentile(&mut self.timers, 0.99)?,
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
