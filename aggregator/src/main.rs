//! The binary: parses the command line, runs the command, ends with its exit code.
//!
//! All modules are in the library, where tests can use them.

#![deny(clippy::print_stderr, clippy::print_stdout)]

use std::process::ExitCode;

use tollgate::cli;
use tollgate::exit::Exit;

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    // The panic message names its place; the exit code tells the parent process that it is a bug in Tollgate.
    std::panic::catch_unwind(|| cli::run(command))
        .unwrap_or(Exit::Software)
        .into()
}
