//! The agents' epochs that one resource knows: their holds, and the ids of holds that stay ended.
//!
//! Knows nothing of heartbeats and silence. What stays true: an epoch's live copies are the sum of its live holds,
//! and its lost holds are counted. A hold number that was ended is refused until the epoch is over, or until it is
//! forgotten because more than [`ENDED_IDS_MAX`] were ended.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::holdings::Holdings;

use super::digest;
use super::effects::AgentIx;
use super::excess::ExcessOf;
use super::table::NIL;

/// How many ended ids are remembered for one epoch. Beyond it the least id is forgotten. Ids rise, so the least one
/// is the least likely to be listed by a heartbeat still; and if its hold was ended by age, its start would end it
/// again.
pub const ENDED_IDS_MAX: usize = 4_096;

#[derive(Clone, Debug)]
pub(super) struct AgentState {
    pub(super) name: Box<str>,
    pub(super) epoch: u128,
    /// A fingerprint of name and epoch.
    pub(super) mark: u64,
    /// The first in the list of its holds, live and lost.
    pub(super) head: u32,
    pub(super) live_copies: u64,
    /// How many of its holds are kept as lost.
    pub(super) lost: u32,
    /// Digest of its live holds, to compare with the digest in a heartbeat.
    pub(super) holdings: Holdings,
    /// The excess of its live holds.
    pub(super) excess: ExcessOf,
    pub(super) ended: BTreeSet<u64>,
    pub(super) over: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Agents {
    slots: Vec<Option<AgentState>>,
    free: Vec<u32>,
    by_name: BTreeMap<Box<str>, BTreeMap<u128, u32>>,
}

impl Agents {
    /// The number of an epoch; a new epoch gets one.
    pub(super) fn intern(&mut self, name: &str, epoch: u128) -> AgentIx {
        if let Some(found) = self.find(name, epoch) {
            return found;
        }
        let agent = AgentState {
            name: name.into(),
            epoch,
            mark: digest::of_names([name, &epoch.to_string()].into_iter()),
            head: NIL,
            live_copies: 0,
            lost: 0,
            holdings: Holdings::default(),
            excess: ExcessOf::default(),
            ended: BTreeSet::new(),
            over: false,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(agent);
                slot
            }
            None => {
                self.slots.push(Some(agent));
                self.slots.len() as u32 - 1
            }
        };
        let epochs = self.by_name.entry(name.into()).or_default();
        epochs.insert(epoch, slot);
        AgentIx(slot)
    }

    pub(super) fn find(&self, name: &str, epoch: u128) -> Option<AgentIx> {
        let slot = self.by_name.get(name)?.get(&epoch)?;
        Some(AgentIx(*slot))
    }

    #[inline]
    pub(super) fn get(&self, agent: AgentIx) -> Option<&AgentState> {
        self.slots.get(agent.0 as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, agent: AgentIx) -> Option<&mut AgentState> {
        self.slots.get_mut(agent.0 as usize)?.as_mut()
    }

    /// Frees the number of an epoch that has no holds.
    pub(super) fn remove(&mut self, agent: AgentIx) {
        let slot = self.slots.get_mut(agent.0 as usize);
        let Some(gone) = slot.and_then(Option::take) else {
            return;
        };
        self.free.push(agent.0);
        if let Some(epochs) = self.by_name.get_mut(&gone.name) {
            epochs.remove(&gone.epoch);
            if epochs.is_empty() {
                self.by_name.remove(&gone.name);
            }
        }
    }

    /// All epochs, by name and epoch.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (AgentIx, &AgentState)> {
        self.by_name
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|&slot| Some((AgentIx(slot), self.get(AgentIx(slot))?)))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let agents = self.slots.iter().flatten();
        self.slots.capacity() * size_of::<Option<AgentState>>()
            + agents.map(|agent| agent.excess.heap_bytes()).sum::<usize>()
    }
}
