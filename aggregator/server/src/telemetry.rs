//! Log lines: to stderr, as text or JSON, from the configured level.

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::counter;
use tracing_subscriber::EnvFilter;

use crate::ServeError;
use crate::config::{LogFormat, Telemetry};

/// Starts logging for the rest of the process. `quiet` and `verbose` override the configured level.
///
/// # Errors
///
/// If the process logs already, which would be a bug in Tollgate.
pub fn start(telemetry: &Telemetry, quiet: bool, verbose: u8) -> Result<(), ServeError> {
    let directives = match (quiet, verbose) {
        (true, _) => "error",
        (false, 0) => &telemetry.log,
        (false, 1) => "debug",
        (false, _) => "trace",
    };
    // The Kafka client repeats its messages while no broker answers, and the socket library reports every agent
    // that comes and goes; the log reports that once.
    let directives = match directives.contains("rdkafka") {
        true => directives.to_owned(),
        false => format!("rdkafka=off,zeromq=warn,{directives}"),
    };
    let filter = EnvFilter::builder()
        .parse(directives)
        .map_err(|error| ServeError::Bug(error.to_string()))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lines)
        .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let started = match telemetry.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|error| ServeError::Bug(error.to_string()))
}

/// The name of the metric with the value of [`lines_lost`].
pub const LINES_LOST: &str = "tollgate_stderr_lines_lost_total";

/// Gives the process's metrics recorder the help text of that metric.
pub fn describe() {
    metrics::describe_counter!(LINES_LOST, "Log lines that could not be written to stderr.");
}

static LOST: AtomicU64 = AtomicU64::new(0);

/// How many log lines of this process could not be written to stderr, because its disk is full or its reader is gone.
pub fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Writes each log line to stderr. It never fails: `tracing_subscriber` reports an error of its writer by
/// `eprintln!`, which panics if stderr is what failed, and so would end the thread that had something to log.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if io::stderr().write_all(line).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
            // In an aggregator this line has no effect, because its recorder is not the global one; its `/metrics` read
            // `LOST`.
            counter!(LINES_LOST).increment(1);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
