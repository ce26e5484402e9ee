//! What a seed stands for: how large the world is, how it is used, and which faults come when.
//!
//! The faults stand in a list, each with its time, so that shrinking can leave some out. What stays
//! true: a plan is a function of its seed; every fault ends before the calm begins.

use super::copy_limits::CopyLimits;
use super::documents::{DOMAINS, Document, RESOURCES};
use super::faults::episodes;
pub use super::faults::{Edge, Episode, Fault, WAYS, Way, Whose};
use super::kept::PLANS;
use super::later_faults::{
    acts, latest_episodes, logs_and_processes, more_episodes, of_added_owners, owner_clocks,
    stopped_clocks,
};
use super::random::Random;
use tollgate::core::recordings::WAITING_MAX;
use tollgate::log::journal::Ack;

/// The calm at the end, in which everything has to come right.
pub const CALM_US: u64 = 12_000_000;

/// What is busy for longer is long.
const LONG_US: u64 = 10_000_000;

/// In the last part of the calm nobody calls any more.
pub const QUIET_US: u64 = 1_500_000;

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

/// In which ways plans can be drawn, by the numbers that [`Plan::draw_as`] takes; [`PLANS`] is the present one.
pub const PLAN_WAYS: [u32; 11] = [3, 4, 5, 6, 7, 8, PLANS, 106, 107, 108, KILLS_WAY];

/// The way in which plans about kills are drawn: a hundred more than the ordinary one.
pub const KILLS_WAY: u32 = 100 + PLANS;

/// All of it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// In which way it was drawn, of [`PLAN_WAYS`]: with the seed it is the plan.
    pub way: u32,
    /// The log.
    pub log: LogPlan,
    /// Owners.
    pub owners: usize,
    /// Whether owners share partitions out, or each rules all of them.
    pub fleet: bool,
    /// Of a fleet: how many groups there are, of which each rules all partitions.
    pub groups: usize,
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
    /// How many statements, and totals, of a partition may wait for the log at an owner.
    pub waiting_max: usize,
    /// Entries between two snapshots.
    pub snapshot_entries: u64,
    /// The one way of a message, at least and at most.
    pub delay_us: (u64, u64),
    /// Of the owners' clocks.
    pub owner_drift_ppm: Vec<i64>,
    /// How far their wall clocks are off.
    pub owner_wall_off_us: Vec<i64>,
}

impl Plan {
    /// When the calm begins.
    pub fn calm_us(&self) -> u64 {
        self.length_us - CALM_US
    }

    /// Whether it was drawn in a certain way or a later one. What the world does otherwise since then it does as
    /// before for seeds of earlier ways, which would else mean something else.
    pub fn is_since(&self, way: u32) -> bool {
        way <= self.way % 100
    }

    /// What a seed stands for.
    pub fn draw(seed: u64) -> Self {
        let mut plan = Self::draw_eighth(seed);
        plan.way = PLANS;
        logs_and_processes(&mut plan, &mut Random::of(seed, "logs and processes", 0));
        plan
    }

    fn draw_eighth(seed: u64) -> Self {
        let mut plan = Self::draw_seventh(seed);
        plan.way = 8;
        if plan.fleet && Random::of(seed, "groups", 0).one_in(3) {
            plan.have_two_groups(&mut Random::of(seed, "groups", 1));
        }
        stopped_clocks(&mut plan, &mut Random::of(seed, "stopped clocks", 0));
        plan
    }

    fn draw_seventh(seed: u64) -> Self {
        let mut plan = Self::draw_sixth(seed);
        plan.way = 7;
        acts(&mut plan, &mut Random::of(seed, "acts", 0));
        owner_clocks(&mut plan, &mut Random::of(seed, "owners' clocks", 0));
        plan
    }

    fn draw_sixth(seed: u64) -> Self {
        let mut plan = Self::draw_fourth(seed);
        plan.way = 6;
        let mut random = Random::of(seed, "most", 0);
        plan.thin();
        let uses_copies = plan.uses_copies();
        if uses_copies && random.one_in(2) {
            plan.hold_for_long(&mut random);
        }
        if uses_copies && random.one_in(4) {
            plan.kill_holders(&mut random);
        }
        latest_episodes(&mut plan, &mut random);
        plan
    }

    fn draw_fourth(seed: u64) -> Self {
        let mut plan = Self::draw_third(seed);
        plan.way = 4;
        let mut random = Random::of(seed, "more", 0);
        plan.shorten(&mut random);
        more_episodes(&mut plan, &mut random);
        plan
    }

    /// What it stood for when plans were drawn in a certain way; none: in no such way.
    pub fn draw_as(plans: u32, seed: u64) -> Option<Self> {
        let plan = match plans {
            3 => Self::draw_third(seed),
            4 => Self::draw_fourth(seed),
            // Topics were made anew where that was asked for.
            5 => Self::draw_fourth(seed).with_topic_anew(),
            6 => Self::draw_sixth(seed),
            7 => Self::draw_seventh(seed),
            8 => Self::draw_eighth(seed),
            PLANS => Self::draw(seed),
            // Operators did no more than push.
            106 => Self::draw_sixth(seed).with_kills(),
            107 => Self::draw_seventh(seed).with_kills(),
            108 => Self::draw_eighth(seed).with_kills(),
            KILLS_WAY => Self::draw_kills(seed),
            _ => return None,
        };
        Some(Self { way: plans, ..plan })
    }

    /// The same with the topic made anew once more, where a fleet has one.
    #[must_use]
    pub fn with_topic_anew(mut self) -> Self {
        if self.fleet {
            let at_us = Random::of(self.seed, "anew", 0).below(self.calm_us());
            self.episodes.push(Episode {
                from_us: at_us,
                to_us: at_us,
                fault: Fault::TopicAnew,
            });
            self.episodes.sort_by_key(|episode| episode.from_us);
        }
        self
    }

    /// Two groups of owners, of two each: whoever is killed, another group rules on.
    fn have_two_groups(&mut self, random: &mut Random) {
        let before = self.owners;
        (self.groups, self.owners) = (2, 4);
        self.owner_drift_ppm
            .resize_with(self.owners, || drift(random));
        self.owner_wall_off_us.resize(self.owners, 0);
        of_added_owners(self, before, random);
    }

    /// Of four long worlds one stays as it is: most of what happens, happens in short ones too, and of those
    /// more are run.
    fn shorten(&mut self, random: &mut Random) {
        let short_us = CALM_US + random.spread(1_500_000, LONG_US);
        if random.one_in(4) || self.length_us <= CALM_US + LONG_US {
            return;
        }
        self.length_us = short_us;
        let calm_us = self.calm_us();
        self.episodes.retain(|episode| episode.to_us <= calm_us);
    }

    /// Who calls very often finds little that others do not, and of worlds of others more can be run.
    fn thin(&mut self) {
        for agent in &mut self.agents {
            agent.calls_per_s = agent.calls_per_s.div_ceil(2);
        }
    }

    /// Who holds for long has something when it comes back after it was missed.
    fn hold_for_long(&mut self, random: &mut Random) {
        for agent in &mut self.agents {
            agent.hold_max_us = random.spread(2_000_000, 60_000_000);
        }
    }

    /// Agents die again and again while they hold something.
    fn kill_holders(&mut self, random: &mut Random) {
        let calm_us = self.calm_us();
        for agent in 0..self.agents.len() {
            self.agents[agent].holds_per_s = self.agents[agent].holds_per_s.max(20);
            let mut from_us = random.spread(100_000, 2_000_000);
            while from_us < calm_us {
                // Most are back before they are missed.
                let to_us = (from_us + random.spread(20_000, 4_000_000)).min(calm_us);
                self.episodes.push(Episode {
                    from_us,
                    to_us,
                    fault: Fault::Die { agent },
                });
                from_us = to_us + random.spread(100_000, 2_000_000);
            }
        }
        self.episodes.sort_by_key(|episode| episode.from_us);
    }

    fn draw_third(seed: u64) -> Self {
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
            way: 3,
            log,
            owners,
            fleet: log == LogPlan::Shared && random.one_in(2),
            groups: 1,
            partitions: random.between(1, 4) as u32,
            agents,
            documents,
            length_us: busy_us + CALM_US,
            episodes: Vec::new(),
            snapshot_every_us: random.spread(300_000, 10_000_000),
            snapshot_entries: random.spread(20, 20_000),
            waiting_max: WAITING_MAX,
            delay_us: (delay_low, delay_low + random.spread(10, 5_000)),
            owner_drift_ppm: (0..owners).map(|_| drift(random)).collect(),
            owner_wall_off_us: vec![0; owners],
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
        let mut plan = Self::draw(seed).with_kills();
        plan.way = KILLS_WAY;
        plan
    }

    fn with_kills(mut self) -> Self {
        let mut random = Random::of(self.seed, "kills", 0);
        let plan = &mut self;
        if plan.agents.iter().all(|agent| agent.holds_per_s == 0) {
            plan.use_copies(&mut random);
        }
        if plan.seed.is_multiple_of(2) {
            plan.episodes.clear();
        }
        plan.length_us = plan.length_us.min(CALM_US + 60_000_000);
        let calm_us = plan.calm_us();
        plan.episodes.retain(|episode| episode.to_us <= calm_us);
        plan.kill_holders(&mut random);
        self
    }

    /// The same where owners' wall clocks are right.
    #[must_use]
    pub fn with_right_owners(mut self) -> Self {
        self.owner_wall_off_us.fill(0);
        for episode in &mut self.episodes {
            // They stay, and do nothing: what is drawn and told later stays the same.
            if let Fault::OwnerClock { by_us, .. } = &mut episode.fault {
                *by_us = 0;
            }
        }
        self
    }

    /// Whether nothing goes wrong but that agents die.
    pub fn only_deaths(&self) -> bool {
        let mut all = self.episodes.iter();
        all.all(|one| matches!(one.fault, Fault::Die { .. }))
    }

    /// Whether services use copies.
    pub fn uses_copies(&self) -> bool {
        0 < self.agents[0].holds_per_s
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_way_draws_plans_that_bear_its_number_and_no_other_does() {
        let drawn = |way| Plan::draw_as(way, 7).map(|plan| plan.way);
        let known: Vec<u32> = (0..200).filter(|way| drawn(*way) == Some(*way)).collect();
        assert_eq!(known, PLAN_WAYS);
        assert_eq!(Plan::draw(7).way, PLANS);
    }

    #[test]
    fn every_kind_of_fault_is_listed_and_drawn() {
        let drawn = |seed| Plan::draw(seed).episodes.into_iter();
        let kinds: BTreeSet<_> = (0..300).flat_map(drawn).map(|e| e.fault.kind()).collect();
        assert_eq!(kinds, BTreeSet::from(Fault::KINDS));
    }

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
