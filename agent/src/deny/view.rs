//! The callers' side of the deny list.
//!
//! Knows nothing of statements and log positions. What stays true: an entry refuses only under its exact names, while
//! its lease holds and before its end; a fingerprint alone decides nothing.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dashmap::DashMap;
use tollgate_shared::log_position::LogPosition;
use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::Span;
use tollgate_shared::wire::statement::{Cause, Denial};

use super::closed::ClosedFingerprints;
use super::filter::Filter;
use super::name::EntryName;
use super::near::{NEAR_MAX, NearEntry};
use super::recent::RecentPairs;
use crate::clock::Mono;
use crate::resource::{Resource, ResourceId};
use crate::scope::Scope;

/// More shards than the usual four for each core: this halves what readers on several cores cost each other; still
/// more shards bring nothing.
const SHARDS: usize = 64;

/// Until when the denials of one topic and partition hold; watermarks renew it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lease(Arc<AtomicU64>);

impl Lease {
    pub(crate) fn until(&self) -> Mono {
        Mono(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn renew(&self, until: Mono) {
        self.0.store(until.0, Ordering::Relaxed);
    }
}

/// The limit that caused a denial, as far as callers get it. Entries are read cold, so every byte that is left out
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) limit: u64,
    pub(crate) window: Span,
    pub(crate) cause: Cause,
}

impl From<&Denial> for Closed {
    fn from(denial: &Denial) -> Self {
        Self {
            limit: denial.limit,
            window: denial.window,
            cause: denial.cause,
        }
    }
}

/// One denial, as callers read it.
#[derive(Debug)]
pub(super) struct DenialEntry {
    pub(super) resource: ResourceId,
    /// `*` if the whole resource is denied.
    pub(super) domain: EntryName,
    /// Whether the scope is a group; then `domain` is the group's name.
    pub(super) is_group: bool,
    pub(super) partition: u32,
    pub(super) position: LogPosition,
    pub(super) until: Mono,
    pub(super) closed: Closed,
    pub(super) lease: Lease,
}

/// Why the deny list refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) scope: Scope,
    pub(crate) partition: u32,
    pub(crate) position: LogPosition,
    /// [`Span::MAX`]: the denial does not end by itself.
    pub(crate) remaining: Span,
    pub(crate) closed: Closed,
}

impl DenialEntry {
    fn refusal(&self, scope: Scope, now: impl FnOnce() -> Mono) -> Option<Refusal> {
        let now = now();
        if self.until <= now || self.lease.until() <= now {
            return None;
        }
        Some(Refusal {
            scope,
            partition: self.partition,
            position: self.position,
            remaining: if self.until == Mono::MAX {
                Span::MAX
            } else {
                self.until.since(now)
            },
            closed: self.closed,
        })
    }
}

/// Does not hash, because fingerprints are hashes already.
#[derive(Default)]
pub(crate) struct Unhashed(u64);

impl Hasher for Unhashed {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(super) type ByFingerprint<V> = DashMap<u64, V, BuildHasherDefault<Unhashed>>;

/// The state that callers read.
#[derive(Debug)]
pub(crate) struct DenyView {
    pub(super) filter: Filter,
    pub(super) exact: ByFingerprint<DenialEntry>,
    /// Pairs that are near their limits.
    pub(super) near: ByFingerprint<NearEntry>,
    pub(super) near_len: AtomicUsize,
    /// When a call of one of these pairs was last let through.
    pub(super) near_called: AtomicU64,
    pub(super) recent: RecentPairs,
    pub(super) closed: ClosedFingerprints,
}

impl DenyView {
    pub(crate) fn new(denials_max: usize) -> Self {
        Self {
            filter: Filter::new(denials_max.saturating_add(NEAR_MAX)),
            exact: DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS),
            near: DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS),
            near_len: AtomicUsize::new(0),
            near_called: AtomicU64::new(0),
            recent: RecentPairs::default(),
            closed: ClosedFingerprints::default(),
        }
    }

    /// Rebuilds the filter if too many of its counters are stuck.
    pub(super) fn rebuild_filter_if_stuck(&self) {
        if self.filter.wants_rebuild() {
            let denied = self.exact.iter().map(|entry| *entry.key());
            let near = self.near.iter().map(|entry| *entry.key());
            let closed = self.closed.all();
            self.filter.rebuild(denied.chain(near).chain(closed));
        }
    }

    /// Whether a pair may be denied, closed by its limits, or near them; `false` is certain.
    #[inline]
    pub(crate) fn maybe(&self, fingerprint: u64) -> bool {
        self.filter.maybe(fingerprint)
    }

    /// The denial of a pair that is in force; `now` reads the real clock, and is called only if there is an entry.
    #[inline]
    pub(crate) fn refusal(
        &self,
        resource: &Resource,
        fingerprint: u64,
        domain: &str,
        now: impl FnOnce() -> Mono,
    ) -> Option<Refusal> {
        let entry = self.exact.get(&fingerprint)?;
        if entry.resource != resource.id || !entry.domain.is(domain) || entry.is_group {
            return None;
        }
        entry.refusal(Scope::Pair, now)
    }

    /// The denial of a group that is in force.
    pub(crate) fn group(
        &self,
        resource: &Resource,
        group: &str,
        now: impl FnOnce() -> Mono,
    ) -> Option<Refusal> {
        let entry = self.exact.get(&resource.fingerprint_of_group(group))?;
        if entry.resource != resource.id || !entry.domain.is(group) || !entry.is_group {
            return None;
        }
        entry.refusal(Scope::Group, now)
    }

    /// The denial of the whole resource that is in force.
    pub(crate) fn whole(&self, resource: &Resource, now: impl FnOnce() -> Mono) -> Option<Refusal> {
        let refusal = self.refusal(resource, resource.fingerprint(EVERYBODY), EVERYBODY, now)?;
        Some(Refusal {
            scope: Scope::Resource,
            ..refusal
        })
    }

    /// Pairs with a recent denial or notice.
    pub(crate) fn recent(&self) -> &RecentPairs {
        &self.recent
    }

    /// Counters of the filter that are stuck.
    pub(crate) fn stuck(&self) -> u64 {
        self.filter.stuck()
    }
}
