//! The versions in the stream `limits`, each with its author.
//!
//! Knows nothing of commands. What stays true: it has what the log has, in the same order, and writes nothing.

use std::sync::Arc;

use serde::Serialize;
use tollgate_shared::escape::escaped;
use tollgate_shared::wire::limits_document::LimitsDocument;

use super::Global;
use super::output::Format;
use crate::exit::{Exit, Failure};
use tollgate_limits::versions::in_one_line;
use tollgate_limits::versions::{Entered, LimitsBook, Version};
use tollgate_log::kafka::reader::{KafkaRead, KafkaReader};
use tollgate_log::kafka::{KafkaConfig, KafkaFault};
use tollgate_log::{Delivered, Stream};
use tollgate_shared::hex::hex;

/// A version, and its author.
pub(super) struct VersionEntry {
    pub(super) version: Arc<Version>,
    pub(super) who: String,
    pub(super) why: String,
    pub(super) at_us: u64,
}

#[derive(Serialize)]
struct VersionView<'a> {
    schema: &'static str,
    version: u64,
    digest: String,
    in_force: bool,
    bytes: usize,
    /// Domains that have limits of their own beside the document.
    rows: usize,
    resources: usize,
    /// The operator's act, if it is an amendment.
    amendment: Option<String>,
    who: &'a str,
    why: &'a str,
    at_us: u64,
}

/// The limits stream, as far as it was read.
#[derive(Default)]
pub(super) struct History {
    pub(super) book: LimitsBook,
    pub(super) entries: Vec<VersionEntry>,
    pub(super) next: u64,
}

impl History {
    /// Enters a record; returns the outcome of the push that it completes, if any.
    pub(super) fn enter(&mut self, record: &Delivered) -> Option<Entered> {
        self.next = record.offset + 1;
        // Aggregators keep records that cannot be decoded as dead letters.
        let entered = self
            .book
            .read(record.offset, record.appended, &record.bytes)
            .ok()??;
        if let Entered::Version { version, .. } = &entered {
            let entry = match &version.made {
                Some(made) => VersionEntry {
                    version: Arc::clone(version),
                    who: made.who.to_string(),
                    why: made.why.to_string(),
                    at_us: made.at.as_micros(),
                },
                None => {
                    let pushed = LimitsDocument::decode(&record.bytes).ok()?;
                    VersionEntry {
                        version: Arc::clone(version),
                        who: pushed.who.to_owned(),
                        why: pushed.why.to_owned(),
                        at_us: pushed.at.as_micros(),
                    }
                }
            };
            self.entries.push(entry);
        }
        Some(entered)
    }

    pub(super) fn find(&self, number: Option<u64>) -> Result<&VersionEntry, Failure> {
        let wanted = number.unwrap_or_else(|| self.book.latest_number());
        let found = self.entries.iter().find(|e| e.version.number == wanted);
        found.ok_or_else(|| {
            let known: Vec<String> = self
                .entries
                .iter()
                .rev()
                .take(5)
                .map(|entry| entry.version.number.to_string())
                .collect();
            Failure::Data(match known.is_empty() {
                true => "the log has no limits version".to_owned(),
                false => format!(
                    "version {wanted}: there is no such version; the newest are {}",
                    known.join(", ")
                ),
            })
        })
    }
}

/// Reads the stream to its present end, and writes nothing.
pub(super) fn read(kafka: &KafkaConfig) -> Result<History, Failure> {
    Ok(read_if_there(kafka)??)
}

/// Reads the stream if its topic exists; otherwise returns that it is missing.
pub(super) fn read_if_there(kafka: &KafkaConfig) -> Result<Result<History, KafkaFault>, Failure> {
    let mut reader = KafkaReader::open(kafka, Stream::Limits, 0, 0)?;
    let mut history = History::default();
    loop {
        let read = match reader.read() {
            Err(fault @ KafkaFault::Missing { .. }) => return Ok(Err(fault)),
            read => read?,
        };
        match read {
            KafkaRead::Records(records) => {
                for record in &records {
                    history.enter(record);
                }
            }
            KafkaRead::Gone { wanted, first } => {
                return Err(Failure::Data(format!(
                    "the topic of limits has lost offsets {wanted} to {first}, expected a topic that keeps all records for ever"
                )));
            }
            KafkaRead::End => return Ok(Ok(history)),
        }
    }
}

/// Lists the versions, oldest first.
pub(super) fn list(global: &Global, history: &History) -> Result<Exit, Failure> {
    let mut output = global.open_output()?;
    let latest = history.book.latest_number();
    for entry in &history.entries {
        let version = &entry.version;
        let view = VersionView {
            schema: "tollgate.limits_versions/1",
            version: version.number,
            digest: hex(&version.digest),
            in_force: version.number == latest,
            bytes: version.text.len(),
            rows: version.limits.rows_len(),
            resources: version.limits.resources().len(),
            amendment: version.made.as_ref().map(|made| in_one_line(&made.act)),
            who: &entry.who,
            why: &entry.why,
            at_us: entry.at_us,
        };
        match global.format {
            Format::Json => output.json(&view)?,
            Format::Text => {
                let micros = i64::try_from(entry.at_us).unwrap_or(i64::MAX);
                let at = jiff::Timestamp::from_microsecond(micros);
                let at = at.map_or_else(|_| "?".to_owned(), |at| format!("{at:.0}"));
                let mark = if view.in_force { "*" } else { " " };
                let what = match &view.amendment {
                    Some(act) => act.clone(),
                    None => format!("{:>9} bytes", view.bytes),
                };
                output.line(format_args!(
                    "{mark} {:>8}  {}  {at}  {what}  {}: {}",
                    view.version,
                    &view.digest[..12],
                    escaped(view.who),
                    escaped(view.why)
                ))?;
            }
        }
    }
    output.finish()?;
    Ok(Exit::Done)
}
