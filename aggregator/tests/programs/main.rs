//! What programs of other makers do with ours: Python reads the log, a browser shows the page of a backtest.

mod backtest_page;
mod log_reader;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::program::run(&[
        (backtest_page::BROWSER, backtest_page::TESTS),
        (log_reader::PYTHON, log_reader::TESTS),
    ])
}
