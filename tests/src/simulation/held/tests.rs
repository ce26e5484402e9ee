//! Tests of checks of holds that run late, and of what agents hold while no aggregator runs.

use super::super::plan::{CALM_US, Episode, Fault, LogPlan, Plan};
use super::super::run;
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

/// Plans whose only fault is that their one aggregator is away for so long.
fn away_for(away_us: u64) -> impl Iterator<Item = Plan> {
    let plans = (2..).step_by(2).map(Plan::draw_kills);
    let has_journal = |plan: &Plan| matches!(plan.log, LogPlan::Journal { .. });
    plans.filter(has_journal).map(move |mut plan| {
        let from_us = 4_000_000;
        plan.length_us = from_us + away_us + 20_000_000 + CALM_US;
        plan.episodes = vec![Episode {
            from_us,
            to_us: from_us + away_us,
            fault: Fault::Stop {
                owner: 0,
                power: false,
            },
        }];
        for agent in &mut plan.agents {
            // So that each holds copies nearly always.
            agent.hold_max_us = 60_000_000;
        }
        plan
    })
}

#[test]
fn living_agents_keep_their_copies_while_no_aggregator_runs() {
    let mut held = 0;
    for away_us in [1_000_000, 2_000_000, 6_000_000, 20_000_000, 60_000_000] {
        for plan in away_for(away_us).take(3) {
            let seed = plan.seed;
            let run = run(plan, false);
            assert_eq!(run.violation, None, "seed {seed}");
            let lost = run.cover.of("copies of the gone back");
            assert_eq!(lost, 0, "seed {seed}, away for {away_us} us");
            held += run.cover.of("checked: what is held is counted");
        }
    }
    assert!(0 < held, "nobody held anything");
}
