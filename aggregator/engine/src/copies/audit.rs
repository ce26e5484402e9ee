//! Counts everything again from the holds, and compares the sums with the counts that are kept.
//!
//! For tests, after every step, and for operators who check a resource's counts. Knows nothing of
//! operations. What stays true: an audit changes nothing.

use std::collections::BTreeMap;

use tollgate_shared::holdings::Holdings;

use super::effects::{AgentIx, HoldId};
use super::state::Copies;

/// A count that is not the sum of its holds: a bug.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Miscount {
    /// All copies.
    #[error("{counted} copies counted in all, {held} held")]
    Total {
        /// As kept.
        counted: u64,
        /// As held.
        held: u64,
    },
    /// Copies in use before they were granted.
    #[error("{counted} optimistic copies counted, {held} held")]
    Optimistic {
        /// As kept.
        counted: u64,
        /// As held.
        held: u64,
    },
    /// A domain.
    #[error("domain {name:?}: {counted} copies counted, {held} held")]
    Domain {
        /// Its name.
        name: String,
        /// As kept.
        counted: u64,
        /// As held.
        held: u64,
    },
    /// A group.
    #[error("group {name:?}: {counted} copies counted, {held} held")]
    Group {
        /// Its name.
        name: String,
        /// As kept.
        counted: u64,
        /// As held.
        held: u64,
    },
    /// An agent's epoch: its copies or its digest.
    #[error("agent {name:?}: {counted} copies counted, {held} held, or another digest")]
    Agent {
        /// Its name.
        name: String,
        /// As kept.
        counted: u64,
        /// As held.
        held: u64,
    },
    /// The lists of holds by agent, by age and by id differ in length.
    #[error("{by_agent} holds by agent, {by_age} by age, {by_id} by id")]
    Lists {
        /// Found by agent.
        by_agent: u64,
        /// Found by age.
        by_age: u64,
        /// Found by id.
        by_id: u64,
    },
    /// An epoch that is over still has holds.
    #[error("agent {name:?}: its epoch is over, and it has holds")]
    HoldsAfterEnd {
        /// Its name.
        name: String,
    },
    /// An excess is remembered for a hold that does not count, or exceeds the hold's copies.
    #[error("agent {name:?}: an excess without a live hold of as many copies")]
    Excess {
        /// Its name.
        name: String,
    },
    /// An agent's number of lost holds differs from its count of them.
    #[error("agent {name:?}: its lost holds are not as many as are counted")]
    Lost {
        /// Its name.
        name: String,
    },
}

/// Sums over holds and staged copies.
#[derive(Default)]
struct Sums<'a> {
    total: u64,
    optimistic: u64,
    domains: BTreeMap<&'a str, u64>,
    refs: BTreeMap<&'a str, u32>,
    groups: BTreeMap<&'a str, u64>,
    agents: BTreeMap<AgentIx, (u64, Holdings)>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, domain: &'a str, groups: &[&'a str], copies: u32, strict: bool) {
        let copies = u64::from(copies);
        self.total += copies;
        self.optimistic += if strict { 0 } else { copies };
        *self.domains.entry(domain).or_default() += copies;
        for group in groups {
            *self.groups.entry(group).or_default() += copies;
        }
    }
}

impl Copies {
    /// Counts everything again from the holds.
    ///
    /// # Errors
    ///
    /// [`Miscount`] names the first count that is not the sum of its live holds and staged copies.
    pub fn audit(&self) -> Result<(), Miscount> {
        let sums = self.sums();
        let (counted, held) = (self.total, sums.total);
        if counted != held {
            return Err(Miscount::Total { counted, held });
        }
        let (counted, held) = (self.optimistic, sums.optimistic);
        if counted != held {
            return Err(Miscount::Optimistic { counted, held });
        }
        self.audit_domains(&sums)?;
        for group in self.groups.by_name() {
            let held = sums.groups.get(&*group.name).copied().unwrap_or(0);
            if group.copies != held {
                return Err(Miscount::Group {
                    name: group.name.to_string(),
                    counted: group.copies,
                    held,
                });
            }
        }
        self.audit_agents(&sums)
    }

    fn sums(&self) -> Sums<'_> {
        let mut sums = Sums::default();
        for view in self.oldest_first() {
            *sums.refs.entry(view.domain).or_default() += 1;
            if view.state == super::views::HoldState::Live {
                sums.add(view.domain, &view.groups, view.copies, view.strict);
                let of = sums.agents.entry(view.id.agent).or_default();
                of.0 += u64::from(view.copies);
                of.1 = of.1.with(view.id.number, view.copies);
            }
        }
        for staged in self.staged() {
            *sums.refs.entry(staged.domain).or_default() += 1;
            sums.add(staged.domain, &staged.groups, staged.copies, staged.strict);
        }
        sums
    }

    fn audit_domains(&self, sums: &Sums<'_>) -> Result<(), Miscount> {
        let domains = self.domains.by_name();
        let here = domains.len();
        for (name, slot) in domains {
            let counted = self.domains.at(slot).copies();
            let held = sums.domains.get(name).copied().unwrap_or(0);
            let refs = sums.refs.get(name).copied().unwrap_or(0);
            if counted != held || self.domains.refs(slot) != refs {
                let name = name.to_owned();
                return Err(Miscount::Domain {
                    name,
                    counted,
                    held,
                });
            }
        }
        match sums.refs.len() == here {
            true => Ok(()),
            false => Err(Miscount::Domain {
                name: String::new(),
                counted: here as u64,
                held: sums.refs.len() as u64,
            }),
        }
    }

    fn audit_agents(&self, sums: &Sums<'_>) -> Result<(), Miscount> {
        let mut by_agent = 0;
        let mut by_id = 0;
        for (ix, agent) in self.agents.in_order() {
            let slots = self.slots_of(ix);
            if agent.over && !slots.is_empty() {
                let name = agent.name.to_string();
                return Err(Miscount::HoldsAfterEnd { name });
            }
            by_agent += slots.len() as u64;
            let found = |slot: &&u32| self.holds.find(self.holds.facts(**slot).id) == Some(**slot);
            by_id += slots.iter().filter(found).count() as u64;
            let lost = slots
                .iter()
                .filter(|slot| self.holds.facts(**slot).flags.lost);
            if u64::from(agent.lost) != lost.count() as u64 {
                let name = agent.name.to_string();
                return Err(Miscount::Lost { name });
            }
            if agent.excess.in_order().any(|(number, excess)| {
                let live = self.live(HoldId { agent: ix, number });
                !live.is_ok_and(|(_, facts)| (1..=facts.copies).contains(&excess.copies))
            }) {
                let name = agent.name.to_string();
                return Err(Miscount::Excess { name });
            }
            let (held, holdings) = sums.agents.get(&ix).copied().unwrap_or_default();
            if agent.live_copies != held || agent.holdings != holdings {
                return Err(Miscount::Agent {
                    name: agent.name.to_string(),
                    counted: agent.live_copies,
                    held,
                });
            }
        }
        let by_age = self.holds.by_age().map(Iterator::count).sum::<usize>() as u64;
        if by_agent != by_age || by_age != by_id || by_id != u64::from(self.holds.len()) {
            return Err(Miscount::Lists {
                by_agent,
                by_age,
                by_id,
            });
        }
        Ok(())
    }
}
