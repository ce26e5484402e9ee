//! Tests of what waits shortly while an agent has many calls.

use super::tests::{NOW, WALL, handed_over, hit, relaxed_packer};
use super::*;

const ACME: &str = "acme";

/// How many of these calls wait, one after the other, until something is handed over; and how many are handed over then.
fn waits(packer: &mut Packer, calls: u64, now: Mono) -> (u64, u64) {
    for n in 0..calls {
        packer.take(&hit(ACME, n), now, WALL);
        let gone = handed_over(packer, now);
        if let Some((_, hits)) = gone.first() {
            return (n, *hits);
        }
    }
    (calls, 0)
}

#[test]
fn a_busy_agent_sends_a_tenth_of_a_limit_at_once() {
    let mut packer = relaxed_packer(1_000, 1);
    packer.set_busy(true);
    assert_eq!(waits(&mut packer, 200, NOW), (99, 100));
    // Others send a fortieth at once.
    let mut packer = relaxed_packer(1_000, 1);
    assert_eq!(waits(&mut packer, 200, NOW), (24, 25));
}

#[test]
fn a_busy_agent_sends_what_waits_shortly_together_after_5_ms() {
    let mut packer = relaxed_packer(1_000, 16);
    packer.set_busy(true);
    assert_eq!(waits(&mut packer, 24, NOW), (24, 0));
    assert!(!packer.waits_shortly());
    packer.guard_by(Guards::default(), false, NOW);
    assert_eq!(waits(&mut packer, 3, NOW), (3, 0));
    assert!(packer.waits_shortly());
    let beside = "globex";
    assert_ne!(
        partition_of_pair("r", beside, 16),
        partition_of_pair("r", ACME, 16)
    );
    packer.take(&hit(beside, 1), NOW, WALL);
    let after = |ms| NOW.plus(Span::from_millis(ms));
    assert_eq!(handed_over(&mut packer, after(4)), []);
    let acme = partition_of_pair("r", ACME, 16);
    assert_eq!(handed_over(&mut packer, after(5)), [(acme, 27)]);
    assert!(!packer.waits_shortly());
    // A call that is not urgent waits on.
    assert_eq!(handed_over(&mut packer, after(59)), []);
    assert_eq!(handed_over(&mut packer, after(60)).len(), 1);
}

#[test]
fn what_waits_shortly_goes_once_the_agent_is_no_longer_busy() {
    let mut packer = relaxed_packer(1_000, 1);
    packer.set_busy(true);
    assert_eq!(waits(&mut packer, 30, NOW), (30, 0));
    packer.set_busy(false);
    assert_eq!(handed_over(&mut packer, NOW), [(0, 30)]);
}
