//! `tollgate denials`: lists the denials in force with cause and remaining time; and lifts a denial.
//!
//! ```text
//! LEFT   RESOURCE    SCOPE    CAUSE   LIMIT      CODE
//! 4.2s   api.search  acme     tier 1  100 / 1s   …
//! never  api.search  mallory  banned  -          …
//! ```
//!
//! Asks an aggregator. Knows nothing of rules. What stays true: partitions without an answer are named.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::Value;
use tollgate_api::denials::{DenialView, DenialsView};
use tollgate_shared::escape::escaped;

use super::Global;
use super::amend::pair;
use super::interrupt::StopRequest;
use super::operator::{OperatorNote, Spoken, ask, domain_on, ended, name, pages};
use super::output::{Format, Output, is_stdout};
use super::unlisted::remark_unlimited;
use crate::exit::{Exit, Failure};

/// How often `--watch` asks.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// How many denials are shown at most, unless the command line states another number.
const SHOWN_MAX: usize = 1_000;

/// What `denials` takes.
#[derive(Debug, Args)]
pub struct DenialsArgs {
    /// What to do; without a command: lists denials
    #[command(subcommand)]
    verb: Option<DenialsVerb>,
    /// Only this resource
    #[arg(long, value_parser = name)]
    resource: Option<String>,
    /// Only this domain
    #[arg(long, value_parser = super::operator::domain)]
    domain: Option<String>,
    /// Only this cause: hard, global, banned, "tier 1", …
    #[arg(long, value_parser = cause)]
    cause: Option<String>,
    /// How many denials to list at most [default: 1000; all of them with --watch into a pipe or file]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Queries again every second, until SIGINT or SIGTERM ends it with exit code 0: a terminal shows the whole list, any
    /// other output only new denials
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    spoken: Spoken,
}

#[derive(Debug, Subcommand)]
enum DenialsVerb {
    /// Lifts the denial of a domain on a resource; no limit refuses it there until the denial would have ended by itself
    /// (of a quota at the end of its period), or it was reset, or its limits let it in earlier
    Lift {
        /// The resource
        #[arg(value_parser = name)]
        resource: String,
        /// The domain
        #[arg(value_parser = super::operator::domain)]
        domain: String,
        #[command(flatten)]
        word: OperatorNote,
    },
}

/// Runs the command. If a partition could not answer, it exits with 1.
///
/// # Errors
///
/// If the aggregator does not answer, or the output cannot be written; for `lift` as [`ask`].
pub fn run(global: &Global, args: &DenialsArgs) -> Result<Exit, Failure> {
    if let Some(DenialsVerb::Lift {
        resource,
        domain,
        word,
    }) = &args.verb
    {
        return ask(
            global,
            &args.spoken.url,
            word,
            pair("lift", resource, domain),
        );
    }
    if args.watch {
        return watch(global, args);
    }
    let mut output = global.open_output()?;
    let answer = list(global, args, SHOWN_MAX)?;
    match global.format {
        Format::Json => {
            for denial in &answer.denials {
                output.json(denial)?;
            }
        }
        Format::Text => print(args, &answer, &mut output)?,
    }
    output.finish()?;
    remark_omitted(answer.omitted);
    if answer.denials.is_empty() && answer.omitted == 0 {
        remark_unlimited(&args.spoken.url, args.resource.as_ref());
    }
    Ok(ended(&answer.partitions_missing))
}

/// A denial's cause, as lists write it.
fn cause(text: &str) -> Result<String, &'static str> {
    const WORDS: [&str; 7] = [
        "hard",
        "global",
        "inaccessible",
        "unconfigured",
        "full",
        "banned",
        "bucket",
    ];
    let numbered = { ["tier ", "window:", "quota:"].iter() }
        .filter_map(|kind| text.strip_prefix(kind)?.parse::<u8>().ok());
    match WORDS.contains(&text) || 0 < numbered.count() {
        true => Ok(text.to_owned()),
        false => Err(
            "expected hard, global, inaccessible, unconfigured, full, banned, bucket, \"tier 1\", window:0 or quota:0 \
             (with its number)",
        ),
    }
}

fn remark_omitted(omitted: usize) {
    if 0 < omitted {
        remark!("tollgate: {omitted} more; see --limit, or narrow the query");
    }
}

/// Asks again and again, until a signal ends the command, which completes its output, or its output is closed. An
/// aggregator that has answered once may be away for a while.
fn watch(global: &Global, args: &DenialsArgs) -> Result<Exit, Failure> {
    let stop = StopRequest::on_signal()?;
    let mut output = global.open_handled_output()?;
    let live = global.format == Format::Text
        && is_stdout(global.output.as_deref())
        && std::io::stdout().is_terminal();
    let most = if live { SHOWN_MAX } else { usize::MAX };
    let mut watched: Option<Watched> = None;
    let mut is_away = false;
    loop {
        match list(global, args, most) {
            Ok(answer) if live => {
                // Moves the cursor home and clears the screen.
                output.clear()?;
                print(args, &answer, &mut output)?;
                watched.get_or_insert_default();
                is_away = false;
            }
            Ok(answer) => {
                let watched = watched.get_or_insert_default();
                watched.write(global, &answer, &mut output)?;
                is_away = false;
            }
            Err(Failure::Unavailable(why)) if watched.is_some() => {
                if !is_away {
                    remark!("tollgate: {why}; asking again");
                }
                is_away = true;
            }
            Err(failure) => return Err(failure),
        }
        output.flush()?;
        if stop.wait(WATCH_EVERY) {
            output.finish()?;
            return Ok(Exit::Done);
        }
    }
}

/// What was written while watching.
#[derive(Debug, Default)]
struct Watched {
    /// The codes of the denials that were listed last.
    known: BTreeSet<String>,
    are_omitted: bool,
}

impl Watched {
    /// Writes the denials that were not listed last time.
    fn write(
        &mut self,
        global: &Global,
        answer: &DenialsView<Value>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let code = |denial: &Value| denial["code"].as_str().map(str::to_owned);
        for denial in &answer.denials {
            match global.format {
                _ if code(denial).is_some_and(|code| self.known.contains(&code)) => {}
                Format::Json => output.json(denial)?,
                Format::Text => output.line(
                    row(denial)?
                        .map(|cell| escaped(&cell).to_string())
                        .join("  "),
                )?,
            }
        }
        self.known = answer.denials.iter().filter_map(code).collect();
        // Once, until all are listed again.
        if !self.are_omitted {
            remark_omitted(answer.omitted);
        }
        self.are_omitted = 0 < answer.omitted;
        Ok(())
    }
}

/// The denials in force: as many as the command line states, or else at most `default`.
fn list(
    global: &Global,
    args: &DenialsArgs,
    default: usize,
) -> Result<DenialsView<Value>, Failure> {
    let query = [
        ("resource", args.resource.clone()),
        (
            "domain",
            domain_on(
                global,
                &args.spoken.url,
                args.resource.as_deref(),
                args.domain.as_ref(),
            )?,
        ),
    ];
    let list = ("/v1/denials", "denials");
    let limit = args.limit.map_or(default, |limit| limit as usize);
    // Aggregators do not filter by cause, so all are asked for.
    let asked = args.cause.as_ref().map_or(limit, |_| usize::MAX);
    let mut answer: DenialsView<Value> = pages(&args.spoken.url, list, &query, asked)?;
    if let Some(cause) = &args.cause {
        answer.denials.retain(|denial| denial["cause"] == **cause);
        answer.omitted = answer.denials.len().saturating_sub(limit);
        answer.denials.truncate(limit);
    }
    for denial in &mut answer.denials {
        denial["schema"] = "tollgate.denials/1".into();
    }
    Ok(answer)
}

fn print(
    args: &DenialsArgs,
    answer: &DenialsView<Value>,
    output: &mut Output,
) -> Result<(), Failure> {
    if answer.denials.is_empty() {
        let is_all = args.resource.is_none() && args.domain.is_none() && args.cause.is_none();
        return match (answer.partitions_missing.is_empty(), is_all) {
            // The limit of rows was 0.
            _ if 0 < answer.omitted => Ok(()),
            (false, true) => output.line("no denials in the partitions that answered"),
            (false, false) => output.line("no denials match in the partitions that answered"),
            (true, true) => output.line("no denials are in force"),
            (true, false) => output.line("no denials match"),
        };
    }
    let head = ["LEFT", "RESOURCE", "SCOPE", "CAUSE", "LIMIT", "CODE"];
    let mut rows = vec![head.map(str::to_owned)];
    for denial in &answer.denials {
        rows.push(row(denial)?);
    }
    output.columns(&rows)
}

fn row(denial: &Value) -> Result<[String; 6], Failure> {
    let denial =
        DenialView::deserialize(denial).map_err(|error| Failure::Data(error.to_string()))?;
    let scope = match (denial.domain, denial.group) {
        (Some(domain), _) => domain.into(),
        (_, Some(group)) => format!("group {group}"),
        _ => "(all domains)".to_owned(),
    };
    let limit = match (denial.limit, denial.window_us) {
        (0, 0) => "-".to_owned(),
        (limit, 0) => limit.to_string(),
        (limit, window_us) => format!("{limit} / {}", span(window_us)),
    };
    Ok([
        denial.remaining_us.map_or_else(|| "never".to_owned(), span),
        denial.resource.to_string(),
        scope,
        denial.cause.to_string(),
        limit,
        denial.code.to_string(),
    ])
}

/// A duration in a suitable unit.
pub(super) fn span(us: u64) -> String {
    match us {
        0..1_000_000 => format!("{}ms", us / 1_000),
        1_000_000..60_000_000 => format!("{:.1}s", us as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{}m {}s", us / 60_000_000, us / 1_000_000 % 60),
        _ => format!("{}h {}m", us / 3_600_000_000, us / 60_000_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_denial_is_printed_as_a_row() {
        let denial = |scope: &str, domain: Value, group: Value, left: Value| {
            serde_json::json!({
                "resource": "r", "scope": scope, "domain": domain, "group": group, "cause": "tier 1",
                "limit": 5, "window_us": 10_000_000, "end_us": null, "remaining_us": left, "code": "c",
                "partition": 3, "version": 1,
            })
        };
        let shown = |denial: &Value| row(denial).expect("it is one").join("|");
        let null = Value::Null;
        assert_eq!(
            shown(&denial("pair", "a".into(), null.clone(), 61_000_000.into())),
            "1m 1s|r|a|tier 1|5 / 10.0s|c"
        );
        assert_eq!(
            shown(&denial("group", null.clone(), "g".into(), null.clone())),
            "never|r|group g|tier 1|5 / 10.0s|c"
        );
        assert_eq!(
            shown(&denial("resource", null.clone(), null, 900_000.into())),
            "900ms|r|(all domains)|tier 1|5 / 10.0s|c"
        );
    }
}
