//! The cost of a call: the median from blocks of a thousand, the p99 from single calls, with the
//! empty timer's p99 beside it.
//!
//! Reading the clock twice costs as much as a call, so single calls measure the tail, not the median.
//! Blocks may be paced, so that threads which process the calls' records can follow: a recorder that
//! drops is fast, and its figure means nothing.

use super::clock::{monotonic_ns, thread_cpu_ns};
use super::stats::percentile;

/// Calls of a block.
pub const BLOCK_CALLS: usize = 1_000;

/// The time between the beginnings of paced blocks: a thousand calls per millisecond are a million
/// per second.
pub const PACE_NS: u64 = 1_000_000;

/// When blocks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each immediately after the previous one.
    FullSpeed,
    /// At fixed instants of the monotonic clock; threads with the same instants run their blocks at the same time.
    Every {
        /// The beginning of the first block.
        from_ns: u64,
        /// From one beginning to the next.
        every_ns: u64,
    },
}

impl Pace {
    /// A million calls per second, beginning shortly after now.
    pub fn million_per_second() -> Self {
        Self::million_in_seconds(1)
    }

    /// A million calls in this many seconds, beginning shortly after now.
    pub fn million_in_seconds(seconds: u64) -> Self {
        Self::Every {
            from_ns: monotonic_ns() + PACE_NS,
            every_ns: seconds * PACE_NS,
        }
    }

    /// Busy-waits until a block begins.
    fn wait_for(self, block: usize) {
        if let Self::Every { from_ns, every_ns } = self {
            let begin_ns = from_ns + block as u64 * every_ns;
            while monotonic_ns() < begin_ns {
                std::hint::spin_loop();
            }
        }
    }
}

/// Nanoseconds per call of the median block, in wall time and in the thread's CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCost {
    /// By wall time.
    pub wall_ns: f64,
    /// By the thread's CPU time.
    pub cpu_ns: f64,
}

/// The cost of a call by blocks. `call` gets the number of the call.
pub fn by_blocks(blocks: usize, pace: Pace, mut call: impl FnMut(usize)) -> BlockCost {
    let (mut wall, mut cpu) = (Vec::with_capacity(blocks), Vec::with_capacity(blocks));
    for block in 0..blocks {
        pace.wait_for(block);
        let cpu_begun = thread_cpu_ns();
        let begun = monotonic_ns();
        for number in 0..BLOCK_CALLS {
            call(block * BLOCK_CALLS + number);
        }
        wall.push(monotonic_ns() - begun);
        cpu.push(thread_cpu_ns() - cpu_begun);
    }
    let each =
        |values: &mut [u64]| percentile(values, 0.5).unwrap_or(0) as f64 / BLOCK_CALLS as f64;
    BlockCost {
        wall_ns: each(&mut wall),
        cpu_ns: each(&mut cpu),
    }
}

/// The tail of single calls, and of the timer alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The 99th percentile of single calls in nanoseconds, including the timer.
    pub p99_ns: f64,
    /// The 99th percentile of the timer alone.
    pub timer_p99_ns: f64,
}

/// The tail of single calls, in paced blocks.
pub fn one_by_one(blocks: usize, pace: Pace, mut call: impl FnMut(usize)) -> Tail {
    let mut singles = Vec::with_capacity(blocks * BLOCK_CALLS);
    let mut timers = Vec::with_capacity(blocks * BLOCK_CALLS);
    for block in 0..blocks {
        pace.wait_for(block);
        for number in 0..BLOCK_CALLS {
            let begun = monotonic_ns();
            call(block * BLOCK_CALLS + number);
            let ended = monotonic_ns();
            singles.push(ended - begun);
            timers.push(monotonic_ns() - ended);
        }
    }
    let p99 = |values: &mut [u64]| percentile(values, 0.99).unwrap_or(0) as f64;
    Tail {
        p99_ns: p99(&mut singles),
        timer_p99_ns: p99(&mut timers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_number() {
        let mut numbers = Vec::new();
        by_blocks(2, Pace::FullSpeed, |number| numbers.push(number));
        assert_eq!(numbers, (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn paced_blocks_are_a_millisecond_apart() {
        let begun = monotonic_ns();
        by_blocks(5, Pace::million_per_second(), |_| {});
        assert!(5 * PACE_NS <= monotonic_ns() - begun);
    }

    #[test]
    fn a_slow_call_is_seen_in_the_tail_and_not_in_the_middle() {
        let spin = |number: usize| {
            if number.is_multiple_of(50) {
                let until = monotonic_ns() + 20_000;
                while monotonic_ns() < until {}
            }
        };
        assert!(20_000.0 <= one_by_one(2, Pace::FullSpeed, spin).p99_ns);
        assert!(by_blocks(3, Pace::FullSpeed, |_| {}).wall_ns < 100.0);
    }
}
