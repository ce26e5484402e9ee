//! The binary: parses the command line, runs the command, ends with its exit code.
//!
//! Knows nothing else: all rooms are in the library, where tests reach them.

use std::process::ExitCode;

use tollgate::cli;
use tollgate::exit::Exit;

fn main() -> ExitCode {
    let command = match cli::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(exit) => return exit.into(),
    };
    // A panic has said where it happened; to whoever started us it is one of our bugs, by its number.
    std::panic::catch_unwind(|| cli::run(command))
        .unwrap_or(Exit::Software)
        .into()
}
