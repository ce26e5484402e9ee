//! The progress of a backtest, shown only on a terminal.
//!
//! Knows only counts. Everything goes to standard error: standard output is for the report.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A progress display, which is hidden unless stderr is a terminal.
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

    /// Adds rows that were read.
    pub fn rows(&self, rows: u64) {
        self.0.inc(rows);
    }

    /// Reading is done: this many calls will be played.
    pub fn play(&self, calls: u64) {
        let template = "playing {bar:40} {human_pos}/{human_len} calls, {per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.set_length(calls);
    }

    /// Limits are being tried, for an unknown time.
    pub fn search(&self) {
        let template = "trying limits: {human_pos} calls, {per_sec}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.unset_length();
    }

    /// Adds calls that were played.
    pub fn calls(&self, calls: u64) {
        self.0.inc(calls);
    }

    /// Removes the display.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
