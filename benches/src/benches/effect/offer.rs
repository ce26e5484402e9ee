//! Offers a round's calls to an aggregator of its own, by agents in processes of their own.

use anyhow::Context as _;
use tollgate_limits::{Limits, RULES};
use tollgate_replay::model_check::to_model;

use crate::harness::Size;
use crate::harness::aggregator::Aggregator;
use crate::harness::child::Part;
use crate::harness::clock::wall_us;
use crate::harness::kafka::LocalKafka;
use crate::harness::paced::{self, Offered, Schedule};

use super::rows::{Flow, Phase, Round};
use super::seen::{Call, Seen};

/// The time between the command to start and the first call.
const LEAD_US: u64 = 500_000;
const PARTITIONS: u32 = 16;

/// The log of a fleet.
pub enum Fleet<'a> {
    Journal,
    Kafka(&'a LocalKafka),
}

/// An agent and the flow that it offers.
struct Caller {
    row: usize,
    flow: usize,
    number: u64,
    part: Part,
}

/// Offers the calls of all rows at once, and returns the results of each row.
pub fn offer(round: &Round, size: Size, fleet: &Fleet<'_>) -> anyhow::Result<Vec<Seen>> {
    let text = document(round);
    let (aggregator, place) = start(&text, fleet)?;
    let mut callers = callers(round, &place)?;
    let start_us = wall_us() + LEAD_US;
    for caller in &mut callers {
        let row = &round.rows[caller.row];
        let flow = row.flows[caller.flow];
        let length_ms = flow.for_ms.unwrap_or(row.length_ms(size) - flow.after_ms);
        let schedule = schedule(flow, caller.number, start_us, length_ms);
        paced::send(&mut caller.part, schedule)?;
    }
    let mut calls: Vec<(Vec<Call>, u64)> = vec![(Vec::new(), 0); round.rows.len()];
    for caller in &mut callers {
        let flow = round.rows[caller.row].flows[caller.flow];
        let offered: Offered = caller.part.receive()?;
        let of_row = &mut calls[caller.row];
        of_row
            .0
            .extend(offered.calls.iter().map(|(at_us, is_let_through)| Call {
                at_us: *at_us,
                flow: caller.flow,
                domain: flow.domain,
                copies: u64::from(flow.copies),
                is_let_through: *is_let_through,
            }));
        of_row.1 += offered.dropped;
    }
    drop(aggregator);
    let limits = Limits::parse(&text).map_err(|faults| anyhow::anyhow!("{faults}"))?;
    let model = to_model(&limits);
    let rows = round.rows.iter().zip(calls).enumerate();
    rows.map(|(index, (row, (calls, dropped)))| {
        let own = model.of(&resource(index)).context("a row without limits")?;
        let length_us = row.length_ms(size) * 1_000;
        Ok(Seen::of(
            calls,
            own.clone(),
            row.window_us,
            length_us,
            dropped,
        ))
    })
    .collect()
}

/// The resource of a row; each row of a round has its own.
fn resource(row: usize) -> String {
    format!("effect.row-{row}")
}

fn document(round: &Round) -> String {
    let rates = round.rows.iter().enumerate();
    let rates =
        rates.map(|(index, row)| format!("[rate.\"{}\"]\n{}\n", resource(index), row.limits));
    format!(
        "version = 1\nrules = {RULES}\n{}",
        rates.collect::<String>()
    )
}

/// Starts an aggregator with these limits. Also returns what agents need to reach it and its log.
fn start(limits: &str, fleet: &Fleet<'_>) -> anyhow::Result<(Aggregator, Vec<String>)> {
    match fleet {
        Fleet::Journal => {
            let aggregator = Aggregator::start(limits, PARTITIONS)?;
            let place = vec![aggregator.agents.clone()];
            Ok((aggregator, place))
        }
        Fleet::Kafka(kafka) => {
            let prefix = kafka.fresh_name("bench-effect");
            let aggregator = Aggregator::start_on(kafka, &prefix, limits, PARTITIONS)?;
            let bootstrap = kafka.bootstrap().to_owned();
            let place = vec![aggregator.agents.clone(), bootstrap, prefix];
            Ok((aggregator, place))
        }
    }
}

/// All agents of a round, connected.
fn callers(round: &Round, place: &[String]) -> anyhow::Result<Vec<Caller>> {
    let mut callers = Vec::new();
    for (row, flow, of) in round.flows() {
        for number in 0..of.agents {
            let name = format!("bench-{row}-{flow}-{number}");
            let part = paced::start(&name, &resource(row), of.domain, place)?;
            callers.push(Caller {
                row,
                flow,
                number,
                part,
            });
        }
    }
    for caller in &mut callers {
        paced::await_ready(&mut caller.part)?;
    }
    Ok(callers)
}

/// The calls of one agent of a flow.
fn schedule(flow: Flow, number: u64, start_us: u64, length_ms: u64) -> Schedule {
    let period_us = flow.period_us * flow.agents;
    let offset_us = match flow.phase {
        Phase::InTurn => number * flow.period_us,
        Phase::AtOnce => 0,
    };
    Schedule {
        start_us,
        first_us: start_us + flow.after_ms * 1_000 + offset_us,
        period_us,
        count: length_ms * 1_000 / period_us,
        copies: flow.copies,
    }
}
