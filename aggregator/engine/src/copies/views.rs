//! Views of a resource's copies: counts, full scopes, holds.
//!
//! Knows only the state. What stays true: looking changes nothing, and everything is shown in an order that
//! does not depend on how the state was reached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tollgate_shared::holdings::Holdings;
use tollgate_shared::names::admit_domain;
use tollgate_shared::time::Timestamp;

use super::effects::{AgentIx, CopiesScope, HoldId, TransferId};
use super::groups::GroupIx;
use super::staging::Staged;
use super::state::Copies;

/// A count beside its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<'a> {
    /// What is counted.
    pub name: &'a str,
    /// Copies.
    pub copies: u64,
    /// The effective limit; `None`: unbounded, or not in the limits in force.
    pub limit: Option<u64>,
}

impl Count<'_> {
    /// Whether it has no room.
    pub fn full(&self) -> bool {
        self.limit.is_some_and(|limit| limit <= self.copies)
    }
}

/// Whether a hold counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldState {
    /// It counts.
    Live,
    /// Its agent is gone; it does not count any more.
    Lost,
}

/// A hold as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView<'a> {
    /// Its id.
    pub id: HoldId,
    /// Its agent's name.
    pub agent: &'a str,
    /// Its agent's epoch.
    pub epoch: u128,
    /// On whose behalf.
    pub domain: &'a str,
    /// The groups it was taken under, by name.
    pub groups: Vec<&'a str>,
    /// Copies.
    pub copies: u32,
    /// When it was taken.
    pub start: Timestamp,
    /// Whether it was granted before use.
    pub strict: bool,
    /// Whether it was claimed from a transfer.
    pub seized: bool,
    /// Whether it counts.
    pub state: HoldState,
}

/// Staged copies as people see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedView<'a> {
    /// The id under which they are seized.
    pub id: TransferId,
    /// On whose behalf.
    pub domain: &'a str,
    /// The groups they were taken under, by name.
    pub groups: Vec<&'a str>,
    /// Copies.
    pub copies: u32,
    /// When they were taken.
    pub start: Timestamp,
    /// When they are let go: at the end that was stated when they were staged, or at the greatest age under the
    /// limits in force, whichever comes first.
    pub end: Timestamp,
    /// Whether they were granted before use.
    pub strict: bool,
}

/// Sort key of a hold in the order that people see, and its slot.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct AgeOrder<'a> {
    start: Timestamp,
    agent: &'a str,
    epoch: u128,
    number: u64,
    slot: u32,
}

impl Copies {
    /// Copies of all domains.
    pub fn total(&self) -> Count<'_> {
        Count {
            name: "",
            copies: self.total,
            limit: self.limits.global,
        }
    }

    /// How many of all copies were in use before they were granted. Where reserve is strict, agents took these
    /// while blind.
    pub fn optimistic(&self) -> u64 {
        self.optimistic
    }

    /// Number of live holds, lost ones, and staged transfers; this is what is bounded.
    pub fn kept(&self) -> u64 {
        u64::from(self.holds.len()) + u64::from(self.staging.len())
    }

    /// Number of domains that have holds or staged copies.
    pub fn domains(&self) -> u32 {
        self.domains.len()
    }

    /// A domain's copies.
    pub fn domain<'a>(&self, name: &'a str) -> Count<'a> {
        let admitted = admit_domain(name);
        let tag = self.domains.tag_of(&admitted);
        let slot = self.domains.find(&admitted, tag);
        let class = match slot {
            Some(slot) => self.class_seen(slot),
            None => self.limits.class_of(&admitted),
        };
        Count {
            name,
            copies: slot.map_or(0, |slot| self.domains.at(slot).copies()),
            limit: Some(self.limit_of_class(class)),
        }
    }

    /// Domains that hold copies, by name.
    pub fn counts_of_domains(&self) -> Vec<Count<'_>> {
        let counts = self
            .domains
            .by_name()
            .into_iter()
            .map(|(name, slot)| Count {
                name,
                copies: self.domains.at(slot).copies(),
                limit: Some(self.limit_of_class(self.class_seen(slot))),
            });
        counts.filter(|count| 0 < count.copies).collect()
    }

    /// All groups that limits name or that have holds, by name.
    pub fn counts_of_groups(&self) -> impl Iterator<Item = Count<'_>> {
        self.groups.by_name().map(|group| Count {
            name: &group.name,
            copies: group.copies,
            limit: group.limit,
        })
    }

    /// The groups that a domain belongs to under the limits in force, by name.
    pub fn groups_of(&self, domain: &str) -> impl Iterator<Item = Count<'_>> {
        let class = self.limits.class_of(&admit_domain(domain));
        let set = self.groups.set_of_class(class);
        self.groups.of_set(set).map(|(_, group)| Count {
            name: &group.name,
            copies: group.copies,
            limit: group.limit,
        })
    }

    /// The count of a scope. A group that the limits do not have is unbounded.
    pub fn count_of<'a>(&self, scope: CopiesScope<'a>) -> Count<'a> {
        match scope {
            CopiesScope::Domain(name) => self.domain(name),
            CopiesScope::Group(name) => {
                let group = self.groups.get(name);
                Count {
                    name,
                    copies: group.map_or(0, |group| group.copies),
                    limit: group.and_then(|group| group.limit),
                }
            }
            CopiesScope::Resource => Count {
                name: "",
                copies: self.total,
                limit: self.limits.global,
            },
        }
    }

    /// Whether a scope has no room.
    pub fn is_full(&self, scope: CopiesScope<'_>) -> bool {
        self.count_of(scope).full()
    }

    /// The name of a group; valid until the next version of the limits.
    pub fn group_name(&self, group: GroupIx) -> &str {
        self.groups.at(group).map_or("", |group| &group.name)
    }

    /// The number of an epoch, if it is known.
    pub fn known_agent(&self, name: &str, epoch: u128) -> Option<AgentIx> {
        self.agents.find(name, epoch)
    }

    /// Known epochs, by name and epoch, each with whether it is over.
    pub fn known_agents(&self) -> impl Iterator<Item = (AgentIx, &str, u128, bool)> {
        let agents = self.agents.in_order();
        agents.map(|(ix, agent)| (ix, &*agent.name, agent.epoch, agent.over))
    }

    /// Name and epoch of an agent.
    pub fn name_of(&self, agent: AgentIx) -> Option<(&str, u128)> {
        let agent = self.agents.get(agent)?;
        Some((&agent.name, agent.epoch))
    }

    /// Whether an epoch has holds that are kept as lost.
    pub fn has_lost(&self, agent: AgentIx) -> bool {
        self.agents.get(agent).is_some_and(|agent| 0 < agent.lost)
    }

    /// Copies that an epoch holds.
    pub fn copies_of(&self, agent: AgentIx) -> u64 {
        self.agents.get(agent).map_or(0, |agent| agent.live_copies)
    }

    /// The digest that an epoch's digest heartbeat must contain.
    pub fn holdings_of(&self, agent: AgentIx) -> Holdings {
        let agent = self.agents.get(agent);
        agent.map_or_else(Holdings::default, |agent| agent.holdings)
    }

    /// Ids of an epoch that stay ended, ascending.
    pub fn ended_of(&self, agent: AgentIx) -> impl Iterator<Item = u64> {
        let agent = self.agents.get(agent).into_iter();
        agent.flat_map(|agent| agent.ended.iter().copied())
    }

    /// A hold, live or lost.
    pub fn hold_of(&self, id: HoldId) -> Option<HoldView<'_>> {
        Some(self.view(self.holds.find(id)?))
    }

    /// All holds, the oldest first; those of one instant by agent and number.
    pub fn oldest_first(&self) -> impl Iterator<Item = HoldView<'_>> {
        self.oldest_first_from(Timestamp::ZERO)
    }

    /// The same, for holds that were taken at `from` or later. Only as many holds of a half second are sorted
    /// as the caller reads, so a page costs little more than what it shows.
    pub fn oldest_first_from(&self, from: Timestamp) -> impl Iterator<Item = HoldView<'_>> {
        self.holds.by_age_from(from).flat_map(move |slots| {
            let later = slots.filter(|slot| from <= self.holds.start(*slot));
            let mut left: BinaryHeap<_> = later.map(|slot| Reverse(self.age_order(slot))).collect();
            let next = move || left.pop().map(|Reverse(first)| self.view(first.slot));
            std::iter::from_fn(next)
        })
    }

    /// All transfers of copies that were taken at `from` or later, by start and id.
    pub fn staged_by_start(&self, from: Timestamp) -> impl Iterator<Item = StagedView<'_>> {
        self.staging
            .by_start(from)
            .map(|(id, staged)| self.staged_view(id, staged))
    }

    fn age_order(&self, slot: u32) -> AgeOrder<'_> {
        let facts = self.holds.facts(slot);
        let agent = self.agents.get(facts.id.agent);
        AgeOrder {
            start: facts.start,
            agent: agent.map_or("", |agent| &agent.name),
            epoch: agent.map_or(0, |agent| agent.epoch),
            number: facts.id.number,
            slot,
        }
    }

    /// All transfers, by the end that was stated when they were staged, even if they are let go earlier.
    pub fn staged(&self) -> impl Iterator<Item = StagedView<'_>> {
        self.staging
            .by_end()
            .map(|(id, staged)| self.staged_view(id, staged))
    }

    /// What is staged under an id.
    pub fn staged_under(&self, id: TransferId) -> Option<StagedView<'_>> {
        Some(self.staged_view(id, self.staging.get(id)?))
    }

    /// The last tick that brought time in.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// A digest of everything that a later operation could depend on, without the limits. Equal states have
    /// equal digests under one key of names.
    pub fn digest(&self) -> u128 {
        self.sum.at(self.now.as_micros())
    }

    /// Bytes on the heap, without limits and names of agents and groups.
    pub fn heap_bytes(&self) -> usize {
        self.holds.heap_bytes()
            + self.domains.heap_bytes()
            + self.staging.heap_bytes()
            + self.groups.heap_bytes()
            + self.agents.heap_bytes()
    }

    pub(super) fn view(&self, slot: u32) -> HoldView<'_> {
        let facts = self.holds.facts(slot);
        let agent = self.agents.get(facts.id.agent);
        HoldView {
            id: facts.id,
            agent: agent.map_or("", |agent| &agent.name),
            epoch: agent.map_or(0, |agent| agent.epoch),
            domain: self.domains.name(facts.domain),
            groups: self.group_names(facts.set),
            copies: facts.copies,
            start: facts.start,
            strict: facts.flags.strict,
            seized: facts.flags.seized,
            state: match facts.flags.lost {
                true => HoldState::Lost,
                false => HoldState::Live,
            },
        }
    }

    fn staged_view(&self, id: TransferId, staged: &Staged) -> StagedView<'_> {
        StagedView {
            id,
            domain: self.domains.name(staged.domain),
            groups: self.group_names(staged.set),
            copies: staged.copies,
            start: staged.start,
            end: match self.limits.max_age {
                Some(age) => staged.end.min(staged.start.saturating_add(age)),
                None => staged.end,
            },
            strict: staged.strict,
        }
    }

    fn group_names(&self, set: u32) -> Vec<&str> {
        let groups = self.groups.of_set(set);
        groups.map(|(_, group)| &*group.name).collect()
    }
}
