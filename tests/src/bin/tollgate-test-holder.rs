//! An agent that takes and returns copies at random until it is killed, which is its purpose.
//!
//! Started by tests; see `tollgate_tests::holders`.

use std::process::ExitCode;

use clap::Parser;
use tollgate_tests::holders::process::{Part, run};

fn main() -> ExitCode {
    match run(&Part::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tollgate-test-holder: {error}");
            ExitCode::FAILURE
        }
    }
}
