//! How many more calls two agents let through on one pair than an ideal in-line limiter would have.
//!
//! ```text
//! limit     1,000 in 10 s           offered   2,000 a second, by two agent processes, evenly
//! window    10 s of offering        (let through − ideal) ÷ ideal, ideal asked every offered call
//! ```
//!
//! The ideal limiter is the independent model, which shares no code with the engine.

use anyhow::Context as _;
use tollgate::demo::figures::{WindowCount, overshoot};
use tollgate_model::{DomainLimits, InlineLimiter, ResourceLimits, Tier};

use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::clock::wall_us;
use crate::harness::figure::{Figure, Target};
use crate::harness::paced::{self, Offered, Schedule};

const AGENTS: u64 = 2;
const OFFERED_PER_SECOND: u64 = 2_000;
const LIMIT: u64 = 1_000;
const WINDOW_US: u64 = 10_000_000;
const WINDOWS_USUAL: u64 = 4;
const WINDOWS_FULL: u64 = 100;
/// From the word to start until the first call.
const LEAD_US: u64 = 500_000;

const RESOURCE: &str = "api.search";
const DOMAIN: &str = "acme";
const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
tiers = [{ limit = 1000, window = "10s", active = "10s" }]
"#;

/// One call: microseconds after the start, and whether it was let through.
type Call = (u64, bool);

/// Measures it.
///
/// # Errors
///
/// Where the loop does not close, or calls could not be made when they were due.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let windows = if session.is_full() {
        WINDOWS_FULL
    } else {
        WINDOWS_USUAL
    };
    session.step(&format!("{windows} windows of 10 s"));
    let aggregator = Aggregator::start(LIMITS, 16)?;
    let mut parts = Vec::new();
    for number in 0..AGENTS {
        let name = format!("bench-{number}");
        parts.push(paced::start(&name, &aggregator.agents, RESOURCE, DOMAIN)?);
    }
    for part in &mut parts {
        paced::await_ready(part)?;
    }
    let start_us = wall_us() + LEAD_US;
    let period_us = AGENTS * 1_000_000 / OFFERED_PER_SECOND;
    for (number, part) in (0..).zip(&mut parts) {
        let schedule = Schedule {
            start_us,
            first_us: start_us + number * period_us / AGENTS,
            period_us,
            count: windows * WINDOW_US / period_us,
            copies: 1,
        };
        paced::tell(part, schedule)?;
    }
    let (mut calls, mut dropped) = (Vec::new(), 0);
    for part in &mut parts {
        let offered: Offered = part.hear()?;
        calls.extend(offered.calls);
        dropped += offered.dropped;
    }
    calls.sort_unstable();
    report(session, &counted(&calls, windows), dropped)
}

/// Counts by window, beside an ideal limiter that is asked every offered call.
fn counted(calls: &[Call], windows: u64) -> Vec<WindowCount> {
    let tier = Tier {
        limit: LIMIT,
        window_us: WINDOW_US,
        active_us: WINDOW_US,
        cooldown_us: 0,
        skippable: false,
    };
    let limits = DomainLimits::of_tiers(&[tier]);
    let mut ideal = InlineLimiter::new(ResourceLimits {
        default: limits,
        ..ResourceLimits::default()
    });
    let mut counts = vec![WindowCount::default(); windows as usize];
    for (at_us, let_through) in calls {
        let granted = ideal.grant(*at_us, DOMAIN, 1, 1);
        // A call that was made late falls out of the last window, for both alike.
        if let Some(count) = counts.get_mut((at_us / WINDOW_US) as usize) {
            count.let_through += u64::from(*let_through);
            count.ideal += granted;
        }
    }
    counts
}

fn report(session: &mut Session, counts: &[WindowCount], dropped: u64) -> anyhow::Result<()> {
    let seen = overshoot(counts.iter().copied()).context("no window let anything through")?;
    let (let_through, ideal) = counts.iter().fold((0, 0), |sums, count| {
        (sums.0 + count.let_through, sums.1 + count.ideal)
    });
    let note = format!(
        "{} windows of 10 s, limit {LIMIT}, {OFFERED_PER_SECOND}/s offered by {AGENTS} agents; {let_through} let \
         through, {ideal} by an ideal limiter; {dropped} hits dropped",
        seen.windows
    );
    session.add(
        Figure::single("overshoot: median", "%", seen.median)
            .target(Target::AtMost(0.5))
            .note(note),
    );
    session.add(Figure::single("overshoot: worst window", "%", seen.worst));
    session.add(
        Figure::single("under-admission: worst window", "%", (-seen.least).max(0.0))
            .note("fewer than an ideal limiter would have let through"),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_window_is_compared_with_an_ideal_limiter() {
        // 1,100 calls in the first window, 1,050 of them let through; then as many as are ideal.
        let first = (0..1_100).map(|call| (call * 100, call < 1_050));
        let second = (0..500).map(|call| (WINDOW_US + 1_000_000 + call * 100, true));
        let calls: Vec<Call> = first.chain(second).collect();
        let counts = counted(&calls, 2);
        assert_eq!(
            counts[0],
            WindowCount {
                let_through: 1_050,
                ideal: 1_000
            }
        );
        assert_eq!(
            counts[1],
            WindowCount {
                let_through: 500,
                ideal: 500
            }
        );
        let seen = overshoot(counts.into_iter()).expect("two windows");
        assert_eq!((seen.median, seen.worst, seen.least), (0.0, 5.0, 0.0));
    }
}
