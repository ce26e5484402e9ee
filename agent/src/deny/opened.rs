//! Notes of scopes that were opened at a log position which the watermark has not passed yet.
//!
//! Without a note, an older denial in a delayed snapshot would close its scope again. Notes stand by resource, so that a
//! frame looks at those of its own topic alone: notes of a topic that has fallen silent may stay for hours. Knows nothing of
//! denials in force. What stays true: there are at most as many notes as denials are allowed; of those beyond, the greatest
//! position is kept for each partition of their resource.

use std::collections::HashMap;

use tollgate_shared::log_position::LogPosition;

use crate::resource::ResourceId;

/// A scope that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedScope {
    pub(super) resource: ResourceId,
    pub(super) partition: u32,
    pub(super) position: LogPosition,
}

/// All notes, by resource, fingerprint and partition.
#[derive(Debug)]
pub(super) struct OpenedScopes {
    max: usize,
    len: usize,
    notes: HashMap<ResourceId, HashMap<(u64, u32), OpenedScope>>,
    /// Once notes were dropped at the bound: by resource and partition, the greatest log position of a dropped note.
    /// Statements at or below it about scopes without an entry are ignored.
    forgotten: HashMap<ResourceId, HashMap<u32, LogPosition>>,
}

impl OpenedScopes {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            len: 0,
            notes: HashMap::new(),
            forgotten: HashMap::new(),
        }
    }

    pub(super) fn note(&mut self, note: OpenedScope, fingerprint: u64) {
        let key = (fingerprint, note.partition);
        let is_known = |notes: &HashMap<(u64, u32), _>| notes.contains_key(&key);
        let is_known = self.notes.get(&note.resource).is_some_and(is_known);
        if self.max <= self.len && !is_known {
            let forgotten = self.forgotten.entry(note.resource).or_default();
            let position = forgotten.entry(note.partition).or_default();
            *position = note.position.max(*position);
            return;
        }
        let of_resource = self.notes.entry(note.resource).or_default();
        self.len += usize::from(of_resource.insert(key, note).is_none());
    }

    /// The scope is closed by a statement of this partition: its denial has a log position of its own.
    pub(super) fn take_out(&mut self, closed: OpenedScope, fingerprint: u64) {
        let Some(notes) = self.notes.get_mut(&closed.resource) else {
            return;
        };
        self.len -= usize::from(notes.remove(&(fingerprint, closed.partition)).is_some());
        if notes.is_empty() {
            self.notes.remove(&closed.resource);
        }
    }

    /// Whether a statement at a log position is older than what opened its scope, as far as that is known.
    pub(super) fn is_older(&self, stated: OpenedScope, fingerprint: u64) -> bool {
        let OpenedScope {
            resource,
            partition,
            position,
        } = stated;
        let notes = self.notes.get(&resource);
        let note = notes.and_then(|notes| notes.get(&(fingerprint, partition)));
        let forgotten = self.forgotten.get(&resource);
        let forgotten = forgotten.and_then(|forgotten| forgotten.get(&partition));
        let known = note.map(|note| &note.position).into_iter();
        known.chain(forgotten).any(|known| position <= *known)
    }

    /// The agent has received everything up to some log position of each partition for a resource: notes up to it are
    /// no longer needed.
    pub(super) fn settle(
        &mut self,
        resource: ResourceId,
        below: impl Fn(u32) -> Option<LogPosition>,
    ) {
        let needed = |partition: u32, position: LogPosition| {
            below(partition).is_none_or(|below| below <= position)
        };
        self.retain_of(resource, |note| needed(note.partition, note.position));
        if let Some(forgotten) = self.forgotten.get_mut(&resource) {
            forgotten.retain(|partition, at| needed(*partition, *at));
            if forgotten.is_empty() {
                self.forgotten.remove(&resource);
            }
        }
    }

    /// Whether there are notes of a resource, so that settling has something to do.
    pub(super) fn has_any_of(&self, resource: ResourceId) -> bool {
        self.notes.contains_key(&resource) || self.forgotten.contains_key(&resource)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.notes.is_empty() && self.forgotten.is_empty()
    }

    /// A log was recreated: notes of a partition under lower generations are void.
    pub(super) fn void(&mut self, partition: u32, below_generation: u32) {
        let stays = |of: u32, at: LogPosition| of != partition || below_generation <= at.generation;
        let resources: Vec<ResourceId> = self.notes.keys().copied().collect();
        for resource in resources {
            self.retain_of(resource, |note| stays(note.partition, note.position));
        }
        self.forgotten.retain(|_, forgotten| {
            forgotten.retain(|of, at| stays(*of, *at));
            !forgotten.is_empty()
        });
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.notes.clear();
        self.forgotten.clear();
    }

    fn retain_of(&mut self, resource: ResourceId, stays: impl Fn(&OpenedScope) -> bool) {
        let Some(notes) = self.notes.get_mut(&resource) else {
            return;
        };
        let before = notes.len();
        notes.retain(|_, note| stays(note));
        self.len -= before - notes.len();
        if notes.is_empty() {
            self.notes.remove(&resource);
        }
    }
}
