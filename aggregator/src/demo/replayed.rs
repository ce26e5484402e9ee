//! The densest stretch of an access log as a schedule, played faster than recorded.
//!
//! Knows nothing of limits and of processes. What stays true: calls are in order of time, and are read and spread
//! as in backtests: stamps that are finer than a second are kept, and the requests of a whole second (or minute)
//! are spread evenly over it.

use std::collections::HashMap;
use std::path::PathBuf;

use super::schedule::{Schedule, ScheduledCall};
use tollgate_replay::backtest::inputs::Inputs;
use tollgate_replay::backtest::read::{Input, ReadFault, RowReading, read};
use tollgate_replay::backtest::tape::{Call, PlayOrder};
use tollgate_replay::traffic::{FileReading, Wanted};

/// An access log, and how to read it.
#[derive(Clone, Debug)]
pub struct AccessLog {
    /// The file.
    pub path: PathBuf,
    /// The resource that its requests hit.
    pub resource: String,
    /// How many times faster than recorded to play it.
    pub speed: u32,
    /// The settings for its format.
    pub wanted: Wanted,
    /// Whether calls with whole-second stamps are spread over the second.
    pub spread: bool,
}

/// The stretch taken from an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusyStretch {
    /// Lines of the log that are not blank, unreadable ones included.
    pub lines: u64,
    /// Unreadable lines.
    pub skipped: u64,
    /// The first second replayed, since the Unix epoch.
    pub from_s: u64,
    /// Seconds of the log that the replay covers.
    pub covered_s: u64,
    /// How the log was read.
    pub read_as: Vec<FileReading>,
    /// The time over which calls of one stamp were spread; 0: they were not.
    pub spread_us: u64,
    /// Notes for people about how it was read.
    pub notes: Vec<String>,
}

impl Schedule {
    /// The densest stretch of an access log that fills `seconds` at its speed, in any format that backtests read.
    ///
    /// # Errors
    ///
    /// [`ReadFault`].
    pub fn replay(
        log: &AccessLog,
        seconds: u64,
        agents: u32,
    ) -> Result<(Self, BusyStretch), ReadFault> {
        let speed = u64::from(log.speed).max(1);
        let name = log.path.display().to_string();
        let input = Input {
            path: log.path.clone(),
            name: name.clone(),
            kind: None,
        };
        let reading = RowReading {
            resource: log.resource.clone(),
            only_resource: None,
            only_domain: None,
            wanted: log.wanted.clone(),
            spread: log.spread,
            min: None,
            order: PlayOrder::Stamps,
            strict: false,
            stamps: (None, None),
        };
        let recording = read(&[input], &reading, &|_| {})?;
        let mut schedule = Self {
            resources: vec![log.resource.clone()],
            ..Self::default()
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut requests: Vec<ReplayedCall> = Vec::new();
        let mut each = |call: &Call| {
            let (_, domain) = recording.pairs.names(call.pair);
            let number = match numbers.get(domain) {
                Some(number) => *number,
                None => {
                    let number = schedule.domains.len() as u32;
                    schedule.domains.push(domain.to_owned());
                    numbers.insert(domain.to_owned(), number);
                    number
                }
            };
            requests.extend(replayed(call, number));
        };
        recording
            .tape
            .play(&mut each)
            .map_err(ReadFault::Temporary)?;
        if requests.is_empty() {
            return Err(ReadFault::Empty { name });
        }
        let wanted_s = seconds.saturating_mul(speed).max(1);
        let dense = densest(&requests, wanted_s);
        let from_s = dense[0].at_us / 1_000_000;
        let covered_s = dense[dense.len() - 1].at_us / 1_000_000 - from_s + 1;
        schedule.calls = scheduled(dense, from_s, speed, agents);
        let inputs = Inputs::new(vec![name], &recording, None, PlayOrder::Stamps);
        let stretch = BusyStretch {
            lines: inputs.rows,
            skipped: inputs.skipped,
            from_s,
            covered_s,
            notes: inputs.notes(),
            spread_us: inputs.spread_us,
            read_as: inputs.read_as,
        };
        Ok((schedule, stretch))
    }
}

/// A call of the log, which asks for copies.
#[derive(Clone, Copy, Debug)]
struct ReplayedCall {
    at_us: u64,
    domain: u32,
    copies: u32,
}

/// The calls of an entry of the recording.
fn replayed(entry: &Call, domain: u32) -> impl Iterator<Item = ReplayedCall> {
    let (calls, copies) = match entry.min {
        0 => (entry.copies, 1),
        _ => (1, entry.copies),
    };
    let call = ReplayedCall {
        at_us: entry.at.as_micros(),
        domain,
        copies,
    };
    std::iter::repeat_n(call, calls as usize)
}

/// The slice of at most `span_s` seconds with the most requests; of several, the first.
fn densest(requests: &[ReplayedCall], span_s: u64) -> &[ReplayedCall] {
    let second = |at: usize| requests[at].at_us / 1_000_000;
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

fn scheduled(
    requests: &[ReplayedCall],
    from_s: u64,
    speed: u64,
    agents: u32,
) -> Vec<ScheduledCall> {
    let call = |(number, call): (usize, &ReplayedCall)| ScheduledCall {
        at_us: (call.at_us - from_s * 1_000_000) / speed,
        // Round robin, so that the calls of one client reach the limiter through every agent.
        agent: number as u32 % agents,
        resource: 0,
        domain: call.domain,
        copies: call.copies,
    };
    requests.iter().enumerate().map(call).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn log(path: &Path, speed: u32) -> AccessLog {
        AccessLog {
            path: path.to_owned(),
            resource: "r".to_owned(),
            speed,
            wanted: Wanted::default(),
            spread: true,
        }
    }

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
        let (schedule, stretch) = Schedule::replay(&log(&path, 2), 1, 2).expect("a log");
        assert_eq!((stretch.lines, stretch.covered_s), (7, 2));
        let at: Vec<u64> = schedule.calls.iter().map(|call| call.at_us).collect();
        assert_eq!(at, [0, 166_666, 333_333, 500_000, 750_000]);
        assert_eq!(stretch.spread_us, 1_000_000);
        assert_eq!(stretch.read_as[0].form, "combined");
        assert!(
            stretch
                .notes
                .iter()
                .any(|note| note.contains("whole seconds"))
        );
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
        let (schedule, stretch) = Schedule::replay(&log(&path, 1), 20, 1).expect("a log");
        assert_eq!((stretch.lines, stretch.covered_s), (3, 2));
        let at: Vec<u64> = schedule.calls.iter().map(|call| call.at_us).collect();
        assert_eq!(at, [250_000, 500_000, 1_750_000]);
        std::fs::write(&path, "Time,Line\n1763632800,x\n").expect("written");
        let fault = Schedule::replay(&log(&path, 1), 20, 1).expect_err("no client");
        assert!(
            fault
                .to_string()
                .contains("no field is known as the client"),
            "{fault}"
        );
    }

    #[test]
    fn rows_ask_for_their_copies() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("calls.csv");
        std::fs::write(
            &path,
            "time,domain,copies\n1763632800,a,7\n1763632801,b,1\n",
        )
        .expect("written");
        let (schedule, _) = Schedule::replay(&log(&path, 1), 20, 1).expect("a log");
        let copies: Vec<u32> = schedule.calls.iter().map(|call| call.copies).collect();
        assert_eq!(copies, [7, 1]);
    }

    #[test]
    fn a_file_that_is_no_access_log_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notes.txt");
        std::fs::write(&path, "dear diary\n").expect("written");
        let fault = Schedule::replay(&log(&path, 60), 20, 2).expect_err("no log");
        assert!(
            fault
                .to_string()
                .contains("line 1: expected a line of the form that the file has"),
            "{fault}"
        );
    }
}
