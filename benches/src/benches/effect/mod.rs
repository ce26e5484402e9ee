//! Does a limit limit? How many calls far above a limit agents in processes of their own let through.
//!
//! ```text
//! row      one resource, its limits, and flows of calls: 990 a second evenly, and 10,000 a second more
//! round    rows that are offered at once, each on a resource of its own
//! ideal    the independent model, given every offered call in the order of the calls
//! ```
//!
//! The figures of a row: what was let through of its last flow, beside an ideal in-line limiter; the most
//! copies let through in any span of the limit's window, beside the sum of what the limit allows in such a
//! span, what was offered within one denial delay, and one call of each agent; and the overshoot by
//! windows, defined as in all benchmarks and the demonstration.
//!
//! On the journal, and on a real Kafka if this machine can run one; there agents write to Kafka directly.

mod offer;
mod rows;
mod seen;

use anyhow::Context as _;

use crate::harness::Session;
use crate::harness::figure::{Figure, Target};
use crate::harness::kafka::{LocalKafka, StartError};

use offer::{Fleet, offer};
use rows::{BURSTS, Goal, OVERSHOOT, Round, Row, WARM_UP};
use seen::Seen;

/// The denial delay in the bounds: the p99 target of a journal, and of Kafka.
const DELAY_JOURNAL_US: u64 = 5_000;
const DELAY_KAFKA_US: u64 = 10_000;

/// Bursts, weighted calls and each kind of constraint, on the journal.
///
/// # Errors
///
/// If agents and aggregator do not work together, or calls could not be made when they were due.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    all(session, BURSTS, &Fleet::Journal, DELAY_JOURNAL_US)
}

/// A limit of 1,000 per 10 s under twice its calls, by 2, 4 and 16 agents, on the journal.
///
/// # Errors
///
/// As [`run`].
pub fn overshoot(session: &mut Session) -> anyhow::Result<()> {
    all(session, OVERSHOOT, &Fleet::Journal, DELAY_JOURNAL_US)
}

/// All rows of both on a real Kafka.
///
/// # Errors
///
/// As [`run`], and if a Kafka does not start that this machine can run.
pub fn on_kafka(session: &mut Session) -> anyhow::Result<()> {
    let kafka = match LocalKafka::start_to_measure() {
        Ok(kafka) => kafka,
        Err(StartError::Absent { reason }) => {
            session.add(Figure::absent("on Kafka", "copies", reason));
            return Ok(());
        }
        Err(error) => return Err(error).context("starting Kafka"),
    };
    let fleet = Fleet::Kafka(&kafka);
    // A broker that was just started interprets its code: the first denials take several times as long.
    session.step("warming up");
    offer(&WARM_UP, session.size, &fleet)?;
    all(session, OVERSHOOT, &fleet, DELAY_KAFKA_US)?;
    all(session, BURSTS, &fleet, DELAY_KAFKA_US)
}

fn all(
    session: &mut Session,
    rounds: &[Round],
    fleet: &Fleet<'_>,
    delay_us: u64,
) -> anyhow::Result<()> {
    for round in rounds {
        session.step(round.name);
        let seen = offer(round, session.size, fleet)?;
        for (row, seen) in round.rows.iter().zip(&seen) {
            report(session, row, seen, delay_us);
        }
    }
    Ok(())
}

fn report(session: &mut Session, row: &Row, seen: &Seen, delay_us: u64) {
    let goal = |wanted: fn(&Goal) -> Option<f64>| {
        let most = row.goals.iter().find_map(wanted);
        most.map(Target::AtMost)
    };
    let aimed = |figure: Figure, target: Option<Target>| match target {
        Some(target) => figure.target(target),
        None => figure,
    };
    let refused = 100.0 - 100.0 * seen.let_through as f64 / seen.offered.max(1) as f64;
    let note = format!(
        "{} copies offered, {refused:.1} % refused; {} hits dropped",
        seen.offered, seen.dropped
    );
    let name = |what: &str| format!("{}: {what}", row.name);
    let let_through = Figure::single(name("let through"), "copies", seen.let_through as f64)
        .peer("an ideal in-line limiter", &[seen.ideal as f64])
        .note(note);
    session.add(let_through);
    let note = format!(
        "{} allowed in {} s, these from {:.2} s on; the target adds what is offered within {} ms and one call an agent",
        row.allowed,
        row.window_us as f64 / 1e6,
        seen.peak.from_us as f64 / 1e6,
        delay_us / 1_000
    );
    session.add(
        Figure::single(
            name("most in one window"),
            "copies",
            seen.peak.copies as f64,
        )
        .target(Target::AtMost(row.bound(delay_us) as f64))
        .note(note),
    );
    // An ideal limiter lets no call through that is larger than the limit: there is nothing to compare
    // with.
    let Some(over) = seen.overshoot() else {
        return;
    };
    let note = format!(
        "all calls of {} windows of {} s; the least window {:+.2} %",
        over.windows,
        row.window_us as f64 / 1e6,
        over.least
    );
    let whole = Figure::single(name("overshoot in all"), "%", over.whole).note(note);
    session.add(aimed(whole, goal(Goal::whole)));
    let median = Figure::single(name("overshoot, median window"), "%", over.median);
    session.add(aimed(median, goal(Goal::median)));
    let worst = Figure::single(name("overshoot, worst window"), "%", over.worst);
    session.add(aimed(worst, goal(Goal::worst)));
}
