//! Tests of calls that wait for a verdict of the aggregators: how much of their request they get, and for how long
//! they ask.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tollgate_agent::testing::{Ruling, TestAgent, WhenBlind};
use tollgate_agent::{Copies, Hold, Misuse, Refused, SeizeError, TransferId};

use crate::sandbox::{kit, poll};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_seize_asks_for_its_transfer_until_its_deadline() {
    let (kit, sandbox) = kit();
    let mut giver = sandbox.reserve("acme", 3).unwrap();
    let id = giver.transfer(2, SECOND).unwrap();
    let seized = seize_known_after(&kit, &sandbox, id, (5 * SECOND, 2 * SECOND));
    assert_eq!(seized.map(|hold| hold.copies()), Ok(2));
    let never = seize_known_after(&kit, &sandbox, id, (2 * SECOND, 9 * SECOND));
    assert_eq!(never.err(), Some(SeizeError::Unknown));
}

/// Seizes copies that are staged only `known_after` the call, within `max_wait`. Nearly all of that has to pass
/// before the call gives up.
fn seize_known_after(
    kit: &TestAgent,
    sandbox: &Copies,
    id: TransferId,
    (max_wait, known_after): (Duration, Duration),
) -> Result<Hold, SeizeError> {
    let mut seize = pin!(sandbox.seize_within(id, max_wait));
    let mut waited = Duration::ZERO;
    loop {
        if let Poll::Ready(answer) = poll(seize.as_mut()) {
            let nearly = max_wait.min(known_after) - Duration::from_millis(200);
            assert!(nearly <= waited && waited <= max_wait, "{waited:?}");
            return answer;
        }
        match kit.held().into_iter().find(|one| !one.in_use) {
            Some(reserve) if waited < known_after => {
                kit.rule("sandbox", reserve.number, Ruling::NothingStaged);
            }
            Some(reserve) => {
                let found = Ruling::Seized("acme".to_owned(), 2);
                kit.rule("sandbox", reserve.number, found);
            }
            None => {
                let step = Duration::from_millis(40);
                kit.advance(step);
                waited += step;
            }
        }
    }
}

#[test]
fn a_strict_reserve_may_be_granted_in_part() {
    let (kit, sandbox) = kit();
    kit.strict("sandbox");
    let misuse = |copies| {
        let mut reserve = pin!(sandbox.reserve_confirmed_up_to("acme", copies, SECOND));
        match poll(reserve.as_mut()) {
            Poll::Ready(Err(Refused::Misuse(misuse))) => misuse,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(misuse(0..=3), Misuse::NoCopies);
    assert_eq!(misuse(0..=0), Misuse::NoCopies);
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let reversed = misuse(3..=2);
    assert_eq!(reversed, Misuse::MinAboveMax { min: 3, max: 2 });
    let mut reserve = pin!(sandbox.reserve_confirmed_up_to("acme", 2..=9, SECOND));
    assert!(poll(reserve.as_mut()).is_pending());
    kit.rule("sandbox", kit.held()[0].number, Ruling::Granted(5));
    let Poll::Ready(Ok(hold)) = poll(reserve.as_mut()) else {
        panic!("not granted");
    };
    assert_eq!((hold.copies(), sandbox.held("acme")), (5, 5));
    drop(hold);
    // No verdict arrives, and the policy lets the call through: the minimum.
    kit.when_blind("sandbox", WhenBlind::Open);
    let mut reserve = pin!(sandbox.reserve_confirmed_up_to("acme", 2..=9, SECOND));
    assert!(poll(reserve.as_mut()).is_pending());
    kit.advance(SECOND);
    let Poll::Ready(Ok(hold)) = poll(reserve.as_mut()) else {
        panic!("not let through");
    };
    assert_eq!(hold.copies(), 2);
    assert_eq!(kit.agent().stats().holds_beyond_strict, 2);
}
