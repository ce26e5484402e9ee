//! An aggregator of a fleet during a benchmark: the benchmark queries it by HTTP, kills it, and restarts it on the
//! same topics.
//!
//! What stays true: it ends with its handle.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;
use tollgate_log::Stream;
use tollgate_log::kafka::reader::{KafkaRead, KafkaReader};
use tollgate_server::config::Config;
use tollgate_shared::wire::record::Record;

use super::beside;
use super::kafka::LocalKafka;

const START_WITHIN: Duration = Duration::from_secs(20);

/// A running aggregator.
pub struct ServingAggregator {
    process: Child,
    /// The address for agents.
    pub agents: String,
    http: String,
    lines: Arc<Mutex<Vec<String>>>,
    _dir: TempDir,
}

impl ServingAggregator {
    /// Starts an aggregator; `properties` are lines of `[kafka.properties]`, in which NAME stands for its name.
    ///
    /// # Errors
    ///
    /// If it does not listen in time.
    pub fn start(
        kafka: &LocalKafka,
        prefix: &str,
        name: &str,
        limits: &str,
        partitions: u32,
        properties: &[&str],
    ) -> anyhow::Result<Self> {
        let properties = properties.join("\n").replace("NAME", name);
        let fleet = format!("partitions = {partitions}\n[kafka.properties]\n{properties}\n");
        Self::start_with(&fleet, kafka, prefix, name, limits)
    }

    /// Starts an aggregator in a group of its own, beside others that rule the same.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_in(
        group: &str,
        kafka: &LocalKafka,
        prefix: &str,
        name: &str,
        limits: &str,
        partitions: u32,
    ) -> anyhow::Result<Self> {
        let fleet = format!("partitions = {partitions}\ngroup = \"{group}\"\n[kafka.properties]\n");
        Self::start_with(&fleet, kafka, prefix, name, limits)
    }

    /// Starts an aggregator; `fleet` is the rest of `[kafka]`, which ends with its properties.
    fn start_with(
        fleet: &str,
        kafka: &LocalKafka,
        prefix: &str,
        name: &str,
        limits: &str,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("tollgate-bench-")
            .tempdir()?;
        std::fs::write(dir.path().join("limits.toml"), limits)?;
        let text = format!(
            "[limits]\nfile = \"limits.toml\"\n[snapshot]\nevery = \"10s\"\n[kafka]\n{fleet}\n"
        );
        std::fs::write(dir.path().join("tollgate.toml"), text)?;
        let log = ["--kafka", kafka.bootstrap(), "--topic-prefix", prefix];
        Self::launch(dir, name, &log)
    }

    /// Starts an aggregator that rules a journal on this many threads, and takes no snapshot meanwhile.
    ///
    /// # Errors
    ///
    /// If it does not listen in time.
    pub fn start_on_journal(journal: &Path, limits: &str, threads: usize) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("tollgate-bench-")
            .tempdir()?;
        std::fs::write(dir.path().join("limits.toml"), limits)?;
        let text = "[limits]\nfile = \"limits.toml\"\n[snapshot]\nevery = \"1h\"\nentries_max = 4000000000\n";
        std::fs::write(dir.path().join("tollgate.toml"), text)?;
        let (journal, threads) = (journal.display().to_string(), threads.to_string());
        let log = ["--journal", &*journal, "--threads", &threads];
        Self::launch(dir, "agg-1", &log)
    }

    /// Starts an aggregator in a directory with its configuration.
    fn launch(dir: TempDir, name: &str, log: &[&str]) -> anyhow::Result<Self> {
        let any = "127.0.0.1:0";
        let mut process = Command::new(beside::program("tollgate", "tollgate")?)
            .args(["serve", "--with-stdin", "--config", "tollgate.toml"])
            .args(["--name", name])
            .args(log)
            .args(["--http", any, "--agents", any, "--feed", any])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting an aggregator")?;
        let log = process.stderr.take().context("its log")?;
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        let mut aggregator = Self {
            process,
            agents: String::new(),
            http: String::new(),
            lines,
            _dir: dir,
        };
        aggregator.await_listening()?;
        Ok(aggregator)
    }

    fn await_listening(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + START_WITHIN;
        loop {
            let lines = self.log_lines();
            let value_of = |key: &str| {
                let line = lines.iter().find(|line| line.contains("listening http="))?;
                let value_of = line
                    .split_whitespace()
                    .find_map(|value_of| value_of.strip_prefix(key))?;
                Some(value_of.to_owned())
            };
            if let (Some(http), Some(agents)) = (value_of("http="), value_of("agents=")) {
                (self.http, self.agents) = (http, agents);
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "it does not listen:\n{}",
                lines.join("\n")
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn log_lines(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it by signal 9.
    ///
    /// # Errors
    ///
    /// If it had ended already.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.http)?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.http)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A metric's value.
    ///
    /// # Errors
    ///
    /// If there is no such metric.
    pub fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.get("/metrics")?;
        let value = |line: &str| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        };
        text.lines()
            .find_map(value)
            .with_context(|| format!("no {name} in {text}"))
    }

    /// Waits until a metric has reached a value.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn await_metric(&self, name: &str, least: f64, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        loop {
            let value = self.metric(name)?;
            if least <= value {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{name} is {value} and not {least}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it rules and announces this many partitions.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn await_ready(&self, partitions: u32, within: Duration) -> anyhow::Result<()> {
        self.await_metric("tollgate_partitions_ready", f64::from(partitions), within)
    }

    /// Bytes of the snapshots that it was restored from, by its own report.
    pub fn restored_bytes(&self) -> u64 {
        let of = |line: &String| {
            let words = line
                .contains("restored from a snapshot")
                .then(|| line.split_whitespace())?;
            words
                .filter_map(|word| word.strip_prefix("bytes="))
                .next()?
                .parse::<u64>()
                .ok()
        };
        self.log_lines().iter().filter_map(of).sum()
    }

    /// Bytes per hit in the log, by the records of the first partition.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    pub fn bytes_of_partition_0(
        &self,
        kafka: &LocalKafka,
        prefix: &str,
        partitions: u32,
    ) -> anyhow::Result<f64> {
        let text = format!(
            "[log]\nkind = \"kafka\"\n[kafka]\nbootstrap = [\"{}\"]\ntopic_prefix = \"{prefix}\"\n\
             partitions = {partitions}\n",
            kafka.bootstrap()
        );
        let config = Config::read("bench", &text, Vec::new(), "bench");
        let config = config.map_err(|faults| anyhow::anyhow!("{faults}"))?;
        let kafka = config.kafka.of_log();
        let mut reader = KafkaReader::open(&kafka, Stream::Hits, 0, 0)?;
        let (mut bytes, mut hits) = (0usize, 0u64);
        loop {
            match reader.read()? {
                KafkaRead::Records(records) => {
                    for record in &records {
                        if let Ok(Record::Hits(batch)) = Record::decode(&record.bytes) {
                            bytes += record.bytes.len();
                            hits += batch.hits().iter().map(|hit| hit.total()).sum::<u64>();
                        }
                    }
                }
                KafkaRead::Gone { .. } => bail!("the log's beginning is gone"),
                KafkaRead::End => return Ok(bytes as f64 / hits.max(1) as f64),
            }
        }
    }
}

impl Drop for ServingAggregator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// CPU seconds of a process, including its threads.
pub fn cpu_s(process: u32) -> f64 {
    stat(process).map_or(0.0, |(_, cpu_s)| cpu_s)
}

/// What the threads of a process have used so far, as the scheduler counts it; without threads that have ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    /// CPU time in nanoseconds.
    pub cpu_ns: u64,
    /// How many times a thread has waited, and so has been woken.
    pub waits: u64,
}

impl ProcessUsage {
    /// Of all threads of some processes together.
    pub fn of(processes: &[u32]) -> Self {
        let tasks = processes
            .iter()
            .filter_map(|process| std::fs::read_dir(format!("/proc/{process}/task")).ok())
            .flatten()
            .filter_map(|task| Some(task.ok()?.path()));
        tasks.fold(Self::default(), |sum, task| Self {
            cpu_ns: sum.cpu_ns + number_in(&task.join("schedstat"), "").unwrap_or(0),
            waits: sum.waits
                + number_in(&task.join("status"), "voluntary_ctxt_switches:").unwrap_or(0),
        })
    }

    /// What was used since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            waits: self.waits.saturating_sub(earlier.waits),
        }
    }
}

/// The number behind `name` in the line of a file that begins with it.
fn number_in(file: &std::path::Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// CPU seconds of all descendants of a process, without itself and without those that have ended.
pub fn descendants_cpu_s(ancestor: u32) -> f64 {
    let all: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let comes_of = |process: u32| {
        let mut at = process;
        // No process has this many ancestors.
        for _ in 0..64 {
            match stat(at) {
                Some((parent, _)) if parent == ancestor => return true,
                Some((parent, _)) if 1 < parent => at = parent,
                _ => return false,
            }
        }
        false
    };
    all.into_iter()
        .filter(|process| comes_of(*process))
        .map(cpu_s)
        .sum()
}

/// A process's parent, and its CPU seconds.
fn stat(process: u32) -> Option<(u32, f64)> {
    /// Linux reports hundredths of a second, whatever the kernel's clock rate.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may contain anything.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    Some((
        u32::try_from(number(1)?).ok()?,
        ticks as f64 / TICKS_PER_SECOND,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_parent_and_time() {
        let (parent, cpu_s) = stat(std::process::id()).expect("this one");
        assert!(0 < parent && 0.0 <= cpu_s);
        assert!(stat(u32::MAX).is_none());
    }
}
