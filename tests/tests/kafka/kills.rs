//! Kills, stops and starts aggregators at random under load, and restarts their broker now and then. At every offset
//! at which any of them was observed, its state was that of an uninterrupted twin.
//!
//! `journal_kills.rs` checks the same for the aggregator of a journal, and has the command that runs both in full.
//! Without its variable there are a few kills; `TOLLGATE_KILLS_SEED` repeats a run's schedule. The twin is a core
//! that reads the log afterwards from its beginning, and appends nothing.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use tempfile::TempDir;
use tollgate_log::kafka::{KafkaConfig, KafkaLog};
use tollgate_log::{Log as _, LogEvent, Stream};
use tollgate_shared::names::partition_of_pair;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::Writer;
use tollgate_shared::wire::hits::{Hit, Sender, write_hits};
use tollgate_tests::kafka::LocalKafka;
use tollgate_tests::twin::{self, Random, Seen, WITHIN, WholeLog, sample};

use crate::fleet::{Aggregator, PARTITIONS, await_whole, directory};

/// How many aggregators there are when all run.
const FLEET: usize = 3;

/// Kills of the ordinary run.
const KILLS: u64 = 6;

/// Into how many parts the broker's restarts divide a run, and how many kills each part has at least.
const KILLS_PARTS: u64 = 5;
const KILLS_BETWEEN_RESTARTS: u64 = 4;

/// A broker of its own, which restarts at its address with its data.
struct Broker {
    running: RefCell<Option<LocalKafka>>,
    dir: TempDir,
}

impl Broker {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let running = LocalKafka::start_in(dir.path(), 0).expect("a broker of its own");
        Self {
            running: RefCell::new(Some(running)),
            dir,
        }
    }

    fn now(&self) -> Ref<'_, LocalKafka> {
        Ref::map(self.running.borrow(), |running| {
            running.as_ref().expect("it runs")
        })
    }

    fn restart(&self) {
        let running = self.running.take().expect("it runs");
        let address: SocketAddr = running.bootstrap().parse().expect("an address");
        drop(running);
        let again = LocalKafka::start_in(self.dir.path(), address.port());
        self.running.replace(Some(again.expect("the broker again")));
    }
}

/// What a run did.
#[derive(Debug, Default)]
struct Report {
    kills: u64,
    stops: u64,
    broker_restarts: u64,
    /// Batches that were sent again, at once or later.
    redelivered: u64,
    assigned: usize,
    revoked: usize,
    restored: usize,
    takeovers_ms: Vec<u128>,
}

impl Report {
    /// Whether partitions moved more often than by the start of the fleet and its end. By chance, few kills may all be
    /// over before they are missed.
    fn has_moved(&self) -> bool {
        PARTITIONS as usize * 2 < self.assigned
    }

    /// Checks that enough happened, and that all states that were seen were compared.
    fn check(&mut self, kills: u64, seen: usize, compared: usize) {
        self.takeovers_ms.sort_unstable();
        println!("{self:?}\n{seen} states seen, {compared} compared, all equal");
        assert_eq!(compared, seen, "every state that was seen is compared");
        assert!(10 * kills < compared as u64, "enough was seen");
        assert!(0 < self.restored, "snapshots were used");
        assert!(0 < self.redelivered, "some came twice");
        assert!(
            0 < self.broker_restarts || kills <= KILLS_BETWEEN_RESTARTS,
            "the broker went, too"
        );
        assert!(self.has_moved(), "partitions moved");
    }

    fn note(&mut self, lines: &[String]) {
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        self.assigned += count(" assigned");
        self.revoked += count(" revoked");
        self.restored += count("restored from a snapshot");
        for line in lines.iter().filter(|line| line.contains("ERROR")) {
            println!("{line}");
        }
    }
}

/// Aggregators, one for each slot at most, on a broker of their own.
struct Fleet {
    broker: Broker,
    dir: TempDir,
    prefix: String,
    slots: Vec<Option<Aggregator>>,
    /// Of those that run. Another thread observes them.
    addresses: Arc<Mutex<BTreeMap<String, SocketAddr>>>,
}

impl Fleet {
    fn start() -> Self {
        let broker = Broker::start();
        let (dir, prefix) = (directory(), broker.now().fresh_name("kills"));
        let mut fleet = Self {
            broker,
            dir,
            prefix,
            slots: (0..FLEET).map(|_| None).collect(),
            addresses: Arc::default(),
        };
        fleet.start_missing();
        fleet
    }

    fn start_slot(&mut self, slot: usize) {
        // Static members get back what they had, others wait until the dead member is missed.
        let (name, is_static) = (format!("agg-{slot}"), slot == 0);
        let kafka = &self.broker.now();
        let started = Aggregator::start(self.dir.path(), kafka, &self.prefix, &name, is_static);
        self.slots[slot] = Some(started);
    }

    /// Starts all that do not run, and waits until all partitions are ruled.
    fn start_missing(&mut self) {
        for slot in 0..FLEET {
            if self.slots[slot].is_none() {
                self.start_slot(slot);
            }
        }
        self.note_addresses();
        self.await_whole();
    }

    fn await_whole(&self) {
        await_whole(&self.slots.iter().flatten().collect::<Vec<_>>());
    }

    fn note_addresses(&self) {
        let running = self.slots.iter().flatten();
        let addresses = running.map(|aggregator| (aggregator.name.clone(), aggregator.http));
        *self.addresses.lock().expect("whole") = addresses.collect();
    }

    /// Kills or stops the aggregator of a random slot, or starts it if it does not run.
    fn disturb(&mut self, random: &mut Random, report: &mut Report) {
        let slot = random.below(FLEET as u64) as usize;
        match self.slots[slot].take() {
            Some(aggregator) => {
                let killed = random.below(6) != 0;
                let lines = if killed {
                    aggregator.kill()
                } else {
                    aggregator.stop()
                };
                report.kills += u64::from(killed);
                report.stops += u64::from(!killed);
                report.note(&lines);
                // Either the others take over, or this one is back before it is missed.
                if random.below(3) == 0 && self.slots.iter().any(Option::is_some) {
                    let begun = Instant::now();
                    self.await_whole();
                    report.takeovers_ms.push(begun.elapsed().as_millis());
                }
            }
            None => self.start_slot(slot),
        }
        self.note_addresses();
    }
}

pub fn kills_leave_the_state_of_an_uninterrupted_twin(_shared: &LocalKafka) {
    let (kills, seed) = twin::kills_and_seed(KILLS);
    let mut fleet = Fleet::start();
    let done = Arc::new(AtomicBool::new(false));
    let traffic = {
        let bootstrap = fleet.broker.now().bootstrap().to_owned();
        let (done, prefix) = (Arc::clone(&done), fleet.prefix.clone());
        std::thread::spawn(move || offer(&bootstrap, &prefix, seed, &done))
    };
    let seen = {
        let (done, addresses) = (Arc::clone(&done), Arc::clone(&fleet.addresses));
        std::thread::spawn(move || watch(&addresses, &done))
    };

    let (mut random, mut report) = (Random::of(seed, "kills", 0), Report::default());
    let between = KILLS_BETWEEN_RESTARTS.max(kills / KILLS_PARTS);
    while report.kills < kills || (!report.has_moved() && report.kills < 4 * kills) {
        if (report.broker_restarts + 1) * between <= report.kills {
            fleet.broker.restart();
            report.broker_restarts += 1;
        }
        // The random schedule of faults is the test; this waits for nothing.
        std::thread::sleep(Duration::from_millis(random.below(900)));
        fleet.disturb(&mut random, &mut report);
    }
    fleet.start_missing();
    done.store(true, Ordering::Relaxed);
    let (offered, redelivered) = traffic.join().expect("traffic");
    report.redelivered = redelivered;
    let mut seen = seen.join().expect("samples");
    // Once more, after the last hit.
    fleet.await_whole();
    let running = fleet.slots.iter().flatten();
    let last: BTreeMap<u32, u64> = running
        .flat_map(|aggregator| sample(aggregator.http, &mut seen))
        .collect();
    assert_eq!(last.len(), PARTITIONS as usize);
    for aggregator in fleet.slots.drain(..).flatten() {
        report.note(&aggregator.stop());
    }

    let log = read_all(&fleet.broker.now(), &fleet.prefix);
    let compared = twin::compare(PARTITIONS, log, &seen);
    println!("{offered} batches offered");
    report.check(kills, seen.len(), compared);
}

/// Offers hits, duplicates, old batches, batches for the wrong partition and garbage until `done`. Returns how many
/// batches it sent, and how many of them were duplicates.
fn offer(bootstrap: &str, prefix: &str, seed: u64, done: &AtomicBool) -> (u64, u64) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "1")
        .create()
        .expect("a producer");
    let topic = format!("{prefix}.hits");
    let mut random = Random::of(seed, "batches", 0);
    let mut sequences: BTreeMap<u32, u64> = BTreeMap::new();
    let mut recent: Vec<(u32, Vec<u8>)> = Vec::new();
    let (offered, mut again) = (AtomicU64::new(0), 0);
    let send = |partition: u32, record: &[u8]| {
        let partition = i32::try_from(partition).expect("small");
        let to_send: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(&topic).partition(partition).payload(record);
        producer
            .send(to_send)
            .map_err(|(error, _)| error)
            .expect("sent");
        offered.fetch_add(1, Ordering::Relaxed);
    };
    while !done.load(Ordering::Relaxed) {
        let resource = ["search", "wide"][random.below(2) as usize];
        let domain = format!("d{}", random.below(40));
        let partition = partition_of_pair(resource, &domain, PARTITIONS);
        let sequence = sequences.entry(partition).or_default();
        *sequence += 1;
        let record = batch(resource, &domain, *sequence, 1 + random.below(4));
        send(partition, &record);
        match random.below(20) {
            0 => {
                send(partition, &record);
                again += 1;
            }
            1 => {
                if let Some((partition, record)) = recent.get(random.below(64) as usize) {
                    send(*partition, record);
                    again += 1;
                }
            }
            2 => send((partition + 1) % PARTITIONS, &record),
            3 => send(partition, b"garbage"),
            _ => {}
        }
        if recent.len() < 64 {
            recent.push((partition, record));
        } else {
            recent[random.below(64) as usize] = (partition, record);
        }
        producer.poll(Duration::from_millis(2));
    }
    producer.flush(WITHIN).expect("all appended");
    (offered.into_inner(), again)
}

fn batch(resource: &str, domain: &str, sequence: u64, hits: u64) -> Vec<u8> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let at = Timestamp::ZERO.saturating_add(Span::from_std(now));
    let sender = Sender {
        agent: "traffic",
        epoch: 1,
        sequence,
        sent: at,
    };
    let hit = Hit::one(0, domain, at, 1);
    let mut writer = Writer::new();
    let hits = (0..hits).map(|_| hit);
    write_hits(
        &mut writer,
        &sender,
        &[resource],
        hits.collect::<Vec<_>>().into_iter(),
        [].into_iter(),
    );
    writer.as_slice().to_vec()
}

/// Observes all running aggregators again and again.
fn watch(addresses: &Mutex<BTreeMap<String, std::net::SocketAddr>>, done: &AtomicBool) -> Seen {
    let mut seen = Seen::new();
    while !done.load(Ordering::Relaxed) {
        let all: Vec<_> = addresses.lock().expect("whole").values().copied().collect();
        for address in all {
            sample(address, &mut seen);
        }
        std::thread::yield_now();
    }
    seen
}

/// Every record of the log, limits first.
fn read_all(kafka: &LocalKafka, prefix: &str) -> WholeLog {
    let config = KafkaConfig {
        topic_prefix: prefix.to_owned(),
        partitions: PARTITIONS,
        ..KafkaConfig::new(kafka.bootstrap())
    };
    let (events, mut inbox) = tollgate_log::channel(64);
    let mut log = KafkaLog::open(config, events).expect("opens");
    let mut all = vec![((Stream::Limits, 0), Vec::new())];
    all.extend((0..PARTITIONS).map(|partition| ((Stream::Hits, partition), Vec::new())));
    for ((stream, partition), _) in &all {
        log.follow(*stream, *partition, 0);
    }
    let mut open = all.len();
    while 0 < open {
        match inbox.blocking_recv().expect("the log is open") {
            LogEvent::Delivered {
                stream,
                partition,
                records,
            } => {
                let found = all.iter_mut().find(|(at, _)| *at == (stream, partition));
                found.expect("followed").1.extend(records);
            }
            LogEvent::CaughtUp { .. } => open -= 1,
            LogEvent::Gap { .. } | LogEvent::Broken { .. } => panic!("nothing may be missing"),
            _ => {}
        }
    }
    all
}
