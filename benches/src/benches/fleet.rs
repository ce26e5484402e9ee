//! A fleet on a real Kafka: its throughput, and how soon a killed aggregator is back.
//!
//! ```text
//! pipeline    agents ── Kafka ── aggregator, as fast as it goes; the CPU time of each of the three
//! recovery    a million live pairs; kill -9; from the start of the process, or from the kill, to ruling again;
//!             the same beside another group, which goes on ruling
//! catch-up    no aggregator for a minute, 100,000 hits/s; from the start of the process to the log's end
//! ```
//!
//! Each needs a Kafka that this machine can run, and reports if it finds no Kafka. What stays true: figures count
//! what the aggregator reports as ruled, not what was sent.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tollgate_agent::{Agent, Rate};

use crate::harness::Session;
use crate::harness::agents::block_on;
use crate::harness::child::{Part, argument, send_to_parent};
use crate::harness::figure::{Figure, Target};
use crate::harness::kafka::{LocalKafka, StartError};
use crate::harness::serving::{ServingAggregator, cpu_s, descendants_cpu_s};
use crate::load::names::domain;
use crate::load::zipf::Draws;

const PARTITIONS: u32 = 16;
const READY_WITHIN: Duration = Duration::from_secs(60);
const RULED_WITHIN: Duration = Duration::from_secs(180);

/// How long an aggregator is watched before a kill and after it.
const HOT_PAIRS_FOR: Duration = Duration::from_secs(4);

const RESOURCE: &str = "api.search";

/// So high that no call is refused: the benchmark measures throughput, not limiting.
const OPEN: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"1000000/s\"\n";

/// Pairs are kept for an hour.
const LONG: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"1000/h\"\n";

/// Hits per second offered to a pipeline whose target is three million.
const OFFERED: u64 = 3_300_000;

/// The warm-up time.
const WARM_S: u64 = 20;

/// What an agent has done.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    seconds: f64,
    acknowledged: u64,
    dropped: u64,
}

fn with_kafka(
    session: &mut Session,
    absent: &str,
    work: fn(&mut Session, &LocalKafka) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    match LocalKafka::start_to_measure() {
        Ok(kafka) => work(session, &kafka),
        Err(StartError::Absent { reason }) => {
            session.add(Figure::absent(absent, "", reason));
            Ok(())
        }
        Err(error) => Err(error).context("starting Kafka"),
    }
}

/// Measures throughput.
///
/// # Errors
///
/// If agents and aggregator do not work together.
pub fn pipeline(session: &mut Session) -> anyhow::Result<()> {
    with_kafka(session, "hits ruled a second", |session, kafka| {
        let seconds = if session.is_full() { 30 } else { 10 };
        push_through(session, kafka, "zipf", seconds)?;
        push_through(session, kafka, "turn", seconds)
    })
}

fn push_through(
    session: &mut Session,
    kafka: &LocalKafka,
    how: &str,
    seconds: u64,
) -> anyhow::Result<()> {
    let what = match how {
        "zipf" => "100 k pairs, Zipf 1.0",
        _ => "100 k pairs in turn, nothing to merge",
    };
    session.step(what);
    let prefix = format!("bench-pipeline-{how}");
    let aggregator = ServingAggregator::start(kafka, &prefix, "agg-1", OPEN, PARTITIONS, &[])?;
    aggregator.await_ready(PARTITIONS, READY_WITHIN)?;
    let mut agent = agent_part(&aggregator, kafka, &prefix)?;
    // A new broker compiles its own code, which takes more CPU time than its work.
    agent.send(&format!("{how} 100000 {OFFERED} {WARM_S}"))?;
    let warm: Done = agent.receive()?;
    await_all_ruled(&aggregator, &warm)?;
    let ruled_before = hits_ruled(&aggregator)?;
    let entries_before = aggregator.metric("tollgate_entries_total")?;
    let all_before = descendants_cpu_s(std::process::id());
    let (agent_before, aggregator_before) = (cpu_s(agent.id()), cpu_s(aggregator.id()));
    let begun = Instant::now();
    agent.send(&format!("{how} 100000 {OFFERED} {seconds}"))?;
    let done: Done = agent.receive()?;
    await_all_ruled(&aggregator, &done)?;
    let took = begun.elapsed().as_secs_f64();
    let hits = hits_ruled(&aggregator)? - ruled_before;
    let entries = aggregator.metric("tollgate_entries_total")? - entries_before;
    let agents_s = cpu_s(agent.id()) - agent_before;
    let aggregator_s = cpu_s(aggregator.id()) - aggregator_before;
    let broker_s = descendants_cpu_s(std::process::id()) - all_before - agents_s - aggregator_s;
    let bytes = aggregator.bytes_of_partition_0(kafka, &prefix, PARTITIONS)?;
    let figure = Figure::single(format!("hits ruled, {what}"), "hits/s", hits / took).note(format!(
        "{hits} hits in {took:.1} s, of them {:.1} s of hitting by one agent at {OFFERED} a second, after \
         {WARM_S} s as warming; {} more were dropped at its bounds and counted; {:.0} entries/s; {:.2} hits an \
         entry; {:.1} bytes a hit, the warming's too; CPU seconds per million hits: agent {:.3}, broker {:.3}, aggregator {:.3}",
        done.seconds,
        done.dropped - warm.dropped,
        entries / took,
        hits / entries.max(1.0),
        bytes,
        agents_s / hits * 1e6,
        broker_s / hits * 1e6,
        aggregator_s / hits * 1e6,
    ));
    session.add(match how {
        "zipf" => figure.target(Target::AtLeast(3_000_000.0)),
        _ => figure,
    });
    Ok(())
}

/// Measures how soon a million pairs are ruled again.
///
/// # Errors
///
/// If they are not.
pub fn recovery(session: &mut Session) -> anyhow::Result<()> {
    with_kafka(session, "ruling again", |session, kafka| {
        session.step("a million pairs");
        let prefix = "bench-recovery";
        let static_member = "\"group.instance.id\" = \"NAME\"";
        let start = |name, more: &[&str]| {
            ServingAggregator::start(kafka, prefix, name, LONG, PARTITIONS, more)
        };
        let first = start("agg-1", &[static_member])?;
        first.await_ready(PARTITIONS, READY_WITHIN)?;
        let mut agent = agent_part(&first, kafka, prefix)?;
        agent.send("each 1000000 100000 0")?;
        let done: Done = agent.receive()?;
        ensure!(done.dropped == 0, "{done:?}");
        first.await_metric("tollgate_pairs", 1e6, RULED_WITHIN)?;
        // Two rounds of snapshots of each partition: the second has all pairs.
        let saved = first.metric("tollgate_snapshots_saved_total")?;
        let all = saved + 2.0 * f64::from(PARTITIONS);
        agent.send("zipf 1000000 20000 25")?;
        let _: Done = agent.receive()?;
        first.await_metric("tollgate_snapshots_saved_total", all, RULED_WITHIN)?;

        session.step("killed, and started again");
        first.kill()?;
        let begun = Instant::now();
        let again = start("agg-1", &[static_member])?;
        again.await_ready(PARTITIONS, READY_WITHIN)?;
        let seconds = begun.elapsed().as_secs_f64();
        let bytes = again.restored_bytes();
        let figure = Figure::single(
            "start of the process to ruling, 1 M live pairs",
            "s",
            seconds,
        );
        session.add(figure.target(Target::AtMost(2.0)).note(format!(
            "{PARTITIONS} partitions, a static member; snapshots of {:.1} MB before the client compresses them",
            bytes as f64 / 1e6
        )));

        session.step("killed, and taken over");
        let other = start("agg-2", &[])?;
        await_shared(&again, &other)?;
        let killed = Instant::now();
        other.kill()?;
        again.await_ready(PARTITIONS, READY_WITHIN)?;
        let seconds = killed.elapsed().as_secs_f64();
        session.add(
            Figure::single(
                "kill to ruling by another owner, detection included",
                "s",
                seconds,
            )
            .note(
                "session.timeout.ms = 2000, the default where brokers allow it, as this one does",
            ),
        );
        again.kill()?;
        beside_another_group(session, kafka)
    })
}

/// Hits that an aggregator has ruled, including late ones. If a hit waits long on its way, the rules move its
/// agent's stamps as for a wrong clock, so some hits are late.
fn hits_ruled(aggregator: &ServingAggregator) -> anyhow::Result<f64> {
    let of = |what: &str| aggregator.metric(&format!("tollgate_hits_{what}_total"));
    Ok(of("granted")? + of("excess")? + of("late")?)
}

/// Waits until every acknowledged hit is ruled.
fn await_all_ruled(aggregator: &ServingAggregator, done: &Done) -> anyhow::Result<()> {
    let end = Instant::now() + RULED_WITHIN;
    while hits_ruled(aggregator)? < done.acknowledged as f64 {
        ensure!(
            Instant::now() < end,
            "{} of {done:?}",
            hits_ruled(aggregator)?
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Kills one of two groups that rule everything, and measures for how long nothing is ruled.
fn beside_another_group(session: &mut Session, kafka: &LocalKafka) -> anyhow::Result<()> {
    session.step("killed, beside another group");
    let prefix = "bench-hot-pairs";
    let start = |group| {
        ServingAggregator::start_in(
            group,
            kafka,
            prefix,
            &format!("agg-{group}"),
            LONG,
            PARTITIONS,
        )
    };
    let (one, other) = (start("a")?, start("b")?);
    one.await_ready(PARTITIONS, READY_WITHIN)?;
    other.await_ready(PARTITIONS, READY_WITHIN)?;
    let mut agent = agent_part(&one, kafka, prefix)?;
    agent.send("zipf 1000 20000 12")?;
    one.await_metric("tollgate_hits_granted_total", 1.0, READY_WITHIN)?;
    other.await_metric("tollgate_hits_granted_total", 1.0, READY_WITHIN)?;
    let before = longest_pause(&one, HOT_PAIRS_FOR)?;
    other.kill()?;
    let after = longest_pause(&one, HOT_PAIRS_FOR)?;
    let done: Done = agent.receive()?;
    ensure!(done.dropped == 0, "{done:?}");
    let figure = Figure::single(
        "kill to ruling by the other of two groups (hot pairs)",
        "s",
        after,
    );
    session.add(figure.note(format!(
        "the longest time in which it ruled nothing, of {} s after the kill, at 20,000 hits/s; of as many before it \
         {before:.3} s",
        HOT_PAIRS_FOR.as_secs()
    )));
    Ok(())
}

/// The longest time in which an aggregator ruled nothing.
fn longest_pause(aggregator: &ServingAggregator, of: Duration) -> anyhow::Result<f64> {
    let end = Instant::now() + of;
    let ruled = || aggregator.metric("tollgate_entries_total");
    let (mut last, mut since, mut longest) = (ruled()?, Instant::now(), Duration::ZERO);
    while Instant::now() < end {
        let now = ruled()?;
        longest = longest.max(since.elapsed());
        if now != last {
            (last, since) = (now, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(longest.as_secs_f64())
}

/// Waits until two aggregators have all partitions between them.
fn await_shared(one: &ServingAggregator, other: &ServingAggregator) -> anyhow::Result<()> {
    let end = Instant::now() + READY_WITHIN;
    loop {
        let ready = |aggregator: &ServingAggregator| aggregator.metric("tollgate_partitions_ready");
        let (of_one, of_other) = (ready(one)?, ready(other)?);
        if of_one + of_other == f64::from(PARTITIONS) && 0.0 < of_other {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{of_one} and {of_other} partitions are ruled"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Measures how soon a restarted aggregator catches up after a minute.
///
/// # Errors
///
/// If it does not.
pub fn catch_up(session: &mut Session) -> anyhow::Result<()> {
    with_kafka(
        session,
        "start of the process to the log's end",
        |session, kafka| {
            let prefix = "bench-catch-up";
            let static_member = ["\"group.instance.id\" = \"NAME\""];
            let start = || {
                ServingAggregator::start(kafka, prefix, "agg-1", OPEN, PARTITIONS, &static_member)
            };
            let first = start()?;
            first.await_ready(PARTITIONS, READY_WITHIN)?;
            let mut agent = agent_part(&first, kafka, prefix)?;
            agent.send("zipf 100000 100000 5")?;
            let before: Done = agent.receive()?;
            await_all_ruled(&first, &before)?;
            // Everything so far is in a snapshot by now, or must be caught up with, too.
            first.kill()?;
            session.step("a minute without anybody");
            agent.send("zipf 100000 100000 60")?;
            let missed: Done = agent.receive()?;
            ensure!(missed.dropped == 0, "{missed:?}");
            let begun = Instant::now();
            let again = start()?;
            again.await_ready(PARTITIONS, READY_WITHIN)?;
            let seconds = begun.elapsed().as_secs_f64();
            let ruled = hits_ruled(&again)?;
            let figure = Figure::single(
                "start of the process to the log's end, after 60 s",
                "s",
                seconds,
            );
            session.add(figure.target(Target::AtMost(5.0)).note(format!(
                "{} hits at 100,000/s while nobody ruled; {ruled} ruled from the snapshot on",
                missed.acknowledged - before.acknowledged
            )));
            Ok(())
        },
    )
}

fn agent_part(
    aggregator: &ServingAggregator,
    kafka: &LocalKafka,
    prefix: &str,
) -> anyhow::Result<Part> {
    let args = [
        aggregator.agents.clone(),
        kafka.bootstrap().to_owned(),
        prefix.to_owned(),
    ];
    let mut part = Part::start("fleet-agent", &args)?;
    ensure!(part.receive::<bool>()?, "the agent has found no aggregator");
    Ok(part)
}

/// The child: an agent that hits as its parent says, and reports how much of that is in the log.
///
/// # Errors
///
/// If its settings are invalid, or the parent sends an unexpected line.
pub fn child_agent(args: &[String]) -> anyhow::Result<()> {
    let agent = Agent::builder()
        .name("bench-hits")
        .aggregator(argument::<String>(args, 0, "address")?)
        .kafka(argument::<String>(args, 1, "Kafka")?)
        .kafka_topic_prefix(argument::<String>(args, 2, "prefix")?)
        .queue_bytes(256 << 20)
        // One thread makes all calls, and shares two processors with everything else.
        .recorder_bytes(2 << 20)
        .build()?;
    let rate = agent.rate(RESOURCE);
    send_to_parent(&block_on(agent.ready(Duration::from_secs(20)))?)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let number = |at, what| argument::<u64>(&words, at, what);
        let (pairs, pace, seconds) = (
            number(1, "pairs")?,
            number(2, "pace")?,
            number(3, "seconds")?,
        );
        let begun = Instant::now();
        match words[0].as_str() {
            "zipf" => {
                let mut draws = Draws::new(pairs as u32, 1);
                let ranks: Vec<u32> = draws.pairs(1 << 20);
                let mut next = ranks.iter().cycle();
                hit(&rate, pairs, pace, Some(seconds), || {
                    next.next().map(|pair| *pair as usize)
                });
            }
            "turn" => {
                let mut next = (0..pairs as usize).cycle();
                hit(&rate, pairs, pace, Some(seconds), || next.next());
            }
            "each" => {
                let mut next = 0..pairs as usize;
                hit(&rate, pairs, pace, None, || next.next());
            }
            _ => anyhow::bail!("received {line:?}"),
        }
        let seconds = begun.elapsed().as_secs_f64();
        send_to_parent(&settled(&agent, seconds)?)?;
    }
    Ok(())
}

/// Hits at a rate (0: as fast as possible) for some time, or as long as there are domains to hit.
fn hit(
    rate: &Rate,
    pairs: u64,
    pace: u64,
    seconds: Option<u64>,
    mut next: impl FnMut() -> Option<usize>,
) {
    let names: Vec<String> = (0..pairs as u32).map(domain).collect();
    let begun = Instant::now();
    let end = seconds.map(Duration::from_secs);
    let mut hits = 0u64;
    while let Some(pair) = next() {
        let _ = rate.hit(&names[pair]);
        hits += 1;
        // Reading the clock costs as much as a hit, so do not read it for each.
        if !hits.is_multiple_of(64) {
            continue;
        }
        let elapsed = begun.elapsed();
        if end.is_some_and(|end| end <= elapsed) {
            return;
        }
        if let Some(due) = (hits * 1_000_000)
            .checked_div(pace)
            .map(Duration::from_micros)
            && let Some(early) = due.checked_sub(elapsed)
            && Duration::from_millis(1) <= early
        {
            std::thread::sleep(early);
        }
    }
}

/// How many of all hits so far are in the log, once none is in flight.
fn settled(agent: &Agent, seconds: f64) -> anyhow::Result<Done> {
    let end = Instant::now() + RULED_WITHIN;
    loop {
        let stats = agent.stats();
        let dropped = stats.hits_dropped();
        if stats.hits_accepted <= stats.hits_acknowledged + dropped && stats.batches_waiting == 0 {
            return Ok(Done {
                seconds,
                acknowledged: stats.hits_acknowledged,
                dropped,
            });
        }
        ensure!(Instant::now() < end, "not settled: {stats:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
