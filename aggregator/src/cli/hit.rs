//! `tollgate hit`: an agent on the command line, so that the limiter can be tried without writing code.
//!
//! It uses the agent that services link, with all its properties: it decides by its deny list, so hits that it lets
//! through before a denial arrives are excess. Therefore hits are made one after the other, and not all at once. With
//! `--hold`, each takes a copy of a copy-limited resource, and holds it for a while.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tollgate_agent::{Agent, Cause, Copies, Denied, Hold, Misuse, Rate, Refused, Scope, Stats};
use tollgate_limits::{self, print_span};
use tollgate_shared::time::Span;

use super::agent_args::AgentArgs;
use super::output::{Format, Output};
use super::{Global, values};
use crate::exit::{Exit, Failure};
use tollgate_server::config::{LogFormat, Telemetry};
use tollgate_server::telemetry;

/// The time between hits without `--rate`: far longer than a denial takes on one machine.
const PAUSE: Duration = Duration::from_millis(20);

/// How long to wait for a copy of a strict resource.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);

/// How long the agent may take at the end to send what it recorded.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The same if no aggregator answered at the start: one may be back by now.
const FLUSH_MAX_BLIND: Duration = Duration::from_millis(500);

/// What `hit` takes.
#[derive(Debug, clap::Args)]
pub struct HitArgs {
    /// The resource
    #[arg(value_parser = super::operator::name)]
    pub resource: String,
    /// The domain
    #[arg(value_parser = super::operator::domain)]
    pub domain: String,
    /// How many hits to make: one every 20 ms, or at the rate of --rate
    #[arg(short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// How often to make hits, as in 20/s
    #[arg(long, value_parser = values::rate)]
    pub rate: Option<tollgate_limits::Rate>,
    /// For how long (in place of -n), as in 10s
    #[arg(long = "for", value_name = "SPAN", value_parser = values::span, requires = "rate", conflicts_with = "count")]
    pub lasting: Option<Span>,
    /// Takes a copy in place of each hit, and holds it for this long, as in 5s
    #[arg(long, value_name = "SPAN", value_parser = values::span)]
    pub hold: Option<Span>,
    /// How the agent reaches the fleet.
    #[command(flatten)]
    pub agent: AgentArgs,
    /// How long to wait for an aggregator before giving up
    #[arg(long, value_name = "SPAN", default_value = "3s", value_parser = values::span)]
    pub wait: Span,
    /// Continues if no aggregator can be reached, and lets hits through as a service would
    #[arg(long)]
    pub blind: bool,
}

/// Runs the command. If any hit was refused, it exits with 1; else, if hits could not be sent, with 69.
///
/// # Errors
///
/// If no aggregator can be reached, or the command line is invalid.
pub fn run(global: &Global, args: &HitArgs) -> Result<Exit, Failure> {
    // The agent reports problems with Kafka only in its log.
    let telemetry = Telemetry {
        log: "warn".to_owned(),
        log_format: LogFormat::Text,
    };
    telemetry::start(&telemetry, global.quiet, global.verbose)?;
    let agent = args.agent.build(global, "hit")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Failure::Io {
            name: "runtime".to_owned(),
            source,
        })?;
    let mut output = global.open_handled_output()?;
    let exit = runtime.block_on(async {
        let exit = hits(&agent, args, global.format, &mut output).await;
        let is_ready = agent.ready(Duration::ZERO).await;
        let flushed = agent
            .shutdown(if is_ready { FLUSH_MAX } else { FLUSH_MAX_BLIND })
            .await;
        if 0 < flushed.dropped {
            remark!("tollgate: {} hits were not sent in time", flushed.dropped);
        }
        exit.map(|exit| ended(exit, flushed.dropped, args.blind))
    })?;
    output.finish()?;
    Ok(exit)
}

/// How the command ends: what was not sent is counted nowhere, which `--blind` accepts.
fn ended(exit: Exit, dropped: u64, blind: bool) -> Exit {
    match exit {
        Exit::Done if 0 < dropped && !blind => Exit::Unavailable,
        exit => exit,
    }
}

async fn hits(
    agent: &Agent,
    args: &HitArgs,
    format: Format,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let catch = |kind| {
        signal(kind).map_err(|source| Failure::Io {
            name: "signals".to_owned(),
            source,
        })
    };
    let mut interrupt = catch(SignalKind::interrupt())?;
    let mut terminate = catch(SignalKind::terminate())?;
    let mut door = Door::new(agent, args);
    let ready = tokio::select! {
        ready = agent.ready(args.wait.to_std()) => ready,
        _ = interrupt.recv() => return Ok(Exit::Interrupted),
        _ = terminate.recv() => return Ok(Exit::Terminated),
    };
    if !ready && !args.blind {
        return Err(not_ready(&agent.stats(), args));
    }
    let (count, every) = schedule(args);
    let began = Instant::now();
    let mut sum = HitSum::default();
    for n in 0..count {
        // Relative to the start, so that delays do not add up.
        let at = began + every.mul_f64(n as f64);
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            _ = interrupt.recv() => return Ok(Exit::Interrupted),
            _ = terminate.recv() => return Ok(Exit::Terminated),
        }
        let answer = door.call().await?;
        sum.count(&answer);
        let shown = ShownAnswer::new(n + 1, began.elapsed(), args, &answer);
        match format {
            Format::Json => output.json(&shown)?,
            Format::Text => output.line(shown.sentence())?,
        }
        output.flush()?;
    }
    tokio::select! {
        () = door.close() => {}
        _ = interrupt.recv() => return Ok(Exit::Interrupted),
        _ = terminate.recv() => return Ok(Exit::Terminated),
    }
    if format == Format::Text && 1 < count {
        output.line(format!("{} allowed, {} refused", sum.allowed, sum.refused))?;
    }
    Ok(if sum.refused == 0 {
        Exit::Done
    } else {
        Exit::No
    })
}

/// The failure to hear of all partitions in time.
fn not_ready(stats: &Stats, args: &HitArgs) -> Failure {
    let why = unreachable(stats, &args.agent.addresses(), &print_span(args.wait));
    let text = format!("hit: {why}; --blind continues without");
    match stats.welcomes == 0 && 0 < stats.connections_refused {
        true => Failure::Log {
            exit: Exit::NotAuthorised,
            text,
        },
        false => Failure::Unavailable(text),
    }
}

/// Why the agent received no watermarks of its partitions from the aggregators `at` these addresses.
fn unreachable(stats: &Stats, at: &str, within: &str) -> String {
    match (stats.welcomes, stats.feeds_opened) {
        (0, _) if 0 < stats.connections_refused => format!(
            "within {within} no aggregator at {at} admitted this agent, or none has a certificate that this agent trusts (see \
             the error above)"
        ),
        (0, _) => format!("no aggregator answers at {at} within {within}"),
        (_, 0) => format!(
            "an aggregator answers at {at}, but its feed cannot be reached within {within} (does listen.advertise name an \
             address that can be reached from here, and is listen.feed open?)"
        ),
        _ => format!(
            "aggregators answer at {at}, but within {within} not for all partitions (see their /readyz)"
        ),
    }
}

/// Let through, and whether the agent was blind; or refused.
type Called = Result<bool, Denied>;

/// The calls to make: hits, or copies that are held for a while.
enum Door<'a> {
    Rate(Rate, &'a str),
    Copies {
        copies: Copies,
        domain: &'a str,
        hold_for: Duration,
        held: VecDeque<(Instant, Hold)>,
    },
}

impl<'a> Door<'a> {
    fn new(agent: &Agent, args: &'a HitArgs) -> Self {
        match args.hold {
            None => Self::Rate(agent.rate(&args.resource), &args.domain),
            Some(span) => Self::Copies {
                copies: agent.copies(&args.resource),
                domain: &args.domain,
                hold_for: span.to_std(),
                held: VecDeque::new(),
            },
        }
    }

    /// Makes the next call. Holds that are due are released before it.
    async fn call(&mut self) -> Result<Called, Failure> {
        let (copies, domain, hold_for, held) = match self {
            Self::Rate(rate, domain) => return Ok(rate.hit(domain).map(|allowed| allowed.blind())),
            Self::Copies {
                copies,
                domain,
                hold_for,
                held,
            } => (copies, domain, *hold_for, held),
        };
        while held
            .front()
            .is_some_and(|(until, _)| *until <= Instant::now())
        {
            held.pop_front();
        }
        let taken = match copies.reserve(domain, 1) {
            Err(Refused::Misuse(Misuse::Strict)) => {
                copies.reserve_confirmed(domain, 1, CONFIRMED_WITHIN).await
            }
            taken => taken,
        };
        match taken {
            Ok(hold) => {
                held.push_back((Instant::now() + hold_for, hold));
                Ok(Ok(false))
            }
            Err(Refused::Denied(denied)) => Ok(Err(denied)),
            Err(fault) => Err(Failure::Usage(format!(
                "hit: --hold: {}: {fault}",
                copies.resource()
            ))),
        }
    }

    /// Waits until the last hold is due.
    async fn close(&mut self) {
        if let Self::Copies { held, .. } = self {
            while let Some((until, hold)) = held.pop_front() {
                tokio::time::sleep_until(until).await;
                drop(hold);
            }
        }
    }
}

/// The number of hits, and the time between two.
fn schedule(args: &HitArgs) -> (u64, Duration) {
    let every = args
        .rate
        .map_or(PAUSE, |rate| rate.window.to_std().div_f64(rate.hits as f64));
    let count = match (&args.lasting, &args.rate) {
        (Some(lasting), Some(rate)) => {
            let hits = u128::from(rate.hits) * u128::from(lasting.as_micros());
            let hits = hits / u128::from(rate.window.as_micros());
            u64::try_from(hits).unwrap_or(u64::MAX).max(1)
        }
        _ => args.count,
    };
    (count, every)
}

#[derive(Default)]
struct HitSum {
    allowed: u64,
    refused: u64,
}

impl HitSum {
    fn count(&mut self, answer: &Called) {
        match answer {
            Ok(_) => self.allowed += 1,
            Err(_) => self.refused += 1,
        }
    }
}

/// An answer, as it is printed.
#[derive(Serialize)]
struct ShownAnswer<'a> {
    schema: &'static str,
    number: u64,
    since_start_us: u64,
    resource: &'a str,
    domain: &'a str,
    allowed: bool,
    blind: bool,
    scope: Option<&'static str>,
    cause: Option<String>,
    retry_after_us: Option<u64>,
    code: Option<String>,
}

impl<'a> ShownAnswer<'a> {
    fn new(number: u64, since_start: Duration, args: &'a HitArgs, answer: &Called) -> Self {
        let denied = answer.as_ref().err();
        Self {
            schema: "tollgate.hit/1",
            number,
            since_start_us: Span::from_std(since_start).as_micros(),
            resource: &args.resource,
            domain: &args.domain,
            allowed: answer.is_ok(),
            blind: answer.is_ok_and(|blind| blind),
            scope: denied.map(|denied| match denied.scope() {
                Scope::Pair => "pair",
                Scope::Resource => "resource",
                _ => "other",
            }),
            cause: denied.map(|denied| denied.cause().to_string()),
            retry_after_us: denied
                .and_then(Denied::retry_after)
                .map(|wait| Span::from_std(wait).as_micros()),
            code: denied.and_then(Denied::code).map(|code| code.to_string()),
        }
    }

    fn sentence(&self) -> String {
        let at = format!("{:>9.3}s", self.since_start_us as f64 / 1e6);
        if self.allowed {
            let blind = if self.blind { " (blind)" } else { "" };
            return format!("{at}  allowed{blind}");
        }
        let mut line = format!(
            "{at}  refused: {}",
            self.cause.as_deref().unwrap_or("unknown")
        );
        if self.cause == Some(Cause::NotRate.to_string()) {
            return line + "; the resource is limited by copies: expected --hold";
        }
        match self.retry_after_us {
            Some(wait) => line += &format!(", open again in {:.3}s", wait as f64 / 1e6),
            None => line += ", end unknown",
        }
        if let Some(code) = &self.code {
            line += &format!(", code {code}");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_no_aggregator_was_reached_names_addresses_and_time() {
        let text = |stats: &Stats| unreachable(stats, "10.0.0.7:7401", "3s");
        let mut stats = Stats::default();
        assert_eq!(
            text(&stats),
            "no aggregator answers at 10.0.0.7:7401 within 3s"
        );
        stats.connections_refused = 1;
        assert_eq!(
            text(&stats),
            "within 3s no aggregator at 10.0.0.7:7401 admitted this agent, or none has a certificate that this agent trusts \
             (see the error above)"
        );
        stats.welcomes = 1;
        assert!(text(&stats).contains("its feed cannot be reached within 3s (does"));
        stats.feeds_opened = 1;
        assert!(text(&stats).contains("but within 3s not for all partitions"));
    }

    #[test]
    fn hits_that_were_not_sent_are_no_success() {
        assert_eq!(ended(Exit::Done, 0, false), Exit::Done);
        assert_eq!(ended(Exit::Done, 3, false), Exit::Unavailable);
        assert_eq!(ended(Exit::Done, 3, true), Exit::Done, "--blind accepts it");
        assert_eq!(ended(Exit::No, 3, false), Exit::No);
        assert_eq!(ended(Exit::Interrupted, 3, false), Exit::Interrupted);
    }
}
