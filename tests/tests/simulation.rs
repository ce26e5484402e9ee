//! The simulation's part of the ordinary test run: kept seeds, some seconds of new ones, and that a run is
//! a function of its seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_tests::simulation::kept;
use tollgate_tests::simulation::plan::Plan;
use tollgate_tests::simulation::run;
use tollgate_tests::simulation::swarm::{Order, swarm};

/// How long new seeds are tried.
const SOME_SECONDS: Duration = Duration::from_secs(8);

/// The seed to begin with: `TOLLGATE_SIMULATION_SEED`, or the clock's.
fn first_seed() -> u64 {
    let asked = std::env::var("TOLLGATE_SIMULATION_SEED").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(1, |since| since.as_secs())
    })
}

#[test]
fn some_seconds_of_seeds_violate_no_law() {
    let first = first_seed();
    println!("seeds from {first}: again with TOLLGATE_SIMULATION_SEED={first}");
    let order = Order {
        first,
        seeds: None,
        time: Some(SOME_SECONDS),
        until_failure: false,
        kept: kept::in_the_tree(),
    };
    let report = swarm(&order, |_| {});
    if let Some(failed) = &report.failure {
        let violation = failed.violation.as_ref().expect("it failed");
        panic!("seed {}: {violation}", failed.plan.seed);
    }
    assert!(
        0 < report.refusals,
        "nobody was refused: that proves nothing"
    );
    println!("{} seeds, {} decisions", report.seeds, report.decisions);
}

#[test]
fn one_seed_gives_one_trace_byte_by_byte() {
    for seed in [2, 5, 7] {
        let (one, other) = (run(Plan::draw(seed), true), run(Plan::draw(seed), true));
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!(one.hash, run(Plan::draw(seed), false).hash, "seed {seed}");
    }
}
