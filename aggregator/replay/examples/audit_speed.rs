//! Writes a large journal to audit and explain, as agents and an aggregator would have written it.
//!
//! ```text
//! cargo run --release -p tollgate-replay --example audit_speed -- DIR MILLIONS-OF-ENTRIES
//! tollgate audit --journal DIR        tollgate explain CODE --journal DIR     (a code is printed)
//! ```
//!
//! A million pairs by a law like Zipf's, one hit per entry, 500 entries per batch, 100,000 hits a second
//! of log time, a tick every 250 ms. The engine decides what is announced, and the example records that.
//! Knows nothing of audits. What stays true: the same arguments write the same log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_engine::engine::{Engine, Rulings};
use tollgate_limits::Limits;
use tollgate_shared::log_position::{Code, LogId};
use tollgate_shared::mac::MacKey;
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::denial::Announced;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_shared::wire::limits_document::LimitsDocument;
use tollgate_shared::wire::record::{LimitsActivation, Record, RecordPen, Tick};

use tollgate_log::journal::{Journal, JournalConfig, JournalContext};
use tollgate_log::{Log as _, LogEvent, LogReceiver, Stream, Ticket, channel};

const PARTITIONS: u32 = 16;
const PAIRS: u64 = 1_000_000;
const BATCH: usize = 500;
const BEGIN_US: u64 = 1_700_000_000_000_000;
const US_PER_HIT: u64 = 10;
const RESOURCE: &str = "api.search";
const LIMITS: &str = "version = 1\nrules = 2\n[rate.\"api.search\"]\nrate = \"20/s\"\n";
const LOG: LogId = LogId {
    generation: 1,
    random: 77,
};

struct Out {
    journal: Journal,
    events: LogReceiver,
    clock: Arc<AtomicU64>,
    sent: u64,
    answered: u64,
}

impl Out {
    fn append(&mut self, stream: Stream, partition: u32, at_us: u64, record: Vec<u8>) {
        // A turn of the journal stamps all of its records with one reading of its clock. So drain it
        // before the clock moves, to keep stamps exact.
        if self.clock.load(Ordering::Relaxed) != at_us {
            self.drain(0);
            self.clock.store(at_us, Ordering::Relaxed);
        }
        self.sent += 1;
        self.journal
            .append(stream, partition, Ticket(self.sent), record.into());
        self.drain(1_000);
    }

    fn drain(&mut self, left: u64) {
        while self.answered + left < self.sent {
            match self.events.blocking_recv().expect("the journal answers") {
                LogEvent::Appended { answers, .. } => {
                    for answer in answers {
                        answer.result.expect("appended");
                        self.answered += 1;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

struct Partition {
    engine: Engine,
    next: u64,
    sequence: u64,
    waiting: Vec<(String, u64)>,
}

/// The log as far as it is written, and the state of its partitions.
struct Fleet {
    out: Out,
    partitions: Vec<Partition>,
    versions: BTreeMap<u64, Arc<Limits>>,
    rulings: Rulings,
    denials: u64,
    a_code: Option<Code>,
}

impl Fleet {
    /// A log that begins with its identity, the limits, and their activation in every partition.
    fn begin(dir: &str) -> Self {
        let partition = |index| Partition {
            engine: Engine::new(index, PARTITIONS),
            next: 0,
            sequence: 0,
            waiting: Vec::new(),
        };
        let limits = Arc::new(Limits::parse(LIMITS).expect("right"));
        let mut fleet = Self {
            out: open(dir),
            partitions: (0..PARTITIONS).map(partition).collect(),
            versions: BTreeMap::from([(1, limits)]),
            rulings: Rulings::new(),
            denials: 0,
            a_code: None,
        };
        let identity = RecordPen::new(&MacKey::UNPROTECTED, 0).genesis(LOG);
        fleet.out.append(Stream::Limits, 0, BEGIN_US, identity);
        let mut writer = Writer::new();
        LimitsDocument {
            push: 1,
            expected: 0,
            who: "audit_speed",
            why: "to measure",
            at: Timestamp::from_micros(BEGIN_US),
            text: LIMITS,
        }
        .encode(&mut writer);
        let document = writer.as_slice().to_vec();
        fleet.out.append(Stream::Limits, 0, BEGIN_US, document);
        let digest = *blake3::hash(LIMITS.as_bytes()).as_bytes();
        let activation = LimitsActivation { version: 1, digest };
        for index in 0..PARTITIONS {
            let pen = || RecordPen::new(&MacKey::UNPROTECTED, index);
            fleet.apply(index, BEGIN_US, pen().genesis(LOG));
            fleet.apply(index, BEGIN_US, pen().limits_activation(&activation));
        }
        fleet
    }

    /// Appends a record, applies it, and appends what is announced.
    fn apply(&mut self, index: u32, at_us: u64, record: Vec<u8>) {
        self.rulings.clear();
        let decoded = Record::decode(&record).expect("a record");
        let at = Timestamp::from_micros(at_us);
        let p = &mut self.partitions[index as usize];
        p.engine
            .apply(p.next, at, &decoded, &self.versions, &mut self.rulings);
        p.next += 1;
        self.out.append(Stream::Hits, index, at_us, record.clone());
        let mut writer = Writer::new();
        for said in &self.rulings.statements {
            self.denials += 1;
            if self.denials.is_power_of_two() {
                let position = said.statement.position;
                self.a_code = Some(Code {
                    partition: index,
                    position,
                });
            }
            Announced {
                log: LOG,
                partition: index,
                resource: RESOURCE.into(),
                statement: said.statement.clone(),
            }
            .encode(&mut writer);
            let record = writer.as_slice().to_vec();
            self.out.append(Stream::Denials, index, at_us, record);
        }
    }

    /// A hit, which is appended once a batch of its partition is full.
    fn hit(&mut self, at_us: u64, domain: String) {
        let index = partition_of_pair(RESOURCE, &domain, PARTITIONS);
        let p = &mut self.partitions[index as usize];
        p.waiting.push((domain, at_us));
        if p.waiting.len() < BATCH {
            return;
        }
        p.sequence += 1;
        let sender = Sender {
            agent: "bench-agent",
            epoch: 9,
            sequence: p.sequence,
            sent: Timestamp::from_micros(at_us),
        };
        let waiting = std::mem::take(&mut p.waiting);
        let hits = waiting
            .iter()
            .map(|(domain, at_us)| Hit::one(0, domain, Timestamp::from_micros(*at_us), 1));
        let mut writer = Writer::new();
        write_hits(&mut writer, &sender, &[RESOURCE], hits, [].into_iter());
        self.apply(index, appended_after(at_us), writer.as_slice().to_vec());
    }

    fn tick(&mut self, at_us: u64, number: u64) {
        for index in 0..PARTITIONS {
            let tick = Tick {
                log: LOG,
                aggregator: "audit_speed",
                instance: 3,
                number,
            };
            let record = RecordPen::new(&MacKey::UNPROTECTED, index).tick(&tick);
            self.apply(index, appended_after(at_us), record);
        }
    }
}

/// The log's append times are whole milliseconds.
fn appended_after(at_us: u64) -> u64 {
    (at_us / 1_000 + 1) * 1_000
}

fn open(dir: &str) -> Out {
    let clock = Arc::new(AtomicU64::new(BEGIN_US));
    let (sender, events) = channel(4_096);
    let config = JournalConfig {
        partitions: PARTITIONS,
        retention: Span::MAX,
        retention_bytes: u64::MAX,
        ..JournalConfig::new(dir)
    };
    let of_journal = Arc::clone(&clock);
    let context = JournalContext {
        clock: Arc::new(move || Timestamp::from_micros(of_journal.load(Ordering::Relaxed))),
        ..JournalContext::of_this_machine()
    };
    let (journal, _) = Journal::open(config, context, sender).expect("a new journal");
    Out {
        journal,
        events,
        clock,
        sent: 0,
        answered: 0,
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("DIR");
    let millions: u64 = args.next().and_then(|n| n.parse().ok()).expect("MILLIONS");
    let mut fleet = Fleet::begin(&dir);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut ticks = 0;
    for n in 0..millions * 1_000_000 {
        let at_us = BEGIN_US + n * US_PER_HIT;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Uniform in the exponent: pairs 10..100 get as many hits as pairs 100,000..1,000,000.
        let share = (random >> 11) as f64 / (1u64 << 53) as f64;
        let pair = ((PAIRS as f64).powf(share) as u64).min(PAIRS);
        fleet.hit(at_us, format!("tenant-{pair:07}"));
        if n * US_PER_HIT / 250_000 != ticks {
            ticks = n * US_PER_HIT / 250_000;
            fleet.tick(at_us, ticks);
        }
    }
    let Fleet { out, .. } = &mut fleet;
    out.drain(0);
    out.journal.close();
    while !matches!(out.events.blocking_recv(), Some(LogEvent::Closed) | None) {}
    println!("{} statements", fleet.denials);
    if let Some(code) = fleet.a_code {
        println!("{code}");
    }
}
