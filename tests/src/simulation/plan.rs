//! What a seed stands for: how large the world is, how it is used, and which faults come when.
//!
//! The faults stand in a list, each with its time, so that shrinking can leave some out. What stays
//! true: a plan is a function of its seed; every fault ends before the calm begins.

use super::copy_limits::CopyLimits;
use super::documents::{DOMAINS, Document, RESOURCES};
use super::random::Random;
use tollgate::log::journal::Ack;

/// The calm at the end, in which everything has to come right.
pub const CALM_US: u64 = 12_000_000;

/// In the last part of the calm nobody calls any more.
pub const QUIET_US: u64 = 1_500_000;

/// A direction between an agent and an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the agent says over its link.
    Up,
    /// What it is answered.
    Down,
    /// The feed.
    Feed,
}

/// All ways.
pub const WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Feed];

/// One way between an agent and an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The agent.
    pub agent: usize,
    /// The owner.
    pub owner: usize,
    /// Which way.
    pub way: Way,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Messages of an edge are lost, so many in a million.
    Loss(Edge, u32),
    /// Messages of an edge come twice.
    Duplication(Edge, u32),
    /// Messages of an edge overtake each other, by so much.
    Reordering(Edge, u64),
    /// Messages of an edge are late by up to so much.
    Delay(Edge, u64),
    /// Nothing comes through an edge; it comes when that is over, or never.
    Cut {
        /// Which.
        edge: Edge,
        /// Whether what was sent is lost.
        lost: bool,
    },
    /// An owner's process stands still.
    Stall {
        /// Which.
        owner: usize,
    },
    /// An owner's process ends, between two steps or within an operation of its disk.
    Crash {
        /// Which.
        owner: usize,
        /// After so many effects, or operations of the disk.
        after: u64,
        /// Within a disk operation.
        in_disk: bool,
        /// The machine goes down with it.
        power: bool,
    },
    /// An agent's process ends; another comes when the fault is over.
    Die {
        /// Which.
        agent: usize,
    },
    /// An agent's process stands still.
    Freeze {
        /// Which.
        agent: usize,
    },
    /// An agent's wall clock is off while this lasts.
    AgentClock {
        /// Which.
        agent: usize,
        /// By how much.
        by_us: i64,
    },
    /// The clock that the log is stamped by is off while this lasts.
    LogClock {
        /// By how much.
        by_us: i64,
    },
    /// The log's disk has so much room left.
    DiskFull {
        /// Bytes.
        room_bytes: u64,
    },
    /// The log refuses appends, so many in a million; of those so many are taken all the same.
    Appends {
        /// Refused.
        refused_ppm: u32,
        /// Of a million refused, taken.
        taken_ppm: u32,
    },
    /// Snapshots cannot be written.
    NoSnapshots,
    /// An operator hands a document to all owners at once.
    Push {
        /// Which of the plan's documents.
        document: usize,
    },
    /// A partition of a fleet is given to another owner.
    Move {
        /// Which.
        partition: u32,
        /// To whom.
        to: usize,
        /// How much later the one before hears of it.
        late_us: u64,
    },
    /// Somebody calls far more than usual.
    Burst {
        /// Which agent.
        agent: usize,
        /// How many times more.
        times: u64,
    },
}

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// From.
    pub from_us: u64,
    /// To.
    pub to_us: u64,
    /// What.
    pub fault: Fault,
}

/// The log that the world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlan {
    /// The embedded journal of the one owner.
    Journal {
        /// Its durability.
        ack: Ack,
        /// Where its segments end.
        segment_bytes: u64,
    },
    /// A log of its own that several owners read and write, as Kafka is.
    Shared,
}

/// One agent.
#[derive(Clone, Debug)]
pub struct AgentPlan {
    /// Calls a second.
    pub calls_per_s: u64,
    /// How often it is called, in microseconds: each time in a burst.
    pub every_us: u64,
    /// How far its monotonic clock drifts.
    pub drift_ppm: i64,
    /// How far its wall clock is off.
    pub wall_off_us: i64,
    /// Denials that it keeps at most.
    pub denials_max: usize,
    /// Bytes of its recorder's ring.
    pub recorder_bytes: usize,
    /// Bytes of its queue.
    pub queue_bytes: usize,
    /// Of a million calls, those with more than one copy.
    pub bulk_ppm: u32,
    /// Holds that services take in a second; 0: they use no copies.
    pub holds_per_s: u64,
    /// How long a hold lasts at most.
    pub hold_max_us: u64,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The log.
    pub log: LogPlan,
    /// Owners.
    pub owners: usize,
    /// Whether owners share partitions out, or each rules all of them.
    pub fleet: bool,
    /// Partitions.
    pub partitions: u32,
    /// Agents.
    pub agents: Vec<AgentPlan>,
    /// Documents; the first one is in force from the beginning.
    pub documents: Vec<Document>,
    /// How long it lasts, the calm included.
    pub length_us: u64,
    /// The faults, by their beginning.
    pub episodes: Vec<Episode>,
    /// When snapshots are taken.
    pub snapshot_every_us: u64,
    /// Entries between two snapshots.
    pub snapshot_entries: u64,
    /// The one way of a message, at least and at most.
    pub delay_us: (u64, u64),
    /// Of the owners' clocks.
    pub owner_drift_ppm: Vec<i64>,
}

impl Plan {
    /// When the calm begins.
    pub fn calm_us(&self) -> u64 {
        self.length_us - CALM_US
    }

    /// What a seed stands for.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, "plan", 0);
        let random = &mut random;
        let log = match random.below(5) {
            0 | 1 => LogPlan::Shared,
            2 => LogPlan::Journal {
                ack: Ack::Synced,
                segment_bytes: random.spread(2_000, 1 << 20),
            },
            _ => LogPlan::Journal {
                ack: Ack::Written,
                segment_bytes: random.spread(2_000, 1 << 20),
            },
        };
        let owners = match log {
            LogPlan::Shared => random.between(1, 3) as usize,
            LogPlan::Journal { .. } => 1,
        };
        let agents: Vec<AgentPlan> = (0..random.between(1, 3)).map(|_| agent(random)).collect();
        let mut documents = vec![Document::draw(random)];
        for _ in 0..random.below(4) {
            let last = &documents[documents.len() - 1];
            documents.push(last.draw_like(random));
        }
        // Most are short; in some a lease runs out, in few pairs leave.
        let pace = random.below(60);
        let busy_us = match pace {
            0 => random.between(700_000_000, 900_000_000),
            1..=3 => random.between(90_000_000, 200_000_000),
            _ => random.spread(3_000_000, 40_000_000),
        };
        let mut agents = agents;
        for agent in &mut agents {
            match pace {
                0 => (agent.calls_per_s, agent.every_us) = (random.between(1, 4), 1_500_000),
                1..=3 => {
                    (agent.calls_per_s, agent.every_us) = (random.between(10, 100), 50_000);
                }
                _ => {}
            }
        }
        let delay_low = random.spread(20, 2_000);
        let mut plan = Self {
            seed,
            log,
            owners,
            fleet: log == LogPlan::Shared && random.one_in(2),
            partitions: random.between(1, 4) as u32,
            agents,
            documents,
            length_us: busy_us + CALM_US,
            episodes: Vec::new(),
            snapshot_every_us: random.spread(300_000, 10_000_000),
            snapshot_entries: random.spread(20, 20_000),
            delay_us: (delay_low, delay_low + random.spread(10, 5_000)),
            owner_drift_ppm: (0..owners).map(|_| drift(random)).collect(),
        };
        plan.episodes = episodes(&plan, random);
        let mut random = Random::of(seed, "copies", 0);
        if random.one_in(2) {
            plan.use_copies(&mut random);
        }
        plan
    }

    /// What a seed stands for where it is all about agents that die while they hold something: they do so
    /// again and again. Of two such seeds one has no other faults.
    pub fn draw_kills(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        let mut random = Random::of(seed, "kills", 0);
        if plan.agents.iter().all(|agent| agent.holds_per_s == 0) {
            plan.use_copies(&mut random);
        }
        if plan.only_kills() {
            plan.episodes.clear();
        }
        plan.length_us = plan.length_us.min(CALM_US + 60_000_000);
        let calm_us = plan.calm_us();
        plan.episodes.retain(|episode| episode.to_us <= calm_us);
        for agent in 0..plan.agents.len() {
            plan.agents[agent].holds_per_s = plan.agents[agent].holds_per_s.max(20);
            let mut from_us = random.spread(100_000, 2_000_000);
            while from_us < calm_us {
                // Most are back before they are missed.
                let to_us = (from_us + random.spread(20_000, 4_000_000)).min(calm_us);
                plan.episodes.push(Episode {
                    from_us,
                    to_us,
                    fault: Fault::Die { agent },
                });
                from_us = to_us + random.spread(100_000, 2_000_000);
            }
        }
        plan.episodes.sort_by_key(|episode| episode.from_us);
        plan
    }

    /// Of plans about kills: whether there are no other faults.
    pub fn only_kills(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    fn use_copies(&mut self, random: &mut Random) {
        let mut limits = CopyLimits::draw(random);
        for document in &mut self.documents {
            document.copies = Some(limits.clone());
            limits = limits.draw_like(random);
        }
        for agent in &mut self.agents {
            agent.holds_per_s = random.spread(1, 60);
            agent.hold_max_us = random.spread(5_000, 8_000_000);
        }
    }
}

/// Between two clocks up to 200 ppm are allowed for: 100 either way of true time.
fn drift(random: &mut Random) -> i64 {
    if random.one_in(2) {
        return 0;
    }
    random.between(0, 180) as i64 - 90
}

fn agent(random: &mut Random) -> AgentPlan {
    let wall_off_us = match random.below(6) {
        0 => random.spread(1_000, 20_000_000) as i64,
        1 => -(random.spread(1_000, 20_000_000) as i64),
        2 => -(random.between(590_000_000, 620_000_000) as i64),
        _ => 0,
    };
    AgentPlan {
        calls_per_s: random.spread(20, 4_000),
        every_us: random.spread(500, 60_000),
        drift_ppm: drift(random),
        wall_off_us,
        denials_max: if random.one_in(8) {
            random.between(1, 3) as usize
        } else {
            1_000
        },
        recorder_bytes: if random.one_in(8) { 1_024 } else { 64 * 1024 },
        queue_bytes: if random.one_in(8) { 4_096 } else { 1 << 20 },
        bulk_ppm: if random.one_in(2) { 0 } else { 100_000 },
        holds_per_s: 0,
        hold_max_us: 0,
    }
}

fn episodes(plan: &Plan, random: &mut Random) -> Vec<Episode> {
    let mut episodes = Vec::new();
    // Each kind has a rate of its own in each seed, and most are absent from most seeds: what only
    // happens without the others happens too.
    let calm_us = plan.calm_us();
    for kind in 0..17 {
        let rate = match random.below(3) {
            0 => random.between(1, 4),
            1 => 1,
            _ => 0,
        };
        for _ in 0..rate {
            let from_us = random.below(calm_us.saturating_sub(200_000).max(1));
            let longest = (calm_us - from_us).clamp(100_000, (calm_us / 2).max(15_000_000));
            let to_us = (from_us + random.spread(10_000, longest)).min(calm_us);
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
    Edge {
        agent: random.below(plan.agents.len() as u64) as usize,
        owner: random.below(plan.owners as u64) as usize,
        way: *random.pick(&WAYS),
    }
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

/// The pair that a call is made on: few pairs get most of them.
pub fn draw_pair(random: &mut Random) -> (usize, usize) {
    let most = |random: &mut Random, count: usize| {
        let one = random.below(count as u64);
        random.below(one + 1) as usize
    };
    (most(random, RESOURCES.len()), most(random, DOMAINS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_over_when_the_calm_begins() {
        for seed in 0..300 {
            let plan = Plan::draw(seed);
            let late = plan
                .episodes
                .iter()
                .find(|e| plan.calm_us() < e.to_us || e.to_us < e.from_us);
            assert!(late.is_none(), "seed {seed}: {late:?}");
        }
    }
}
