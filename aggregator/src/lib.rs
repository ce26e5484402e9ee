//! The one binary: its command line, its exit codes, its demonstration.

// `eprintln!` and `println!` panic if the reader of the stream is gone or its disk is full; see `remark` and
// `cli::output`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

/// Writes a line to stderr, for the user of the command. If the write fails, the command goes on, and its exit code is
/// the same.
macro_rules! remark {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // `writeln!` would make several writes of it, between which other processes could write.
        let _ = std::io::stderr().write_all(format!("{}\n", format_args!($($text)*)).as_bytes());
    }};
}

pub mod cli;
pub mod convert;
pub mod demo;
pub mod exit;
mod hang_up;
pub mod keys;
pub mod reach;
mod replace;
