//! HTTP over a Unix socket, as a web server sends it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{CONNECTIONS, DOMAINS, DoorRounds, FOUND_AGAIN, LIMITS, ROUNDS, RunningGateway};
use super::{START_WITHIN, WARM_UP, time_of};
use crate::harness::Session;
use crate::harness::aggregator::Aggregator;
use crate::harness::figure::Target;
use crate::load::names::domain;

const TARGETS: [Option<Target>; 3] = [
    Some(Target::AtMost(60.0)),
    None,
    Some(Target::AtLeast(40_000.0)),
];

/// Runs the benchmark.
///
/// # Errors
///
/// If a process does not start, or a request is refused.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let time = time_of(session);
    let mut aggregator = Aggregator::start(LIMITS, 16)?;
    let gateway = RunningGateway::start(&aggregator.agents)?;
    let socket = gateway.socket.as_path();
    Asker::connect(socket)?.ask_for(WARM_UP)?;
    let (mut rounds, mut without) = (DoorRounds::default(), DoorRounds::default());
    for round in 1..=ROUNDS {
        session.step(&format!("round {round} of {ROUNDS}"));
        measure(socket, time, &mut rounds)?;
        aggregator.kill()?;
        measure(socket, time, &mut without)?;
        aggregator.again()?;
        std::thread::sleep(FOUND_AGAIN);
    }
    let name = "GET /v1/authorize over a Unix socket";
    let figures = rounds.figures(name);
    for (figure, target) in figures.into_iter().zip(TARGETS) {
        if let Some(figure) = figure {
            session.add(match target {
                Some(target) => figure.target(target),
                None => figure,
            });
        }
    }
    let without = without.without_aggregator(&rounds, name);
    without
        .into_iter()
        .flatten()
        .for_each(|figure| session.add(figure));
    Ok(())
}

fn measure(socket: &Path, time: Duration, into: &mut DoorRounds) -> anyhow::Result<()> {
    let took = Asker::connect(socket)?.take_times(time)?;
    into.add(took, many(socket, time)?);
    Ok(())
}

/// Decisions per second of all connections together.
fn many(socket: &Path, time: Duration) -> anyhow::Result<f64> {
    let askers: anyhow::Result<Vec<Asker>> =
        (0..CONNECTIONS).map(|_| Asker::connect(socket)).collect();
    let threads: Vec<_> = askers?
        .into_iter()
        .map(|mut asker| {
            std::thread::spawn(move || {
                let begin = Instant::now();
                let requests = asker.take_times(time)?.len();
                anyhow::Ok(requests as f64 / begin.elapsed().as_secs_f64())
            })
        })
        .collect();
    let mut all = 0.0;
    for thread in threads {
        all += thread
            .join()
            .map_err(|_| anyhow::anyhow!("a connection's thread panicked"))??;
    }
    Ok(all)
}

/// One connection.
struct Asker {
    stream: BufReader<UnixStream>,
    request: Vec<u8>,
    line: String,
    number: u32,
}

impl Asker {
    fn connect(socket: &Path) -> anyhow::Result<Self> {
        let until = Instant::now() + START_WITHIN;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    return Ok(Self {
                        stream: BufReader::new(stream),
                        request: Vec::new(),
                        line: String::new(),
                        number: 0,
                    });
                }
                Err(error) if until < Instant::now() => return Err(error).context("the gateway"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn ask_for(&mut self, requests: u32) -> anyhow::Result<()> {
        for _ in 0..requests {
            self.ask()?;
        }
        Ok(())
    }

    /// Sends requests for this long. Returns how long each answer took, in nanoseconds.
    fn take_times(&mut self, time: Duration) -> anyhow::Result<Vec<u64>> {
        let (begin, mut took) = (Instant::now(), Vec::new());
        while begin.elapsed() < time {
            let sent_at = Instant::now();
            self.ask()?;
            took.push(u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(took)
    }

    fn ask(&mut self) -> anyhow::Result<()> {
        self.number = self.number.wrapping_add(61);
        let domain = domain(self.number % DOMAINS);
        self.request.clear();
        write!(
            self.request,
            "GET /v1/authorize/api.search?domain=name:{domain} HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )?;
        self.stream.get_mut().write_all(&self.request)?;
        self.read_line()?;
        ensure!(
            self.line.starts_with("HTTP/1.1 200"),
            "refused: {:?}",
            self.line
        );
        let mut length = 0;
        loop {
            self.read_line()?;
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let read = std::io::copy(&mut (&mut self.stream).take(length), &mut std::io::sink())?;
        ensure!(read == length, "the answer is cut");
        Ok(())
    }

    fn read_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        ensure!(
            self.stream.read_line(&mut self.line)? != 0,
            "the gateway ended the connection"
        );
        Ok(())
    }
}
