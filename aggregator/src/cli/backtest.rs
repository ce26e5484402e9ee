//! `tollgate backtest`: plays recorded traffic against other limits.
//!
//! ```text
//! tollgate backtest --limits now.toml --limits then.toml access.log.xz
//! tollgate backtest --limits now.toml --csv calls.csv --format json
//! tollgate backtest --limits then.toml --journal ./tollgate-data --suggest 0.1% --html page.html
//! ```
//!
//! Refusals are the expected result, so a backtest with refusals exits with 0.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use tollgate_limits::Limits;
use tollgate_shared::keyring::Keyring;
use tollgate_shared::time::{Span, Timestamp};

use super::backtest_follow as follow;
use super::backtest_limits::{self, Document};
use super::backtest_progress::Progress;
use super::backtest_remarks;
use super::form_args::{FormArgs, Stamps};
use super::logs::{self, LogArgs, RangeArgs, ThreadsArgs};
use super::output::{Format, Output};
use super::{Global, input_name};
use crate::exit::{Exit, Failure};
use tollgate_replay::backtest::copies::CopiesLeftOut;
use tollgate_replay::backtest::html;
use tollgate_replay::backtest::inputs::Inputs;
use tollgate_replay::backtest::log::{self, LogFault, SeenAttempts};
use tollgate_replay::backtest::read::{self, Input, ReadFault, Recording, RowReading};
use tollgate_replay::backtest::replay::{self, PlayedFile};
use tollgate_replay::backtest::report::{BacktestReport, ResultReport};
use tollgate_replay::backtest::suggest::{ShareE9, Suggestion, suggest};
use tollgate_replay::backtest::table;
use tollgate_replay::backtest::tape::PlayOrder;
use tollgate_replay::backtest::trace::{Trace, trace};
use tollgate_replay::range::{Point, Range};
use tollgate_replay::source;
use tollgate_replay::traffic::FileKind;

/// The resource of requests that name none.
const RESOURCE: &str = "http.requests";

/// What `backtest` takes.
#[derive(Debug, clap::Args)]
#[command(mut_args(of_files))]
pub struct BacktestArgs {
    /// Recorded traffic: access logs of most servers, CSV, JSON, recognised by their first lines; also compressed
    /// with gzip, xz, zstd or bzip2; `-` is stdin
    #[arg(value_name = "FILE", conflicts_with = "log")]
    pub files: Vec<PathBuf>,
    /// Access logs
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub access_log: Vec<PathBuf>,
    /// CSV with the columns t, resource, domain, copies, min
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub csv: Vec<PathBuf>,
    /// JSON, one object a line or an array of them, with the members t, resource, domain, copies, min
    #[arg(long, value_name = "FILE", conflicts_with = "log")]
    pub jsonl: Vec<PathBuf>,
    /// How the files are read
    #[command(flatten)]
    pub form: FormArgs,
    /// A limits document; may be repeated: further documents are compared with the first
    #[arg(
        id = "limits",
        long = "limits",
        env = "TOLLGATE_LIMITS",
        value_name = "FILE",
        action = clap::ArgAction::Append
    )]
    pub limits: Vec<PathBuf>,
    /// The resource of rows without a resource [default: http.requests]; rows of other resources are skipped
    #[arg(long, value_parser = super::operator::name)]
    pub resource: Option<String>,
    /// The domain of rows without a domain; rows of other domains are skipped
    #[arg(long, value_parser = super::operator::domain)]
    pub domain: Option<String>,
    /// The fewest copies that are of use to a row without a `min` [default: all copies of the row]
    #[arg(long, value_name = "COPIES")]
    pub min: Option<NonZeroU32>,
    /// Plays calls in the order of the recording, not of their timestamps. Time never goes back on a resource:
    /// a call stamped before an earlier one, of whatever domain, is played at that one's instant. Not for a log, in which
    /// each partition has its own order
    #[arg(long, conflicts_with = "log")]
    pub as_recorded: bool,
    /// Fails if a row cannot be read
    #[arg(long)]
    pub strict: bool,
    /// On how many threads.
    #[command(flatten)]
    pub threads: ThreadsArgs,
    /// Finds the lowest limits that refuse at most this share of the calls, as in 0.1%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub suggest: Option<ShareE9>,
    /// Also writes an HTML page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The pair whose tiers the page shows [default: the most refused one]
    #[arg(long, num_args = 2, value_names = ["RESOURCE", "DOMAIN"], requires = "html",
        value_parser = super::operator::domain)]
    pub pair: Vec<String>,
    /// How many pairs each list shows
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    /// Follows the log from now on (or from `--from` on) until it is interrupted
    #[arg(long, requires = "log", conflicts_with_all = ["html", "suggest", "strict"])]
    pub follow: bool,
    /// With `--follow`: how often to report
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = super::values::some_span)]
    pub every: Span,
    /// With `--follow`: ends after this time
    #[arg(long = "for", value_name = "SPAN", requires = "follow", value_parser = super::values::span)]
    pub lasts: Option<Span>,
    /// A log of Tollgate in place of files
    #[command(flatten)]
    pub log: LogArgs,
    /// A part of the recording: of a log by append time or record, of files by their stamps
    #[command(flatten)]
    pub range: RangeArgs,
}

/// Arguments about a form require files. Columns and units have defaults, so a log does not conflict with them.
fn of_files(arg: clap::Arg) -> clap::Arg {
    match arg.get_id().as_str() {
        "log_format" | "client" | "trusted_proxies" | "addresses" | "time_format" => {
            arg.conflicts_with("log")
        }
        "stamps" => arg.conflicts_with_all(["log", "as_recorded"]),
        _ => arg,
    }
}

/// A share in percent.
fn share(text: &str) -> Result<ShareE9, &'static str> {
    const EXPECTED: &str = "expected a share from 0% to below 100%, as in 0.1%";
    let number = text.strip_suffix('%').ok_or(EXPECTED)?;
    let number: f64 = number.trim().parse().map_err(|_| EXPECTED)?;
    match (0.0..100.0).contains(&number) {
        true => Ok(ShareE9((number * 1e7).round() as u64)),
        false => Err(EXPECTED),
    }
}

/// Runs the command.
///
/// # Errors
///
/// If an input cannot be read, or is invalid.
pub fn run(global: &Global, args: &BacktestArgs) -> Result<Exit, Failure> {
    let range = args.range.range()?;
    let reading = reading(global, args, &range)?;
    let source = RecordingSource::of(global, args)?;
    let limits = backtest_limits::documents(global, args, source.log())?;
    if let (true, RecordingSource::Log(log)) = (args.follow, &source) {
        return follow::follow(global, args, &**log, range, &reading, &limits);
    }
    let mut output = global.open_output()?;
    let page = args.html.as_deref();
    let mut page = page
        .map(|path| Output::open_until_signal(Some(path), global.color))
        .transpose()?;
    let progress = Progress::new(global.quiet);
    let keys = args.log.keys()?;
    let copies = CopiesLeftOut::new(limits.iter().map(|document| &document.limits));
    let (recording, seen) = source.read(&reading, (&range, &keys, copies), &progress)?;
    backtest_limits::expect_configured(&recording, &limits, &reading)?;
    backtest_remarks::print(&recording, &limits, &reading);
    let played = play(&recording, &limits, &args.threads, &progress)?;
    let suggestions = suggestions(args, &recording, &limits, &progress)?;
    let inputs = Inputs::new(source.names(), &recording, seen, reading.order);
    let results = results(args, &recording, &limits, &played);
    let report = BacktestReport::new(inputs, results, suggestions);
    if let Some(mut page) = page.take() {
        let traces = traces(global, args, &recording, &limits, &played)?;
        page.line(html::page(&report, &traces).trim_end())?;
        page.finish()?;
    }
    progress.end();
    match global.format {
        Format::Json => output.json(&report)?,
        Format::Text => output.line(table::page(&report).trim_end())?,
    }
    output.finish()?;
    Ok(Exit::Done)
}

pub(super) fn usage(text: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("backtest: {text}"))
}

/// The failure of the command if a log cannot be read.
pub(super) fn log_failure(fault: LogFault) -> Failure {
    match fault {
        LogFault::Read(fault) => failure(fault),
        LogFault::Log(error) => logs::failure(error),
        other => Failure::Data(other.to_string()),
    }
}

/// The instants between which calls of files have to be stamped; offsets are only valid for a log.
fn stamps(args: &BacktestArgs, range: &Range) -> Result<(Stamp, Stamp), Failure> {
    let of_log = args.log.is_named();
    let instant = |flag: &str, point: Option<Point>| match point {
        Some(Point::At(at)) if !of_log => Ok(Some(at)),
        Some(Point::Offset { .. }) if !of_log => Err(usage(format_args!(
            "{flag}: files have no partitions and offsets: expected an instant"
        ))),
        _ => Ok(None),
    };
    Ok((instant("--from", range.from)?, instant("--to", range.to)?))
}

type Stamp = Option<Timestamp>;

fn reading(global: &Global, args: &BacktestArgs, range: &Range) -> Result<RowReading, Failure> {
    Ok(RowReading {
        resource: args.resource.clone().unwrap_or_else(|| RESOURCE.to_owned()),
        only_resource: args.resource.clone(),
        only_domain: match args.log.is_named() {
            true => global.domain(args.domain.as_ref())?,
            false => args.domain.clone(),
        },
        wanted: args.form.wanted().map_err(usage)?,
        spread: args.form.stamps == Stamps::Spread,
        min: args.min,
        order: match args.as_recorded {
            true => PlayOrder::Recorded,
            false => PlayOrder::Stamps,
        },
        strict: args.strict,
        stamps: stamps(args, range)?,
    })
}

/// The source of the recording.
enum RecordingSource {
    Files(Vec<Input>),
    Log(Arc<dyn source::Source>),
}

impl RecordingSource {
    fn of(global: &Global, args: &BacktestArgs) -> Result<Self, Failure> {
        let LogArgs {
            journal,
            kafka,
            export,
            ..
        } = &args.log;
        if journal.is_some() || kafka.is_some() || export.is_some() {
            return Ok(Self::Log(args.log.open(global)?));
        }
        let of_kind = |paths: &[PathBuf], kind| -> Vec<Input> {
            let input = |path: &PathBuf| Input {
                path: path.clone(),
                name: input_name(path),
                kind,
            };
            paths.iter().map(input).collect()
        };
        let inputs = [
            of_kind(&args.files, None),
            of_kind(&args.access_log, Some(FileKind::AccessLog)),
            of_kind(&args.csv, Some(FileKind::Csv)),
            of_kind(&args.jsonl, Some(FileKind::JsonLines)),
        ]
        .concat();
        match inputs.is_empty() {
            true => Err(usage(
                "expected recorded traffic: a file, --access-log, --csv, --jsonl, --journal, --kafka or --export",
            )),
            false => Ok(Self::Files(inputs)),
        }
    }

    fn log(&self) -> Option<&dyn source::Source> {
        match self {
            Self::Files(_) => None,
            Self::Log(log) => Some(&**log),
        }
    }

    fn names(&self) -> Vec<String> {
        match self {
            Self::Files(inputs) => inputs.iter().map(|input| input.name.clone()).collect(),
            Self::Log(log) => vec![log.name()],
        }
    }

    fn read(
        &self,
        reading: &RowReading,
        of_log: (&Range, &Keyring, CopiesLeftOut),
        progress: &Progress,
    ) -> Result<(Recording, Option<SeenAttempts>), Failure> {
        let rows = |rows| progress.rows(rows);
        match self {
            Self::Files(inputs) => match read::read(inputs, reading, &rows) {
                Ok(recording) => Ok((recording, None)),
                Err(fault) => Err(failure(fault)),
            },
            Self::Log(log) => match log::read(&**log, reading, of_log, &rows) {
                Ok((recording, seen)) => Ok((recording, Some(seen))),
                Err(fault) => Err(log_failure(fault)),
            },
        }
    }
}

/// Plays the recording against all documents, as many at once as there are threads.
fn play(
    recording: &Recording,
    limits: &[Document],
    threads: &ThreadsArgs,
    progress: &Progress,
) -> Result<Vec<PlayedFile>, Failure> {
    let calls = recording.tape.extent().entries;
    progress.play(calls.saturating_mul(limits.len() as u64));
    let threads = threads.count();
    let mut played = Vec::with_capacity(limits.len());
    for documents in limits.chunks(threads) {
        let results = std::thread::scope(|scope| {
            let play = |document: &Document| {
                let (tape, pairs) = (&recording.tape, &recording.pairs);
                let shards = threads / documents.len();
                replay::play(tape, pairs, &document.limits, shards, &|calls| {
                    progress.calls(calls)
                })
            };
            let playing: Vec<_> = documents
                .iter()
                .map(|document| scope.spawn(move || play(document)))
                .collect();
            let joined = playing.into_iter().map(|thread| thread.join());
            joined.collect::<Vec<_>>()
        });
        for result in results {
            let result = result.map_err(|_| Failure::Bug("a replay panicked".to_owned()))?;
            played.push(result.map_err(temporary)?);
        }
    }
    Ok(played)
}

fn suggestions(
    args: &BacktestArgs,
    recording: &Recording,
    limits: &[Document],
    progress: &Progress,
) -> Result<Vec<Suggestion>, Failure> {
    let Some(share) = args.suggest else {
        return Ok(Vec::new());
    };
    progress.search();
    let tried = limits.iter().map(|of| (&*of.name, &of.limits));
    let tried: Vec<(&str, &Limits)> = tried.collect();
    let (tape, pairs) = (&recording.tape, &recording.pairs);
    let found = suggest(tape, pairs, &tried, share, &|calls| progress.calls(calls));
    let found = found.map_err(temporary)?;
    backtest_remarks::print_unsuggested(recording, limits, &found);
    Ok(found.found)
}

fn results(
    args: &BacktestArgs,
    recording: &Recording,
    limits: &[Document],
    played: &[PlayedFile],
) -> Vec<ResultReport> {
    let result = |(number, document): (usize, &Document)| {
        let first = (0 < number).then(|| (&*limits[0].name, &played[0]));
        let pairs = &recording.pairs;
        ResultReport::new(&document.name, &played[number], first, pairs, args.limit)
    };
    limits.iter().enumerate().map(result).collect()
}

/// For each result, what happened to the requested pair, or else to the most refused one.
fn traces(
    global: &Global,
    args: &BacktestArgs,
    recording: &Recording,
    limits: &[Document],
    played: &[PlayedFile],
) -> Result<Vec<Option<Trace>>, Failure> {
    let (tape, pairs) = (&recording.tape, &recording.pairs);
    let stated = match &*args.pair {
        [resource, domain] => {
            let called = match args.log.is_named() {
                true => global.domain(Some(domain))?.unwrap_or_default(),
                false => domain.clone(),
            };
            Some(pairs.find(resource, &called).ok_or_else(|| {
                Failure::Data(format!(
                    "--pair {resource} {domain}: there are no calls on it"
                ))
            })?)
        }
        _ => None,
    };
    let of_result = |(document, played): (&Document, &PlayedFile)| {
        let tallies = played.pairs.iter().enumerate();
        let worst = tallies.max_by_key(|(number, of)| {
            let first = std::cmp::Reverse(*number);
            (of.refused(), of.asked.calls, first)
        });
        let worst = worst.map(|(number, _)| number as u32);
        let Some(number) = stated.or(worst) else {
            return Ok(None);
        };
        let tally = &played.pairs[number as usize];
        trace(tape, pairs, &document.limits, number, tally).map_err(temporary)
    };
    limits.iter().zip(played).map(of_result).collect()
}

fn temporary(source: std::io::Error) -> Failure {
    failure(ReadFault::Temporary(source))
}

/// The failure of a command whose files cannot be read.
pub(super) fn failure(fault: ReadFault) -> Failure {
    match fault {
        ReadFault::Open { name, source } => Failure::Input { name, source },
        ReadFault::Io { name, line, source } => Failure::Io {
            name: format!("{name}: line {line}"),
            source,
        },
        ReadFault::Temporary(source) => Failure::Io {
            name: "temporary file".to_owned(),
            source,
        },
        fault => Failure::Data(fault.to_string()),
    }
}
