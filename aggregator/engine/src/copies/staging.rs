//! The staging area: copies on their way from one agent to another.
//!
//! They still count, belong to no agent, and are let go at their end, or when they are too old.
//! Knows nothing of counts. What stays true: a transfer is listed under its id, its end and its
//! start.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_shared::time::Timestamp;

use super::effects::TransferId;

/// What is staged under an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Staged {
    pub(super) domain: u32,
    pub(super) set: u32,
    pub(super) copies: u32,
    pub(super) strict: bool,
    /// When the copies were taken. Transfers keep it, because a greatest age limits how long copies
    /// are held, by whichever agents.
    pub(super) start: Timestamp,
    /// When they are let go at the latest.
    pub(super) end: Timestamp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Staging {
    by_id: BTreeMap<TransferId, Staged>,
    by_end: BTreeSet<(Timestamp, TransferId)>,
    by_start: BTreeSet<(Timestamp, TransferId)>,
}

impl Staging {
    pub(super) fn len(&self) -> u32 {
        self.by_id.len() as u32
    }

    pub(super) fn get(&self, id: TransferId) -> Option<&Staged> {
        self.by_id.get(&id)
    }

    /// Stages copies under an id that is free.
    pub(super) fn insert(&mut self, id: TransferId, staged: Staged) {
        self.by_id.insert(id, staged);
        self.by_end.insert((staged.end, id));
        self.by_start.insert((staged.start, id));
    }

    pub(super) fn remove(&mut self, id: TransferId) -> Option<Staged> {
        let staged = self.by_id.remove(&id)?;
        self.by_end.remove(&(staged.end, id));
        self.by_start.remove(&(staged.start, id));
        Some(staged)
    }

    /// The transfer that ends first, if it ends by `now`.
    pub(super) fn due(&self, now: Timestamp) -> Option<TransferId> {
        let (end, id) = self.by_end.first()?;
        (*end <= now).then_some(*id)
    }

    /// The transfer whose copies were taken first, if they were taken by `last`.
    pub(super) fn taken_by(&self, last: Timestamp) -> Option<TransferId> {
        let (start, id) = self.by_start.first()?;
        (*start <= last).then_some(*id)
    }

    /// All transfers, by id.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (TransferId, &Staged)> {
        self.by_id.iter().map(|(id, staged)| (*id, staged))
    }

    /// All transfers, by the end that was stated when they were staged.
    pub(super) fn by_end(&self) -> impl Iterator<Item = (TransferId, &Staged)> {
        self.by_end
            .iter()
            .filter_map(|(_, id)| Some((*id, self.by_id.get(id)?)))
    }

    /// All transfers of copies that were taken at `from` or later, by start and id.
    pub(super) fn by_start(&self, from: Timestamp) -> impl Iterator<Item = (TransferId, &Staged)> {
        self.by_start
            .range((from, TransferId(0))..)
            .filter_map(|(_, id)| Some((*id, self.by_id.get(id)?)))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        // Nodes are at least half full.
        let entry = size_of::<(TransferId, Staged)>() + 2 * size_of::<(Timestamp, TransferId)>();
        self.by_id.len() * 2 * entry
    }
}
