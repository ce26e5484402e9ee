//! An aggregator for the time of a test: `tollgate serve` with a journal in a directory of its own, on
//! ports of the system's choice.
//!
//! It ends with its handle, and by itself when this process is gone, because it also watches its
//! standard input.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::binary;

/// How long it may take to listen.
const START_WITHIN: Duration = Duration::from_secs(30);

/// A running aggregator.
#[derive(Debug)]
pub struct Serving {
    process: Child,
    /// The address that agents need.
    pub agents: String,
    /// The address of its HTTP interface.
    pub http: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    /// Starts one that rules by these limits, with its journal in `dir`.
    ///
    /// # Panics
    ///
    /// Where it does not start, or does not listen in time.
    pub fn start(dir: &Path, limits: &str, partitions: u32) -> Self {
        let limits_file = dir.join("limits.toml");
        std::fs::write(&limits_file, limits).expect("a directory to write to");
        let any = "127.0.0.1:0";
        let mut process = binary::tollgate()
            .args(["serve", "--with-stdin", "--partitions"])
            .arg(partitions.to_string())
            .args(["--http", any, "--agents", any, "--feed", any])
            .arg("--journal")
            .arg(dir.join("journal"))
            .arg("--limits")
            .arg(&limits_file)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an aggregator");
        let log = process.stderr.take().expect("its log");
        let (sender, lines) = channel();
        // Its log is read to the end, or it would stop at a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut serving = Self {
            process,
            agents: String::new(),
            http: String::new(),
        };
        (serving.agents, serving.http) = listening(&lines);
        serving
    }
}

fn listening(lines: &Receiver<String>) -> (String, String) {
    let mut log = Vec::new();
    loop {
        let Ok(line) = lines.recv_timeout(START_WITHIN) else {
            panic!("the aggregator does not listen:\n{}", log.join("\n"));
        };
        if let (Some(agents), Some(http)) = (word(&line, "agents="), word(&line, "http=")) {
            return (agents, http);
        }
        log.push(line);
    }
}

fn word(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once("listening ")?;
    let found = rest
        .split_whitespace()
        .find_map(|word| word.strip_prefix(name));
    found.map(str::to_owned)
}
