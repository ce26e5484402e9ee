//! Reads recorded traffic as a backtest does, and returns its rows; and makes twenty calls of seven clients.

#![allow(dead_code)]

use std::ops::ControlFlow;

use tollgate_replay::traffic::rows::{FileReading, OpenedRows};
use tollgate_replay::traffic::{Row, Rows, Wanted, open};

/// The content of a file.
#[derive(Debug)]
pub struct RecordedFile {
    /// How it was read.
    pub reading: FileReading,
    /// Instants in microseconds, and clients; `-` if a row names none.
    pub rows: Vec<(u64, String)>,
    /// The first ten lines that were refused.
    pub refused: Vec<u64>,
}

/// The rows of a file with these bytes; or the message to the user.
pub fn read(bytes: &[u8], wanted: &Wanted) -> Result<RecordedFile, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).expect("written");
    let reader = open(&path).map_err(|fault| fault.to_string())?;
    let mut rows = match Rows::open(reader, wanted).map_err(|fault| fault.to_string())? {
        OpenedRows::Rows(rows) => rows,
        OpenedRows::Misfit(what) => return Err(what),
        OpenedRows::NoColumns(first) => return Err(first.expected.to_owned()),
    };
    let mut read = Vec::new();
    let mut each = |row: Row<'_>| {
        let client = row.domain.as_deref().unwrap_or("-").to_owned();
        read.push((row.at.as_micros(), client));
        Ok(())
    };
    rows.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
        .map_err(|fault| fault.to_string())?;
    let lines = rows.lines();
    assert_eq!(
        lines.rows(),
        read.len() as u64 + lines.skipped(),
        "each row is counted once"
    );
    Ok(RecordedFile {
        reading: rows.reading().clone(),
        rows: read,
        refused: lines.unreadable().iter().map(|bad| bad.line).collect(),
    })
}

/// 2025-11-20T10:00:00Z.
pub const START_MS: u64 = 1_763_632_800_000;

pub const CALLS: u64 = 20;

/// One call, and the parts from which forms are built.
pub struct LoggedCall {
    /// Its index in the file.
    pub number: u64,
    /// When it was made.
    pub ms: u64,
    /// The client.
    pub ip: String,
}

impl LoggedCall {
    pub fn new(number: u64) -> Self {
        Self {
            number,
            ms: START_MS + 400 * number,
            ip: format!("203.0.113.{}", 1 + number % 7),
        }
    }

    pub fn second(&self) -> u64 {
        self.ms / 1_000 % 60
    }

    /// The instant, as in access logs.
    pub fn clf(&self) -> String {
        format!("20/Nov/2025:10:00:{:02} +0000", self.second())
    }

    /// The instant with milliseconds, as in HAProxy's logs.
    pub fn clf_ms(&self) -> String {
        format!(
            "20/Nov/2025:10:00:{:02}.{:03}",
            self.second(),
            self.ms % 1_000
        )
    }

    pub fn iso(&self) -> String {
        format!(
            "2025-11-20T10:00:{:02}.{:03}Z",
            self.second(),
            self.ms % 1_000
        )
    }

    pub fn unix(&self) -> String {
        format!("{}.{:03}", self.ms / 1_000, self.ms % 1_000)
    }

    /// The part of a combined log after the instant.
    pub fn rest(&self) -> String {
        format!(
            "\"GET /{} HTTP/1.1\" 200 5 \"-\" \"Mozilla/5.0 (X11; Linux) Gecko\"",
            self.number
        )
    }
}

pub type FormCase = (
    &'static str,
    &'static str,
    &'static str,
    fn(&LoggedCall) -> String,
);

/// Reads twenty calls in each form: name, the form and client that are reported, a line.
pub fn check(forms: &[FormCase], whole_seconds: bool) {
    for (name, form, client, line) in forms {
        let text: String = (0..CALLS)
            .map(|call| line(&LoggedCall::new(call)) + "\n")
            .collect();
        let recorded = read(text.as_bytes(), &Wanted::default()).expect(name);
        let found = (&*recorded.reading.form, recorded.reading.client.as_deref());
        assert_eq!(found, (*form, Some(*client)), "{name}");
        let expected = (0..CALLS)
            .map(LoggedCall::new)
            .map(|call| match whole_seconds {
                true => (call.ms / 1_000 * 1_000_000, call.ip),
                false => (call.ms * 1_000, call.ip),
            });
        assert_eq!(recorded.rows, expected.collect::<Vec<_>>(), "{name}");
        assert!(
            recorded.refused.is_empty(),
            "{name}: {:?}",
            recorded.refused
        );
    }
}
