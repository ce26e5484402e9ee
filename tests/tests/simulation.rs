//! The simulation's part of the ordinary test run: kept seeds, some seconds of new ones, and that a run is
//! a function of its seed.

use std::num::NonZeroUsize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_tests::simulation::kept;
use tollgate_tests::simulation::plan::Plan;
use tollgate_tests::simulation::run;
use tollgate_tests::simulation::swarm::{Order, Report, swarm};

/// How long new seeds are tried.
const SOME_SECONDS: Duration = Duration::from_secs(8);

/// It and the ones after it are short.
const SHORT_SEED: u64 = 1;

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
        time: Some(SOME_SECONDS),
        kept: kept::in_the_tree(),
        ..Order::of(first, None)
    };
    let report = swarm(&order, |_| {}).expect("nothing is written");
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
fn a_swarm_that_was_left_goes_on_and_comes_to_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = Some(dir.path().join("state.json"));
    let of = |seeds, state| Order {
        state,
        go_on: true,
        ..Order::of(SHORT_SEED, Some(seeds))
    };
    let (two, four) = (of(2, state.clone()), of(4, state.clone()));
    let left = swarm(&two, |_| {}).expect("it is written");
    assert_eq!(left.seeds, 2);
    let workers = NonZeroUsize::new(2).expect("two");
    let whole = swarm(
        &Order {
            workers,
            ..of(4, None)
        },
        |_| {},
    )
    .expect("nothing is written");
    let gone_on = swarm(&four, |_| {}).expect("it is read");
    let sums = |report: &Report| {
        let cover: Vec<_> = report.cover.all().collect();
        (
            report.seeds,
            report.decisions,
            report.refusals,
            report.faults,
            cover,
        )
    };
    assert_eq!(sums(&gone_on), sums(&whole));
    // Nothing is left to do, and nothing counts twice.
    let again = swarm(&four, |_| {}).expect("it is read");
    assert_eq!(sums(&again), sums(&whole));
    let other = swarm(
        &Order {
            first: SHORT_SEED + 1,
            ..four
        },
        |_| {},
    );
    let fault = other.expect_err("it is of another order").to_string();
    assert!(fault.contains("first seed"), "{fault}");
}

#[test]
fn what_agents_held_that_died_is_back_within_the_stated_time() {
    let order = Order {
        time: Some(SOME_SECONDS),
        kills: Some(60),
        ..Order::of(2, None)
    };
    let report = swarm(&order, |_| {}).expect("nothing is written");
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
    for (bug, laws) in [
        (Bug::TierCleared, &[3][..]),
        // A batch that is ruled twice is counted twice, too: which of the two is seen first is chance.
        (Bug::SequenceDropped, &[3, 5]),
        (Bug::SnapshotOff, &[4]),
        (Bug::MinMerged, &[5]),
        (Bug::GroupKept, &[6]),
    ] {
        let found = hunt(bug, 1, 40).unwrap_or_else(|| panic!("{} is not found", bug.name()));
        let (name, law) = (bug.name(), found.law);
        assert!(laws.contains(&law), "{name}: law {law}, {}", found.check);
    }
}
