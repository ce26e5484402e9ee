//! Draws the faults of a plan: their kinds, numbers and times.
//!
//! Each kind has its own rate in each seed, and is absent from most. Knows nothing of the effects of a fault. What
//! stays true: every fault is over when the quiescent phase begins.

use super::faults::{Edge, Episode, Fault, LOG_WAYS, WAYS, Whose};
use super::operators::DOES;
use super::plan::{LogPlan, Plan};
use super::random::Random;

/// Draws the faults that each plan may have, by its log and its sizes.
pub(super) fn first(plan: &Plan, random: &mut Random) -> Vec<Episode> {
    let mut episodes = Vec::new();
    // Each kind has its own rate in each seed, and most kinds are absent from most seeds, so that events that only
    // occur without the others occur too.
    let quiescence_us = plan.quiescence_us();
    for kind in 0..17 {
        let rate = match random.below(3) {
            0 => random.between(1, 4),
            1 => 1,
            _ => 0,
        };
        for _ in 0..rate {
            let from_us = random.below(quiescence_us.saturating_sub(200_000).max(1));
            let longest =
                (quiescence_us - from_us).clamp(100_000, (quiescence_us / 2).max(15_000_000));
            let to_us = (from_us + random.spread(10_000, longest)).min(quiescence_us);
            if let Some(fault) = fault(plan, random, kind) {
                episodes.push(Episode {
                    from_us,
                    to_us,
                    fault,
                });
            }
        }
    }
    episodes.sort_by_key(|episode| episode.from_us);
    episodes
}

fn edge(plan: &Plan, random: &mut Random) -> Edge {
    let agent = random.below(plan.agents.len() as u64) as usize;
    let owner = random.below(plan.owners as u64) as usize;
    random.pick(&WAYS).between(agent, owner)
}

fn fault(plan: &Plan, random: &mut Random, kind: u64) -> Option<Fault> {
    let journal = matches!(plan.log, LogPlan::Journal { .. });
    let agent = random.below(plan.agents.len() as u64) as usize;
    let owner = random.below(plan.owners as u64) as usize;
    let ppm = random.spread(5_000, 500_000) as u32;
    let sign = if random.one_in(2) { 1 } else { -1 };
    Some(match kind {
        0 => Fault::Loss(edge(plan, random), ppm),
        1 => Fault::Duplication(edge(plan, random), ppm),
        2 => Fault::Reordering(edge(plan, random), random.spread(200, 300_000)),
        3 => Fault::Delay(edge(plan, random), random.spread(1_000, 4_000_000)),
        4 => Fault::Cut {
            edge: edge(plan, random),
            lost: random.one_in(2),
        },
        5 => Fault::Stall { owner },
        6 | 7 => Fault::Crash {
            owner,
            after: random.below(400),
            in_disk: journal && random.one_in(2),
            power: random.one_in(2),
        },
        8 => Fault::Die { agent },
        9 => Fault::Freeze { agent },
        10 => Fault::AgentClock {
            agent,
            by_us: sign * random.spread(10_000, 900_000_000) as i64,
        },
        11 => Fault::LogClock {
            by_us: sign * random.spread(1_000, 20_000_000) as i64,
        },
        12 if journal => Fault::DiskFull {
            room_bytes: random.spread(10, 20_000),
        },
        12 | 13 if !journal => Fault::Appends {
            refused_ppm: ppm,
            taken_ppm: random.below(1_000_000) as u32,
        },
        14 if 1 < plan.documents.len() => Fault::Push {
            document: random.below(plan.documents.len() as u64) as usize,
        },
        15 => match random.below(3) {
            0 => Fault::NoSnapshots,
            _ => Fault::Burst {
                agent,
                times: random.spread(2, 60),
            },
        },
        16 if plan.fleet => Fault::Move {
            partition: random.below(u64::from(plan.partitions)) as u32,
            to: owner,
            late_us: random.spread(1_000, 5_000_000),
        },
        _ => return None,
    })
}

/// Makes the log answer late, with processes that die while they wait for answers.
pub(super) fn slow_log(plan: &mut Plan, random: &mut Random) {
    if random.one_in(4) {
        let from_us = random.below(plan.quiescence_us());
        let to_us = from_us + random.spread(50_000, 5_000_000);
        let by_us = random.spread(1_000, 2_000_000);
        plan.add(from_us, to_us, Fault::SlowLog { by_us });
        // A crash matters most while appends wait for answers.
        if random.one_in(2) {
            let crash = Fault::Crash {
                owner: random.below(plan.owners as u64) as usize,
                after: random.below(300),
                in_disk: false,
                power: random.one_in(4),
            };
            let crash_us = random.between(from_us, to_us);
            plan.add(crash_us, crash_us + random.spread(50_000, 2_000_000), crash);
        }
    }
}

/// Draws faults of a shared log, and of agents that hold copies for long.
pub(super) fn shared_logs(plan: &mut Plan, random: &mut Random) {
    let quiescence_us = plan.quiescence_us();
    if plan.log == LogPlan::Shared && random.one_in(4) {
        let from_us = random.below(quiescence_us);
        let to_us = from_us + random.spread(500_000, 10_000_000);
        let by_us = random.spread(20_000, 1_500_000);
        plan.add(from_us, to_us, Fault::SlowAppends { by_us });
        for _ in 0..random.below(3) {
            let crash_us = random.between(from_us, to_us);
            let crash = Fault::Crash {
                owner: random.below(plan.owners as u64) as usize,
                after: random.below(100),
                in_disk: false,
                power: false,
            };
            plan.add(crash_us, crash_us + random.spread(50_000, 2_000_000), crash);
        }
    }
    if plan.fleet && random.one_in(3) {
        for _ in 0..random.between(1, 4) {
            let at_us = random.below(quiescence_us);
            let records = random.below(4);
            plan.add(at_us, at_us, Fault::Retention { records });
            // An aggregator that is frozen meanwhile falls behind the others.
            if random.one_in(2) {
                let owner = random.below(plan.owners as u64) as usize;
                let from_us = at_us.saturating_sub(random.spread(100_000, 3_000_000));
                let to_us = at_us + random.spread(1_000, 1_000_000);
                plan.add(from_us, to_us, Fault::Stall { owner });
            }
        }
    }
    if plan.fleet && random.one_in(4) {
        let at_us = random.below(quiescence_us);
        plan.add(at_us, at_us, Fault::TopicAnew);
    }
    // An agent with holds is cut off until it is missed, and returns.
    if 0 < plan.agents[0].holds_per_s && random.one_in(3) {
        let agent = random.below(plan.agents.len() as u64) as usize;
        let to_us = random.between(quiescence_us / 2, quiescence_us);
        let from_us = to_us.saturating_sub(random.spread(1_500_000, 6_000_000));
        plan.add(from_us, to_us, Fault::Freeze { agent });
    }
}

/// Draws operators' acts: in every second seed, at a rate of its own.
pub(super) fn acts(plan: &mut Plan, random: &mut Random) {
    if random.one_in(2) {
        return;
    }
    let mut at_us = 0;
    for _ in 0..random.spread(1, 40) {
        // Two acts at once, of which one wins.
        if !random.one_in(4) {
            at_us = random.below(plan.quiescence_us());
        }
        let does = *random.pick(&DOES);
        let fault = Fault::Act {
            owner: random.below(plan.owners as u64) as usize,
            does,
            draw: random.draw(),
        };
        if plan.uses_copies() || !does.is_about_copies() {
            plan.add(at_us, at_us, fault);
        }
    }
}

/// Draws errors of aggregators' wall clocks: from the beginning, or for a while.
pub(super) fn owner_clocks(plan: &mut Plan, random: &mut Random) {
    let quiescence_us = plan.quiescence_us();
    for owner in 0..plan.owners {
        let off_us = |random: &mut Random| {
            let sign = if random.one_in(2) { 1 } else { -1 };
            sign * random.spread(10_000, 900_000_000) as i64
        };
        if random.one_in(3) {
            plan.owner_wall_off_us[owner] = off_us(random);
        }
        if random.one_in(3) {
            for _ in 0..random.between(1, 3) {
                let from_us = random.below(quiescence_us);
                let to_us = from_us + random.spread(10_000, 30_000_000);
                let by_us = off_us(random);
                plan.add(from_us, to_us, Fault::OwnerClock { owner, by_us });
            }
        }
    }
}

/// Draws wall clocks that stop: in one of four seeds.
pub(super) fn stopped_clocks(plan: &mut Plan, random: &mut Random) {
    if !random.one_in(4) {
        return;
    }
    let quiescence_us = plan.quiescence_us();
    for _ in 0..random.between(1, 4) {
        let whose = match random.below(3) {
            0 => Whose::Agent(random.below(plan.agents.len() as u64) as usize),
            1 => Whose::Owner(random.below(plan.owners as u64) as usize),
            _ => Whose::Log,
        };
        let from_us = random.below(quiescence_us);
        let to_us = from_us + random.spread(10_000, 30_000_000);
        plan.add(from_us, to_us, Fault::ClockStops(whose));
    }
}

/// Draws faults of aggregators that were added to a plan: they die, freeze, and are assigned partitions.
pub(super) fn of_added_owners(plan: &mut Plan, from: usize, random: &mut Random) {
    let quiescence_us = plan.quiescence_us();
    for owner in from..plan.owners {
        for _ in 0..random.below(4) {
            let from_us = random.below(quiescence_us);
            let to_us = from_us + random.spread(50_000, 4_000_000);
            let fault = match random.below(3) {
                0 => Fault::Stall { owner },
                1 => Fault::Move {
                    partition: random.below(u64::from(plan.partitions)) as u32,
                    to: owner,
                    late_us: random.spread(1_000, 5_000_000),
                },
                _ => Fault::Crash {
                    owner,
                    after: random.below(400),
                    in_disk: false,
                    power: random.one_in(2),
                },
            };
            plan.add(from_us, to_us, fault);
        }
    }
}

/// Draws faults between the processes of an aggregator, and of single aggregators at the log; and the
/// bound on what may wait there.
pub(super) fn logs_and_processes(plan: &mut Plan, random: &mut Random) {
    let owner = |random: &mut Random, plan: &Plan| random.below(plan.owners as u64) as usize;
    if random.one_in(4) {
        plan.waiting_max = random.spread(8, 2_000) as usize;
    }
    let add = |plan: &mut Plan, random: &mut Random, least_us: u64, fault| {
        let from_us = random.below(plan.quiescence_us());
        let to_us = from_us + least_us + random.spread(10_000, 5_000_000);
        plan.add(from_us, to_us, fault);
    };
    if random.one_in(3) {
        for _ in 0..random.between(1, 3) {
            let (owner, power) = (owner(random, plan), random.one_in(2));
            add(plan, random, 0, Fault::Stop { owner, power });
        }
    }
    match plan.log {
        LogPlan::Journal { .. } => {
            if random.one_in(3) {
                for _ in 0..random.between(1, 3) {
                    let times = random.between(1, 3) as u32;
                    let fault = Fault::CrashInOpening {
                        owner: owner(random, plan),
                        times,
                        within: random.spread(1, 30),
                        power: random.one_in(2),
                    };
                    // Each process is started again after about 0.3 s.
                    add(plan, random, u64::from(times + 1) * 350_000, fault);
                }
            }
            if random.one_in(6) {
                add(plan, random, 0, Fault::SyncsFail);
            }
        }
        LogPlan::Shared => {
            if random.one_in(3) {
                for _ in 0..random.between(1, 4) {
                    let fault = Fault::LogCut {
                        owner: owner(random, plan),
                        way: *random.pick(&LOG_WAYS),
                        lost: random.one_in(2),
                    };
                    add(plan, random, 0, fault);
                }
            }
        }
    }
}
