//! Finds the built command line, as a user has it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A command that runs the built `tollgate`, without what the environment of a test run says: those
/// variables are meant for the tests (`TOLLGATE_KAFKA=required` would be an agent's broker).
///
/// # Panics
///
/// Where it has not been built beside this test: `cargo test --workspace` and `cargo build` do.
pub fn tollgate() -> Command {
    command("tollgate")
}

/// The same of another program that is built beside it.
pub(crate) fn command(name: &str) -> Command {
    let program = program(name);
    assert!(
        program.exists(),
        "{}: not built; run `cargo build --bin {name}` first",
        program.display()
    );
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn program(name: &str) -> PathBuf {
    // Tests lie in `deps`, the binaries one above.
    let here = std::env::current_exe().unwrap_or_default();
    let profile = here
        .parent()
        .and_then(|deps| deps.parent())
        .map(PathBuf::from);
    profile
        .unwrap_or_default()
        .join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}
