//! An aggregator during a benchmark: `tollgate serve` with a journal in a directory of its own, or
//! on a Kafka, on ports of the system's choice.
//!
//! It ends with its handle, and by itself when this process ends, because it also watches its
//! standard input.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, bail};

use tempfile::TempDir;

use super::kafka::LocalKafka;
use super::{beside, secured};

/// How long it may take to start listening.
const START_WITHIN: Duration = Duration::from_secs(20);

/// How many lines of its output are kept, to be shown if it does not start.
const LINES_KEPT: usize = 20;

/// A running aggregator.
pub struct Aggregator {
    process: Child,
    /// The address for agents.
    pub agents: String,
    is_secured: bool,
    /// Its addresses and its other arguments, for a restart.
    at: Listening,
    args: Vec<OsString>,
    // Removed after the process has ended, since fields are dropped in order.
    dir: TempDir,
}

impl Aggregator {
    /// Starts an aggregator with these limits.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started, or does not listen in time.
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

    /// Starts an aggregator with TLS, which requires tokens of agents.
    ///
    /// # Errors
    ///
    /// As [`Self::start`], and if keys cannot be created.
    pub fn start_secured(limits: &str, partitions: u32) -> anyhow::Result<Self> {
        let dir = place()?;
        secured::make(dir.path())?;
        let config = dir.path().join("tollgate.toml");
        std::fs::write(&config, secured::CONFIG)?;
        let args = [
            "--config".into(),
            config.into(),
            "--partitions".into(),
            partitions.to_string().into(),
            "--journal".into(),
            dir.path().join("journal").into(),
        ];
        let mut started = Self::launch(dir, limits, &args)?;
        started.is_secured = true;
        Ok(started)
    }

    /// What an agent needs to reach it: its address and, with TLS, the directory of the keys.
    pub fn place(&self) -> Vec<String> {
        let mut place = vec![self.agents.clone()];
        if self.is_secured {
            place.push(self.dir.path().display().to_string());
        }
        place
    }

    /// Starts an aggregator on topics of a Kafka that begin with `prefix`.
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
        let limits_file = dir.path().join("limits.toml");
        std::fs::write(&limits_file, limits)?;
        let mut args: Vec<OsString> = log.to_vec();
        args.extend(["--limits".into(), limits_file.into()]);
        let any = || "127.0.0.1:0".to_owned();
        let at = Listening {
            http: any(),
            agents: any(),
            feed: any(),
        };
        let (process, at) = started(&dir, &at, &args)?;
        Ok(Self {
            process,
            agents: at.agents.clone(),
            is_secured: false,
            at,
            args,
            dir,
        })
    }

    /// Kills it, with signal 9.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Restarts it after [`Self::kill`], on its journal and at its addresses.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn again(&mut self) -> anyhow::Result<()> {
        (self.process, self.at) = started(&self.dir, &self.at, &self.args)?;
        Ok(())
    }

    /// Its process id.
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

/// The addresses of an aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listening {
    http: String,
    agents: String,
    feed: String,
}

/// Starts a process, and returns its addresses.
fn started(dir: &TempDir, at: &Listening, args: &[OsString]) -> anyhow::Result<(Child, Listening)> {
    let program = beside::program("tollgate", "tollgate")?;
    let mut process = Command::new(program)
        .args(["serve", "--with-stdin"])
        .args(["--http", &at.http, "--agents", &at.agents])
        .args(["--feed", &at.feed])
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting an aggregator")?;
    let log = process.stderr.take();
    let (sender, lines) = channel();
    if let Some(log) = log {
        // Read its output to the end, or it would block on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
    }
    match listening(&lines) {
        Ok(at) => Ok((process, at)),
        Err(error) => {
            let _ = process.kill();
            let _ = process.wait();
            Err(error)
        }
    }
}

fn listening(lines: &Receiver<String>) -> anyhow::Result<Listening> {
    let mut last = VecDeque::new();
    loop {
        match lines.recv_timeout(START_WITHIN) {
            Ok(line) => {
                if let Some(at) = Listening::in_line(&line) {
                    return Ok(at);
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

impl Listening {
    fn in_line(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once("listening ")?;
        let of = |name: &str| {
            let mut words = rest.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.map(str::to_owned)
        };
        Some(Self {
            http: of("http")?,
            agents: of("agents")?,
            feed: of("feed")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregator_says_where_agents_reach_it() {
        let line = "INFO tollgate: listening http=127.0.0.1:1 agents=127.0.0.1:2 feed=127.0.0.1:3";
        let at = Listening::in_line(line).expect("a line that says it");
        let found = [&*at.http, &*at.agents, &*at.feed];
        assert_eq!(found, ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]);
        assert_eq!(Listening::in_line("listening to nobody"), None);
    }
}
