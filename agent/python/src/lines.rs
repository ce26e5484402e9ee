//! The agent's warnings and errors on standard error, for services that ask for them.
//!
//! Each line is one write, without the lock of standard error: another thread may hold it during a fork, and then no
//! thread of the child would ever release it. What stays true: a service that has not asked gets no lines, but for one in
//! a child that has no agent.

use std::io;

use tracing_subscriber::filter::LevelFilter;

struct Stderr;

impl io::Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a line, whether or not the service has asked for lines.
pub(crate) fn print(line: &str) {
    // Standard error may be closed.
    let _ = rustix::io::write(io::stderr(), format!("{line}\n").as_bytes());
}

/// Prints them from now on, for all agents of the process.
pub(crate) fn print_to_stderr() {
    // Fails if it was called before.
    let _ = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_ansi(false)
        .with_writer(|| Stderr)
        // What could not be written would be printed to the same place, with a panic if that fails, too.
        .log_internal_errors(false)
        .try_init();
}
