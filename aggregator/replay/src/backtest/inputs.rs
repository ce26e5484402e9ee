//! What a backtest read, for its report: files or a log, how many rows, and notes about them.
//!
//! Knows nothing of limits. What stays true: fields are only ever added.

use serde::Serialize;
use tollgate_shared::escape::escaped;

use super::log::SeenAttempts;
use super::read::{Recording, Skipped};
use super::table::{count, instant, span};
use super::tape::{PlayOrder, Unspread};
use crate::traffic::FileReading;

/// What was read.
#[derive(Debug, Serialize)]
pub struct Inputs {
    /// Names of the files.
    pub names: Vec<String>,
    /// Their formats.
    pub kinds: Vec<&'static str>,
    /// How each file is read; empty for a log.
    pub read_as: Vec<FileReading>,
    /// Files without rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub empty_files: Vec<String>,
    /// Files whose calls of each whole second (or minute) were spread evenly over it.
    pub spread_files: u64,
    /// Over how many microseconds at most.
    pub spread_us: u64,
    /// Files of whole seconds, or nearly, whose calls are nevertheless played at their stamps.
    pub unspread_files: u64,
    /// In those files, stamps of whole seconds where other stamps are finer.
    pub unspread_whole: u64,
    /// The number of stamps that those are a part of.
    pub unspread_of: u64,
    /// Rows, including skipped ones.
    pub rows: u64,
    /// Rows that could not be used.
    pub skipped: u64,
    /// The first skipped row's line.
    pub first_skipped_line: Option<u64>,
    /// The first skipped rows.
    pub skipped_shown: Vec<Skipped>,
    /// Rows of resources or domains that were not asked for.
    pub passed_over: u64,
    /// Rows stamped outside the range that was asked for.
    pub out_of_range: u64,
    /// `stamps` or `recorded`.
    pub order: &'static str,
    /// The least stamp.
    pub first_us: u64,
    /// The greatest stamp.
    pub last_us: u64,
    /// Calls stamped before the call that was recorded just before them.
    pub stepped_back: u64,
    /// By how much at most.
    pub stepped_back_max_us: u64,
    /// Pairs.
    pub pairs: u64,
    /// Domains.
    pub domains: u64,
    /// What a log has of the attempts; `None` for other recordings.
    pub seen: Option<SeenAttempts>,
}

impl Inputs {
    /// What was read from files of these names.
    pub fn new(
        names: Vec<String>,
        recording: &Recording,
        seen: Option<SeenAttempts>,
        order: PlayOrder,
    ) -> Self {
        let (counts, pairs) = (&recording.counts, &recording.pairs);
        let extent = recording.tape.extent();
        let spread = recording.tape.spread_over();
        let spread = || spread.iter().flatten();
        let unspread = recording.tape.unspread();
        let mixed = unspread.iter().filter_map(|of| match *of {
            Unspread::Mixed { whole, calls } => Some((whole, calls)),
            Unspread::AsRecorded => None,
        });
        Self {
            read_as: counts.readings.clone(),
            empty_files: counts.empty.clone(),
            spread_files: spread().count() as u64,
            spread_us: spread().map(|span| span.as_micros()).max().unwrap_or(0),
            unspread_files: unspread.len() as u64,
            unspread_whole: mixed.clone().map(|(whole, _)| whole).sum(),
            unspread_of: mixed.map(|(_, calls)| calls).sum(),
            names,
            kinds: match seen {
                Some(_) => vec!["log"],
                None => counts.kinds.iter().map(|kind| kind.name()).collect(),
            },
            seen,
            rows: counts.rows,
            skipped: counts.skipped,
            first_skipped_line: counts.shown.first().map(|first| first.line),
            skipped_shown: counts.shown.clone(),
            passed_over: counts.passed_over,
            out_of_range: counts.out_of_range,
            order: match order {
                PlayOrder::Stamps => "stamps",
                PlayOrder::Recorded => "recorded",
            },
            first_us: extent.first.as_micros(),
            last_us: extent.last.as_micros(),
            stepped_back: extent.stepped_back,
            stepped_back_max_us: extent.stepped_back_max.as_micros(),
            pairs: pairs.all().len() as u64,
            domains: pairs.domains_len() as u64,
        }
    }

    /// Notes that the user should see before the results.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.empty_files.is_empty() {
            let names = self.empty_files.iter();
            let names: Vec<String> = names.map(|name| escaped(name).to_string()).collect();
            notes.push(format!("without rows: {}", names.join(", ")));
        }
        notes.extend(self.note_of_forms());
        notes.extend(self.notes_of_stamps());
        let disbelieved = self.read_as.iter().map(|reading| reading.disbelieved).sum();
        if 0 < disbelieved {
            notes.push(format!(
                "in {} rows a header of forwarders names another client than the connection's, which is no trusted proxy: the connection's is taken (--trusted-proxies NETWORK,… where those addresses are a balancer's)",
                count(disbelieved)
            ));
        }
        notes.extend(self.note_of_clients());
        if 0 < self.passed_over {
            notes.push(format!(
                "{} rows of other resources or domains were skipped",
                count(self.passed_over)
            ));
        }
        if 0 < self.out_of_range {
            notes.push(format!(
                "{} rows lie out of the range",
                count(self.out_of_range)
            ));
        }
        if 0 < self.stepped_back {
            notes.push(format!(
                "{} timestamps go back, by {} at most; calls are played {}",
                count(self.stepped_back),
                span(self.stepped_back_max_us),
                match self.order {
                    "stamps" => "in order of their timestamps",
                    _ => "as recorded, and one that goes back is played at the latest before it on its resource, of whatever domain",
                }
            ));
        }
        if let Some(seen) = &self.seen {
            notes.push(seen.to_string());
        }
        notes
    }

    /// Notes about how stamps are written, and how they were treated.
    fn notes_of_stamps(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if 0 < self.spread_files {
            let unit = if self.spread_us == 60_000_000 {
                "minute"
            } else {
                "second"
            };
            notes.push(format!(
                "stamps are whole {unit}s{}: the calls of one are spread evenly over it, {} (--stamps as-written for the other way)",
                match self.names.len() as u64 {
                    1 => String::new(),
                    files => format!(" in {} of {files} files", self.spread_files),
                },
                match self.spread_files {
                    1 => "in file order",
                    _ => "those of all these files together, each file's in its order",
                }
            ));
        }
        if 0 < self.unspread_of {
            notes.push(format!(
                "{} of {} stamps are whole seconds, and the others are finer: all calls are played at the stamps that are written",
                count(self.unspread_whole),
                count(self.unspread_of)
            ));
        } else if 0 < self.unspread_files {
            notes.push(
                "stamps are whole seconds, and calls are played as recorded: those of one second at one instant"
                    .to_owned(),
            );
        }
        let by_change = self
            .read_as
            .iter()
            .filter_map(|reading| reading.years_by_change_us);
        if let Some(changed) = by_change.max() {
            notes.push(format!(
                "stamps have no year: each is taken in the newest one in which it is not after the file's last change, {}",
                instant(changed)
            ));
        }
        notes.extend(self.note_of_years());
        notes
    }

    /// A note about what was guessed of the files.
    fn note_of_forms(&self) -> Option<String> {
        let mut forms: Vec<String> = Vec::new();
        for reading in self.read_as.iter().filter(|reading| reading.guessed) {
            let form = match &reading.client {
                Some(client) => format!("{} with {client} as the client", reading.form),
                None => reading.form.clone(),
            };
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        let is_ours = |form: &String| form == "csv" || form.ends_with("with domain as the client");
        if forms.iter().all(is_ours) {
            return None;
        }
        Some(format!(
            "read as {}, as the first lines tell (--log-format, --client for another way)",
            forms.join("; ")
        ))
    }

    /// A note if the instant may be in another field, or in another unit.
    fn note_of_years(&self) -> Option<String> {
        // 2000-01-01. Access logs are not older; small numbers and times since a start are read as
        // 1970.
        const YEAR_2000_US: u64 = 946_684_800_000_000;
        let read = self.rows.saturating_sub(self.skipped);
        (0 < read && self.kinds.first() != Some(&"log") && self.first_us < YEAR_2000_US).then(|| {
            "WARNING: stamps begin before 2000: is the instant another field, or of another unit? (--column t=NAME, --time-unit, --time-format)".to_owned()
        })
    }

    /// A note if the client may be in another field.
    fn note_of_clients(&self) -> Option<String> {
        const ROWS_MIN: u64 = 100;
        let read = self
            .rows
            .saturating_sub(self.skipped + self.passed_over + self.out_of_range);
        let named = self.read_as.iter().any(|reading| reading.client.is_some());
        if read < ROWS_MIN || !named {
            return None;
        }
        let what = match self.domains {
            1 if self.pairs == 1 && self.passed_over == 0 => "all rows name one client",
            domains if read.saturating_mul(9) <= domains.saturating_mul(10) => {
                "nearly every row names another client"
            }
            _ => return None,
        };
        Some(format!(
            "WARNING: {what}: is it another field? (--client FIELD)"
        ))
    }
}
