//! In the calm whoever is denied is refused soon: pairs and whole resources of rates, however short a denial is.
//!
//! ```text
//! global = 5/s, a sixth hit ──> all of api.search denied @31 for 600 ms
//! 400 ms later              ──> every agent refuses everybody
//! ```
//!
//! What a hard or a global limit denies is over within a second, and so is never in force at the end, when nobody calls
//! any more; nor does it last for what `heard` leaves out. Knows nothing of frames. What stays true: it looks only
//! while nothing is wrong, and at what was stated since nothing was.

use tollgate_model::log::ScopeName;
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::place::Place;

use super::documents::{DOMAINS, RESOURCES};
use super::faults::Fault;
use super::heard::ROOM;
use super::held::SETTLED_AFTER_US;
use super::world::World;

/// How soon after its record stands in the log everybody refuses: the log, an owner's turn and the network take some
/// milliseconds each.
const SOON_US: u64 = 400_000;

/// How far into the calm it was stated: by then owners go by ticks that were not late, and agents have asked owners for
/// their clocks again, as they do every second.
const CALM_SINCE_US: u64 = 2_000_000;

/// How long a denial has still to last: what clocks may be apart, and what is rounded.
const LEFT_US: u64 = 60_000;

impl World {
    /// Looks in the calm, once owners have caught up, for denials that an agent does not refuse by.
    pub(super) fn check_told_soon(&mut self, agent: usize) {
        let host = &self.agents[agent];
        let is_settled = self.plan.calm_us() + SETTLED_AFTER_US <= self.now_us;
        if !is_settled || host.process.is_none() || host.plan.denials_max < ROOM {
            return;
        }
        let Some(since_us) = self.log_in_order_since_us() else {
            return;
        };
        let Some(calm_us) = self.hears_in_order_since(agent) else {
            return;
        };
        host.set_clocks(self.now_us);
        for (r, resource) in RESOURCES.iter().enumerate() {
            let whole = partition_of_resource(resource, self.plan.partitions);
            let pairs = DOMAINS.map(|domain| {
                let partition = partition_of_pair(resource, domain, self.plan.partitions);
                (partition, Some(domain))
            });
            for (partition, domain) in pairs.into_iter().chain([(whole, None)]) {
                let scope = ScopeName::new(resource, domain);
                let Some(place) = self.should_be_told(partition, &scope, (calm_us, since_us))
                else {
                    continue;
                };
                self.watch.cover.see(match domain {
                    Some(_) => "checked: a pair is refused soon",
                    None => "checked: a whole resource is refused soon",
                });
                let domain = domain.unwrap_or("nobody");
                if self.agents[agent].rates[r].peek(domain).is_ok() {
                    let what = format!(
                        "agent {agent} does not refuse {resource} for {domain}: {place}, stated {SOON_US} us ago"
                    );
                    return self.violated(7, "who is denied in the calm is refused soon", what);
                }
            }
        }
    }

    /// Since when what owners say in the calm comes to an agent in time, and it listens to all of them; none: not yet.
    pub(super) fn hears_in_order_since(&self, agent: usize) -> Option<u64> {
        let welcomed_us = self.welcomed_everywhere_since(agent)?;
        Some(self.calm_of(agent).max(welcomed_us))
    }

    /// Since when an agent has heard from the process of every owner that runs now what its clock shows; none: some has
    /// not answered. What went down with its machine tells nobody, and until a silence shows it the agent says its
    /// hellos to who is no more, and does not listen to the frames of the process that came then.
    fn welcomed_everywhere_since(&self, agent: usize) -> Option<u64> {
        let welcomed = &self.agents[agent].welcomed;
        let mut owners = self.owners.iter().enumerate();
        owners.try_fold(0, |since_us, (index, owner)| {
            let (life, at_us) = welcomed.get(&index)?;
            (*life == owner.life).then(|| since_us.max(*at_us))
        })
    }

    /// A hello of an agent was answered. Welcome is who said it in the calm, to the process that runs now: what an
    /// earlier one said may be on its way for long, and by an answer that was slow an agent may go on for as long as
    /// the next hello is lost.
    pub(super) fn note_welcome(&mut self, agent: usize, (peer, asked_us): (usize, u64)) {
        let owner = &self.owners[peer];
        let (life, started_us) = (owner.life, owner.started_us);
        let known = self.agents[agent].welcomed.get(&peer);
        if known.is_some_and(|(of, _)| *of == life) || asked_us < started_us {
            return;
        }
        if self.calm_of(agent) <= asked_us {
            let welcomed = &mut self.agents[agent].welcomed;
            welcomed.insert(peer, (life, self.now_us));
        }
    }

    /// When all has come to an agent, and from it, that was delayed before the calm: until then each message waits for
    /// those before it, and by how long it takes to be answered the agent knows how late frames are.
    fn calm_of(&self, agent: usize) -> u64 {
        let delays = self.plan.episodes.iter().filter_map(|one| match one.fault {
            Fault::Delay(edge, by_us) if edge.agent == agent => Some((one, edge, by_us)),
            _ => None,
        });
        let last = delays.clone().map(|(one, edge, _)| {
            let beside = delays.clone().filter(|(other, on, _)| {
                *on == edge && other.from_us <= one.to_us && one.from_us <= other.to_us
            });
            one.to_us + beside.map(|(.., by_us)| by_us).sum::<u64>()
        });
        last.fold(self.plan.calm_us(), u64::max)
    }

    /// The place of the newest denial of a scope, where it was stated in the calm, some time ago, and lasts.
    fn should_be_told(
        &self,
        partition: u32,
        scope: &ScopeName,
        (calm_us, since_us): (u64, u64),
    ) -> Option<Place> {
        let ruled = &self.watch.ruled[partition as usize];
        let statement = ruled.model.statements(scope).last()?;
        let offset = statement.place.offset;
        let (at_us, _) = *ruled.taken.get(offset as usize)?;
        let is_in_calm = calm_us + CALM_SINCE_US < at_us;
        let is_told = is_in_calm
            && at_us + SOON_US < self.now_us
            && self.lasts(partition, statement, since_us, LEFT_US);
        is_told.then(|| Place {
            generation: ruled.generation_of(offset),
            offset,
            entry: statement.place.entry,
        })
    }
}
