//! Log lines: to stderr, as text or JSON, from the configured level.

use std::io::IsTerminal as _;

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
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let started = match telemetry.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    started.map_err(|error| ServeError::Bug(error.to_string()))
}
