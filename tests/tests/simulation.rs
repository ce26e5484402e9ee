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
        kills: None,
        go_on: false,
        anew: false,
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
    // Copies are held in the first. None of them is long.
    for seed in [3, 9, 11] {
        let (one, other) = (run(Plan::draw(seed), true), run(Plan::draw(seed), true));
        assert_eq!(one.trace, other.trace, "seed {seed}");
        assert_eq!(one.hash, run(Plan::draw(seed), false).hash, "seed {seed}");
    }
}

#[test]
fn what_agents_held_that_died_is_back_within_the_stated_time() {
    let order = Order {
        first: 2,
        seeds: None,
        time: Some(SOME_SECONDS),
        until_failure: false,
        kept: Vec::new(),
        kills: Some(60),
        go_on: false,
        anew: false,
    };
    let report = swarm(&order, |_| {});
    if let Some(failed) = &report.failure {
        let violation = failed.violation.as_ref().expect("it failed");
        panic!("seed {}: {violation}", failed.plan.seed);
    }
    assert!(0 < report.returns.kills, "nobody died holding anything");
    // The timeout of 2 s, a tick's slot, and how often it is looked at.
    assert!(
        report.returns.longest_us <= 3_200_000,
        "{:?}",
        report.returns
    );
}

#[cfg(feature = "bugs")]
#[test]
fn bugs_that_are_put_in_by_hand_are_found() {
    use tollgate_shared::bugs::Bug;
    use tollgate_tests::simulation::bugs::hunt;
    for (bug, law) in [
        (Bug::TierCleared, 3),
        (Bug::SequenceDropped, 3),
        (Bug::SnapshotOff, 4),
        (Bug::MinMerged, 5),
        (Bug::GroupKept, 6),
    ] {
        let found = hunt(bug, 1, 40).unwrap_or_else(|| panic!("{} is not found", bug.name()));
        assert_eq!(found.law, law, "{}: {}", bug.name(), found.check);
    }
}
