//! `tollgate audit`: replays a log and checks whether what was announced follows from it.
//!
//! ```text
//! --journal DIR                 all of a journal
//! --from -2h --to -1h           an hour of it
//! export … -o FILE              the same range as one portable file; `-o -`: on stdout
//! ```

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::Global;
use super::logs::{LogArgs, RangeArgs, ThreadsArgs, replay_failure};
use super::output::{Format, Output};
use crate::exit::{Exit, Failure};
use tollgate_replay::audit::audit;
use tollgate_replay::export::{ExportError, export};
use tollgate_replay::range::Range;
use tollgate_replay::source::nothing_in;
use tollgate_replay::tags::unchecked_line;
use tollgate_replay::work::{Model, Progress, Task};
use tollgate_shared::escape::escaped_lines;

/// What `audit` takes.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AuditArgs {
    /// A verb, or none.
    #[command(subcommand)]
    pub verb: Option<AuditVerb>,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
    /// The part of it.
    #[command(flatten)]
    pub range: RangeArgs,
    /// On how many threads.
    #[command(flatten)]
    pub threads: ThreadsArgs,
    /// The pairs that the independent model checks as well: all, none, or a share, as in 1%; auto: all pairs of a
    /// small log, a share of those of a large one
    #[arg(long, default_value = "auto", value_name = "SHARE", value_parser = model)]
    pub model: Model,
    /// How many differences to list at most
    #[arg(long, default_value_t = 100)]
    pub limit: usize,
}

/// What else can be done with a log.
#[derive(Debug, clap::Subcommand)]
pub enum AuditVerb {
    /// Writes a range of a log into one file with a digest (-o FILE), which other commands read like a log
    Export {
        /// The log.
        #[command(flatten)]
        log: LogArgs,
        /// The part of it.
        #[command(flatten)]
        range: RangeArgs,
        /// On how many threads.
        #[command(flatten)]
        threads: ThreadsArgs,
    },
}

/// Runs the command. Differences end it with 1, and so does a partition that was not audited.
///
/// # Errors
///
/// If the log cannot be read or ruled: then nothing is reported.
pub fn run(global: &Global, args: &AuditArgs) -> Result<Exit, Failure> {
    if let Some(AuditVerb::Export {
        log,
        range,
        threads,
    }) = &args.verb
    {
        return run_export(global, log, &task(log, range, threads)?);
    }
    let source = args.log.open(global)?;
    let task = Task {
        model: args.model,
        ..task(&args.log, &args.range, &args.threads)?
    };
    let progress = Progress::default();
    let mut report = watched(global, &progress, source.hits_bytes(), || {
        audit(&*source, &task, &progress)
    })
    .map_err(replay_failure)?;
    let is_empty = report.records == 0 && report.not_audited.is_empty();
    if is_empty && task.range != Range::default() {
        return Err(Failure::Data(nothing_in(&*source, &task.range)));
    }
    report.list(args.limit);
    let mut output = global.open_output()?;
    match global.format {
        Format::Text => output.line(&report)?,
        Format::Json => output.json(&report)?,
    }
    output.finish()?;
    Ok(if report.equal { Exit::Done } else { Exit::No })
}

fn task(log: &LogArgs, range: &RangeArgs, threads: &ThreadsArgs) -> Result<Task, Failure> {
    Ok(Task {
        range: range.range()?,
        keys: log.keys()?,
        threads: threads.count(),
        model: Model::None,
    })
}

fn model(text: &str) -> Result<Model, &'static str> {
    const EXPECTED: &str = "expected auto, all, none, or a share as in 1%";
    match text {
        "auto" => Ok(Model::Auto),
        "all" => Ok(Model::Share(1.0)),
        "none" => Ok(Model::None),
        _ => {
            let percent = text
                .strip_suffix('%')
                .and_then(|text| text.parse::<f64>().ok());
            let share = percent.map(|percent| percent / 100.0);
            let share = share.filter(|share| 0.0 < *share && *share <= 1.0);
            share.map(Model::Share).ok_or(EXPECTED)
        }
    }
}

/// The result of `audit export`.
#[derive(Serialize)]
struct ExportReport {
    schema: &'static str,
    file: String,
    bytes: u64,
    hits_records: u64,
    denials_records: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unchecked_keys: Vec<String>,
}

fn run_export(global: &Global, log: &LogArgs, task: &Task) -> Result<Exit, Failure> {
    let Some(target) = &global.output else {
        let text = "audit export: expected -o FILE";
        return Err(Failure::Usage(text.to_owned()));
    };
    let source = log.open(global)?;
    let mut file = global.open_output()?;
    file.keep_private()?;
    let progress = Progress::default();
    let exported = watched(global, &progress, source.hits_bytes(), || {
        export(&*source, task, &progress, file.writer())
    });
    let exported = exported.map_err(|error| match error {
        ExportError::Read(error) => replay_failure(error),
        ExportError::Write(error) => file.failure(error),
    })?;
    if exported.hits == 0 && task.range != Range::default() {
        return Err(Failure::Data(nothing_in(&*source, &task.range)));
    }
    let is_direct = file.is_direct();
    file.finish()?;
    let report = ExportReport {
        schema: "tollgate.audit_export/1",
        file: target.display().to_string(),
        bytes: exported.bytes,
        hits_records: exported.hits,
        denials_records: exported.denials,
        unchecked_keys: exported.unchecked_keys,
    };
    match is_direct {
        // The export itself may have gone to stdout, by whatever name.
        true => remark!("{}", escaped_lines(&report.to_string())),
        false => report_export(global, &report)?,
    }
    Ok(Exit::Done)
}

fn report_export(global: &Global, report: &ExportReport) -> Result<(), Failure> {
    let mut output = Output::open(None, global.color)?;
    match global.format {
        Format::Json => output.json(report)?,
        Format::Text => output.line(report)?,
    }
    output.finish()
}

impl std::fmt::Display for ExportReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} bytes, {} records of hits, {} of denials",
            self.file, self.bytes, self.hits_records, self.denials_records
        )?;
        match unchecked_line(&self.unchecked_keys) {
            Some(line) => write!(f, "\n{line}"),
            None => Ok(()),
        }
    }
}

/// Runs `work` while a terminal shows its progress.
pub(super) fn watched<T>(
    global: &Global,
    progress: &Progress,
    bytes: Option<u64>,
    work: impl FnOnce() -> T,
) -> T {
    if global.quiet || !std::io::stderr().is_terminal() {
        return work();
    }
    let bar = match bytes {
        Some(bytes) => ProgressBar::new(bytes),
        None => ProgressBar::new_spinner(),
    };
    let form = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left, {msg}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                bar.set_position(progress.bytes.load(Ordering::Relaxed));
                bar.set_message(format!(
                    "{} entries",
                    progress.entries.load(Ordering::Relaxed)
                ));
                // Often enough for people; the thread is joined at the end, so it delays the end by at most this
                // much.
                std::thread::park_timeout(Duration::from_millis(100));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    });
    bar.finish_and_clear();
    result
}
