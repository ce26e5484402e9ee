//! The conditions of a measurement: the machine, how busy it was, the commit, the date.

use std::process::Command;

use super::results::RESULTS_FILE;

/// The conditions of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Processors, their model, memory, kernel.
    pub machine: String,
    /// Runnable processes in the last minute before it, as the kernel counts them: about none on an
    /// idle machine.
    pub load: String,
    /// The commit, and whether the tree differed from it.
    pub commit: String,
    /// The time, in UTC to the minute.
    pub date: String,
}

impl Provenance {
    /// The present conditions. What cannot be found out is "unknown".
    pub fn here() -> Self {
        Self {
            machine: machine(),
            load: first_word("/proc/loadavg"),
            commit: commit(),
            date: jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M UTC")
                .to_string(),
        }
    }
}

const UNKNOWN: &str = "unknown";

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| UNKNOWN.to_owned());
    let memory = line_of("/proc/meminfo", "MemTotal")
        .and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or_else(
            || UNKNOWN.to_owned(),
            |kb| format!("{} GiB", kb.div_ceil(1 << 20)),
        );
    let kernel = first_word("/proc/sys/kernel/osrelease");
    format!("{cores} cores of {model}, {memory}, Linux {kernel}")
}

fn line_of(file: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(value.trim_start_matches([' ', '\t', ':']).trim().to_owned())
}

fn first_word(file: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().next().unwrap_or(UNKNOWN).to_owned()
}

fn commit() -> String {
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return UNKNOWN.to_owned();
    };
    // The results file is being written; a change of it does not change the program.
    let except = format!(":(exclude,top){RESULTS_FILE}");
    match git(&["status", "--porcelain", "--", ":/", &except]) {
        Some(changes) if changes.is_empty() => commit,
        Some(_) => format!("{commit}, with changes that are not committed"),
        None => format!("{commit}, changes unknown"),
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
