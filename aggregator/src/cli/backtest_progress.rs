//! How far a backtest is, on a terminal; nothing elsewhere.
//!
//! Knows only counts. Everything goes to standard error: standard output is for the report.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows how far it is.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A view that shows something only to people.
    pub fn new(quiet: bool) -> Self {
        let bar = match !quiet && std::io::stderr().is_terminal() {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        let bar = match ProgressStyle::with_template("reading {human_pos} rows, {per_sec}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        Self(bar)
    }

    /// So many more rows were read.
    pub fn rows(&self, rows: u64) {
        self.0.inc(rows);
    }

    /// Reading is over: so many calls will be played.
    pub fn play(&self, calls: u64) {
        let template = "playing {bar:40} {human_pos}/{human_len} calls, {per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.set_length(calls);
    }

    /// Limits are being tried, nobody knows for how long.
    pub fn search(&self) {
        let template = "trying limits: {human_pos} calls, {per_sec}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.unset_length();
    }

    /// So many more calls were played.
    pub fn calls(&self, calls: u64) {
        self.0.inc(calls);
    }

    /// All is done.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
