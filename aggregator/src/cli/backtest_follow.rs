//! `tollgate backtest --follow`: plays live traffic against other limits, until it is interrupted.
//!
//! Reads the log again and again. Knows nothing of rules. What stays true: each report covers everything that was
//! played so far, from the beginning on; SIGINT and SIGTERM end it with a last report.

use std::time::{Duration, Instant};

use tollgate_shared::time::{Span, Timestamp};

use super::Global;
use super::backtest::{BacktestArgs, log_failure};
use super::backtest_limits::Document;
use super::interrupt::StopRequest;
use super::output::Format;
use crate::exit::{Exit, Failure};
use tollgate_replay::backtest::follow::Follow;
use tollgate_replay::backtest::read::RowReading;
use tollgate_replay::range::{Point, Range};
use tollgate_replay::source;

/// How often the log is read.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reports the results so far, at regular intervals.
///
/// # Errors
///
/// If the log cannot be read any further.
pub(super) fn follow(
    global: &Global,
    args: &BacktestArgs,
    log: &dyn source::Source,
    range: Range,
    reading: &RowReading,
    limits: &[Document],
) -> Result<Exit, Failure> {
    let began = Instant::now();
    let span = |span: Span| Duration::from_micros(span.as_micros());
    // Logs have millisecond stamps: a record that is appended from now on may have the current millisecond.
    let now = Timestamp::from_millis(tollgate_log::clock::wall().as_millis());
    let range = Range {
        from: range.from.or(Some(Point::At(now))),
        ..range
    };
    let keys = args.log.keys()?;
    let documents = limits.iter();
    let documents = documents.map(|document| (&*document.name, &document.limits));
    let mut follow = Follow::new(log, (range, &keys), reading, documents).map_err(log_failure)?;
    let stop = StopRequest::on_signal()?;
    let mut output = global.open_handled_output()?;
    let ends = args.lasts.map(|lasts| began + span(lasts));
    let mut due = began;
    loop {
        follow
            .go_on(tollgate_log::clock::wall())
            .map_err(log_failure)?;
        let is_behind = follow.is_behind();
        // However long it lasts, what the log has already is played.
        let lasted = !is_behind && ends.is_some_and(|ends| ends <= Instant::now());
        let over = stop.is_made() || lasted;
        if over {
            follow.end();
        }
        if over || due <= Instant::now() {
            let report = follow.report();
            match global.format {
                Format::Json => output.json(&report)?,
                Format::Text => output.line(&report)?,
            }
            output.flush()?;
            due += span(args.every);
        }
        if over {
            output.finish()?;
            return Ok(Exit::Done);
        }
        if !is_behind {
            std::thread::sleep(LOOK_EVERY.min(span(args.every)));
        }
    }
}
