//! What a call must not do: allocate, or make a system call.
//!
//! The agent has no aggregator, and is called as fast as possible, so all its calls are let through, and none wakes its
//! thread. Tests of the agent count allocations of calls that are refused, and of copies.
//!
//! A program of its own counts allocations, because the counter wraps the allocator and would
//! distort all other measurements. `strace`, if it is installed, counts system calls of the calling
//! thread alone, between two marks that are themselves system calls.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use super::Calls;
use super::looped::SEARCH;
use crate::harness::Session;
use crate::harness::agents::connected;
use crate::harness::beside;
use crate::harness::child::{CHILD, send_to_parent};
use crate::harness::figure::{Figure, Target};

/// How many calls are examined.
pub const LOOKED_AT: usize = 1_000_000;
/// How many pairs they use.
pub const PAIRS: u32 = 1_000;

/// In which condition the agent is.
const CONDITION: &str = "an agent without aggregator, at full speed: every call is let through";

const BEGIN_MARK: &str = "/tollgate-bench-calls-begin";
const END_MARK: &str = "/tollgate-bench-calls-end";

pub(super) fn run(session: &mut Session) -> anyhow::Result<()> {
    session.step("allocations");
    let program = beside::program("tollgate-benches", "tollgate-bench-allocations")?;
    let output = Command::new(&program)
        .output()
        .with_context(|| program.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let allocations: u64 = text
        .trim()
        .parse()
        .with_context(|| format!("{}: {text:?}", program.display()))?;
    session.add(
        Figure::single(
            "allocations a call",
            "",
            allocations as f64 / LOOKED_AT as f64,
        )
        .target(Target::AtMost(0.0))
        .note(format!(
            "{allocations} in {LOOKED_AT} calls on known pairs, on the calling thread; {CONDITION}"
        )),
    );
    session.step("system calls");
    match system_calls()? {
        Some(calls) => session.add(
            Figure::single("system calls a call", "", calls as f64 / LOOKED_AT as f64)
                .target(Target::AtMost(0.0))
                .note(format!(
                    "{calls} in {LOOKED_AT} calls, on the calling thread, by strace; {CONDITION}"
                )),
        ),
        None => session.step("system calls: not measured, strace is not installed"),
    }
    Ok(())
}

/// System calls of the calling thread in a million calls; `None` without `strace`.
fn system_calls() -> anyhow::Result<Option<u64>> {
    let dir = tempfile::Builder::new()
        .prefix("tollgate-bench-")
        .tempdir()?;
    let trace = dir.path().join("trace");
    let output = Command::new("strace")
        .args(["-ff", "-qq", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe()?)
        .args([CHILD, "hit-syscalls"])
        .output();
    match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).context("strace"),
        // Some containers forbid tracing: as if `strace` were not installed.
        Ok(output) if !output.status.success() => return Ok(None),
        Ok(_) => {}
    }
    for file in fs::read_dir(dir.path())? {
        if let Some(calls) = between_marks(&fs::read_to_string(file?.path())?) {
            return Ok(Some(calls));
        }
    }
    bail!("strace wrote down no marks")
}

/// Lines between the two marks; `None` unless both are there.
fn between_marks(trace: &str) -> Option<u64> {
    let mut lines = trace.lines();
    lines.by_ref().find(|line| line.contains(BEGIN_MARK))?;
    let between = lines.position(|line| line.contains(END_MARK))?;
    Some(between as u64)
}

/// The child that makes calls between two marks.
///
/// # Errors
///
/// If the agent's settings are invalid.
pub fn child_syscalls(_: &[String]) -> anyhow::Result<()> {
    let mut refused = 0;
    // The first lookup of a missing file makes an extra system call, so make it here.
    let _ = fs::metadata(Path::new("/tollgate-bench-nothing"));
    make_calls(|calls| {
        let mark = |path| {
            let _ = fs::metadata(Path::new(path));
        };
        mark(BEGIN_MARK);
        refused = calls();
        mark(END_MARK);
    })?;
    send_to_parent(&refused)
}

/// Makes a million calls inside of `looking`, on known pairs of an agent without aggregator.
///
/// # Errors
///
/// If the agent's settings are invalid.
pub fn make_calls(looking: impl FnOnce(&dyn Fn() -> u64)) -> anyhow::Result<()> {
    let calls = Calls::on(0, PAIRS);
    // Nothing listens on the reserved port: whatever a call does, the agent does alone.
    let agent = connected("quiet", "127.0.0.1:1")?;
    let search = agent.rate(SEARCH);
    for name in &calls.names {
        let _ = search.hit(name);
    }
    looking(&|| {
        let hits = (0..LOOKED_AT).map(|number| u64::from(search.hit(calls.at(number)).is_err()));
        hits.sum()
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_between_the_marks_are_counted() {
        let trace = format!(
            "read(0, \"\", 1) = 0\nstatx(AT_FDCWD, \"{BEGIN_MARK}\", 0) = -1\nfutex(1) = 0\nread(2) = 0\n\
             statx(AT_FDCWD, \"{END_MARK}\", 0) = -1\nexit(0)\n"
        );
        assert_eq!(between_marks(&trace), Some(2));
        assert_eq!(between_marks("read(0) = 0\n"), None);
    }
}
