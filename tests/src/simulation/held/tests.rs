//! Tests of checks of holds that run late.

use super::super::plan::{Episode, Fault, Plan};
use super::*;

/// The world after an agent died at the beginning and the check ran `later_us` later.
fn looked_after(fault: Fault, later_us: u64) -> World {
    let mut plan = Plan::draw_kills(2);
    plan.episodes = vec![Episode {
        from_us: 0,
        to_us: 1,
        fault,
    }];
    let mut world = World::new(plan, false);
    world.deaths.push(Death {
        agent: 0,
        epoch: 1,
        at_us: 0,
    });
    world.now_us = later_us;
    world.check_holdings();
    world
}

#[test]
fn a_copy_returned_later_than_stated_is_a_violation() {
    let death = Fault::Die { agent: 0 };
    let in_time = looked_after(death.clone(), BACK_WITHIN_US);
    assert_eq!(in_time.violation, None);
    assert_eq!(in_time.returns.longest_us, BACK_WITHIN_US);
    let late = looked_after(death, BACK_WITHIN_US + 1).violation;
    let late = late.expect("it is late");
    assert_eq!(
        (late.law, &*late.check),
        (6, "what the dead held is back in the stated time")
    );
    let excused = looked_after(Fault::Stall { owner: 0 }, BACK_WITHIN_US + 1);
    assert_eq!(excused.violation, None);
}
