//! In the quiescent phase a denial takes effect soon: pairs and whole resources of rates,
//! however short the denial is.
//!
//! ```text
//! global = 5/s, a sixth hit ──> all of api.search denied @31 for 600 ms
//! 400 ms later              ──> every agent refuses every domain
//! ```
//!
//! A denial by a hard or a global limit is over within a second. So it is never in force at the end, when no
//! service calls any more, and it does not last long enough for `heard`. Knows nothing of frames. What stays true:
//! the check looks only while no fault is active, and only at denials stated since then.

use tollgate_model::log::ScopeName;
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::place::Place;

use super::documents::{DOMAINS, RESOURCES};
use super::faults::Fault;
use super::heard::ROOM;
use super::held::SETTLED_AFTER_US;
use super::world::World;

/// How soon after its record is in the log every agent refuses: the log, an aggregator's turn and the network
/// take some milliseconds each.
const SOON_US: u64 = 400_000;

/// How far into the quiescent phase a denial must be stated: by then aggregators go by ticks that were not late,
/// and agents have asked for aggregators' clocks again, as they do every second.
const CALM_SINCE_US: u64 = 2_000_000;

/// How long a denial must still last: the difference of clocks, and rounding.
const LEFT_US: u64 = 60_000;

impl World {
    /// Looks in the quiescent phase, once aggregators have caught up, for denials that an agent ignores.
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

    /// Since when aggregators' statements of the quiescent phase reach an agent in time, and it listens to all
    /// aggregators; `None`: not yet.
    pub(super) fn hears_in_order_since(&self, agent: usize) -> Option<u64> {
        let welcomed_us = self.welcomed_everywhere_since(agent)?;
        Some(self.calm_of(agent).max(welcomed_us))
    }

    /// Since when an agent has received the clock of every aggregator's present process; `None`: some have not
    /// answered. A process that went down with its machine closes no connection; until a silence shows its end, the
    /// agent sends its hellos to the old process, and does not listen to frames of the new one.
    fn welcomed_everywhere_since(&self, agent: usize) -> Option<u64> {
        let welcomed = &self.agents[agent].welcomed;
        let mut owners = self.owners.iter().enumerate();
        owners.try_fold(0, |since_us, (index, owner)| {
            let (life, at_us) = welcomed.get(&index)?;
            (*life == owner.life).then(|| since_us.max(*at_us))
        })
    }

    /// Notes an answer to an agent's hello. It counts if the hello was sent in the quiescent phase, to the
    /// present process: an earlier answer may be under way for long, and an agent may use a slow answer for as
    /// long as the next hello is lost.
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

    /// When all messages to and from an agent that were delayed before the quiescent phase have arrived. Until then
    /// each message waits for those before it, and the agent takes frames to be as late as its answers were slow.
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

    /// The log position of the newest denial of a scope, if it was stated in the quiescent
    /// phase, some time ago, and lasts.
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
