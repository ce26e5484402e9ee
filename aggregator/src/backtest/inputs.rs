//! What a backtest read, for its report: files or a log, how many rows, and what to know about them.
//!
//! Knows nothing of limits. What stays true: fields are only ever added.

use serde::Serialize;

use super::log::Seen;
use super::read::{Recording, Skipped};
use super::table::{count, span};
use super::tape::Order;

/// What was read.
#[derive(Debug, Serialize)]
pub struct Inputs {
    /// Names of the files.
    pub names: Vec<String>,
    /// Their forms.
    pub kinds: Vec<&'static str>,
    /// Rows, skipped ones included.
    pub rows: u64,
    /// Rows that could not be used.
    pub skipped: u64,
    /// The first skipped row's line.
    pub first_skipped_line: Option<u64>,
    /// The first skipped rows.
    pub skipped_shown: Vec<Skipped>,
    /// Rows of other resources or domains than was asked for.
    pub passed_over: u64,
    /// Rows stamped before or behind the range that was asked for.
    pub out_of_range: u64,
    /// `stamps` or `recorded`.
    pub order: &'static str,
    /// The least stamp.
    pub first_us: u64,
    /// The greatest stamp.
    pub last_us: u64,
    /// Calls stamped before the one that was recorded just before them.
    pub stepped_back: u64,
    /// By how much at most.
    pub stepped_back_max_us: u64,
    /// Pairs.
    pub pairs: u64,
    /// Domains.
    pub domains: u64,
    /// What of the attempts a log has; none of other recordings.
    pub seen: Option<Seen>,
}

impl Inputs {
    /// What was read from files of these names.
    pub fn new(
        names: Vec<String>,
        recording: &Recording,
        seen: Option<Seen>,
        order: Order,
    ) -> Self {
        let (counts, pairs) = (&recording.counts, &recording.pairs);
        let extent = recording.tape.extent();
        Self {
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
                Order::Stamps => "stamps",
                Order::Recorded => "recorded",
            },
            first_us: extent.first.as_micros(),
            last_us: extent.last.as_micros(),
            stepped_back: extent.stepped_back,
            stepped_back_max_us: extent.stepped_back_max.as_micros(),
            pairs: pairs.all().len() as u64,
            domains: pairs.domains_len() as u64,
        }
    }

    /// What a reader has to know before he reads on.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if 0 < self.passed_over {
            notes.push(format!(
                "{} rows of other resources or domains were passed over",
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
                "{} stamps step back, by {} at most; calls are played {}",
                count(self.stepped_back),
                span(self.stepped_back_max_us),
                match self.order {
                    "stamps" => "in order of their stamps",
                    _ => "as recorded, a stamp that steps back as the latest before it",
                }
            ));
        }
        if let Some(seen) = &self.seen {
            notes.push(seen.to_string());
        }
        notes
    }
}
