//! How fast copies are ruled and what a hold costs: `cargo run --release --example copies_speed 1000000`.
//!
//! Holds of 50 agents over 100,000 domains, a quarter of them in two groups, with a global limit and a
//! greatest age. One line for each number of live holds: bytes for a hold as the tables count them and as
//! the process has grown (Linux), and operations a second of one core for filling up, for releasing one
//! hold and taking another at random, and for the same with strict reserves. A tool for orientation; it
//! checks nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate_engine::copies::{
    AgentIx, Ahead, Copies, CopiesRequest, CopyLimits, Effects, HoldId, NameKey,
};
use tollgate_shared::time::{Span, Timestamp};

const DOMAINS: usize = 100_000;
const AGENTS: usize = 50;
const CHANGES: usize = 2_000_000;
/// Pairs of operations in each record.
const RECORD: usize = 16;

/// Time on a core; on systems that do not report it, elapsed time.
struct Clock {
    begun: Instant,
    on_core: Option<u64>,
}

impl Clock {
    fn start() -> Self {
        Self {
            begun: Instant::now(),
            on_core: on_core_ns(),
        }
    }

    fn seconds(&self) -> f64 {
        let on_core = on_core_ns().zip(self.on_core);
        let spent = on_core.map(|(now, then)| Duration::from_nanos(now - then));
        spent.unwrap_or_else(|| self.begun.elapsed()).as_secs_f64()
    }
}

fn on_core_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Splitmix64: the same random numbers in every run.
struct Walk(u64);

impl Walk {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }
}

/// Operations as a record would contain them: adjacent in memory, and prepared before the clock runs.
#[derive(Default)]
struct Prepared {
    text: String,
    pairs: Vec<Pair>,
}

/// One hold is released and another taken.
#[derive(Clone, Copy)]
struct Pair {
    released: HoldId,
    taken: HoldId,
    /// Its domain as a range of the text.
    domain: (usize, usize),
}

impl Prepared {
    fn domain(&self, pair: Pair) -> &str {
        &self.text[pair.domain.0..pair.domain.1]
    }
}

struct Run {
    copies: Copies,
    agents: Vec<AgentIx>,
    names: Vec<String>,
    out: Effects,
    walk: Walk,
    next: u64,
}

fn main() {
    println!(
        "holds     table B/hold  grown B/hold  fill/s     hold+release/s  reserve+release/s  in records"
    );
    let holds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    measure(holds.unwrap_or(1_000_000));
}

fn measure(holds: usize) {
    let names: Vec<String> = (0..DOMAINS).map(|n| format!("tenant-{n:06}")).collect();
    let gold = names.iter().step_by(4).map(String::as_str);
    let limits = CopyLimits::builder(1_000)
        .global(Some(u64::MAX / 2))
        .max_age(Some(Span::from_secs(3_600)))
        .holds_max(1 << 23)
        .group("gold", u64::MAX / 4, gold.clone())
        .group("europe", u64::MAX / 4, gold)
        .build();
    let key = NameKey { k0: 1, k1: 2 };
    let mut copies = Copies::new(Arc::new(limits), key);
    let agents = (0..AGENTS).map(|n| copies.agent(&format!("agent-{n}"), 1));
    let agents = agents.collect();
    let mut run = Run {
        copies,
        agents,
        names,
        out: Effects::new(),
        walk: Walk(1),
        next: 0,
    };
    // Allocated before the measurement, so that it does not count as growth.
    let mut live: Vec<HoldId> = (0..holds).map(|_| run.next_id()).collect();
    run.next = 0;
    let before = resident_bytes();
    let clock = Clock::start();
    for (n, id) in live.iter_mut().enumerate() {
        // Every domain once, then at random.
        let domain = if n < DOMAINS {
            n
        } else {
            run.walk.below(DOMAINS)
        };
        *id = run.next_id();
        let ask = ask(*id, &run.names[domain]);
        run.out.clear();
        let taken = run.copies.hold(ask, &mut run.out);
        assert!(taken.is_ok(), "{taken:?}");
    }
    let fill = holds as f64 / clock.seconds();
    let grown = resident_bytes().saturating_sub(before);
    let tables = run.copies.heap_bytes();
    let hold = run.change(&mut live, false, 1);
    let reserve = run.change(&mut live, true, 1);
    let in_records = run.change(&mut live, false, RECORD);
    println!(
        "{holds:>9} {:>13.1} {:>13.1} {fill:>10.0} {hold:>15.0} {reserve:>18.0} {in_records:>11.0}",
        tables as f64 / holds as f64,
        grown as f64 / holds as f64,
    );
}

fn ask(id: HoldId, domain: &str) -> CopiesRequest<'_> {
    CopiesRequest {
        id,
        // A thousand holds for each second.
        at: Timestamp::from_micros(id.number * 1_000),
        domain,
        copies: 2,
    }
}

impl Run {
    fn next_id(&mut self) -> HoldId {
        let agent = self.agents[self.walk.below(AGENTS)];
        self.next += 1;
        HoldId {
            agent,
            number: self.next,
        }
    }

    /// Operations a second of releasing one hold and taking another, in records of `record` pairs.
    fn change(&mut self, live: &mut [HoldId], strict: bool, record: usize) -> f64 {
        const ROUND: usize = 4_096;
        let mut seconds = 0.0;
        for _ in 0..CHANGES / ROUND {
            let prepared = self.prepare(live, ROUND);
            let clock = Clock::start();
            for pairs in prepared.pairs.chunks(record) {
                if 1 < record {
                    self.look_ahead(&prepared, pairs);
                }
                for &pair in pairs {
                    self.apply(&prepared, pair, strict);
                }
            }
            seconds += clock.seconds();
        }
        (CHANGES / ROUND * ROUND * 2) as f64 / seconds
    }

    fn prepare(&mut self, live: &mut [HoldId], pairs: usize) -> Prepared {
        let mut prepared = Prepared::default();
        for _ in 0..pairs {
            let start = prepared.text.len();
            let domain = self.walk.below(DOMAINS);
            prepared.text.push_str(&self.names[domain]);
            let taken = self.next_id();
            let released = &mut live[self.walk.below(live.len())];
            prepared.pairs.push(Pair {
                released: std::mem::replace(released, taken),
                taken,
                domain: (start, prepared.text.len()),
            });
        }
        prepared
    }

    fn look_ahead(&mut self, prepared: &Prepared, pairs: &[Pair]) {
        let ahead = pairs.iter().flat_map(|&pair| {
            let domain = Ahead::Domain(prepared.domain(pair));
            [Ahead::Hold(pair.released), domain]
        });
        let ahead: Vec<Ahead<'_>> = ahead.collect();
        self.copies.read_ahead(&ahead);
    }

    fn apply(&mut self, prepared: &Prepared, pair: Pair, strict: bool) {
        self.out.clear();
        let released = self.copies.release(pair.released, 2, &mut self.out);
        assert!(released.is_ok(), "{released:?}");
        let ask = ask(pair.taken, prepared.domain(pair));
        let taken = match strict {
            true => self.copies.reserve(ask, 1, &mut self.out).is_ok(),
            false => self.copies.hold(ask, &mut self.out).is_ok(),
        };
        assert!(taken);
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok());
    pages.unwrap_or(0) * 4_096
}
