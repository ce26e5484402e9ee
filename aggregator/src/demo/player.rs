//! One agent process of a demonstration: plays its part of the schedule and records what it saw.
//!
//! ```text
//! stdin    start UNIX_MICROS | outage | back | end of file: stop at once
//! stdout   JSON lines: {"ready":..}, then a count every 200 ms, then the last one with the figures
//! file     one line per call: index, wall clock (us), monotonic clock (ns), a | r CODE
//!          and one per denial that was received: h, monotonic clock (ns), CODE
//! ```
//!
//! It knows nothing of limits. What stays true: a call is recorded with the instant before it was made; no decision
//! is made here.

use std::fs::File;
use std::io::{self, BufRead as _, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollgate_agent::{Agent, Rate, Refused};
use tollgate_shared::log_position::Code;

use super::clock::{monotonic_ns, wall_us};
use super::cost::{Cost, CostMeter, DemoPhase};
use super::part::AgentPart;
use super::schedule::Schedule;

/// How often counts are printed.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// How long the last batches may take to be sent.
const FLUSH_WITHIN: Duration = Duration::from_secs(3);

/// The task of a player.
#[derive(Clone, Debug)]
pub struct PlayerPart {
    /// Its agent.
    pub agent: AgentPart,
    /// The schedule, as JSON.
    pub schedule: PathBuf,
    /// The file for what it saw.
    pub seen: PathBuf,
}

/// A line on a player's standard output.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PlayerNotice {
    /// The agent has received watermarks of every resource and partition.
    pub ready: bool,
    /// Calls made.
    pub offered: u64,
    /// Calls let through.
    pub let_through: u64,
    /// Calls refused.
    pub refused: u64,
    /// Denials in its list.
    pub denials: u64,
    /// Batches on their way or waiting.
    pub waiting: u64,
    /// The last line, with the figures below.
    pub done: bool,
    /// The cost of calls while aggregators ran.
    pub cost: Option<Cost>,
    /// The cost of calls while the aggregator did not run.
    pub cost_blind: Option<Cost>,
    /// Hits that the recorder took.
    pub accepted: u64,
    /// Hits that were dropped anywhere on their way, by the agent's own count.
    pub dropped: u64,
    /// Hits that the log acknowledged.
    pub acknowledged: u64,
}

#[derive(Debug, Default)]
struct PlayerCounts {
    offered: AtomicU64,
    let_through: AtomicU64,
    refused: AtomicU64,
}

/// Plays a part to its end.
///
/// # Errors
///
/// Errors of files, and invalid settings of the agent.
pub fn play(part: &PlayerPart) -> anyhow::Result<()> {
    let schedule: Schedule =
        serde_json::from_reader(io::BufReader::new(File::open(&part.schedule)?))?;
    let arrivals = Arc::new(Mutex::new(Vec::<(u64, Code)>::new()));
    let agent = build(part, &arrivals)?;
    let rates: Vec<Rate> = schedule
        .resources
        .iter()
        .map(|name| agent.rate(name))
        .collect();
    let meter = CostMeter::new(agent.rate("demo.cost"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ready = runtime.block_on(agent.ready(Duration::from_secs(5)));
    report(&PlayerNotice {
        ready,
        ..PlayerNotice::default()
    })?;

    let phase = Arc::new(AtomicU8::new(DemoPhase::Normal as u8));
    let Some(start_us) = listen(&phase)? else {
        return Ok(());
    };
    let counts = PlayerCounts::default();
    let over = AtomicBool::new(false);
    let mut figures = PlayerNotice {
        ready,
        done: true,
        ..PlayerNotice::default()
    };
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let measuring = scope.spawn(|| meter.measure(start_us, || DemoPhase::load(&phase), &over));
        let telling = scope.spawn(|| tell_regularly(&agent, &counts, &over));
        let played = make_calls(&schedule, &rates, start_us, &counts, &part.seen);
        over.store(true, Ordering::Relaxed);
        let (cost, cost_blind) = measuring.join().unwrap_or_default();
        (figures.cost, figures.cost_blind) = (cost, cost_blind);
        let _ = telling.join();
        played
    })?;

    let flushed = runtime.block_on(agent.shutdown(FLUSH_WITHIN));
    let stats = agent.stats();
    count_into(&mut figures, &counts);
    figures.accepted = stats.hits_accepted;
    figures.dropped = stats.hits_dropped();
    figures.acknowledged = flushed.sent;
    write_arrivals(&part.seen, &arrivals)?;
    report(&figures)?;
    Ok(())
}

fn build(part: &PlayerPart, arrivals: &Arc<Mutex<Vec<(u64, Code)>>>) -> anyhow::Result<Agent> {
    let arrivals = Arc::clone(arrivals);
    let builder = part.agent.builder().on_statement(move |news| {
        let at = monotonic_ns();
        if let Ok(mut arrivals) = arrivals.lock() {
            arrivals.push((at, news.code()));
        }
    });
    Ok(builder.build()?)
}

/// Waits for the start, then continues to read commands in the background. `None`: the parent is gone.
fn listen(phase: &Arc<AtomicU8>) -> io::Result<Option<u64>> {
    let mut lines = io::stdin().lines();
    let start = loop {
        match lines.next() {
            None => return Ok(None),
            Some(line) => {
                if let Some(micros) = line?
                    .strip_prefix("start ")
                    .and_then(|micros| micros.trim().parse().ok())
                {
                    break micros;
                }
            }
        }
    };
    let phase = Arc::clone(phase);
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            match line.trim() {
                "outage" => phase.store(DemoPhase::Outage as u8, Ordering::Relaxed),
                "back" => phase.store(DemoPhase::Back as u8, Ordering::Relaxed),
                _ => {}
            }
        }
        // The parent is gone: end, so that no process is left behind.
        std::process::exit(crate::exit::Exit::Interrupted as i32);
    });
    Ok(Some(start))
}

fn make_calls(
    schedule: &Schedule,
    rates: &[Rate],
    start_us: u64,
    counts: &PlayerCounts,
    seen: &Path,
) -> anyhow::Result<()> {
    let mut seen = BufWriter::with_capacity(1 << 20, File::create(seen)?);
    for (index, call) in schedule.calls.iter().enumerate() {
        wait_until(start_us.saturating_add(call.at_us));
        let (Some(rate), Some(domain)) = (
            rates.get(call.resource as usize),
            schedule.domains.get(call.domain as usize),
        ) else {
            continue;
        };
        let (wall, monotonic) = (wall_us(), monotonic_ns());
        let answer = rate.hit_n(domain, call.copies);
        counts.offered.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(_) => {
                counts.let_through.fetch_add(1, Ordering::Relaxed);
                writeln!(seen, "{index} {wall} {monotonic} a")?;
            }
            Err(Refused::Denied(denied)) => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                match denied.code() {
                    Some(code) => writeln!(seen, "{index} {wall} {monotonic} r {code}")?,
                    None => writeln!(seen, "{index} {wall} {monotonic} r {}", denied.cause())?,
                }
            }
            Err(fault) => anyhow::bail!("call {index} of the schedule: {fault}"),
        }
    }
    seen.flush()?;
    Ok(())
}

/// Sleeps until shortly before the instant and yields for the rest, so that calls are made on time and the core
/// stays available to other threads.
fn wait_until(at_us: u64) {
    const YIELD_US: u64 = 60;
    loop {
        let left = at_us.saturating_sub(wall_us());
        match left {
            0 => return,
            YIELD_US.. => std::thread::sleep(Duration::from_micros(left - YIELD_US / 2)),
            _ => std::thread::yield_now(),
        }
    }
}

fn tell_regularly(agent: &Agent, counts: &PlayerCounts, over: &AtomicBool) {
    let mut next = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let stats = agent.stats();
        let mut notice = PlayerNotice {
            ready: true,
            ..PlayerNotice::default()
        };
        count_into(&mut notice, counts);
        notice.denials = stats.denials_live;
        notice.waiting = stats.batches_waiting;
        notice.accepted = stats.hits_accepted;
        notice.dropped = stats.hits_dropped();
        notice.acknowledged = stats.hits_acknowledged;
        if report(&notice).is_err() {
            return;
        }
        next += TELL_EVERY;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn count_into(notice: &mut PlayerNotice, counts: &PlayerCounts) {
    notice.offered = counts.offered.load(Ordering::Relaxed);
    notice.let_through = counts.let_through.load(Ordering::Relaxed);
    notice.refused = counts.refused.load(Ordering::Relaxed);
}

fn report(notice: &PlayerNotice) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, notice)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn write_arrivals(seen: &Path, arrivals: &Mutex<Vec<(u64, Code)>>) -> io::Result<()> {
    let mut file = BufWriter::new(File::options().append(true).open(seen)?);
    let arrivals = arrivals
        .lock()
        .map(|arrivals| arrivals.clone())
        .unwrap_or_default();
    for (at, code) in arrivals {
        writeln!(file, "h {at} {code}")?;
    }
    file.flush()
}

/// One line of what a player saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlayerLine {
    /// A call that was made.
    Call {
        /// Its index in the player's schedule.
        index: usize,
        /// The wall clock before it, in microseconds.
        wall_us: u64,
        /// The monotonic clock before it, in nanoseconds.
        monotonic_ns: u64,
        /// The answer.
        answer: CallAnswer,
    },
    /// A denial that was entered into the deny list.
    Heard {
        /// The monotonic clock after it, in nanoseconds.
        monotonic_ns: u64,
        /// The code of its cause.
        code: Code,
    },
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// Let through.
    LetThrough,
    /// Refused under a statement of the aggregators.
    Refused(Code),
    /// Refused by the agent's own policy, for this cause.
    ByPolicy(String),
}

/// Reads the file of a player.
///
/// # Errors
///
/// If the file cannot be read, or has a line that no player writes.
pub fn read_seen(path: &Path) -> anyhow::Result<Vec<PlayerLine>> {
    let mut seen = Vec::new();
    for (number, line) in io::BufReader::new(File::open(path)?).lines().enumerate() {
        let line = line?;
        match parse_seen(&line) {
            Some(one) => seen.push(one),
            None => anyhow::bail!(
                "{}: line {}: not what a player writes: {line:?}",
                path.display(),
                number + 1
            ),
        }
    }
    Ok(seen)
}

fn parse_seen(line: &str) -> Option<PlayerLine> {
    let mut words = line.split(' ');
    let first = words.next()?;
    if first == "h" {
        let monotonic_ns = words.next()?.parse().ok()?;
        return Some(PlayerLine::Heard {
            monotonic_ns,
            code: words.next()?.parse().ok()?,
        });
    }
    let index = first.parse().ok()?;
    let wall_us = words.next()?.parse().ok()?;
    let monotonic_ns = words.next()?.parse().ok()?;
    let answer = match (words.next()?, words.next()) {
        ("a", None) => CallAnswer::LetThrough,
        ("r", Some(why)) => why.parse().map_or_else(
            |_| CallAnswer::ByPolicy(why.to_owned()),
            CallAnswer::Refused,
        ),
        _ => return None,
    };
    Some(PlayerLine::Call {
        index,
        wall_us,
        monotonic_ns,
        answer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_events_are_read_back() {
        let code: Code = "3-18250-0-1".parse().expect("a code");
        assert_eq!(
            parse_seen("7 10 20 r 3-18250-0-1"),
            Some(PlayerLine::Call {
                index: 7,
                wall_us: 10,
                monotonic_ns: 20,
                answer: CallAnswer::Refused(code)
            })
        );
        assert_eq!(
            parse_seen("7 10 20 r blind"),
            Some(PlayerLine::Call {
                index: 7,
                wall_us: 10,
                monotonic_ns: 20,
                answer: CallAnswer::ByPolicy("blind".into())
            })
        );
        assert_eq!(
            parse_seen("h 5 3-18250-0-1"),
            Some(PlayerLine::Heard {
                monotonic_ns: 5,
                code
            })
        );
        assert_eq!(parse_seen("7 10 20 x"), None);
    }
}
