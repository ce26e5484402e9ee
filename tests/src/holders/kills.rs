//! Kills agents that hold copies, many at a time; after every round the counts must equal what the
//! survivors hold, to the copy.
//!
//! ```text
//! round    victims start ─► all hold ─► churn ─► kill -9 of all ─► survivors settle and report what they hold
//!          counts, listed and summed, become equal to that        ─► copies_back
//!          probes: the room of every domain, a group and the whole is exactly what that leaves
//! ```
//!
//! The list shows which agent holds what; the probes measure the counts themselves: exactly the remaining
//! room can be taken and is confirmed, and not one copy more. What stays true: a difference is a failure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Cause, Confirmation, Copies, Hold, Refused};

use super::process::DOMAINS;
use super::{ByDomain, Counted, Endpoints, Holder, SOON};
use crate::simulation::random::Random;

/// The resource whose copies are held.
const RESOURCE: &str = "sandbox";

/// Limits that only the probes ever reach.
pub const LIMITS: &str = r#"
version = 1
rules = 2
[copies.sandbox]
limit = 5000
global = 20000
domains = { of-all = 20000, of-group = 9000 }
groups.few = { limit = 9000, members = ["d0", "d1", "of-group"] }
"#;

const LIMIT: u64 = 5_000;
const GLOBAL: u64 = 20_000;
const GROUP: u64 = 9_000;
const GROUP_MEMBERS: [&str; 2] = ["d0", "d1"];

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Kills in all.
    pub kills: usize,
    /// Kills per round.
    pub at_a_time: usize,
    /// Agents that survive all rounds.
    pub survivors: usize,
    /// The seed of everything random.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Agents killed.
    pub kills: usize,
    /// Rounds.
    pub rounds: usize,
    /// Copies that the killed agents held, as listed right before each round's kills.
    pub held: u64,
    /// Copies that were still counted in the end and that no agent held.
    pub lost: u64,
    /// Copies that were held but not counted.
    pub uncounted: u64,
    /// Rounds whose counts differed from the survivors' copies.
    pub differing: usize,
    /// Probes with the expected result.
    pub probes: usize,
    /// By round, the time from its last kill to equal counts.
    pub back: Vec<Duration>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut back = self.back.clone();
        back.sort_unstable();
        let at = |share: usize| {
            back.get((back.len() * share / 100).min(back.len().saturating_sub(1)))
                .map_or(0, Duration::as_millis)
        };
        write!(
            f,
            "kills {} rounds {} copies_held {} copies_lost_for_ever {} copies_uncounted {} rounds_differing {} \
             probes {} copies_back_ms_p50 {} copies_back_ms_max {}",
            self.kills,
            self.rounds,
            self.held,
            self.lost,
            self.uncounted,
            self.differing,
            self.probes,
            at(50),
            at(100)
        )
    }
}

impl Report {
    fn compare(&mut self, counted: &Counted, expected: &Counted) {
        let mut domains: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (domain, copies) in &counted.domains {
            domains.entry(domain).or_default().0 = *copies;
        }
        for (domain, copies) in &expected.domains {
            domains.entry(domain).or_default().1 = *copies;
        }
        for (counted, held) in domains.into_values() {
            self.lost += counted.saturating_sub(held);
            self.uncounted += held.saturating_sub(counted);
        }
        self.differing += usize::from(counted != expected);
    }

    /// Checks that everything is as expected.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn check(&self, order: &Order) {
        assert_eq!(
            (self.lost, self.uncounted, self.differing),
            (0, 0, 0),
            "{self}"
        );
        assert_eq!(self.kills, order.kills, "{self}");
        assert!(
            0 < self.held,
            "those that were killed held something: {self}"
        );
    }
}

impl Order {
    /// From the environment (`TOLLGATE_COPIES_KILLS`, `TOLLGATE_COPIES_KILLS_SEED`), or the few kills of an
    /// ordinary run.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let seed = variable("TOLLGATE_COPIES_KILLS_SEED");
        let kills = variable("TOLLGATE_COPIES_KILLS");
        let order = Self {
            kills: kills.map_or(20, |kills| kills as usize),
            at_a_time: if kills.is_some() { 50 } else { 10 },
            survivors: if kills.is_some() { 10 } else { 3 },
            seed: seed.unwrap_or_else(|| u64::from(std::process::id())),
        };
        println!("{order:?}");
        order
    }
}

/// Kills holders, and compares counts.
///
/// # Panics
///
/// If a process does not do what it should, or a probe does not find exactly the remaining room.
pub fn kill_holders(endpoints: &Endpoints, order: &Order) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let probes = runtime.block_on(Probes::new(endpoints));
    let mut random = Random::of(order.seed, "kills", 0);
    let mut start = |name: String| Holder::start(endpoints, &name, random.draw(), &[]);
    let mut survivors: Vec<Holder> = (0..order.survivors)
        .map(|n| start(format!("survivor-{n}")))
        .collect();
    survivors.iter().for_each(Holder::await_holding);
    let mut gaps = Random::of(order.seed, "gaps", 0);
    let mut report = Report::default();
    while report.kills < order.kills {
        let count = order.at_a_time.min(order.kills - report.kills);
        // Names are reused, epochs are not.
        let victims: Vec<Holder> = (0..count).map(|n| start(format!("victim-{n}"))).collect();
        victims.iter().for_each(Holder::await_holding);
        std::thread::sleep(Duration::from_millis(gaps.between(50, 500)));
        report.held += held_by_victims(endpoints);
        for victim in victims {
            victim.kill();
            std::thread::sleep(Duration::from_micros(gaps.below(3_000)));
        }
        let killed = Instant::now();
        let held: Vec<ByDomain> = survivors.iter_mut().map(Holder::settle).collect();
        let expected = Counted::of(survivors.iter().zip(&held));
        let counted = endpoints.counted_in_the_end(RESOURCE, &expected);
        report.back.push(killed.elapsed());
        report.compare(&counted, &expected);
        if counted != expected {
            // The probes would find the same again.
            eprintln!("counted {counted:?}\nheld by survivors {expected:?}");
            return report;
        }
        report.probes += runtime.block_on(probes.measure(endpoints, &expected));
        survivors.iter_mut().for_each(Holder::go_on);
        report.kills += count;
        report.rounds += 1;
        println!(
            "round {}: {} killed, {} copies of survivors, equal after {:?}",
            report.rounds,
            report.kills,
            expected.total,
            report.back.last()
        );
    }
    report
}

fn held_by_victims(endpoints: &Endpoints) -> u64 {
    let counted = endpoints.counted(RESOURCE).unwrap_or_default();
    let of_victims = counted.agents.iter();
    of_victims
        .filter(|(name, _)| name.starts_with("victim"))
        .map(|(_, copies)| copies)
        .sum()
}

/// Two agents that measure counts: one takes the expected room, the other tries one copy more.
struct Probes {
    _agents: [Agent; 2],
    takes: Copies,
    exceeds: Copies,
}

impl Probes {
    async fn new(endpoints: &Endpoints) -> Self {
        let agent = |name: &str| {
            let mut builder = Agent::builder().name(name).aggregator(&endpoints.agents);
            if let Some((bootstrap, prefix)) = &endpoints.kafka {
                builder = builder.kafka(bootstrap).kafka_topic_prefix(prefix);
            }
            builder.build().expect("good settings")
        };
        let agents = [agent("probe-takes"), agent("probe-exceeds")];
        let [takes, exceeds] = [&agents[0], &agents[1]].map(|agent| agent.copies(RESOURCE));
        for agent in &agents {
            assert!(agent.ready(SOON).await, "the aggregator is heard");
        }
        Self {
            _agents: agents,
            takes,
            exceeds,
        }
    }

    /// Measures every count. Returns how many there are.
    async fn measure(&self, endpoints: &Endpoints, expected: &Counted) -> usize {
        let domain = |number| format!("d{number}");
        let mut rooms: Vec<(String, u64)> = (0..DOMAINS)
            .map(|number| (domain(number), LIMIT - expected.of_domain(&domain(number))))
            .collect();
        let of_members = GROUP_MEMBERS.map(|domain| expected.of_domain(domain));
        rooms.push(("of-group".into(), GROUP - of_members.iter().sum::<u64>()));
        rooms.push(("of-all".into(), GLOBAL - expected.total));
        for (domain, room) in &rooms {
            self.probe(domain, *room).await;
            // Wait until the probe's copies are released before the next one measures.
            endpoints.await_counted(RESOURCE, expected);
        }
        rooms.len()
    }

    async fn probe(&self, domain: &str, room: u64) {
        let room = u32::try_from(room).expect("small");
        let hold = until_open(&self.takes, domain, room).await;
        assert_eq!(
            verdict_on(&hold).await,
            Confirmation::Confirmed,
            "{domain}: {room}"
        );
        match self.exceeds.reserve(domain, 1) {
            // The agent has already received the denial.
            Err(Refused::Denied(denied)) => assert_eq!(denied.cause(), Cause::Full),
            Err(other) => panic!("{domain}: {other}"),
            Ok(more) => match verdict_on(&more).await {
                Confirmation::Excess { copies: 1, .. } => {}
                other => panic!("{domain}: one more than {room}: {other:?}"),
            },
        }
    }
}

/// Waits while denials of the previous probe are in force.
async fn until_open(copies: &Copies, domain: &str, room: u32) -> Hold {
    let hold = copies.until_ready(domain, room, SOON).await;
    hold.unwrap_or_else(|error| panic!("{domain}: {room}: {error}"))
}

async fn verdict_on(hold: &Hold) -> Confirmation {
    let verdict_on = tokio::time::timeout(SOON, hold.confirmed()).await;
    verdict_on.expect("a verdict")
}
