//! A call of the agent: let through, refused, near its limit, on two threads, with the log stalled or gone.
//!
//! ```text
//! loop      an aggregator of its own, an agent of this process, denials received over the feed
//! round     ours, the peer with a key at hand, the peer with a key built for the call; another one begins each round
//! ```
//!
//! The peer is `governor` with its usual keyed store, called for the same domains in the same order. It
//! needs a `&String`; a caller with a `&str` builds one for each call. So both are measured, and
//! comparisons with a target use the key at hand.
//!
//! All blocks are made at a million calls a second, so that the recorder takes every hit, and neither side
//! has warmer caches than the other. What the recorder takes at full speed is a figure of its own. What
//! stays true: a cost is reported beside the share of calls that were recorded.

mod looped;
mod near;
mod peer;
mod quiet;
mod stalled;
mod threads;

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::harness::Session;
use crate::harness::calls::{BLOCK_CALLS, Pace, by_blocks, one_by_one};
use crate::harness::figure::{Figure, Target};
use crate::load::SEED;
use crate::load::names::domain;

pub use quiet::{child_syscalls, make_calls};
pub use stalled::child_gone;

use looped::Loop;
use peer::Governor;

/// Interleaved rounds of every comparison.
pub(super) const ROUNDS: usize = 21;
/// Blocks of a round: 60 ms at a million calls a second.
pub(super) const BLOCKS: usize = 60;

/// What is called in a round: ours, and the peer in two ways.
const SIDES: usize = 3;

/// Runs the benchmark.
///
/// # Errors
///
/// If agent and aggregator do not work together, or a call has the wrong result.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let hot = Setting {
        pairs: 1_000,
        denials: 100_000,
        call_ns_max: 30.0,
        times_faster_min: 2.5,
    };
    session.step(&format!("{}: the denials are being caused", hot.name()));
    let looped = Loop::start(hot.denials)?;
    let_through(session, &looped, &hot)?;
    accepted_at_full_speed(session, &looped, &hot);
    refused(session, &looped, hot.denials)?;
    near::run(session, &looped, &hot, 50.0)?;
    threads::run(session, &looped)?;
    stalled::run(session, looped, &hot)?;
    quiet::run(session)?;
    let large = Setting {
        pairs: 1_000_000,
        denials: 1_000_000,
        call_ns_max: 200.0,
        times_faster_min: 4.0,
    };
    session.step(&format!("{}: the denials are being caused", large.name()));
    match Loop::start(large.denials) {
        Ok(looped) => let_through(session, &looped, &large),
        Err(error) => {
            // A loop that cannot carry this many denials is a finding, not the end of the benchmark.
            let why = format!("{error:#}");
            session.add(large.p50_absent(why));
            Ok(())
        }
    }
}

/// How many pairs are called, how many denials are in the list, and the targets.
pub(super) struct Setting {
    pub pairs: u32,
    pub denials: u32,
    call_ns_max: f64,
    times_faster_min: f64,
}

impl Setting {
    fn name(&self) -> String {
        let count = super::engine::count_text;
        format!(
            "{} pairs, {} denials",
            count(self.pairs),
            count(self.denials)
        )
    }

    fn p50_name(&self) -> String {
        format!("let through, {}: p50", self.name())
    }

    fn p50_absent(&self, why: String) -> Figure {
        Figure::absent(self.p50_name(), "ns", why).target(Target::AtMost(self.call_ns_max))
    }
}

/// Domains and the order in which they are called, uniformly random.
pub(super) struct Calls {
    pub names: Vec<String>,
    order: Vec<u32>,
}

impl Calls {
    /// Calls on the domains from `first` on, `pairs` of them.
    pub fn on(first: u32, pairs: u32) -> Self {
        let mut random = SmallRng::seed_from_u64(SEED);
        // Long enough that branch predictors cannot learn it, and a power of two, so that wrapping around
        // is cheap.
        let len = (pairs as usize * 2).next_power_of_two().max(1 << 16);
        Self {
            names: (first..first + pairs).map(domain).collect(),
            order: (0..len).map(|_| random.random_range(0..pairs)).collect(),
        }
    }

    /// The domain of this call.
    #[inline]
    pub fn at(&self, number: usize) -> &String {
        &self.names[self.order[number & (self.order.len() - 1)] as usize]
    }
}

/// Nanoseconds per call, by round.
#[derive(Default)]
struct Rounds {
    ours: Vec<f64>,
    ready: Vec<f64>,
    built: Vec<f64>,
    /// Our calls.
    made: u64,
    /// How many of them were refused: must be zero.
    denied: u64,
}

impl Rounds {
    /// Runs every round: ours, the peer with a key at hand, and the peer with one built for the call. Each of them
    /// begins a third of the rounds, and none calls names that another one has just called, which the caches would
    /// have.
    fn of(session: &Session, looped: &Loop, calls: &Calls, setting: &Setting) -> Self {
        let governor = Governor::knowing(calls);
        let mut rounds = Self::default();
        for round in 0..ROUNDS {
            session.step(&format!(
                "let through, {}: round {round} of {ROUNDS}",
                setting.name()
            ));
            for turn in 0..SIDES {
                let shift = (round * SIDES + turn) * BLOCKS * BLOCK_CALLS;
                let at = |number: usize| calls.at(shift + number);
                match (round + turn) % SIDES {
                    0 => rounds.ours(looped, at),
                    1 => rounds.ready.push(cost(|number| governor.ready(at(number)))),
                    _ => rounds.built.push(cost(|number| governor.built(at(number)))),
                }
            }
        }
        rounds
    }

    fn ours<'n>(&mut self, looped: &Loop, at: impl Fn(usize) -> &'n String) {
        let mut denied = 0;
        self.ours.push(cost(|number| {
            denied += u64::from(looped.search.hit(at(number)).is_err());
        }));
        self.denied += denied;
        self.made += (BLOCKS * BLOCK_CALLS) as u64;
    }
}

/// Nanoseconds of a call, a million a second.
fn cost(call: impl FnMut(usize)) -> f64 {
    by_blocks(BLOCKS, Pace::million_per_second(), call).wall_ns
}

fn let_through(session: &mut Session, looped: &Loop, setting: &Setting) -> anyhow::Result<()> {
    let calls = Calls::on(0, setting.pairs);
    for (number, name) in calls.names.iter().enumerate() {
        if number.is_multiple_of(BLOCK_CALLS) {
            looped.settle()?;
        }
        let _ = looped.search.hit(name);
    }
    looped.settle()?;
    let before = looped.recorded();
    let rounds = Rounds::of(session, looped, &calls, setting);
    anyhow::ensure!(
        rounds.denied == 0,
        "{} calls were refused that nothing closes",
        rounds.denied
    );
    let accepted = looped.accepted_percent(before, rounds.made);
    let tail = one_by_one(BLOCKS * 10, Pace::million_per_second(), |number| {
        let _ = std::hint::black_box(looped.search.hit(calls.at(number)));
    });
    let name = setting.name();
    if let Some(figure) = Figure::of_rounds(setting.p50_name(), "ns", &rounds.ours) {
        session.add(
            figure
                .target(Target::AtMost(setting.call_ns_max))
                .peer("governor, key ready", &rounds.ready)
                .peer("governor, key built per call", &rounds.built)
                .note(format!(
                    "{accepted:.2} % of these calls recorded; {} denials in the list",
                    looped.denials()
                )),
        );
    }
    let faster = format!("let through, {name}: times faster than governor");
    if let Some(figure) = Figure::of_ratio(faster, &rounds.ready, &rounds.ours) {
        let built = crate::harness::stats::ratios(&rounds.built, &rounds.ours);
        session.add(
            figure
                .target(Target::AtLeast(setting.times_faster_min))
                .peer("against a key built per call, ×", &built)
                .note("key ready"),
        );
    }
    session.add(
        Figure::single(
            format!("let through, {name}: p99 of single calls"),
            "ns",
            tail.p99_ns,
        )
        .peer("the timer alone", &[tail.timer_p99_ns]),
    );
    session.add(
        Figure::single(
            format!("let through, {name}: recorded at 1 M/s"),
            "%",
            accepted,
        )
        .target(Target::AtLeast(100.0)),
    );
    Ok(())
}

/// The share of calls that the recorder takes when they are made as fast as possible.
fn accepted_at_full_speed(session: &mut Session, looped: &Loop, setting: &Setting) {
    const FULL_SPEED_BLOCKS: usize = 20_000;
    session.step("let through, at full speed");
    let calls = Calls::on(0, setting.pairs);
    let before = looped.recorded();
    let cost = by_blocks(FULL_SPEED_BLOCKS, Pace::FullSpeed, |number| {
        let _ = looped.search.hit(calls.at(number));
    });
    let made = (FULL_SPEED_BLOCKS * BLOCK_CALLS) as u64;
    session.add(
        Figure::single(
            "recorded at full speed",
            "%",
            looped.accepted_percent(before, made),
        )
        .note(format!(
            "{made} calls on {} at {:.1} ns each, one thread; the rest was dropped and counted",
            setting.name(),
            cost.wall_ns
        )),
    );
}

fn refused(session: &mut Session, looped: &Loop, denials: u32) -> anyhow::Result<()> {
    session.step("refused");
    for (kind, domains) in [("a thousand of the", 1_000), ("all", denials)] {
        let calls = Calls::on(0, domains);
        let mut passed = 0_u64;
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let shift = round * BLOCKS * BLOCK_CALLS;
            let cost = by_blocks(BLOCKS, Pace::million_per_second(), |number| {
                passed += u64::from(looped.closed.hit(calls.at(shift + number)).is_ok());
            });
            rounds.push(cost.wall_ns);
        }
        anyhow::ensure!(passed == 0, "{passed} calls passed that are denied");
        let name = format!(
            "refused, {kind} {} denied pairs: p50",
            super::engine::count_text(denials)
        );
        if let Some(figure) = Figure::of_rounds(name, "ns", &rounds) {
            session.add(figure.target(Target::AtMost(60.0)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_cycle_through_all_domains() {
        let calls = Calls::on(5, 10);
        let mut seen: Vec<&String> = (0..1_000).map(|number| calls.at(number)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10);
        assert_eq!(calls.names.first(), Some(&domain(5)));
        assert_eq!(calls.at(3), calls.at(3 + (1 << 16)));
    }
}
