//! Processes that hold copies, to be killed: started, listened to, and gone with their handles.
//!
//! ```text
//! Place      an aggregator, and its Kafka if it has one
//! Holder     one process: churns at random, settles when told, is killed with signal 9
//! kills      many of them killed, and counts compared after every round
//! ```
//!
//! Knows no limits. What stays true: a process ends with its handle, and by itself when this process is
//! gone, because it watches its standard input.

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
use process::Said;

/// Long before this everything is over; the machine may be busy.
pub const SOON: Duration = Duration::from_secs(60);

/// How often counts are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Where holders go.
#[derive(Clone, Debug)]
pub struct Place {
    /// The aggregator's address for agents.
    pub agents: String,
    /// The aggregator's HTTP.
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
    said: Receiver<Said>,
}

/// Copies by domain.
pub type ByDomain = BTreeMap<String, u64>;

/// What an aggregator says of one resource's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The resource's own count.
    pub total: u64,
    /// Sums of what is listed as held or staged.
    pub domains: ByDomain,
    /// Sums of what is listed as held, by agent.
    pub agents: ByDomain,
    /// Copies that are staged.
    pub staged: u64,
}

impl Place {
    /// Where an aggregator is, with a journal.
    pub fn of(serving: &Serving) -> Self {
        Self {
            agents: serving.agents.clone(),
            http: serving.http.clone(),
            kafka: None,
        }
    }

    /// What is counted of a resource. None while some of it is not ruled.
    ///
    /// # Panics
    ///
    /// Where the aggregator answers nonsense.
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
                // Of a gone agent: it does not count.
                _ => continue,
            }
            *counted.domains.entry(text("domain")).or_default() += copies;
        }
        Some(counted)
    }

    /// Waits until exactly this is counted of a resource.
    ///
    /// # Panics
    ///
    /// Where it is not in time.
    #[track_caller]
    pub fn await_counted(&self, resource: &str, expected: &Counted) {
        let last = self.counted_in_the_end(resource, expected);
        assert_eq!(&last, expected, "counted for ever (left)");
    }

    /// What is counted of a resource once it is what is expected, or when that can be no more.
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
    /// Where there is none.
    pub fn metric(&self, name: &str) -> f64 {
        let text = http::get_text(self.http.as_str(), "/metrics").expect("an answer");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }
}

impl Counted {
    /// What has to be counted where these hold that.
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

    /// Of one domain.
    pub fn of_domain(&self, domain: &str) -> u64 {
        self.domains.get(domain).copied().unwrap_or(0)
    }
}

impl Holder {
    /// Starts one. It is not awaited; see [`Holder::await_holding`].
    ///
    /// # Panics
    ///
    /// Where it cannot be started.
    pub fn start(place: &Place, name: &str, seed: u64, more: &[&str]) -> Self {
        let mut command = binary::command("tollgate-test-holder");
        command
            .args(["--name", name, "--aggregator", &place.agents])
            .args(["--seed", &seed.to_string()])
            .args(more);
        if let Some((bootstrap, prefix)) = &place.kafka {
            command.args(["--kafka", bootstrap, "--topic-prefix", prefix]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a holder");
        let output = child.stdout.take().expect("its output");
        let (sender, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // What is cut off by the kill was not said.
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
            said,
        }
    }

    /// Waits until it holds, by the aggregators' word.
    ///
    /// # Panics
    ///
    /// Where that takes too long.
    pub fn await_holding(&self) {
        let until = Instant::now() + SOON;
        while self.next(until) != Said::Holding {}
    }

    /// Has it stop churning. What it holds then, and goes on holding.
    ///
    /// # Panics
    ///
    /// Where it does not say.
    pub fn settle(&mut self) -> ByDomain {
        self.tell("settle");
        let until = Instant::now() + SOON;
        loop {
            if let Said::Holds(holds) = self.next(until) {
                return holds;
            }
        }
    }

    /// Has it churn again.
    pub fn go_on(&mut self) {
        self.tell("go");
    }

    /// Has it stand still, as a machine that hangs.
    ///
    /// # Panics
    ///
    /// Where it is gone.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on.
    ///
    /// # Panics
    ///
    /// Where it is gone.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process"), signal).expect("it lives");
    }

    /// Kills it with signal 9, while it does whatever it does. What it had said and nobody had heard.
    ///
    /// # Panics
    ///
    /// Where it had ended by itself.
    pub fn kill(mut self) -> Vec<Said> {
        self.child.kill().expect("killed");
        let status = self.child.wait().expect("it is gone");
        assert_eq!(status.code(), None, "{}: ended by itself", self.name);
        self.said.iter().collect()
    }

    /// What it has said since it was listened to last.
    pub fn said(&self) -> Vec<Said> {
        self.said.try_iter().collect()
    }

    fn next(&self, until: Instant) -> Said {
        let left = until.saturating_duration_since(Instant::now());
        let said = self.said.recv_timeout(left);
        said.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is told things");
        writeln!(stdin, "{line}").expect("it listens");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
