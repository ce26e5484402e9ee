//! The closed loop of agents and a limiter: calls let through lead to denials, and after a delay the denials decide
//! which calls are let through.
//!
//! ```text
//! offered   evenly at 0.99 of the limit for 2 w, then at ten times the limit for 10 w, agents in turn
//! a call    let through unless a denial that its agent has received lasts; then it is an entry
//! a denial  reaches every agent one delay after the entry that caused it; the newest one counts
//! ```
//!
//! Does not judge the result. What stays true: a ruler receives only the inputs of the stream reading, with the
//! instants of a perfect clock.

use std::collections::VecDeque;

use tollgate_model::effect::OfferedCall;
use tollgate_model::log::WholeResource;
use tollgate_model::{DomainLimits, End, StreamPair};

/// When loops begin: a Monday and the first of a month, 2024-01-01T00:00:00Z.
pub const START_US: u64 = 1_704_067_200_000_000;

/// A limiter that rules entries.
pub trait Ruler {
    /// Rules an entry of `n` copies. Returns the end of the pair's denial after it, if it is denied.
    fn entry(&mut self, at_us: u64, n: u64, unguarded: bool) -> Option<u64>;
}

impl Ruler for StreamPair {
    fn entry(&mut self, at_us: u64, n: u64, unguarded: bool) -> Option<u64> {
        let outcome = StreamPair::entry(self, at_us, n, unguarded);
        outcome.denied_until().map(end_us)
    }
}

/// A global limit over domains without limits of their own.
pub struct Global {
    pub limit: u64,
    pub whole: WholeResource,
}

impl Ruler for Global {
    fn entry(&mut self, at_us: u64, n: u64, unguarded: bool) -> Option<u64> {
        let ms_us = at_us / 1_000 * 1_000;
        self.whole.hits(self.limit, ms_us, n, unguarded);
        self.whole.rule_denial(self.limit);
        self.whole.denied().map(|denial| end_us(denial.end))
    }
}

/// The invalid reading: excess uses nothing.
pub struct WithoutDebt {
    pub limit: u64,
    pub window_us: u64,
    pub stamps: VecDeque<u64>,
}

impl Ruler for WithoutDebt {
    fn entry(&mut self, at_us: u64, n: u64, _: bool) -> Option<u64> {
        let has_left = |stamp: &u64| stamp + self.window_us < at_us;
        while self.stamps.front().is_some_and(has_left) {
            self.stamps.pop_front();
        }
        // A weighted call was granted as a whole or not at all.
        if self.stamps.len() as u64 + n <= self.limit {
            self.stamps.extend((0..n).map(|_| at_us));
        }
        let is_full = self.stamps.len() as u64 == self.limit;
        is_full.then(|| self.stamps[0] + self.window_us + 1)
    }
}

fn end_us(end: End) -> u64 {
    match end {
        End::At(end_us) => end_us,
        End::Never => u64::MAX,
    }
}

/// The offered load, and the delay of denials.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The limit in a span of `w_us`, in multiples of which the load is offered.
    pub limit: u64,
    pub w_us: u64,
    pub delay_us: u64,
    pub agents: u64,
    /// Copies of each call.
    pub n: u64,
    /// The number of spans for which the overload lasts.
    pub spans: u64,
}

impl Load {
    pub fn of(limit: u64, w_us: u64) -> Self {
        Self {
            limit,
            w_us,
            delay_us: 5_000,
            agents: 1,
            n: 1,
            spans: 10,
        }
    }

    /// The instants of the calls: evenly at 0.99 of the limit for 2 w, then at ten times the limit.
    fn calls_us(&self) -> Vec<u64> {
        let overload_us = 2 * self.w_us;
        let even_us = self.w_us * self.n * 100 / (self.limit * 99);
        let dense_us = (self.w_us * self.n / (self.limit * 10)).max(1);
        let even = (0..overload_us).step_by(even_us as usize);
        let dense = overload_us..overload_us + self.spans * self.w_us;
        even.chain(dense.step_by(dense_us as usize)).collect()
    }
}

/// The result of a loop.
pub struct Played {
    pub calls: Vec<OfferedCall>,
    /// Copies offered, and let through, after the even part.
    pub offered: u64,
    pub let_through: u64,
}

/// Plays the loop.
pub fn play(ruler: &mut impl Ruler, load: Load) -> Played {
    let mut played = Played {
        calls: Vec::new(),
        offered: 0,
        let_through: 0,
    };
    let mut denied_until_us = 0;
    let mut on_the_way: VecDeque<(u64, u64)> = VecDeque::new();
    for offset_us in load.calls_us() {
        let at_us = START_US + offset_us;
        while on_the_way
            .front()
            .is_some_and(|(heard_us, _)| *heard_us <= at_us)
        {
            let newest = on_the_way.pop_front();
            denied_until_us = newest.map_or(0, |(_, end_us)| end_us);
        }
        let is_let_through = denied_until_us <= at_us;
        if is_let_through {
            let denied = ruler.entry(at_us, load.n, false);
            on_the_way.push_back((at_us + load.delay_us, denied.unwrap_or(0)));
        }
        if 2 * load.w_us <= offset_us {
            played.offered += load.n;
            played.let_through += if is_let_through { load.n } else { 0 };
        }
        played.calls.push(OfferedCall {
            at_us,
            copies: load.n,
            is_let_through,
            is_unguarded: false,
            late_us: 0,
        });
    }
    played
}

/// A fresh pair.
pub fn pair(limits: &DomainLimits) -> StreamPair {
    StreamPair::new(limits)
}
