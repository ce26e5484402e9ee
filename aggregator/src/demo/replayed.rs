//! The densest stretch of an access log as a schedule, played faster than it was.
//!
//! Knows nothing of limits and of processes. What stays true: calls are in order of time; stamps that are finer than a
//! second are kept, and the requests of a whole second are spread evenly over it.

use std::collections::HashMap;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::path::Path;

use super::schedule::{Call, Schedule};
use tollgate_replay::traffic::rows::Opened;
use tollgate_replay::traffic::{self, Row, Rows, Unreadable, Wanted};

/// What was taken from an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Lines of the log, unreadable ones included.
    pub lines: u64,
    /// Unreadable lines.
    pub skipped: u64,
    /// The first second replayed, since the Unix epoch.
    pub from_s: u64,
    /// Seconds of the log that the replay covers.
    pub covered_s: u64,
}

/// Why an access log cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What was said.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error(
        "{path}: no line can be read as an access log; line {line}: expected {expected}, found {found:?}"
    )]
    Empty {
        /// The file.
        path: String,
        /// The first unreadable line, 0 for an empty file.
        line: u64,
        /// What was expected there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// Its form, or its client, is not known.
    #[error("{path}: {what}")]
    Misfit {
        /// The file.
        path: String,
        /// What does not fit.
        what: String,
    },
}

impl LogFault {
    fn empty(path: String, first: Option<&Unreadable>) -> Self {
        Self::Empty {
            path,
            line: first.map_or(0, |unreadable| unreadable.line),
            expected: first.map_or("at least one line", |unreadable| unreadable.expected),
            found: first.map_or_else(String::new, |unreadable| unreadable.found.clone()),
        }
    }
}

/// The rows of a file that `path` names.
fn opened(file: &Path, path: &str) -> Result<Rows<Box<dyn BufRead + Send>>, LogFault> {
    let path = || path.to_owned();
    let read = |source| LogFault::Read {
        path: path(),
        source,
    };
    let reader = traffic::open(file).map_err(read)?;
    let misfit = |what| LogFault::Misfit { path: path(), what };
    match Rows::open(reader, &Wanted::default()).map_err(read)? {
        Opened::Rows(rows) => match rows.told().lacks_client.clone() {
            Some(what) => Err(misfit(what)),
            None => Ok(rows),
        },
        Opened::Misfit(what) => Err(misfit(what)),
        Opened::NoColumns(first) => Err(LogFault::empty(path(), Some(&first))),
    }
}

impl Schedule {
    /// The densest stretch of an access log that fills `seconds` at `speed`, in any form that backtests read.
    ///
    /// Where the log's stamps are whole seconds, the requests of one second are spread evenly over it.
    ///
    /// # Errors
    ///
    /// [`LogFault`].
    pub fn replay(
        path: &Path,
        resource: &str,
        speed: u64,
        seconds: u64,
        agents: u32,
    ) -> Result<(Self, Stretch), LogFault> {
        let shown = path.display().to_string();
        let mut log = opened(path, &shown)?;
        let mut schedule = Self {
            resources: vec![resource.to_owned()],
            ..Self::default()
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut requests: Vec<(u64, u32)> = Vec::new();
        let mut each = |row: Row<'_>| {
            let client = row.domain.ok_or("a client")?;
            let domain = match numbers.get(&*client) {
                Some(number) => *number,
                None => {
                    let number = schedule.domains.len() as u32;
                    schedule.domains.push(client.clone().into_owned());
                    numbers.insert(client.into_owned(), number);
                    number
                }
            };
            requests.push((row.at.as_micros(), domain));
            Ok(())
        };
        log.for_each(&mut each, &mut |_| ControlFlow::Continue(()))
            .map_err(|source| LogFault::Read {
                path: shown.clone(),
                source,
            })?;
        let log = log.lines();
        if requests.is_empty() {
            return Err(LogFault::empty(shown, log.unreadable().first()));
        }
        // A stable sort: lines of one instant keep the order of the file.
        requests.sort_by_key(|(at_us, _)| *at_us);
        let wanted_s = seconds.saturating_mul(speed).max(1);
        let dense = densest(&requests, wanted_s);
        let from_s = dense[0].0 / 1_000_000;
        let covered_s = dense[dense.len() - 1].0 / 1_000_000 - from_s + 1;
        schedule.calls = spread(dense, from_s, speed, agents);
        let stretch = Stretch {
            lines: log.number(),
            skipped: log.skipped(),
            from_s,
            covered_s,
        };
        Ok((schedule, stretch))
    }
}

/// The slice of at most `span_s` seconds with the most requests; the first of several.
fn densest(requests: &[(u64, u32)], span_s: u64) -> &[(u64, u32)] {
    let second = |at: usize| requests[at].0 / 1_000_000;
    let (mut best, mut from) = (0..0, 0);
    for to in 0..requests.len() {
        while span_s <= second(to) - second(from) {
            from += 1;
        }
        if best.len() < to + 1 - from {
            best = from..to + 1;
        }
    }
    &requests[best]
}

fn spread(requests: &[(u64, u32)], from_s: u64, speed: u64, agents: u32) -> Vec<Call> {
    let mut calls = Vec::with_capacity(requests.len());
    let are_whole = requests.iter().all(|(at_us, _)| at_us % 1_000_000 == 0);
    for second in requests.chunk_by(|a, b| a.0 / 1_000_000 == b.0 / 1_000_000) {
        for (number, (at_us, domain)) in second.iter().enumerate() {
            let within_us = match are_whole {
                true => number as u64 * 1_000_000 / second.len() as u64,
                false => 0,
            };
            let log_us = at_us - from_s * 1_000_000 + within_us;
            // Turn by turn: the calls of one client then reach the limiter through every agent.
            let agent = calls.len() as u32 % agents;
            calls.push(Call {
                at_us: log_us / speed,
                agent,
                resource: 0,
                domain: *domain,
                copies: 1,
            });
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_densest_stretch_is_replayed_with_each_second_spread() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("access.log");
        let line = |second: u32, client: u32| {
            format!("10.0.0.{client} - - [20/Feb/2016:00:00:{second:02} +0000] \"GET /\" 200 1\n")
        };
        // Five requests in seconds 10 and 11, two elsewhere, one of them out of order.
        let text: String = [(1, 1), (10, 1), (10, 2), (11, 1), (40, 3), (10, 3), (11, 2)]
            .map(|(s, c)| line(s, c))
            .concat();
        std::fs::write(&path, text).expect("written");
        let (schedule, stretch) = Schedule::replay(&path, "r", 2, 1, 2).expect("a log");
        assert_eq!((stretch.lines, stretch.covered_s), (7, 2));
        let at: Vec<u64> = schedule.calls.iter().map(|call| call.at_us).collect();
        assert_eq!(at, [0, 166_666, 333_333, 500_000, 750_000]);
        assert_eq!(
            schedule
                .calls
                .iter()
                .map(|call| call.agent)
                .collect::<Vec<_>>(),
            [0, 1, 0, 1, 0]
        );
    }

    #[test]
    fn stamps_that_are_finer_than_a_second_are_kept_in_any_form() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("caddy.log");
        let object =
            |at: f64| format!("{{\"ts\":{at},\"request\":{{\"client_ip\":\"10.0.0.1\"}}}}\n");
        let text: String = [1_763_632_800.25, 1_763_632_800.5, 1_763_632_801.75]
            .map(object)
            .concat();
        std::fs::write(&path, text).expect("written");
        let (schedule, stretch) = Schedule::replay(&path, "r", 1, 20, 1).expect("a log");
        assert_eq!((stretch.lines, stretch.covered_s), (3, 2));
        let at: Vec<u64> = schedule.calls.iter().map(|call| call.at_us).collect();
        assert_eq!(at, [250_000, 500_000, 1_750_000]);
        std::fs::write(&path, "Time,Line\n1763632800,x\n").expect("written");
        let fault = Schedule::replay(&path, "r", 1, 20, 1).expect_err("no client");
        assert!(
            fault
                .to_string()
                .contains("no field is known as the client"),
            "{fault}"
        );
    }

    #[test]
    fn what_is_no_access_log_is_refused_with_its_first_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, "dear diary\n").expect("written");
        let fault = Schedule::replay(&path, "r", 60, 20, 2).expect_err("no log");
        assert!(
            fault
                .to_string()
                .contains("line 1: expected a line of the form that the file has"),
            "{fault}"
        );
    }
}
