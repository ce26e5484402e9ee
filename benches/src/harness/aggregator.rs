//! An aggregator for the time of a benchmark: `tollgate serve` with a journal in a directory of its
//! own, or on a Kafka, on ports of the system's choice.
//!
//! It ends with its handle, and by itself when this process is gone, because it also watches its
//! standard input.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};

use tempfile::TempDir;

use super::beside;
use super::kafka::LocalKafka;

/// How long it may take to listen.
const START_WITHIN: Duration = Duration::from_secs(20);

/// Lines of its log that are kept, to be shown if it does not start.
const LINES_KEPT: usize = 20;

/// A running aggregator.
pub struct Aggregator {
    process: Child,
    /// The address that agents need.
    pub agents: String,
    // Removed after the process has ended: fields are dropped in this order.
    _dir: TempDir,
}

impl Aggregator {
    /// Starts one that rules by these limits.
    ///
    /// # Errors
    ///
    /// Where it cannot be built, started, or does not listen in time.
    pub fn start(limits: &str, partitions: u32) -> anyhow::Result<Self> {
        let dir = place()?;
        let args = [
            "--partitions".into(),
            partitions.to_string().into(),
            "--journal".into(),
            dir.path().join("journal").into(),
        ];
        Self::launch(dir, limits, &args)
    }

    /// Starts one on topics of a Kafka that begin with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_on(
        kafka: &LocalKafka,
        prefix: &str,
        limits: &str,
        partitions: u32,
    ) -> anyhow::Result<Self> {
        let dir = place()?;
        let config = dir.path().join("tollgate.toml");
        let text = format!("[limits]\nfollow_file = true\n[kafka]\npartitions = {partitions}\n");
        std::fs::write(&config, text)?;
        let args = [
            "--config".into(),
            config.into(),
            "--kafka".into(),
            kafka.bootstrap().into(),
            "--topic-prefix".into(),
            prefix.into(),
        ];
        Self::launch(dir, limits, &args)
    }

    fn launch(dir: TempDir, limits: &str, log: &[OsString]) -> anyhow::Result<Self> {
        let program = beside::program("tollgate", "tollgate")?;
        let limits_file = dir.path().join("limits.toml");
        std::fs::write(&limits_file, limits)?;
        let any = "127.0.0.1:0";
        let mut process = Command::new(program)
            .args([
                "serve",
                "--with-stdin",
                "--http",
                any,
                "--agents",
                any,
                "--feed",
                any,
            ])
            .args(log)
            .arg("--limits")
            .arg(&limits_file)
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting an aggregator")?;
        let log = process.stderr.take();
        let mut aggregator = Self {
            process,
            agents: String::new(),
            _dir: dir,
        };
        let (sender, lines) = channel();
        if let Some(log) = log {
            // Its log is read to the end, or it would stop at a full pipe.
            std::thread::spawn(move || {
                for line in BufReader::new(log).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        aggregator.agents = listening(&lines)?;
        Ok(aggregator)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn place() -> std::io::Result<TempDir> {
    tempfile::Builder::new().prefix("tollgate-bench-").tempdir()
}

fn listening(lines: &Receiver<String>) -> anyhow::Result<String> {
    let mut last = VecDeque::new();
    loop {
        match lines.recv_timeout(START_WITHIN) {
            Ok(line) => {
                if let Some(address) = agents_address(&line) {
                    return Ok(address);
                }
                last.push_back(line);
                if LINES_KEPT < last.len() {
                    last.pop_front();
                }
            }
            Err(cause) => {
                let why = match cause {
                    RecvTimeoutError::Timeout => "does not listen",
                    RecvTimeoutError::Disconnected => "ended",
                };
                bail!("the aggregator {why}:\n{}", Vec::from(last).join("\n"));
            }
        }
    }
}

fn agents_address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening ")?;
    let address = rest
        .split_whitespace()
        .find_map(|word| word.strip_prefix("agents="))?;
    Some(address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregator_says_where_agents_reach_it() {
        let line = "INFO tollgate: listening http=127.0.0.1:1 agents=127.0.0.1:2 feed=127.0.0.1:3";
        assert_eq!(agents_address(line).as_deref(), Some("127.0.0.1:2"));
        assert_eq!(agents_address("listening to nobody"), None);
    }
}
