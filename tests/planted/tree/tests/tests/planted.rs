//! The simulation finds bugs that were planted in this copy of the tree.

use tollgate_shared::bugs::{Bug, plant, planted};
use tollgate_tests::hunt::hunt;

/// The greatest number of seeds for each bug.
const SEEDS_MAX: u64 = 40;

#[test]
fn bugs_that_are_put_in_by_hand_are_found() {
    for (bug, laws) in [
        (Bug::TierCleared, &[3][..]),
        // A batch that is ruled twice is also counted twice: which of the two checks fails first is chance.
        (Bug::SequenceDropped, &[3, 5]),
        (Bug::SnapshotOff, &[4]),
        (Bug::MinMerged, &[5]),
        (Bug::GroupKept, &[6]),
        (Bug::RoomOver, &[6]),
        (Bug::RaceWonTwice, &[4]),
        (Bug::Overtakes, &[5]),
        (Bug::BanGrants, &[6]),
        (Bug::FullUnheard, &[7]),
        // Only law 8 finds a rule that engine and model both misread.
        (Bug::ExcessUncounted, &[8]),
        (Bug::DebtNotKept, &[8]),
        (Bug::DenialShort, &[8]),
    ] {
        let found =
            hunt(bug, 1, SEEDS_MAX).unwrap_or_else(|| panic!("{} is not found", bug.name()));
        let (name, law) = (bug.name(), found.law);
        assert!(laws.contains(&law), "{name}: law {law}, {}", found.check);
    }
}

#[test]
fn a_bug_is_turned_on_for_one_thread_and_in_place_of_another() {
    plant(Some(Bug::WindowEdge));
    plant(Some(Bug::LateClimbs));
    assert!(planted(Bug::LateClimbs) && !planted(Bug::WindowEdge));
    let elsewhere = std::thread::spawn(|| planted(Bug::LateClimbs));
    assert!(!elsewhere.join().expect("it ends"));
    plant(None);
    assert!(!planted(Bug::LateClimbs));
}
