//! Draws a plan from its seed: the size of the world, and the load on it; `draw_faults` draws its faults.
//!
//! Each part draws from its own stream, so that another part may draw more without an effect on it. What stays
//! true: a plan is a function of its seed.

use tollgate_server::core::recordings::WAITING_MAX;

use super::constraints::BEFORE_MIDNIGHT_MAX_US;
use super::copy_limits::CopyLimits;
use super::documents::Document;
use super::draw_faults;
use super::faults::{Episode, Fault};
use super::plan::{AgentPlan, CALM_US, LogPlan, Plan, draw_pair};
use super::random::Random;

/// A plan that is busy for longer than this counts as long.
const LONG_US: u64 = 10_000_000;

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let stream = |part| Random::of(seed, part, 0);
        let mut plan = Self::draw_sizes(seed, &mut stream("plan"));
        let mut random = stream("copies");
        if random.one_in(2) {
            plan.use_copies(&mut random);
        }
        let mut random = stream("more");
        plan.shorten(&mut random);
        draw_faults::slow_log(&mut plan, &mut random);
        let mut random = stream("most");
        let uses_copies = plan.uses_copies();
        if uses_copies && random.one_in(2) {
            plan.hold_for_long(&mut random);
        }
        if uses_copies && random.one_in(4) {
            plan.kill_holders(&mut random);
        }
        draw_faults::shared_logs(&mut plan, &mut random);
        draw_faults::acts(&mut plan, &mut stream("acts"));
        draw_faults::owner_clocks(&mut plan, &mut stream("owners' clocks"));
        if plan.fleet && stream("groups").one_in(3) {
            plan.have_two_groups(&mut Random::of(seed, "groups", 1));
        }
        draw_faults::stopped_clocks(&mut plan, &mut stream("stopped clocks"));
        draw_faults::logs_and_processes(&mut plan, &mut stream("logs and processes"));
        plan.have_constraints(&mut stream("constraints"));
        plan.episodes.sort_by_key(|episode| episode.from_us);
        plan
    }

    /// The plan of a seed about agents that repeatedly die while they hold copies. Every
    /// second seed has no other faults.
    pub fn draw_kills(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        let mut random = Random::of(seed, "kills", 0);
        if !plan.uses_copies() {
            plan.use_copies(&mut random);
        }
        if seed.is_multiple_of(2) {
            plan.episodes.clear();
        }
        plan.shorten_to(plan.length_us.min(CALM_US + 60_000_000));
        plan.kill_holders(&mut random);
        plan.episodes.sort_by_key(|episode| episode.from_us);
        plan
    }

    /// Adds windows, buckets and quotas to documents, and charges and estimates to services.
    fn have_constraints(&mut self, random: &mut Random) {
        self.before_midnight_us = random.below(BEFORE_MIDNIGHT_MAX_US);
        self.calm_pair = random.one_in(2).then(|| draw_pair(random));
        for at in 0..self.documents.len() {
            let (before, rest) = self.documents.split_at_mut(at);
            rest[0].constrain(before.last(), random);
        }
        for agent in &mut self.agents {
            agent.bulk_max = random.spread(6, 80);
            let mut share = |n: u64| match random.one_in(n) {
                true => random.between(1_000, 100_000) as u32,
                false => 0,
            };
            (agent.charges_ppm, agent.estimates_ppm) = (share(3), share(2));
        }
    }

    /// Makes two groups of two aggregators each: if an aggregator is killed, the other group goes on ruling.
    fn have_two_groups(&mut self, random: &mut Random) {
        let before = self.owners;
        (self.groups, self.owners) = (2, 4);
        self.owner_drift_ppm
            .resize_with(self.owners, || drift(random));
        self.owner_wall_off_us.resize(self.owners, 0);
        draw_faults::of_added_owners(self, before, random);
    }

    /// Shortens three of four long plans: most events occur in short plans too, and more of those can be run.
    fn shorten(&mut self, random: &mut Random) {
        let short_us = CALM_US + random.spread(1_500_000, LONG_US);
        if random.one_in(4) || self.length_us <= CALM_US + LONG_US {
            return;
        }
        self.shorten_to(short_us);
    }

    /// Drops the faults that would last into the quiescent phase.
    fn shorten_to(&mut self, length_us: u64) {
        self.length_us = length_us;
        let quiescence_us = self.quiescence_us();
        self.episodes
            .retain(|episode| episode.to_us <= quiescence_us);
    }

    /// Makes holds long, so that an agent still has some when it returns after it was missed.
    fn hold_for_long(&mut self, random: &mut Random) {
        for agent in &mut self.agents {
            agent.hold_max_us = random.spread(2_000_000, 60_000_000);
        }
    }

    /// Lets agents die repeatedly while they hold copies.
    fn kill_holders(&mut self, random: &mut Random) {
        let quiescence_us = self.quiescence_us();
        for agent in 0..self.agents.len() {
            self.agents[agent].holds_per_s = self.agents[agent].holds_per_s.max(20);
            let mut from_us = random.spread(100_000, 2_000_000);
            while from_us < quiescence_us {
                // Most return before they are missed.
                let to_us = (from_us + random.spread(20_000, 4_000_000)).min(quiescence_us);
                self.add(from_us, to_us, Fault::Die { agent });
                from_us = to_us + random.spread(100_000, 2_000_000);
            }
        }
    }

    /// Adds a fault, which is over when the quiescent phase begins.
    pub(super) fn add(&mut self, from_us: u64, to_us: u64, fault: Fault) {
        let quiescence_us = self.quiescence_us();
        self.episodes.push(Episode {
            from_us: from_us.min(quiescence_us),
            to_us: to_us.min(quiescence_us),
            fault,
        });
    }

    fn draw_sizes(seed: u64, random: &mut Random) -> Self {
        let log = match random.below(5) {
            0 | 1 => LogPlan::Shared,
            n => LogPlan::Journal {
                is_synced: n == 2,
                segment_bytes: random.spread(2_000, 1 << 20),
            },
        };
        let owners = match log {
            LogPlan::Shared => random.between(1, 3) as usize,
            LogPlan::Journal { .. } => 1,
        };
        let count = random.between(1, 3);
        let mut agents: Vec<AgentPlan> = (0..count).map(|_| agent(random)).collect();
        let mut documents = vec![Document::draw(random)];
        for _ in 0..random.below(4) {
            let last = &documents[documents.len() - 1];
            documents.push(last.draw_like(random));
        }
        // Most plans are short; in some a lease runs out, in a few pairs are evicted.
        let pace = random.below(60);
        let busy_us = match pace {
            0 => random.between(700_000_000, 900_000_000),
            1..=3 => random.between(90_000_000, 200_000_000),
            _ => random.spread(3_000_000, 40_000_000),
        };
        for agent in &mut agents {
            match pace {
                0 => (agent.calls_per_s, agent.every_us) = (random.between(1, 4), 1_500_000),
                1..=3 => (agent.calls_per_s, agent.every_us) = (random.between(10, 100), 50_000),
                _ => {}
            }
            // Very frequent calls find little more, and cost time in which more plans can be run.
            agent.calls_per_s = agent.calls_per_s.div_ceil(2);
        }
        let delay_low = random.spread(20, 2_000);
        let mut plan = Self {
            seed,
            story: String::new(),
            is_plain: false,
            log,
            owners,
            fleet: log == LogPlan::Shared && random.one_in(2),
            groups: 1,
            partitions: random.between(1, 4) as u32,
            agents,
            documents,
            length_us: busy_us + CALM_US,
            before_midnight_us: 0,
            calm_pair: None,
            episodes: Vec::new(),
            snapshot_every_us: random.spread(300_000, 10_000_000),
            snapshot_entries: random.spread(20, 20_000),
            waiting_max: WAITING_MAX,
            delay_us: (delay_low, delay_low + random.spread(10, 5_000)),
            owner_drift_ppm: (0..owners).map(|_| drift(random)).collect(),
            owner_wall_off_us: vec![0; owners],
        };
        plan.episodes = draw_faults::first(&plan, random);
        plan
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

/// Up to 200 ppm between two clocks are allowed: 100 ppm each way from true time.
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
        bulk_max: 6,
        charges_ppm: 0,
        estimates_ppm: 0,
        holds_per_s: 0,
        hold_max_us: 0,
    }
}
