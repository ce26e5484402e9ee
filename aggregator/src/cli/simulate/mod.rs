//! `tollgate simulate`: plays requests against limits, without an aggregator, in simulated time.
//!
//! ```text
//! --cases FILE…|-                       test vectors, one per line, each printed with its results, and compared
//! --limits FILE --resource R --at …     a picture of the tiers over time
//! --limits FILE --resource R --rate 20/s --for 10s
//! ```

mod cases;
pub(crate) mod play;

use std::path::PathBuf;

use tollgate_limits::{Limits, Rate};
use tollgate_shared::escape::escaped;
use tollgate_shared::time::Span;

use super::backtest_remarks::{print_idle, print_unzoned};
use super::output::Format;
use super::{Global, input_name, read_input, values};
use crate::exit::{Exit, Failure};
use play::Requests;
use tollgate_replay::picture::{self, Played};
use tollgate_replay::range::Utc;

/// The most requests that are played for a picture.
const REQUESTS_MAX: u64 = 1_000_000;

/// What `simulate` takes.
#[derive(Debug, clap::Args)]
pub struct SimulateArgs {
    /// Plays test cases, one JSON object a line; `-` is stdin. The command exits with 1 if a result is not as its
    /// case expects
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["resource", "at", "rate"])]
    pub cases: Vec<PathBuf>,
    /// The resource (with --limits)
    #[arg(long, value_parser = super::operator::name)]
    pub resource: Option<String>,
    /// The domain
    #[arg(long, default_value = "somebody", value_parser = super::operator::domain)]
    pub domain: String,
    /// The instants of the requests, as in 0s,0.1s,2s, after 2024-01-01T00:00:00Z, a Monday
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = values::instant)]
    pub at: Vec<Span>,
    /// The rate of requests, evenly spaced, as in 20/s
    #[arg(long, value_parser = values::rate, conflicts_with = "at")]
    pub rate: Option<Rate>,
    /// For how long requests are made, as in 10s
    #[arg(long = "for", value_name = "SPAN", value_parser = values::span, requires = "rate")]
    pub lasting: Option<Span>,
    /// How many hits each request asks for
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub copies: u64,
    /// The fewest hits that are of use to a request; with room for fewer it is refused
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub min: u64,
}

/// Runs the command. A picture with refusals exits with 0, since they are its purpose.
///
/// # Errors
///
/// If an input cannot be read or is invalid, or the command line asks for too much or too little.
pub fn run(global: &Global, args: &SimulateArgs) -> Result<Exit, Failure> {
    if !args.cases.is_empty() {
        return cases::run(global, &args.cases);
    }
    let usage = |text: &str| Failure::Usage(format!("simulate: {text}"));
    let (Some(file), Some(resource)) = (&global.limits, &args.resource) else {
        return Err(usage(
            "expected --cases FILE, or --limits FILE with --resource R",
        ));
    };
    if args.copies < args.min {
        return Err(usage("--min is above --copies"));
    }
    let requests = Requests {
        at: instants(args)?,
        copies: args.copies,
        min: args.min,
    };
    let name = input_name(file);
    let limits = Limits::parse(&read_input(file)?)
        .map_err(|faults| Failure::Data(faults.in_file(&name).to_string()))?;
    let Some(played) = play::play(&limits, resource, &args.domain, &requests) else {
        return Err(Failure::Data(format!(
            "{name}: no limits on the rate of \"{}\", expected one of: {}",
            escaped(resource),
            rates(&limits)
        )));
    };
    print_idle(
        &name,
        &limits,
        std::iter::once(&**resource),
        "picture shows",
    );
    if let Some(last) = played
        .steps
        .last()
        .filter(|_| !played.class.quotas.is_empty())
    {
        remark!(
            "quotas count from {} on, when simulated time begins",
            Utc(play::ORIGIN)
        );
        print_unzoned(&name, [&played.class], (play::ORIGIN, last.at));
    }
    let of_all = limits.rate(resource).and_then(|rate| rate.global());
    print(global, &played, of_all)
}

fn print(global: &Global, played: &Played, of_all: Option<u64>) -> Result<Exit, Failure> {
    let mut output = global.open_output()?;
    match global.format {
        Format::Json => output.json(&play::report(played, of_all))?,
        Format::Text => {
            let coloured = output.is_coloured();
            output.coloured(picture::draw(played, coloured).trim_end())?;
        }
    }
    output.finish()?;
    Ok(Exit::Done)
}

fn rates(limits: &Limits) -> String {
    let names = limits.rates().map(|rate| escaped(rate.name()).to_string());
    let names: Vec<String> = names.collect();
    match names.len() {
        0 => "(none)".to_owned(),
        _ => names.join(", "),
    }
}

fn instants(args: &SimulateArgs) -> Result<Vec<Span>, Failure> {
    let usage = |text: String| Failure::Usage(format!("simulate: {text}"));
    match (&args.rate, &args.lasting) {
        (Some(rate), Some(lasting)) => {
            let per_unit = u128::from(rate.window.as_micros());
            let hits = u128::from(rate.hits);
            let count = hits * u128::from(lasting.as_micros()) / per_unit;
            if count == 0 || u128::from(REQUESTS_MAX) < count {
                return Err(usage(format!(
                    "--rate and --for make {count} requests, expected 1 to {REQUESTS_MAX}"
                )));
            }
            // Each at its exact time, rounded down, so that errors do not add up.
            let at = |n: u128| Span::from_micros((n * per_unit / hits) as u64);
            Ok((0..count).map(at).collect())
        }
        (Some(_), None) => Err(usage("--rate needs --for".to_owned())),
        (None, _) if args.at.is_empty() => {
            Err(usage("expected --at, or --rate and --for".to_owned()))
        }
        (None, _) => {
            let mut at = args.at.clone();
            at.sort_unstable();
            Ok(at)
        }
    }
}
