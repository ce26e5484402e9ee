//! The cost of the denial feed: from the publisher to subscribers, beside the `zeromq` crate's PUB.
//!
//! ```text
//! publisher     a process of its own: our feed, our feed with TLS and tokens, or the crate's socket; frames carry the instant of sending
//! subscribers   one process for all of them, the same for both: how long each frame took, how many came
//! ```
//!
//! The crate's socket gets what the feed had around it before: a thread and a runtime of its own.

mod publisher;
mod subscribers;
mod wire;

pub use publisher::child as child_publisher;
pub use subscribers::child as child_subscribers;

use anyhow::ensure;

use crate::harness::Session;
use crate::harness::child::Part;
use crate::harness::figure::{Figure, Target};
use crate::harness::memory::resident_bytes_of;
use crate::harness::secured;
use publisher::Published;
use subscribers::DeliverySummary;

const ROUNDS: usize = 3;

/// Frames of one latency measurement, and how many of them a second.
const PACED: u32 = 1_000;
const PACE: u32 = 500;

/// Frames of one throughput measurement.
const BURST: u32 = 20_000;

/// Frames beside a subscriber that reads nothing, and their length: 300 MB for that subscriber.
const STALLED: u32 = 200_000;
const STALLED_BYTES: u32 = 1_500;
const STALLED_PACE: u32 = 20_000;

/// Connections of the largest fleet, and the topics of each.
const MANY: u32 = 5_000;
const TOPICS: u32 = 100;

/// The kind of publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ours,
    Crate,
    OursTls,
}

impl Kind {
    const BOTH: [Self; 2] = [Self::Ours, Self::Crate];
    const ALL: [Self; 3] = [Self::Ours, Self::Crate, Self::OursTls];

    fn label(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Crate => "crate",
            Self::OursTls => "ours-tls",
        }
    }
}

struct Pair {
    publisher: Part,
    subscribers: Part,
    /// The directory of its keys, if it has any.
    _keys: Option<tempfile::TempDir>,
}

impl Pair {
    /// Starts a publisher, and `subscribers` subscribers of its topic among `among` subscribers of
    /// other topics.
    fn start(kind: Kind, subscribers: u32, among: u32, stalled: u32) -> anyhow::Result<Self> {
        let keys = match kind {
            Kind::Ours | Kind::Crate => None,
            Kind::OursTls => Some(tempfile::tempdir()?),
        };
        let mut place = Vec::new();
        if let Some(keys) = &keys {
            secured::make(keys.path())?;
            place.push(keys.path().display().to_string());
        }
        let args = [&[kind.label().to_owned()][..], &place].concat();
        let mut publisher = Part::start("fanout-publisher", &args)?;
        let address: String = publisher.receive()?;
        let counts = [subscribers, among, stalled, TOPICS].map(|count| count.to_string());
        let args = [&[address][..], &counts, &place].concat();
        let mut subscribers = Part::start("fanout-subscribers", &args)?;
        ensure!(subscribers.receive::<bool>()?, "subscribers are there");
        Ok(Self {
            publisher,
            subscribers,
            _keys: keys,
        })
    }

    /// Publishes frames of a given length at a rate per second (0: as fast as possible).
    fn publish(
        &mut self,
        frames: u32,
        bytes: u32,
        pace: u32,
    ) -> anyhow::Result<(Published, DeliverySummary)> {
        self.publisher.send(&format!("{frames} {bytes} {pace}"))?;
        let published: Published = self.publisher.receive()?;
        self.subscribers.send(&format!("{frames}"))?;
        Ok((published, self.subscribers.receive()?))
    }
}

/// Rounds of both kinds.
#[derive(Default)]
struct Rounds([Vec<f64>; 3]);

impl Rounds {
    fn add(&mut self, kind: Kind, value: f64) {
        self.0[kind as usize].push(value);
    }

    fn report(self, session: &mut Session, name: &str, unit: &'static str, note: &str) {
        let [ours, theirs, ours_tls] = self.0;
        if let Some(figure) = Figure::of_rounds(name, unit, &ours) {
            let figure = match note.is_empty() {
                true => figure,
                false => figure.note(note),
            };
            let figure = figure.peer("zeromq 0.7 PUB", &theirs);
            session.add(figure.peer("ours with TLS and tokens", &ours_tls));
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// If a process cannot be started.
pub fn run(session: &mut Session) -> anyhow::Result<()> {
    tollgate_server::edge::raise_descriptors();
    for count in [8, 100] {
        session.step(&format!("{count} subscribers"));
        fan_out(session, count)?;
    }
    session.step("one that reads nothing");
    stalled(session)?;
    session.step("8 of 5,000 connections, and all of them");
    many(session)
}

fn fan_out(session: &mut Session, count: u32) -> anyhow::Result<()> {
    let (mut p50, mut p99, mut cpu) = (Rounds::default(), Rounds::default(), Rounds::default());
    let (mut rate, mut lost) = (Rounds::default(), [0, 0, 0]);
    let mut each = Rounds::default();
    for _ in 0..ROUNDS {
        for kind in Kind::ALL {
            let mut pair = Pair::start(kind, count, count, 0)?;
            pair.publish(PACED / 10, 64, PACE)?;
            let (published, summary) = pair.publish(PACED, 64, PACE)?;
            p50.add(kind, summary.p50_ns as f64 / 1e3);
            p99.add(kind, summary.p99_ns as f64 / 1e3);
            let cpu_us = published.cpu_us / f64::from(PACED);
            cpu.add(kind, cpu_us);
            each.add(kind, cpu_us / f64::from(count));
            let (published, summary) = pair.publish(BURST, 64, 0)?;
            let seconds = summary.last_ns.saturating_sub(published.first_ns) as f64 / 1e9;
            rate.add(kind, summary.count as f64 / seconds);
            lost[kind as usize] += u64::from(BURST) * u64::from(count) - summary.count;
        }
    }
    p50.report(
        session,
        &format!("to {count} subscribers, p50"),
        "µs",
        "500 frames of 64 bytes a second",
    );
    p99.report(session, &format!("to {count} subscribers, p99"), "µs", "");
    cpu.report(
        session,
        &format!("publisher's processor, a frame to {count}"),
        "µs",
        "",
    );
    each.report(
        session,
        &format!("publisher's processor, a frame and subscriber of {count}"),
        "µs",
        "",
    );
    let note = format!(
        "{BURST} frames as fast as they are taken; of all rounds' deliveries {} were left out, {} of the crate's, {} with TLS",
        lost[0], lost[1], lost[2]
    );
    rate.report(
        session,
        &format!("deliveries to {count} subscribers"),
        "/s",
        &note,
    );
    Ok(())
}

fn stalled(session: &mut Session) -> anyhow::Result<()> {
    let mut grown = Rounds::default();
    for kind in Kind::BOTH {
        let mut pair = Pair::start(kind, 1, 1, 1)?;
        let id = pair.publisher.id();
        let before = resident_bytes_of(id).unwrap_or(0);
        let (_, summary) = pair.publish(STALLED, STALLED_BYTES, STALLED_PACE)?;
        let after = resident_bytes_of(id).unwrap_or(0);
        ensure!(0 < summary.count, "the other subscriber hears");
        grown.add(kind, after.saturating_sub(before) as f64 / (1 << 20) as f64);
    }
    let note = "300 MB published in 10 s, to it and to one that reads";
    grown.report(
        session,
        "memory beside a subscriber that reads nothing",
        "MiB",
        note,
    );
    Ok(())
}

fn many(session: &mut Session) -> anyhow::Result<()> {
    let mut pair = Pair::start(Kind::Ours, 8, MANY, 0)?;
    let grown = resident_bytes_of(pair.publisher.id()).unwrap_or(0) as f64;
    pair.publish(PACED / 10, 64, PACE)?;
    let (_, summary) = pair.publish(PACED, 64, PACE)?;
    let name = "to 8 subscribers among 5,000 connections with 100 topics each, p50";
    session
        .add(Figure::single(name, "µs", summary.p50_ns as f64 / 1e3).target(Target::AtMost(1e3)));
    let note = "of the whole process, divided; with 100 subscriptions each";
    let bytes = Figure::single(
        "resident bytes a connection",
        "bytes",
        grown / f64::from(MANY),
    );
    session.add(bytes.note(note));
    drop(pair);
    let mut pair = Pair::start(Kind::Ours, MANY, MANY, 0)?;
    let mut slowest = Vec::new();
    for _ in 0..20 {
        let (published, summary) = pair.publish(1, 64, 10)?;
        ensure!(
            summary.count == u64::from(MANY),
            "all hear: {}",
            summary.count
        );
        slowest.push(summary.last_ns.saturating_sub(published.first_ns) as f64 / 1e6);
    }
    let name = "until all of 5,000 have read one frame";
    let note = "one process reads for all of them, on the same two processors";
    if let Some(figure) = Figure::of_rounds(name, "ms", &slowest) {
        session.add(figure.target(Target::AtMost(25.0)).note(note));
    }
    Ok(())
}
