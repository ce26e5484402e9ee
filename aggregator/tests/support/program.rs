//! Tests that need an external program: run, ignored with the reason, or failed because it is missing.
//!
//! Knows nothing of what the tests do with it. What stays true: without the program no test's body runs, and its
//! outcome is never "ok".

use std::io::ErrorKind;
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Trial};

/// The variable with which a test run insists on such programs, if it has the value [`REQUIRED`].
const REQUIRE_VARIABLE: &str = "TOLLGATE_PROGRAMS";
const REQUIRED: &str = "required";

/// A test's name and body.
pub type Named = (&'static str, fn());

/// Runs the tests of each program, as the `main` of a test target.
pub fn run(programs: &[(&'static str, &[Named])]) -> ExitCode {
    let is_required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == REQUIRED);
    let mut trials = Vec::new();
    for &(program, tests) in programs {
        let is_absent = is_absent(program);
        let trial = |&(name, body): &Named| {
            Trial::ignorable_test(name, move || match (is_absent, is_required) {
                (false, _) => {
                    body();
                    Ok(Completion::Completed)
                }
                (true, false) => Ok(Completion::ignored_with(format!("{program}: not found"))),
                (true, true) => {
                    Err(format!("{REQUIRE_VARIABLE}={REQUIRED}, and {program}: not found").into())
                }
            })
        };
        trials.extend(tests.iter().map(trial));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn is_absent(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    matches!(command.status(), Err(error) if error.kind() == ErrorKind::NotFound)
}
