//! A fleet is without its aggregator for a while, under ten times its limit: from the first second after its return
//! on, no call is refused for excess of that time.
//!
//! ```text
//! 100/s, burst 100, debt 300     1,000/s from two agents, by a journal that is killed with signal 9
//! away     5 s                   everything is let through; of the first second, in which agents are still guarded,
//!                                300 are debt, which is gone three seconds later; the rest is only tallied
//! back     50/s                  no call is refused after a second: if the excess were debt, it would take three
//! ```
//!
//! With `TOLLGATE_AWAY_SECS=60` it is away for a minute:

use std::net::TcpListener;
use std::time::{Duration, Instant};

use tollgate_agent::{Agent, Rate};
use tollgate_tests::http::get_text;
use tollgate_tests::serving::Serving;
use tollgate_tests::twin::WITHIN;

const LIMITS: &str = r#"
version = 1
rules = 2
[rate."api.search"]
bucket = { rate = "100/s", burst = 100, debt = 300 }
"#;

/// How long the aggregator is away in the ordinary run.
const AWAY: Duration = Duration::from_secs(5);

/// How many calls were let through and refused.
#[derive(Clone, Copy, Debug, Default)]
struct Offered {
    let_through: u64,
    refused: u64,
}

/// Two agents that offer calls.
struct Fleet {
    agents: [Agent; 2],
    rates: [Rate; 2],
}

impl Fleet {
    fn connected(address: &str) -> Self {
        let agent = |name: &str| {
            let builder = Agent::builder().name(name).aggregator(address);
            builder.build().expect("good settings")
        };
        let agents = [agent("one"), agent("two")];
        let rates = [0, 1].map(|at: usize| agents[at].rate("api.search"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        for agent in &agents {
            assert!(runtime.block_on(agent.ready(WITHIN)), "it is heard");
        }
        Self { agents, rates }
    }

    /// Makes this many calls by each agent.
    fn call(&self, each: u64, offered: &mut Offered) {
        for rate in &self.rates {
            for _ in 0..each {
                match rate.hit("acme") {
                    Ok(_) => offered.let_through += 1,
                    Err(_) => offered.refused += 1,
                }
            }
        }
    }

    /// Offers ten times the limit for this long.
    fn flood(&self, offered: &mut Offered, lasts: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            self.call(10, offered);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Offers at most half the limit for this long.
    fn trickle(&self, lasts: Duration) -> Offered {
        let (begun, mut offered) = (Instant::now(), Offered::default());
        while begun.elapsed() < lasts {
            self.call(1, &mut offered);
            std::thread::sleep(Duration::from_millis(40));
        }
        offered
    }

    /// Hits that the log has acknowledged.
    fn acknowledged(&self) -> u64 {
        let stats = self.agents.iter().map(Agent::stats);
        stats.map(|stats| stats.hits_acknowledged).sum()
    }

    fn unguarded(&self) -> u64 {
        let stats = self.agents.iter().map(Agent::stats);
        stats.map(|stats| stats.hits_unguarded).sum()
    }
}

#[test]
fn excess_without_an_aggregator_denies_nobody_later() {
    let away = std::env::var("TOLLGATE_AWAY_SECS").ok();
    let away = away.map_or(AWAY, |secs| {
        Duration::from_secs(secs.parse().expect("seconds"))
    });
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The same address each time: agents reconnect to it with everything that was not acknowledged.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    drop(listener);
    let start = || Serving::start_at(dir.path(), LIMITS, &address, &["--partitions", "4"]);

    let serving = start();
    serving.await_ready();
    let fleet = Fleet::connected(&address);
    let before = fleet.trickle(Duration::from_secs(1));
    assert_eq!(before.refused, 0);
    serving.kill();
    let (begun, mut offered) = (Instant::now(), Offered::default());
    fleet.flood(&mut offered, away);
    assert_eq!(
        offered.refused, 0,
        "without an aggregator nobody is refused"
    );

    // No calls until the log has all of these: one agent may be back before the other, and what it lets through above
    // the limit from then on is rightly held against the domain.
    let serving = start();
    while fleet.acknowledged() < before.let_through + offered.let_through {
        assert!(begun.elapsed() < away + WITHIN, "all are acknowledged");
        std::thread::sleep(Duration::from_millis(2));
    }
    let unguarded = fleet.unguarded();
    let first = fleet.trickle(Duration::from_secs(1));
    let after = fleet.trickle(Duration::from_secs(2));
    let excess = metric(&serving, "tollgate_hits_excess_total");
    println!(
        "away for {:?}: {offered:?}, {unguarded} unguarded, {excess} excess; in the first second back {first:?}, in \
         the two after it {after:?}",
        begun.elapsed()
    );
    assert!(
        1_000 < unguarded,
        "most calls are made while nothing is heard"
    );
    assert!(1_000.0 < excess, "most of them are excess");
    assert_eq!(
        after.refused, 0,
        "of that time nothing is held against anybody"
    );
}

/// The sum of a metric over its labels.
fn metric(serving: &Serving, name: &str) -> f64 {
    let text = get_text(serving.http.as_str(), "/metrics").expect("metrics");
    let lines = text.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
