//! The writer's side of the deny list: it orders statements by their log position.
//!
//! ```text
//! denied @5, open @9      acme may pass
//! open @9, denied @5      acme may pass: the greater position wins, in whatever order they arrive
//! denied @5, denied @5    one denial, with the lesser of the two ends
//! ```
//!
//! When a scope opens, or its denial ends, a note keeps that statement's log position until a watermark shows that
//! everything up to there has been received. Without the note, an older denial that arrives late would close the
//! scope again. Statements of another partition about the same scope: see [`super::beside`]. Knows nothing of sockets.
//! What stays true: every entry has its counters in the filter; entries, notes and the index of ends are bounded, and
//! at a bound the scope stays open.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::wire::statement::Denial;

use super::name::EntryName;
use super::opened::{OpenedScope, OpenedScopes};
use super::recent::REMEMBERED;
use super::view::{Closed, DenialEntry, DenyView, Lease};
use crate::clock::Mono;
use crate::resource::{GROUPS, Resource, ResourceId, WHOLE};

/// A statement about one scope of a resource, with what the deny list needs to apply it.
#[derive(Clone, Debug)]
pub(crate) struct ScopeNotice<'a> {
    pub(crate) resource: &'a Arc<Resource>,
    /// `*` for the whole resource.
    pub(crate) domain: &'a str,
    /// Whether the scope is a group of domains; then `domain` is the group's name.
    pub(crate) is_group: bool,
    pub(crate) partition: u32,
    pub(crate) position: LogPosition,
    pub(crate) change: ScopeChange,
    pub(crate) lease: &'a Lease,
    /// Statements below this position about scopes without an entry are older than what is known.
    pub(crate) settled: Option<LogPosition>,
}

impl ScopeNotice<'_> {
    /// The fingerprint of the scope.
    pub(crate) fn fingerprint(&self) -> u64 {
        if self.is_group {
            self.resource.fingerprint_of_group(self.domain)
        } else {
            self.resource.fingerprint(self.domain)
        }
    }
}

/// The content of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeChange {
    /// Denied until this instant of the agent's monotonic clock.
    Denied(Mono, Denial),
    /// Open.
    Lifted,
}

/// The result of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementOutcome {
    /// The scope is denied now.
    Denied,
    /// The scope was denied and is open now.
    Lifted,
    /// Nothing changed: the statement is older, a repetition, or already over.
    Known,
    /// Another partition denies the scope, for at least as long: its denial stays.
    Outlasted,
    /// There is no room: the scope stays open.
    NoRoom,
}

impl StatementOutcome {
    /// Whether the list agrees with the statement: not without room, and not if another partition's denial stays.
    pub(crate) fn is_in_list(self) -> bool {
        !matches!(self, Self::NoRoom | Self::Outlasted)
    }
}

/// A denial that ended because a snapshot did not list it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedDenial {
    pub(crate) resource: ResourceId,
    pub(crate) domain: Box<str>,
    pub(crate) is_group: bool,
    pub(crate) partition: u32,
    pub(crate) position: LogPosition,
}

impl EndedDenial {
    fn of(entry: &DenialEntry) -> Self {
        Self {
            resource: entry.resource,
            domain: entry.domain.to_boxed(),
            is_group: entry.is_group,
            partition: entry.partition,
            position: entry.position,
        }
    }
}

/// The writer's side of the deny list.
#[derive(Debug)]
pub(crate) struct DenyList {
    pub(super) view: Arc<DenyView>,
    max: usize,
    len: usize,
    /// How many denials there are, by resource and partition; no zeros.
    counts: BTreeMap<(ResourceId, u32), usize>,
    pub(super) opened: OpenedScopes,
    /// The ends of denials, the first one on top. Entries may be stale.
    ends: BinaryHeap<Reverse<(Mono, u64)>>,
    /// Resources that are denied as a whole.
    whole: HashMap<ResourceId, Arc<Resource>>,
    /// Resources of which groups are denied, and how many.
    groups: HashMap<ResourceId, (Arc<Resource>, usize)>,
}

/// A statement's scope and place.
pub(super) fn note_of(notice: &ScopeNotice<'_>) -> OpenedScope {
    OpenedScope {
        resource: notice.resource.id,
        partition: notice.partition,
        position: notice.position,
    }
}

impl DenyList {
    pub(crate) fn new(view: Arc<DenyView>, denials_max: usize) -> Self {
        Self {
            view,
            max: denials_max,
            len: 0,
            counts: BTreeMap::new(),
            opened: OpenedScopes::new(denials_max),
            ends: BinaryHeap::new(),
            whole: HashMap::new(),
            groups: HashMap::new(),
        }
    }

    /// Denials in the list.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The resources with any denial in the list, and the partition that announced it, in order.
    pub(crate) fn denied(&self) -> impl Iterator<Item = (ResourceId, u32)> {
        self.counts.keys().copied()
    }

    #[cfg(test)]
    pub(super) fn ends_len(&self) -> usize {
        self.ends.len()
    }

    /// Applies a statement.
    pub(crate) fn take(&mut self, notice: &ScopeNotice<'_>, now: Mono) -> StatementOutcome {
        let fingerprint = notice.fingerprint();
        self.remember(notice, fingerprint);
        let before = self.denied_before(notice, fingerprint);
        match before {
            // Two pairs with one fingerprint: the second stays open.
            Some(before) if !before.same_scope => return StatementOutcome::NoRoom,
            Some(before) if before.partition != notice.partition => {
                return self.take_beside(notice, fingerprint, before, now);
            }
            Some(before) if notice.position < before.position => {
                return StatementOutcome::Known;
            }
            Some(before) if notice.position == before.position => {
                return self.said_again(notice, fingerprint, before.until, now);
            }
            Some(_) => {}
            None => {
                if self.is_older(notice, fingerprint) {
                    return StatementOutcome::Known;
                }
            }
        }
        match notice.change {
            ScopeChange::Denied(until, denial) if now < until => {
                self.deny(notice, fingerprint, until, denial, before.is_some())
            }
            // Open, or denied until an instant that is past: either way not denied at this place.
            ScopeChange::Denied(..) | ScopeChange::Lifted => {
                self.open(notice, fingerprint, before.is_some())
            }
        }
    }

    /// Whatever the result of a denial, calls of its scope are urgent from now on.
    fn remember(&self, notice: &ScopeNotice<'_>, fingerprint: u64) {
        if let ScopeChange::Denied(until, _) = notice.change {
            let until = until.plus(REMEMBERED);
            match *notice.domain == *EVERYBODY {
                true => notice.resource.hurry().extend(until),
                false => self.view.recent.note(fingerprint, until),
            }
        }
    }

    pub(super) fn is_older(&self, notice: &ScopeNotice<'_>, fingerprint: u64) -> bool {
        self.opened.is_older(note_of(notice), fingerprint)
            || notice.settled.is_some_and(|below| notice.position < below)
    }

    /// Two ruling aggregators may compute the remaining time of one denial differently: the lesser end holds.
    fn said_again(
        &mut self,
        notice: &ScopeNotice<'_>,
        fingerprint: u64,
        until: Mono,
        now: Mono,
    ) -> StatementOutcome {
        let ScopeChange::Denied(again, _) = notice.change else {
            return self.open(notice, fingerprint, true);
        };
        if until <= again {
            return StatementOutcome::Known;
        }
        if again <= now {
            return self.open(notice, fingerprint, true);
        }
        if let Some(mut entry) = self.view.exact.get_mut(&fingerprint) {
            entry.until = again;
        }
        self.ends.push(Reverse((again, fingerprint)));
        self.trim_ends();
        StatementOutcome::Known
    }

    pub(super) fn deny(
        &mut self,
        notice: &ScopeNotice<'_>,
        fingerprint: u64,
        until: Mono,
        denial: Denial,
        is_there: bool,
    ) -> StatementOutcome {
        if !is_there && self.max <= self.len {
            // Note the scope as if opened here, so that no older denial closes it.
            self.opened.note(note_of(notice), fingerprint);
            return StatementOutcome::NoRoom;
        }
        let entry = DenialEntry {
            resource: notice.resource.id,
            domain: EntryName::new(notice.domain),
            is_group: notice.is_group,
            partition: notice.partition,
            position: notice.position,
            until,
            closed: Closed::from(&denial),
            lease: notice.lease.clone(),
        };
        self.opened.take_out(note_of(notice), fingerprint);
        *self
            .counts
            .entry((entry.resource, entry.partition))
            .or_default() += 1;
        if !is_there {
            // Add to the filter before the entry is inserted, and remove after the entry is removed: a call that has
            // found an entry is then never cleared by the filter a moment later.
            self.view.filter.add(fingerprint);
        }
        if let Some(before) = self.view.exact.insert(fingerprint, entry) {
            self.one_less(&before);
        }
        if until < Mono::MAX {
            self.ends.push(Reverse((until, fingerprint)));
        }
        if !is_there {
            self.len += 1;
            if notice.is_group {
                let groups = self.groups.entry(notice.resource.id);
                groups.or_insert_with(|| (Arc::clone(notice.resource), 0)).1 += 1;
                notice.resource.set_flag(GROUPS, true);
            } else if notice.domain == EVERYBODY {
                self.whole
                    .insert(notice.resource.id, Arc::clone(notice.resource));
                notice.resource.set_flag(WHOLE, true);
            }
        }
        self.trim_ends();
        self.view.rebuild_filter_if_stuck();
        StatementOutcome::Denied
    }

    fn open(
        &mut self,
        notice: &ScopeNotice<'_>,
        fingerprint: u64,
        is_there: bool,
    ) -> StatementOutcome {
        if is_there {
            self.remove(fingerprint);
        }
        self.note_unless_settled(notice, fingerprint);
        if is_there {
            StatementOutcome::Lifted
        } else {
            StatementOutcome::Known
        }
    }

    /// Notes a statement that leaves no denial in the list.
    pub(super) fn note_unless_settled(&mut self, notice: &ScopeNotice<'_>, fingerprint: u64) {
        if notice.settled.is_none_or(|below| below <= notice.position) {
            self.opened.note(note_of(notice), fingerprint);
        }
    }

    /// The agent has received everything up to some log position of each partition for a resource: notes up to it are
    /// no longer needed.
    pub(crate) fn settle(
        &mut self,
        resource: ResourceId,
        below: impl Fn(u32) -> Option<LogPosition>,
    ) {
        self.opened.settle(resource, below);
    }

    #[cfg(test)]
    pub(super) fn has_notes(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Whether there are notes of a resource, so that settling has something to do.
    pub(crate) fn has_notes_of(&self, resource: ResourceId) -> bool {
        self.opened.has_any_of(resource)
    }

    /// A snapshot of some resources, at a log position of each partition, ends the denials that it does not list.
    pub(crate) fn end_unlisted(
        &mut self,
        resources: &HashSet<ResourceId>,
        below: &HashMap<u32, LogPosition>,
        listed: &HashSet<u64>,
    ) -> Vec<EndedDenial> {
        self.remove_where(|fingerprint, entry| {
            resources.contains(&entry.resource)
                && below
                    .get(&entry.partition)
                    .is_some_and(|below| entry.position < *below)
                && !listed.contains(&fingerprint)
        })
    }

    /// A log was recreated: statements about a partition under lower generations are void.
    pub(crate) fn void(&mut self, partition: u32, below_generation: u32) {
        self.remove_where(|_, entry| {
            entry.partition == partition && entry.position.generation < below_generation
        });
        self.opened.void(partition, below_generation);
    }

    /// Everything is void: the agent follows another fleet, or other partitions.
    pub(crate) fn void_all(&mut self) {
        self.remove_where(|_, _| true);
        self.opened.clear();
        self.ends.clear();
    }

    /// Removes denials that have ended.
    pub(crate) fn expire(&mut self, now: Mono) {
        while self
            .ends
            .peek()
            .is_some_and(|Reverse((until, _))| *until <= now)
        {
            let Some(Reverse((_, fingerprint))) = self.ends.pop() else {
                return;
            };
            // The denial may have been stated again, with a later end.
            let ended = self.view.exact.get(&fingerprint).and_then(|entry| {
                let is_over = entry.until <= now;
                is_over.then(|| OpenedScope {
                    resource: entry.resource,
                    partition: entry.partition,
                    position: entry.position,
                })
            });
            if let Some(note) = ended {
                self.remove(fingerprint);
                // The entry had replaced the note before it: without a new note, an older denial in a delayed
                // snapshot would close the scope again.
                self.opened.note(note, fingerprint);
            }
        }
    }

    fn remove_where(&mut self, wanted: impl Fn(u64, &DenialEntry) -> bool) -> Vec<EndedDenial> {
        let found: Vec<(u64, EndedDenial)> = self
            .view
            .exact
            .iter()
            .filter(|entry| wanted(*entry.key(), entry.value()))
            .map(|entry| (*entry.key(), EndedDenial::of(&entry)))
            .collect();
        for (fingerprint, _) in &found {
            self.remove(*fingerprint);
        }
        found.into_iter().map(|(_, ended)| ended).collect()
    }

    fn remove(&mut self, fingerprint: u64) {
        let Some((_, entry)) = self.view.exact.remove(&fingerprint) else {
            return;
        };
        self.len -= 1;
        self.one_less(&entry);
        self.view.filter.remove(fingerprint);
        if entry.is_group {
            self.one_group_less(entry.resource);
        } else if entry.domain.is(EVERYBODY)
            && let Some(resource) = self.whole.remove(&entry.resource)
        {
            resource.set_flag(WHOLE, false);
        }
    }

    fn one_less(&mut self, entry: &DenialEntry) {
        let at = (entry.resource, entry.partition);
        if let Some(left) = self.counts.get_mut(&at) {
            *left -= 1;
            if *left == 0 {
                self.counts.remove(&at);
            }
        }
    }

    fn one_group_less(&mut self, id: ResourceId) {
        let Some((resource, denied)) = self.groups.get_mut(&id) else {
            return;
        };
        *denied -= 1;
        if *denied == 0 {
            resource.set_flag(GROUPS, false);
            self.groups.remove(&id);
        }
    }

    /// Stale ends are bounded by the live ones and a constant, so that a rebuild costs as much as the statements
    /// since the last one.
    fn trim_ends(&mut self) {
        if self.ends.len() <= 2 * self.len + 1_024 {
            return;
        }
        self.ends = self
            .view
            .exact
            .iter()
            .filter(|entry| entry.until < Mono::MAX)
            .map(|entry| Reverse((entry.until, *entry.key())))
            .collect();
    }
}
