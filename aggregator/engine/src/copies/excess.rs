//! The excess of holds: how many copies of a hold were too many when it was counted, kept for as long as it
//! counts.
//!
//! ```text
//! hold 3 of b     2 too many, by probation    announced and remembered: an agent that missed the verdict asks
//! release 1       1 too many                  the excess is released first
//! its agent gone  nothing                     ruled again if the agent comes back
//! seized          nothing                     the agent that staged the copies had its verdict; but the new hold
//!                                             may be too much, like any other, when its agent comes back
//! ```
//!
//! Holds without excess, nearly all of them, cost nothing. Knows no limits. What stays true: only a hold
//! that counts has an excess, of at least 1 and at most its copies, by the domain, the resource, or one of
//! the groups that it was taken under.

use std::collections::BTreeMap;

use super::digest::{DigestKind, Sum};
use super::effects::{HoldId, Limiter, Taken};
use super::state::Copies;

/// The excess of one epoch's holds, by hold number.
#[derive(Clone, Debug, Default)]
pub(super) struct ExcessOf(BTreeMap<u64, Excess>);

/// The excess of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub(super) copies: u32,
    pub(super) by: FullLimit,
}

/// Which limit was full. Numbers of groups change with the limits; the set of groups of a hold never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FullLimit(u32);

impl FullLimit {
    const DOMAIN: Self = Self(0);
    const RESOURCE: Self = Self(1);

    /// The `at`th group of the hold's set.
    const fn group(at: u32) -> Self {
        Self(at + 2)
    }

    pub(super) fn number(self) -> u64 {
        u64::from(self.0)
    }

    /// The limit that was written as this number, for a hold under `groups` groups.
    pub(super) fn from_number(number: u64, groups: usize) -> Option<Self> {
        let number = u32::try_from(number).ok()?;
        ((number as usize) < groups + 2).then_some(Self(number))
    }
}

impl ExcessOf {
    pub(super) fn get(&self, number: u64) -> Option<Excess> {
        self.0.get(&number).copied()
    }

    /// All of them, by number.
    pub(super) fn in_order(&self) -> impl ExactSizeIterator<Item = (u64, Excess)> {
        self.0.iter().map(|(number, excess)| (*number, *excess))
    }

    /// Sets a hold's excess; `None` removes it.
    fn set(&mut self, (mark, number): (u64, u64), to: Option<Excess>, sum: &mut Sum) {
        let before = match to {
            Some(excess) => self.0.insert(number, excess),
            None => self.0.remove(&number),
        };
        let words = |of: Excess| [mark, number, u64::from(of.copies), of.by.number(), 0];
        if let Some(before) = before {
            sum.take(DigestKind::Excess, words(before));
        }
        if let Some(excess) = to {
            sum.add(DigestKind::Excess, words(excess));
        }
    }

    /// Subtracts released copies of a hold from its excess.
    #[inline]
    pub(super) fn lessen(&mut self, hold: (u64, u64), copies: u32, sum: &mut Sum) {
        // Called for every release, and the map is nearly always empty.
        if self.0.is_empty() {
            return;
        }
        if let Some(before) = self.get(hold.1) {
            let left = before.copies.saturating_sub(copies);
            let left = (0 < left).then_some(Excess {
                copies: left,
                ..before
            });
            self.set(hold, left, sum);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        // Nodes are at least half full.
        self.0.len() * 2 * size_of::<(u64, Excess)>()
    }
}

impl Copies {
    /// The part of a hold's excess, as of when it began to count, that has not been released since.
    pub fn excess_of(&self, id: HoldId) -> Taken {
        let agent = self.agents.get(id.agent);
        let found = agent.and_then(|agent| agent.excess.get(id.number));
        let slot = self.holds.find(id);
        let (Some(found), Some(slot)) = (found, slot) else {
            let (excess, by) = (0, None);
            return Taken { excess, by };
        };
        let by = match found.by {
            FullLimit::DOMAIN => Some(Limiter::Domain),
            FullLimit::RESOURCE => Some(Limiter::Resource),
            FullLimit(number) => {
                let set = self.holds.facts(slot).set;
                let at = number as usize - 2;
                let group = self.groups.of_set(set).nth(at);
                group.map(|(ix, _)| Limiter::Group(ix))
            }
        };
        Taken {
            excess: found.copies,
            by,
        }
    }

    /// All copies of a hold are too many, by its domain, whatever the limit: the domain is banned.
    pub fn all_too_much(&mut self, id: HoldId) {
        if let Ok((_, facts)) = self.live(id) {
            let all = Excess {
                copies: facts.copies,
                by: FullLimit::DOMAIN,
            };
            self.set_excess(id, Some(all));
        }
    }

    /// No copy of a hold is too many, whatever the limits: the hold was granted.
    pub fn nothing_too_much(&mut self, id: HoldId) {
        self.set_excess(id, None);
    }

    /// Remembers the excess of copies that just began to count.
    pub(super) fn remember(&mut self, id: HoldId, taken: Taken) {
        let (Some(by), true) = (taken.by, 0 < taken.excess) else {
            return;
        };
        let Ok((_, facts)) = self.live(id) else {
            return;
        };
        let by = match by {
            Limiter::Domain => FullLimit::DOMAIN,
            Limiter::Resource => FullLimit::RESOURCE,
            Limiter::Group(group) => {
                let mut groups = self.groups.of_set(facts.set);
                let at = groups.position(|(ix, _)| ix == group);
                FullLimit::group(at.unwrap_or_default() as u32)
            }
        };
        let agent = self.agents.get(id.agent);
        let before = agent.and_then(|agent| agent.excess.get(id.number));
        let copies = before.map_or(0, |before| before.copies) + taken.excess;
        self.set_excess(id, Some(Excess { copies, by }));
    }

    /// Sets a hold's excess; `None` removes it.
    pub(super) fn set_excess(&mut self, id: HoldId, excess: Option<Excess>) {
        if let Some(agent) = self.agents.get_mut(id.agent) {
            let hold = (agent.mark, id.number);
            agent.excess.set(hold, excess, &mut self.sum);
        }
    }
}
