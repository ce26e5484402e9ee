//! The limits documents of `tollgate backtest`.
//!
//! ```text
//! files as recording    the documents
//! a log                 each with the rows that are in force beside the log's document, as a push would leave them
//! ```
//!
//! Knows nothing of results.

use tollgate_limits::{Limits, Resource};
use tollgate_replay::backtest::read::{Recording, RowReading};
use tollgate_replay::source::{Source, limits_of};
use tollgate_shared::networks::network_of_domain;

use super::backtest::{BacktestArgs, usage};
use super::{Global, input_name, logs, read_input};
use crate::exit::Failure;

/// A limits document, with its name.
pub(super) struct Document {
    pub(super) name: String,
    pub(super) limits: Limits,
}

/// Reads the limits. For a log, domains are renamed as in the log, and the log's rows are added; files have plain names.
pub(super) fn documents(
    global: &Global,
    args: &BacktestArgs,
    log: Option<&dyn Source>,
) -> Result<Vec<Document>, Failure> {
    if args.limits.is_empty() {
        return Err(usage("expected --limits FILE"));
    }
    let mut documents = Vec::with_capacity(args.limits.len());
    for path in &args.limits {
        let name = input_name(path);
        let text = match log {
            Some(_) => global.document(read_input(path)?, &name)?,
            None => read_input(path)?,
        };
        match Limits::parse(&text) {
            Ok(limits) => documents.push(Document { name, limits }),
            Err(faults) => return Err(Failure::Data(faults.in_file(&name).to_string())),
        }
    }
    match log {
        Some(log) => with_rows(documents, log),
        None => Ok(documents),
    }
}

/// The documents with the rows beside the log's newest version.
fn with_rows(documents: Vec<Document>, log: &dyn Source) -> Result<Vec<Document>, Failure> {
    let book = limits_of(log).map_err(logs::failure)?;
    let Some(version) = book.get(book.latest_number()) else {
        return Ok(documents);
    };
    let before = &version.limits;
    if before.rows_len() == 0 {
        return Ok(documents);
    }
    let add = |Document { name, limits }| {
        for dropped in limits.rows_dropped_of(before) {
            remark!("{name}: {dropped}");
        }
        match limits.with_rows_of(before) {
            Ok(limits) => {
                remark!(
                    "{name}: with {} of the {} rows that domains have beside the log's document, version {}",
                    limits.rows_len(),
                    before.rows_len(),
                    version.number
                );
                Ok(Document { name, limits })
            }
            Err(why) => Err(Failure::Data(format!("{name}: {why}"))),
        }
    };
    documents.into_iter().map(add).collect()
}

/// Refuses a recording of which nothing is limited: usually a name is misspelt.
pub(super) fn expect_configured(
    recording: &Recording,
    limits: &[Document],
    reading: &RowReading,
) -> Result<(), Failure> {
    let names = recording.pairs.resources();
    if names.len() == 0 {
        // A fleet records an address as the network by which its resource limits it.
        let only = reading.only_domain.as_deref();
        let is_address = only.is_some_and(|domain| network_of_domain(domain).is_some());
        let hint = match is_address {
            true => "; a log has an address as its resource limits it, as 203.0.113.0/24",
            false => "",
        };
        return Err(Failure::Data(format!(
            "no call to play: no readable row matches --resource, --domain, --from and --to{hint}"
        )));
    }
    for document in limits {
        let limits = &document.limits;
        if names.clone().any(|name| limits.rate(name).is_some()) {
            continue;
        }
        let recorded = names.clone().next().unwrap_or(&reading.resource);
        let known: Vec<&str> = limits.rates().map(|rate| rate.name()).collect();
        if known.is_empty() {
            return Err(Failure::Data(format!(
                "{}: no limits on rates, which are what a backtest plays; copies are not played",
                document.name
            )));
        }
        let also = match limits.resource(recorded) {
            Some(Resource::Copies(_)) => " (it is limited in copies)",
            _ => "",
        };
        return Err(Failure::Data(format!(
            "{}: no limits on the rate of {recorded:?}{also}, nor of any other recorded resource, expected one of: {} (or --resource)",
            document.name,
            known.join(", ")
        )));
    }
    Ok(())
}
