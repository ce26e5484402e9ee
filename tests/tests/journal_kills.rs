//! Kills, stops and restarts a journal's aggregator at random under load. At every offset at which its
//! state was observed, the state was that of an uninterrupted twin. The fleet's trial on Kafka
//! (`kafka/kills.rs`) checks the same; this runs both in full:
//!
//! ```sh
//! cargo build -p tollgate
//! TOLLGATE_KAFKA=required TOLLGATE_KILLS=200 \
//!     cargo test -p tollgate-tests --test kafka --test journal_kills -- whoever_is_killed --nocapture
//! ```
//!
//! Without the variable there are a few kills. `TOLLGATE_KILLS_SEED` repeats a run's schedule.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollgate_agent::Agent;
use tollgate_log::Stream;
use tollgate_log::journal::JournalReader;
use tollgate_log::journal::disk::OsDisk;
use tollgate_log::journal::reader::JournalRead;
use tollgate_tests::serving::Serving;
use tollgate_tests::twin::{self, LIMITS, Random, Seen, WITHIN, WholeLog, get, sample};

const PARTITIONS: u32 = 4;

/// Kills of the ordinary run.
const KILLS: u64 = 6;

/// Snapshots are taken often.
const CONFIG: &str = "[snapshot]\nevery = \"1s\"\nentries_max = 1000\n[journal]\npartitions = 4\n";

/// What a run did.
#[derive(Debug, Default)]
struct Report {
    kills: u64,
    stops: u64,
    restored: usize,
    back_after_ms: Vec<u128>,
}

impl Report {
    /// Checks that enough happened, and that all states that were seen were compared.
    fn check(&mut self, kills: u64, seen: usize, compared: usize) {
        self.back_after_ms.sort_unstable();
        println!("{self:?}\n{seen} states seen, {compared} compared, all equal");
        assert_eq!(compared, seen, "every state that was seen is compared");
        assert!(10 * kills < compared as u64, "enough was seen");
        assert!(0 < self.restored, "snapshots were used");
    }

    fn note(&mut self, lines: &[String]) {
        let restored = lines.iter().filter(|line| line.contains("restored from"));
        self.restored += restored.count();
        for line in lines.iter().filter(|line| line.contains("ERROR")) {
            println!("{line}");
        }
    }
}

#[test]
fn kills_leave_the_journal_as_an_uninterrupted_twin_has_it() {
    let (kills, seed) = twin::kills_and_seed(KILLS);
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("tollgate.toml"), CONFIG).expect("written");
    // The same address each time: agents reconnect to it with everything that was not acknowledged.
    let agents = free_address().to_string();
    let start = || {
        let more = ["--config", "tollgate.toml"];
        Serving::start_at(dir.path(), LIMITS, &agents, &more)
    };
    let done = Arc::new(AtomicBool::new(false));
    let http = Arc::new(Mutex::new(None));
    let traffic = spawn(&done, {
        let agents = agents.clone();
        move |done| offer(&agents, seed, done)
    });
    let seen = spawn(&done, {
        let http = Arc::clone(&http);
        move |done| watch(&http, done)
    });

    let (mut random, mut report) = (Random::of(seed, "kills", 0), Report::default());
    let begin = || {
        let serving = start();
        *http.lock().expect("whole") = Some(address(&serving));
        serving
    };
    while report.kills < kills {
        let serving = begin();
        // Some are killed before they have caught up, others long after.
        if random.below(3) != 0 {
            let begun = Instant::now();
            await_ready(address(&serving));
            report.back_after_ms.push(begun.elapsed().as_millis());
        }
        // The random schedule of faults is the test; this waits for nothing.
        std::thread::sleep(Duration::from_millis(random.below(1_500)));
        let killed = random.below(6) != 0;
        let lines = if killed {
            serving.kill()
        } else {
            serving.stop()
        };
        report.kills += u64::from(killed);
        report.stops += u64::from(!killed);
        report.note(&lines);
    }
    let serving = begin();
    await_ready(address(&serving));
    done.store(true, Ordering::Relaxed);
    let offered = traffic.join().expect("traffic");
    let mut seen = seen.join().expect("samples");
    // Once more, after the last hit.
    let last = sample(address(&serving), &mut seen);
    assert_eq!(last.len(), PARTITIONS as usize);
    report.note(&serving.stop());

    assert!(1_000 < offered, "enough was offered: {offered}");
    let compared = twin::compare(PARTITIONS, read_all(&dir.path().join("journal")), &seen);
    report.check(kills, seen.len(), compared);
}

/// A port without a listener.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

fn address(serving: &Serving) -> SocketAddr {
    serving.http.parse().expect("an address")
}

fn spawn<T: Send + 'static>(
    done: &Arc<AtomicBool>,
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let done = Arc::clone(done);
    std::thread::spawn(move || work(&done))
}

fn await_ready(http: SocketAddr) {
    let begun = Instant::now();
    while !get(http, "/readyz").is_some_and(|ready| ready["ready"] == true) {
        assert!(begun.elapsed() < WITHIN, "it is not ready");
        std::thread::yield_now();
    }
}

/// Uses what may be used until `done`, by an agent that knows nothing of kills. Returns how much that
/// was.
fn offer(agents: &str, seed: u64, done: &AtomicBool) -> u64 {
    let agent = Agent::builder()
        .aggregator(agents)
        .build()
        .expect("good settings");
    let rates = [agent.rate("search"), agent.rate("wide")];
    let mut random = Random::of(seed, "batches", 0);
    let mut through = 0;
    while !done.load(Ordering::Relaxed) {
        for _ in 0..8 {
            let domain = format!("d{}", random.below(400));
            let rate = &rates[random.below(2) as usize];
            through += u64::from(rate.hit(&domain).is_ok());
        }
        // A load that the machine carries easily.
        std::thread::sleep(Duration::from_millis(2));
    }
    through
}

/// Observes the running aggregator again and again.
fn watch(http: &Mutex<Option<SocketAddr>>, done: &AtomicBool) -> Seen {
    let mut seen = Seen::new();
    while !done.load(Ordering::Relaxed) {
        let address = *http.lock().expect("whole");
        if let Some(address) = address {
            sample(address, &mut seen);
        }
        std::thread::yield_now();
    }
    seen
}

/// Every record of the journal, limits first.
fn read_all(dir: &Path) -> WholeLog {
    let journal = JournalReader::open(dir, Arc::new(OsDisk)).expect("a journal");
    let hits = (0..PARTITIONS).map(|partition| (Stream::Hits, partition));
    let all = [(Stream::Limits, 0)].into_iter().chain(hits);
    all.map(|(stream, partition)| {
        let mut reader = journal.read(stream, partition, 0);
        let mut records = Vec::new();
        loop {
            match reader.read().expect("readable") {
                JournalRead::Records(some) => records.extend(some),
                JournalRead::Gone { .. } => panic!("nothing may be missing"),
                JournalRead::End => return ((stream, partition), records),
            }
        }
    })
    .collect()
}
