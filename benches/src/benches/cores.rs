//! What a second core brings: one thread and two rule a journal of new hits, and replay its log.
//!
//! ```text
//! ruling    a journal with hits of 16 partitions; from the start of the process until all are ruled
//! audit     the same log with its recorded statements; from the start of the process to its end
//! ceiling   two processes of one thread each, which share nothing: what this machine's second core is worth
//! ```
//!
//! Rounds alternate, since other processes may use a machine's cores. What stays true: each process starts with the
//! same files, all of them in memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;
use tollgate_log::journal::{Journal, JournalConfig, JournalContext};
use tollgate_log::{Log as _, LogEvent, Stream, Ticket};
use tollgate_shared::names::partition_of_pair;

use crate::harness::Session;
use crate::harness::beside;
use crate::harness::clock::wall_us;
use crate::harness::figure::{Figure, Target};
use crate::harness::serving::ServingAggregator;
use crate::load::SEED;
use crate::load::batches::{Courier, ENTRIES, RESOURCE};
use crate::load::names::domain;
use crate::load::zipf::Draws;

const PARTITIONS: u32 = 16;
const PAIRS: u32 = 100_000;
const ENTRIES_ALL: u64 = 6_000_000;
const ENTRIES_FULL: u64 = 20_000_000;
const ROUNDS: usize = 5;
const WITHIN: Duration = Duration::from_secs(120);

/// Frequent pairs exceed it, so that denials are written too.
const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"100/s\"\n";

/// How many appends may be pending in the journal.
const ON_THE_WAY_MAX: u64 = 256;

/// Runs the benchmark.
///
/// # Errors
///
/// If not all is ruled, or the log and its replay differ.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    let entries = match session.is_full() {
        true => ENTRIES_FULL,
        false => ENTRIES_ALL,
    };
    session.step("writing a journal");
    let dir = tempfile::Builder::new()
        .prefix("tollgate-bench-")
        .tempdir()?;
    let journal = dir.path().join("journal");
    write_journal(&journal, entries)?;
    let ruled = dir.path().join("ruled");
    let (mut ruling, mut audit) = (CoreRounds::default(), CoreRounds::default());
    for round in 0..=ROUNDS {
        session.step(&format!("round {round} of {ROUNDS}"));
        let one = rule(&journal, &[1], entries)?;
        let two = rule(&journal, &[2], entries)?;
        let both = rule(&journal, &[1, 1], entries)?;
        if round == 0 {
            // The files are not in memory yet: this round does not count.
            keep_ruled(&journal, &ruled, entries)?;
            audit_on(&ruled, 2)?;
            continue;
        }
        ruling.add(one, two, both);
        let one = audit_on(&ruled, 1)?;
        let two = audit_on(&ruled, 2)?;
        audit.add(one, two, audit_twice(&ruled)?);
    }
    ruling.report(session, "ruling what a journal has", entries);
    audit.report(session, "audit", entries);
    Ok(())
}

/// Seconds of each round.
#[derive(Debug, Default)]
struct CoreRounds {
    one: Vec<f64>,
    two: Vec<f64>,
    /// For two processes, each of which does all of the work.
    both: Vec<f64>,
}

impl CoreRounds {
    fn add(&mut self, one: f64, two: f64, both: f64) {
        self.one.push(one);
        self.two.push(two);
        self.both.push(both);
    }

    fn report(&self, session: &mut Session, name: &str, entries: u64) {
        let unit = "entries/s";
        let rate = |seconds: &[f64]| -> Vec<f64> {
            seconds
                .iter()
                .map(|seconds| entries as f64 / seconds)
                .collect()
        };
        let (one, two) = (rate(&self.one), rate(&self.two));
        let doubled: Vec<f64> = rate(&self.both).iter().map(|rate| rate * 2.0).collect();
        let figures = [
            Figure::of_rounds(format!("{name}, 1 thread"), unit, &one),
            Figure::of_rounds(format!("{name}, 2 threads"), unit, &two)
                .map(|figure| figure.peer("two processes of 1 thread, together", &doubled)),
            Figure::of_ratio(format!("{name}, 2 threads against 1"), &two, &one)
                .map(|figure| figure.target(Target::AtLeast(1.8))),
            Figure::of_ratio(
                format!("{name}, two processes that share nothing against 1 thread"),
                &doubled,
                &one,
            ),
        ];
        figures
            .into_iter()
            .flatten()
            .for_each(|figure| session.add(figure));
    }
}

/// Writes hits of all partitions after the limits that they are ruled by.
fn write_journal(journal: &Path, entries: u64) -> anyhow::Result<()> {
    let first = ServingAggregator::start_on_journal(journal, LIMITS, 1)?;
    first.await_ready(PARTITIONS, WITHIN)?;
    first.kill()?;
    let (events, mut inbox) = tollgate_log::channel(1_024);
    let config = JournalConfig::new(journal);
    let (mut log, _) = Journal::open(config, JournalContext::of_this_machine(), events)?;
    let mut writers: Vec<PartitionWriter> = (0..PARTITIONS).map(PartitionWriter::new).collect();
    let mut on_the_way = 0;
    for batch in 0..entries / ENTRIES as u64 {
        let partition = (batch % u64::from(PARTITIONS)) as u32;
        let bytes = writers[partition as usize].batch();
        log.append(Stream::Hits, partition, Ticket(batch), bytes.into());
        on_the_way += 1;
        while ON_THE_WAY_MAX <= on_the_way {
            let event = inbox.blocking_recv().context("the journal has ended")?;
            for answer in event.answers() {
                answer.result.clone().context("an append")?;
                on_the_way -= 1;
            }
        }
    }
    log.close();
    while inbox.blocking_recv().context("the journal has ended")? != LogEvent::Closed {}
    Ok(())
}

/// The hits of one partition, by Zipf's law over its own pairs.
struct PartitionWriter {
    pairs: Vec<u32>,
    draws: Draws,
    courier: Courier,
}

impl PartitionWriter {
    fn new(partition: u32) -> Self {
        let is_of_it =
            |pair: &u32| partition_of_pair(RESOURCE, &domain(*pair), PARTITIONS) == partition;
        let pairs: Vec<u32> = (0..PAIRS).filter(is_of_it).collect();
        Self {
            draws: Draws::new(pairs.len() as u32, SEED + u64::from(partition)),
            pairs,
            courier: Courier::default(),
        }
    }

    fn batch(&mut self) -> Vec<u8> {
        let pairs: Vec<u32> = (0..ENTRIES)
            .map(|_| self.pairs[self.draws.pair() as usize])
            .collect();
        let now_us = wall_us();
        self.courier.batch(&pairs, 1, now_us - 1_000, now_us).bytes
    }
}

/// Rules copies of a journal at the same time, each in a process with this many threads. Returns the seconds until
/// all are ruled.
fn rule(journal: &Path, threads: &[usize], entries: u64) -> anyhow::Result<f64> {
    let copies: Vec<JournalCopy> = threads
        .iter()
        .map(|_| JournalCopy::of(journal))
        .collect::<anyhow::Result<_>>()?;
    let begun = Instant::now();
    let aggregators: Vec<ServingAggregator> = threads
        .iter()
        .zip(&copies)
        .map(|(threads, copy)| ServingAggregator::start_on_journal(&copy.journal, LIMITS, *threads))
        .collect::<anyhow::Result<_>>()?;
    for aggregator in &aggregators {
        await_ruled(aggregator, entries)?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Keeps a journal that was ruled to its end.
fn keep_ruled(journal: &Path, ruled: &Path, entries: u64) -> anyhow::Result<()> {
    copy(journal, ruled)?;
    let aggregator = ServingAggregator::start_on_journal(ruled, LIMITS, 2)?;
    await_ruled(&aggregator, entries)?;
    // Statements are appended a moment after they were ruled.
    aggregator.await_ready(PARTITIONS, WITHIN)?;
    std::thread::sleep(Duration::from_secs(1));
    aggregator.kill()
}

fn await_ruled(aggregator: &ServingAggregator, entries: u64) -> anyhow::Result<()> {
    aggregator.await_metric("tollgate_entries_total", entries as f64, WITHIN)
}

fn audit_on(ruled: &Path, threads: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let status = audit(ruled, threads)?.status()?;
    ensure!(status.success(), "the audit: {status}");
    Ok(begun.elapsed().as_secs_f64())
}

fn audit_twice(ruled: &Path) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let audits = [audit(ruled, 1)?.spawn()?, audit(ruled, 1)?.spawn()?];
    for mut audit in audits {
        let status = audit.wait()?;
        ensure!(status.success(), "the audit: {status}");
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn audit(ruled: &Path, threads: usize) -> anyhow::Result<Command> {
    let mut command = Command::new(beside::program("tollgate", "tollgate")?);
    command
        .args([
            "audit",
            "--model",
            "none",
            "--threads",
            &threads.to_string(),
        ])
        .arg("--journal")
        .arg(ruled)
        .stdout(Stdio::null());
    Ok(command)
}

/// A copy of a journal, removed when this is dropped.
struct JournalCopy {
    journal: PathBuf,
    _dir: TempDir,
}

impl JournalCopy {
    fn of(journal: &Path) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("tollgate-bench-")
            .tempdir()?;
        let to = dir.path().join("journal");
        copy(journal, &to)?;
        Ok(Self {
            journal: to,
            _dir: dir,
        })
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
