//! Does a limit limit? What is let through of calls far above a limit, by agents in processes of their own.
//!
//! ```text
//! steady    990 a second under 1,000 a second, evenly spaced: never refused
//! burst     another process: 10,000 a second more for 8 s
//! figure    how many of the burst's 80,000 calls were let through; an in-line limiter: some 80
//! ```
//!
//! A row also says the most copies that any span of the limit's window let through, beside what the limit
//! allows in such a span. The difference is at most what was offered within one denial delay and one
//! call of each agent; the bound beside it takes that delay as [`DELAY_US`].

use std::collections::VecDeque;

use tollgate_limits::RULES;

use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::clock::wall_us;
use crate::harness::figure::{Figure, Target};
use crate::harness::paced::{self, Offered, Schedule};

const RESOURCE: &str = "api.effect";
const DOMAIN: &str = "acme";
/// From the word to start until the first call.
const LEAD_US: u64 = 500_000;
/// The denial delay that bounds are reckoned with: the p99 that is asked of a journal.
const DELAY_US: u64 = 5_000;

/// Calls of one size, evenly spaced, made by several processes in turn.
#[derive(Clone, Copy, Debug)]
struct Flow {
    agents: u64,
    after_ms: u64,
    for_ms: u64,
    /// From call to call, all agents together.
    period_us: u64,
    copies: u32,
}

/// One limit and the calls that it has to hold; the last flow is the one that is judged.
struct Row {
    name: &'static str,
    /// What the resource states.
    limits: &'static str,
    flows: &'static [Flow],
    /// Copies that the limit allows in any span of `window_us`.
    allowed: u64,
    window_us: u64,
    /// Copies of the judged flow that may be let through, where a row has such a target.
    at_most: Option<f64>,
}

const fn flow(agents: u64, after_ms: u64, for_ms: u64, period_us: u64, copies: u32) -> Flow {
    Flow {
        agents,
        after_ms,
        for_ms,
        period_us,
        copies,
    }
}

const ROWS: &[Row] = &[
    Row {
        name: "990/s steady under 1,000/s, then 10,000/s more for 8 s",
        limits: "rate = \"1000/s\"",
        flows: &[flow(1, 0, 14_000, 1_010, 1), flow(1, 4_000, 8_000, 100, 1)],
        allowed: 1_000,
        window_us: 1_000_000,
        at_most: Some(1_500.0),
    },
    Row {
        name: "the same, offered by 8 agents",
        limits: "rate = \"1000/s\"",
        flows: &[flow(1, 0, 14_000, 1_010, 1), flow(8, 4_000, 8_000, 100, 1)],
        allowed: 1_000,
        window_us: 1_000_000,
        at_most: None,
    },
    Row {
        name: "99/s steady under 100/s, then 1,000/s more for 8 s",
        limits: "rate = \"100/s\"",
        flows: &[
            flow(1, 0, 14_000, 10_101, 1),
            flow(1, 4_000, 8_000, 1_000, 1),
        ],
        allowed: 100,
        window_us: 1_000_000,
        at_most: None,
    },
    Row {
        name: "calls of 60 copies, 20 a second for 10 s, under 100/s",
        limits: "rate = \"100/s\"",
        flows: &[flow(1, 0, 10_000, 50_000, 60)],
        allowed: 100,
        window_us: 1_000_000,
        at_most: None,
    },
    Row {
        name: "calls of 7 copies, 1,000 copies a second, under 100/s",
        limits: "rate = \"100/s\"",
        flows: &[flow(1, 0, 10_000, 7_000, 7)],
        allowed: 100,
        window_us: 1_000_000,
        at_most: None,
    },
    Row {
        name: "calls of 33 copies, 1,000 copies a second, under 100/s",
        limits: "rate = \"100/s\"",
        flows: &[flow(1, 0, 10_000, 33_000, 33)],
        allowed: 100,
        window_us: 1_000_000,
        at_most: None,
    },
    Row {
        name: "calls of 51 copies, 1,000 copies a second, under 100/s",
        limits: "rate = \"100/s\"",
        flows: &[flow(1, 0, 10_000, 51_000, 51)],
        allowed: 100,
        window_us: 1_000_000,
        at_most: None,
    },
];

/// Measures it.
///
/// # Errors
///
/// Where the loop does not close, or calls could not be made when they were due.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    for row in ROWS {
        session.step(row.name);
        let seen = offer(row)?;
        report(session, row, &seen);
    }
    Ok(())
}

/// What became of a row's calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Copies of the judged flow.
    offered: u64,
    let_through: u64,
    /// The most copies of all flows that one span of the window let through.
    peak: u64,
    dropped: u64,
}

fn offer(row: &Row) -> anyhow::Result<Seen> {
    let limits = format!(
        "version = 1\nrules = {RULES}\n[rate.\"{RESOURCE}\"]\n{}\n",
        row.limits
    );
    let aggregator = Aggregator::start(&limits, 16)?;
    let mut parts = Vec::new();
    for (index, flow) in row.flows.iter().enumerate() {
        for agent in 0..flow.agents {
            let name = format!("bench-{index}-{agent}");
            let part = paced::start(&name, &aggregator.agents, RESOURCE, DOMAIN)?;
            parts.push((index, agent, part));
        }
    }
    for (_, _, part) in &mut parts {
        paced::await_ready(part)?;
    }
    let start_us = wall_us() + LEAD_US;
    for (index, agent, part) in &mut parts {
        let flow = row.flows[*index];
        let period_us = flow.period_us * flow.agents;
        let schedule = Schedule {
            start_us,
            first_us: start_us + flow.after_ms * 1_000 + *agent * flow.period_us,
            period_us,
            count: flow.for_ms * 1_000 / period_us,
            copies: flow.copies,
        };
        paced::tell(part, schedule)?;
    }
    let judged = row.flows.len() - 1;
    let mut seen = Seen::default();
    let mut let_through = Vec::new();
    for (index, _, part) in &mut parts {
        let copies = u64::from(row.flows[*index].copies);
        let offered: Offered = part.hear()?;
        let through = || offered.calls.iter().filter(|(_, through)| *through);
        let_through.extend(through().map(|(at_us, _)| (*at_us, copies)));
        seen.dropped += offered.dropped;
        if *index == judged {
            seen.offered += offered.calls.len() as u64 * copies;
            seen.let_through += through().count() as u64 * copies;
        }
    }
    let_through.sort_unstable();
    seen.peak = peak(&let_through, row.window_us);
    Ok(seen)
}

/// The most copies that any span of `window_us` has; a copy leaves it when now > copy + window.
fn peak(let_through: &[(u64, u64)], window_us: u64) -> u64 {
    let (mut inside, mut copies, mut most) = (VecDeque::new(), 0, 0);
    for &(at_us, n) in let_through {
        while let Some(&(oldest_us, left)) = inside.front()
            && oldest_us + window_us < at_us
        {
            copies -= left;
            inside.pop_front();
        }
        inside.push_back((at_us, n));
        copies += n;
        most = most.max(copies);
    }
    most
}

/// What any span of the window may let through at most, if denials arrive within [`DELAY_US`].
fn bound(row: &Row) -> u64 {
    let within_delay = |flow: &Flow| DELAY_US.div_ceil(flow.period_us) * u64::from(flow.copies);
    let one_call = |flow: &Flow| flow.agents * u64::from(flow.copies);
    row.allowed
        + row.flows.iter().map(within_delay).sum::<u64>()
        + row.flows.iter().map(one_call).sum::<u64>()
}

fn report(session: &mut Session, row: &Row, seen: &Seen) {
    let refused = 100.0 - 100.0 * seen.let_through as f64 / seen.offered.max(1) as f64;
    let note = format!(
        "{} copies offered, {refused:.1} % refused; {} hits dropped",
        seen.offered, seen.dropped
    );
    let mut figure = Figure::single(
        format!("{}: let through", row.name),
        "copies",
        seen.let_through as f64,
    );
    if let Some(most) = row.at_most {
        figure = figure.target(Target::AtMost(most));
    }
    session.add(figure.note(note));
    let note = format!(
        "{} allowed in {} s; the target adds what is offered within {} ms and one call an agent",
        row.allowed,
        row.window_us as f64 / 1e6,
        DELAY_US / 1_000
    );
    session.add(
        Figure::single(
            format!("{}: most in one window", row.name),
            "copies",
            seen.peak as f64,
        )
        .target(Target::AtMost(bound(row) as f64))
        .note(note),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_of_the_fullest_span() {
        assert_eq!(peak(&[], 10), 0);
        // At 10 the first still counts, at 11 it does not.
        assert_eq!(peak(&[(0, 3), (10, 4)], 10), 7);
        assert_eq!(peak(&[(0, 3), (11, 4), (12, 2)], 10), 6);
    }

    #[test]
    fn a_bound_adds_one_delay_and_one_call_an_agent() {
        const FLOWS: &[Flow] = &[flow(2, 0, 10, 1_000, 7)];
        let row = Row {
            name: "row",
            limits: "",
            flows: FLOWS,
            allowed: 100,
            window_us: 1_000_000,
            at_most: None,
        };
        assert_eq!(bound(&row), 100 + 5 * 7 + 2 * 7);
    }
}
