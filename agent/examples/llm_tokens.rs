//! A service in front of a language model, which charges each call's tokens: by an estimate before the call, and by
//! what was used after it. Replays a trace of calls against a running fleet, and compares with the limit.
//!
//! ```text
//! tollgate serve --limits limits.toml          [rate."llm.tokens"] windows = ["2000000/10s"]
//! TOLLGATE_AGGREGATORS=127.0.0.1:7401 \
//!     cargo run --release -p tollgate-agent --example llm_tokens -- trace.csv 60 2000000 10 4
//! ```
//!
//! Arguments: the trace, how many times as fast it is replayed, the limit's tokens, its window in seconds, and how
//! many agents share the calls. The trace has a header and the columns `TIMESTAMP` (`2023-11-16 18:17:03.9799600`),
//! `ContextTokens` and `GeneratedTokens`, oldest first.
//!
//! Checks that in any span of the window the fleet used at most the limit, what was offered within one denial delay,
//! and one call of each agent. Costs beyond an estimate count, but are known too late to be refused, so they are
//! reported separately.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::error::Error;
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Estimate, Refused, Settled};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const RESOURCE: &str = "llm.tokens";
const DOMAIN: &str = "acme";
/// The estimate of an answer, whose length is not known in advance.
const ANSWER_TOKENS: u32 = 256;
/// How long the model takes for a token.
const TOKEN_US: u64 = 20_000;
/// The time after a call within which every agent is assumed to refuse because of it.
const DELAY_US: u64 = 50_000;

/// The arguments of the command line.
struct Replay {
    speed: u64,
    limit: u64,
    window_us: u64,
    agents: usize,
}

/// One call of the trace.
#[derive(Clone, Copy)]
struct Call {
    /// Microseconds after the first one, sped up.
    at_us: u64,
    context: u32,
    generated: u32,
}

/// A use of the pair: tokens at an instant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Used {
    at_us: u64,
    tokens: u64,
    /// Whether the tokens were beyond an estimate.
    is_late: bool,
}

/// The results of an agent's calls.
#[derive(Default)]
struct Seen {
    calls: u64,
    refused: u64,
    too_many: u64,
    estimated: u64,
    charged: u64,
    taken_back: u64,
    exact: u64,
    kept: u64,
    offered: Vec<(u64, u64)>,
    used: Vec<Used>,
}

/// A call that the model is answering, ordered by its end.
struct Answering {
    done_us: u64,
    at_us: u64,
    actual: u32,
    estimate: Estimate,
}

impl PartialEq for Answering {
    fn eq(&self, other: &Self) -> bool {
        self.done_us == other.done_us
    }
}
impl Eq for Answering {}
impl PartialOrd for Answering {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Answering {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.done_us.cmp(&other.done_us)
    }
}

fn main() -> Outcome<()> {
    let (trace, replay) = arguments()?;
    let calls = read(&std::fs::read_to_string(&trace)?, replay.speed)?;
    let agents: Vec<Agent> = (0..replay.agents)
        .map(|_| Agent::from_env())
        .collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for agent in &agents {
        if !runtime.block_on(agent.ready(Duration::from_secs(5))) {
            eprintln!("no aggregator answers: everything is let through");
        }
    }
    let begin = Instant::now();
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(&agents)
            .map(|(number, agent)| {
                let own: Vec<Call> = share(&calls, number, replay.agents);
                scope.spawn(move || offer(agent, &own, begin, replay.speed))
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .collect::<Result<Vec<Seen>, _>>()
            .map_err(|_| "an agent's thread has panicked")
    })?;
    report(&replay, seen);
    for agent in agents {
        runtime.block_on(agent.shutdown(Duration::from_secs(2)));
    }
    Ok(())
}

fn arguments() -> Outcome<(String, Replay)> {
    let mut words = std::env::args().skip(1);
    let trace = words
        .next()
        .ok_or("usage: llm_tokens TRACE.csv [SPEED [LIMIT [WINDOW_SECONDS [AGENTS]]]]")?;
    let mut number = |default: u64| words.next().map_or(Ok(default), |word| word.parse());
    let replay = Replay {
        speed: number(60)?.max(1),
        limit: number(2_000_000)?,
        window_us: number(10)?.max(1) * 1_000_000,
        agents: usize::try_from(number(4)?.max(1))?,
    };
    Ok((trace, replay))
}

/// The calls of a trace.
fn read(text: &str, speed: u64) -> Outcome<Vec<Call>> {
    let mut calls = Vec::new();
    let mut first_us = None;
    for (number, line) in text.lines().enumerate().skip(1) {
        let mut cells = line.trim().split(',');
        let (Some(at), Some(context), Some(generated)) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let at_us = instant_us(at).ok_or_else(|| format!("line {}: {at:?}", number + 1))?;
        let first_us = *first_us.get_or_insert(at_us);
        calls.push(Call {
            at_us: at_us.saturating_sub(first_us) / speed,
            context: context.parse()?,
            generated: generated.parse()?,
        });
    }
    Ok(calls)
}

/// Microseconds of `YEAR-MONTH-DAY HOUR:MINUTE:SECOND`, with any fraction, counted from a fixed day.
fn instant_us(text: &str) -> Option<u64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(str::parse::<u64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut time = time.splitn(3, ':');
    let (hour, minute) = (time.next()?.parse::<u64>(), time.next()?.parse::<u64>());
    let second: f64 = time.next()?.parse().ok()?;
    // Years that begin in March, so that a leap day is a year's last day.
    let (years, months) = match month {
        1 | 2 => (year.checked_sub(1)?, month + 9),
        3..=12 => (year, month - 3),
        _ => return None,
    };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day;
    let minutes = (24 * days + hour.ok()?) * 60 + minute.ok()?;
    Some(minutes * 60_000_000 + (second * 1e6) as u64)
}

/// The calls of one of `agents` agents.
fn share(calls: &[Call], number: usize, agents: usize) -> Vec<Call> {
    calls.iter().skip(number).step_by(agents).copied().collect()
}

/// Makes the calls at their instants, and settles each when the model has answered.
fn offer(agent: &Agent, calls: &[Call], begin: Instant, speed: u64) -> Seen {
    let tokens = agent.rate(RESOURCE);
    let mut seen = Seen::default();
    let mut answering: BinaryHeap<Reverse<Answering>> = BinaryHeap::new();
    for call in calls {
        while let Some(Reverse(next)) = answering.peek()
            && next.done_us <= call.at_us
        {
            settle_next(&mut answering, &mut seen, begin);
        }
        sleep_until(begin, call.at_us);
        let at_us = since(begin);
        let estimated = call.context + ANSWER_TOKENS;
        seen.calls += 1;
        seen.offered.push((at_us, u64::from(estimated)));
        match tokens.hit_estimated(DOMAIN, estimated) {
            Ok(estimate) => {
                seen.estimated += u64::from(estimated);
                answering.push(Reverse(Answering {
                    done_us: at_us + u64::from(call.generated) * TOKEN_US / speed,
                    at_us,
                    actual: call.context + call.generated,
                    estimate,
                }));
            }
            Err(Refused::TooMany(_)) => seen.too_many += 1,
            Err(_) => seen.refused += 1,
        }
    }
    while !answering.is_empty() {
        settle_next(&mut answering, &mut seen, begin);
    }
    seen
}

fn settle_next(answering: &mut BinaryHeap<Reverse<Answering>>, seen: &mut Seen, begin: Instant) {
    let Some(Reverse(next)) = answering.pop() else {
        return;
    };
    sleep_until(begin, next.done_us);
    let estimated = u64::from(next.estimate.copies());
    let mut counted = estimated;
    match next.estimate.settle(next.actual) {
        Ok(Settled::Charged(tokens)) => {
            seen.charged += u64::from(tokens);
            seen.used.push(Used {
                at_us: since(begin),
                tokens: u64::from(tokens),
                is_late: true,
            });
        }
        Ok(Settled::TakenBack(tokens)) => {
            seen.taken_back += u64::from(tokens);
            counted -= u64::from(tokens);
        }
        Ok(Settled::Exact) => seen.exact += 1,
        // The estimate stays charged.
        _ => seen.kept += 1,
    }
    seen.used.push(Used {
        at_us: next.at_us,
        tokens: counted,
        is_late: false,
    });
}

fn since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn sleep_until(begin: Instant, at_us: u64) {
    std::thread::sleep(Duration::from_micros(at_us.saturating_sub(since(begin))));
}

fn report(replay: &Replay, seen: Vec<Seen>) {
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let let_through = sum(|seen| seen.calls - seen.refused - seen.too_many);
    println!(
        "calls         {} offered, {let_through} let through, {} refused, {} of more than can ever be granted",
        sum(|seen| seen.calls),
        sum(|seen| seen.refused),
        sum(|seen| seen.too_many)
    );
    println!(
        "tokens        {} estimated; settled: {} charged beyond, {} taken back, {} calls exact, {} kept",
        sum(|seen| seen.estimated),
        sum(|seen| seen.charged),
        sum(|seen| seen.taken_back),
        sum(|seen| seen.exact),
        sum(|seen| seen.kept)
    );
    let mut offered: Vec<(u64, u64)> = seen.iter().flat_map(|s| s.offered.clone()).collect();
    let mut used: Vec<Used> = seen.iter().flat_map(|s| s.used.clone()).collect();
    offered.sort_unstable();
    used.sort_unstable();
    let call_max = offered.iter().map(|(_, tokens)| *tokens).max().unwrap_or(0);
    let within_delay = fullest(offered.iter().copied(), DELAY_US);
    let all = used.iter().map(|of| (of.at_us, of.tokens));
    let asked = used.iter().filter(|of| !of.is_late);
    let most_asked = fullest(asked.map(|of| (of.at_us, of.tokens)), replay.window_us);
    println!(
        "worst window  {} tokens in {} s, {most_asked} without what came beyond estimates; limit {}",
        fullest(all, replay.window_us),
        replay.window_us / 1_000_000,
        replay.limit
    );
    let one_call = call_max * replay.agents as u64;
    let bound = replay.limit + within_delay + one_call;
    println!(
        "allowed       {bound}: {} + {within_delay} offered within {} ms + {one_call} for a call of each agent: {}",
        replay.limit,
        DELAY_US / 1_000,
        if most_asked <= bound {
            "held"
        } else {
            "VIOLATED"
        }
    );
}

/// The most tokens that any span of this length has. A token leaves the span when now > token + length.
fn fullest(used: impl Iterator<Item = (u64, u64)>, length_us: u64) -> u64 {
    let mut inside = VecDeque::new();
    let (mut sum, mut most) = (0, 0);
    for (at_us, tokens) in used {
        while let Some(&(oldest_us, left)) = inside.front()
            && oldest_us + length_us < at_us
        {
            sum -= left;
            inside.pop_front();
        }
        inside.push_back((at_us, tokens));
        sum += tokens;
        most = most.max(sum);
    }
    most
}
