//! Processes that hold copies, for tests that kill them: started, read, and ended with their handles.
//!
//! ```text
//! Place      an aggregator, and its Kafka if it has one
//! Holder     one process: churns at random, settles on command, is killed with signal 9
//! kills      kills many of them, and compares counts after every round
//! ```
//!
//! Knows no limits. What stays true: a process ends with its handle, and by itself when this
//! process has ended, because it watches its standard input.

pub mod kills;
pub mod process;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::serving::Serving;
use crate::{binary, http};
use process::HolderLine;

/// Far more than anything here takes; the machine may be busy.
pub const SOON: Duration = Duration::from_secs(60);

/// How often counts are queried.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Where holders connect.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// The aggregator's address for agents.
    pub agents: String,
    /// The aggregator's HTTP address.
    pub http: String,
    /// Address and topic prefix of the Kafka that agents write to.
    pub kafka: Option<(String, String)>,
}

/// A process that holds copies.
#[derive(Debug)]
pub struct Holder {
    /// The agent's name.
    pub name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    output: Receiver<HolderLine>,
}

/// Copies by domain.
pub type ByDomain = BTreeMap<String, u64>;

/// An aggregator's counts of one resource's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The resource's own count.
    pub total: u64,
    /// Sums of listed held or staged copies.
    pub domains: ByDomain,
    /// Sums of listed held copies, by agent.
    pub agents: ByDomain,
    /// Copies that are staged.
    pub staged: u64,
}

impl Endpoints {
    /// The endpoints of an aggregator with a journal.
    pub fn of(serving: &Serving) -> Self {
        Self {
            agents: serving.agents.clone(),
            http: serving.http.clone(),
            kafka: None,
        }
    }

    /// The counts of a resource. `None` while some partitions have no ruling aggregator.
    ///
    /// # Panics
    ///
    /// If the aggregator's answer is invalid.
    pub fn counted(&self, resource: &str) -> Option<Counted> {
        let path = format!("/v1/holds?resource={resource}&limit=10000");
        let view = http::get(self.http.as_str(), &path)?;
        if view["partitions_missing"] != Value::Array(Vec::new()) {
            return None;
        }
        assert_eq!(view["more"], false, "all are listed");
        let list = |field: &str| view[field].as_array().expect("a list").clone();
        let number = |of: &Value| of["copies"].as_u64().expect("copies");
        let mut counted = Counted {
            total: list("resources").iter().map(number).sum(),
            ..Counted::default()
        };
        for hold in list("holds") {
            let text = |field: &str| hold[field].as_str().unwrap_or_default().to_owned();
            let copies = number(&hold);
            match &*text("state") {
                "held" => *counted.agents.entry(text("agent")).or_default() += copies,
                "staged" => counted.staged += copies,
                // A hold of a gone agent does not count.
                _ => continue,
            }
            *counted.domains.entry(text("domain")).or_default() += copies;
        }
        Some(counted)
    }

    /// Waits until the counts of a resource are exactly these.
    ///
    /// # Panics
    ///
    /// If they are not in time.
    #[track_caller]
    pub fn await_counted(&self, resource: &str, expected: &Counted) {
        let last = self.counted_in_the_end(resource, expected);
        assert_eq!(&last, expected, "counted for ever (left)");
    }

    /// The counts of a resource once they are the expected ones, or when the time is over.
    pub fn counted_in_the_end(&self, resource: &str, expected: &Counted) -> Counted {
        let until = Instant::now() + SOON;
        let mut last = Counted::default();
        loop {
            if let Some(now) = self.counted(resource) {
                last = now;
                if last == *expected {
                    return last;
                }
            }
            if until < Instant::now() {
                return last;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The value of a metric.
    ///
    /// # Panics
    ///
    /// If there is no such metric.
    pub fn metric(&self, name: &str) -> f64 {
        let text = http::get_text(self.http.as_str(), "/metrics").expect("an answer");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }
}

impl Counted {
    /// The expected counts if these holders hold these copies.
    pub fn of<'a>(held: impl IntoIterator<Item = (&'a Holder, &'a ByDomain)>) -> Self {
        let mut counted = Self::default();
        for (holder, held) in held {
            for (domain, copies) in held {
                *counted.domains.entry(domain.clone()).or_default() += copies;
                *counted.agents.entry(holder.name.clone()).or_default() += copies;
                counted.total += copies;
            }
        }
        counted
    }

    /// The count of one domain.
    pub fn of_domain(&self, domain: &str) -> u64 {
        self.domains.get(domain).copied().unwrap_or(0)
    }
}

impl Holder {
    /// Starts a holder without waiting for it; see [`Holder::await_holding`].
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(endpoints: &Endpoints, name: &str, seed: u64, more: &[&str]) -> Self {
        let mut command = binary::command("tollgate-test-holder");
        command
            .args(["--name", name, "--aggregator", &endpoints.agents])
            .args(["--seed", &seed.to_string()])
            .args(more);
        if let Some((bootstrap, prefix)) = &endpoints.kafka {
            command.args(["--kafka", bootstrap, "--topic-prefix", prefix]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a holder");
        let output = child.stdout.take().expect("its output");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // A line that the kill cut off does not count.
                if let Ok(one) = serde_json::from_str(&line)
                    && sender.send(one).is_err()
                {
                    return;
                }
            }
        });
        Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            child,
            output: lines,
        }
    }

    /// Waits until it holds copies that the aggregators have confirmed.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn await_holding(&self) {
        let until = Instant::now() + SOON;
        while self.next(until) != HolderLine::Holding {}
    }

    /// Makes it stop churning. Returns what it then holds, and keeps holding.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub fn settle(&mut self) -> ByDomain {
        self.tell("settle");
        let until = Instant::now() + SOON;
        loop {
            if let HolderLine::Holds(holds) = self.next(until) {
                return holds;
            }
        }
    }

    /// Makes it churn again.
    pub fn go_on(&mut self) {
        self.tell("go");
    }

    /// Suspends it, like a machine that hangs.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it.
    ///
    /// # Panics
    ///
    /// If it has ended.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it lives");
    }

    /// Kills it with signal 9, whatever it is doing. Returns the lines that it wrote and that were
    /// not read yet.
    ///
    /// # Panics
    ///
    /// If it had ended by itself.
    pub fn kill(mut self) -> Vec<HolderLine> {
        self.child.kill().expect("killed");
        let status = self.child.wait().expect("it is gone");
        assert_eq!(status.code(), None, "{}: ended by itself", self.name);
        self.output.iter().collect()
    }

    /// The lines that it wrote since they were last read.
    pub fn output(&self) -> Vec<HolderLine> {
        self.output.try_iter().collect()
    }

    fn next(&self, until: Instant) -> HolderLine {
        let left = until.saturating_duration_since(Instant::now());
        let line = self.output.recv_timeout(left);
        line.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is told things");
        writeln!(stdin, "{line}").expect("it listens");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
