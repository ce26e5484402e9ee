//! An aggregator for the duration of a test: `tollgate serve` with a journal in its own directory, or on a Kafka,
//! on ports that the system chooses.
//!
//! It ends with its handle, and by itself when this process is gone, because it also watches its standard input.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::binary;
use crate::http;
use crate::kafka::LocalKafka;

/// How long it may take until it listens.
const START_WITHIN: Duration = Duration::from_secs(30);

/// An address whose port the system chooses.
pub const ANY: &str = "127.0.0.1:0";

/// A running aggregator.
#[derive(Debug)]
pub struct Serving {
    process: Child,
    lines: Receiver<String>,
    output: Vec<String>,
    /// The address that agents need.
    pub agents: String,
    /// The address of its HTTP interface.
    pub http: String,
    /// The address of its feed.
    pub feed: String,
    /// The address of its probes, if they have one of their own, which speaks no TLS.
    probe: Option<String>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The reader of a failed promise also needs the other side's output.
        if std::thread::panicking() {
            self.output.extend(self.lines.iter());
            eprintln!("the aggregator said:\n{}", self.output.join("\n"));
        }
    }
}

impl Serving {
    /// Starts an aggregator with these limits, with its journal in `dir`, and waits until it is ready: calls that
    /// the log takes before the limits are in force count nowhere. On a busy disk that takes a second.
    ///
    /// # Panics
    ///
    /// If it does not start, or is not ready in time.
    pub fn start(dir: &Path, limits: &str, partitions: u32) -> Self {
        let partitions = partitions.to_string();
        let serving = Self::start_at(dir, limits, ANY, &["--partitions", &partitions]);
        serving.await_ready();
        serving
    }

    /// Waits until it is ready. With TLS it needs `listen.probe`.
    ///
    /// # Panics
    ///
    /// If it is not ready in time.
    pub fn await_ready(&self) {
        let probe = self.probe.as_ref().unwrap_or(&self.http);
        let is_ready = || {
            let answer = http::get_text(probe.as_str(), "/readyz").unwrap_or_default();
            answer.contains(r#""ready":true"#)
        };
        let until = Instant::now() + START_WITHIN;
        while !is_ready() {
            assert!(Instant::now() < until, "it is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The same with an address for agents, and with further arguments; it may not be ready yet.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn start_at(dir: &Path, limits: &str, agents: &str, more: &[&str]) -> Self {
        let journal = dir.join("journal");
        let log: [&OsStr; 2] = ["--journal".as_ref(), journal.as_ref()];
        let more: Vec<&OsStr> = more.iter().map(OsStr::new).collect();
        Self::launch(dir, limits, agents, &[&log[..], &more].concat())
    }

    /// Starts an aggregator with these limits, on topics of a Kafka that begin with `prefix`.
    ///
    /// # Panics
    ///
    /// As [`Serving::start`].
    pub fn start_on(
        kafka: &LocalKafka,
        prefix: &str,
        dir: &Path,
        limits: &str,
        partitions: u32,
    ) -> Self {
        let config = dir.join("tollgate.toml");
        let text = format!("[limits]\nfollow_file = true\n[kafka]\npartitions = {partitions}\n");
        std::fs::write(&config, text).expect("a directory to write to");
        let args: [&OsStr; 6] = [
            "--config".as_ref(),
            config.as_ref(),
            "--kafka".as_ref(),
            kafka.bootstrap().as_ref(),
            "--topic-prefix".as_ref(),
            prefix.as_ref(),
        ];
        Self::launch(dir, limits, ANY, &args)
    }

    fn launch(dir: &Path, limits: &str, agents: &str, more: &[&OsStr]) -> Self {
        let limits_file = dir.join("limits.toml");
        std::fs::write(&limits_file, limits).expect("a directory to write to");
        let mut process = binary::tollgate()
            .args(["serve", "--with-stdin"])
            .args(["--http", ANY, "--agents", agents, "--feed", ANY])
            .arg("--limits")
            .arg(&limits_file)
            .args(more)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an aggregator");
        let log = process.stderr.take().expect("its log");
        let (sender, lines) = channel();
        // Its output is read to the end, or it would block at a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut serving = Self {
            process,
            lines,
            output: Vec::new(),
            agents: String::new(),
            http: String::new(),
            feed: String::new(),
            probe: None,
        };
        serving.await_addresses();
        serving
    }

    fn await_addresses(&mut self) {
        while self.http.is_empty() {
            let Ok(line) = self.lines.recv_timeout(START_WITHIN) else {
                panic!(
                    "the aggregator does not listen:\n{}",
                    self.output.join("\n")
                );
            };
            if let (Some(agents), Some(http)) =
                (value_of(&line, "agents="), value_of(&line, "http="))
            {
                (self.agents, self.http) = (agents, http);
                self.feed = value_of(&line, "feed=").unwrap_or_default();
                self.probe = value_of(&line, "probe=");
            }
            self.output.push(line);
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Freezes it, as a machine that hangs: connections stay open, and nothing is answered.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it continue.
    ///
    /// # Panics
    ///
    /// If the process is gone.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it lives");
    }

    /// Ends it by `kill -9`. Returns its output.
    ///
    /// # Panics
    ///
    /// If the process is gone already.
    pub fn kill(mut self) -> Vec<String> {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it has ended");
        self.output.extend(self.lines.iter());
        std::mem::take(&mut self.output)
    }

    /// Ends it as an operator does. Returns its output.
    ///
    /// # Panics
    ///
    /// If it does not end successfully.
    pub fn stop(mut self) -> Vec<String> {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("a command").success());
        let status = self.process.wait().expect("it has ended");
        self.output.extend(self.lines.iter());
        assert_eq!(status.code(), Some(0), "{}", self.output.join("\n"));
        std::mem::take(&mut self.output)
    }
}

fn value_of(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening ")?;
    let found = rest
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name));
    found.map(str::to_owned)
}
