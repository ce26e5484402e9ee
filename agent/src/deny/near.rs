//! Pairs near their limits, from notices: what is left, minus what this agent has let through since.
//!
//! ```text
//! notice       acme has 7 of 50 left, as of 12:00:00.010, for 90 ms
//! calls        let through at .012 and .013: 5 remain for the next call
//! notice       4 left, as of .013: this includes the calls up to then
//! ```
//!
//! A pair with a notice is in the filter of the deny list, so that calls of all other pairs read no more than they
//! would without notices. That is also why this is no cache with eviction of its own: filter and table have one
//! writer, the listener, and change together.
//!
//! A pair may be far from its limit again because an operator pardoned it, a cost was refunded, or its limits were raised,
//! of which no notice tells. So a notice ends after a minute, when a denial of its pair is lifted, when the resource's
//! limits change, and when calls were let through after which no other notice came.
//!
//! What stays true: nothing here refuses a call; the number of pairs is bounded; a notice that has ended is not
//! reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_shared::names::EVERYBODY;
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::notice::Notice;
use tollgate_shared::wire::statement::Cause;

use super::name::EntryName;
use super::view::DenyView;
use crate::clock::Mono;
use crate::left::Left;
use crate::resource::{NEAR_WHOLE, Resource, ResourceId};

/// The most pairs that are kept. At some 450 bytes each they take 7 MB.
pub(crate) const NEAR_MAX: usize = 16_384;

/// How long a notice holds at most.
const HOLDS_FOR: Span = Span::from_secs(60);

/// How long an agent waits for a notice that includes a call: aggregators publish one whenever a pair was hit and is still
/// near, after some 20 ms, or after two seconds if very many pairs are near.
const RENEWED_WITHIN: Span = Span::from_secs(3);

/// How often ended notices are searched for: one search takes a millisecond at most.
const SWEEP_EVERY: Span = Span::from_millis(250);

/// One pair near its limit.
#[derive(Debug)]
pub(super) struct NearEntry {
    resource: ResourceId,
    domain: EntryName,
    /// The aggregator that published the notice, and the partition that it is about.
    publisher: usize,
    partition: u32,
    cause: Cause,
    left: u64,
    limit: u64,
    window: Span,
    since: Timestamp,
    more: Mono,
    until: Mono,
    /// Since when there have been calls that the notice does not include; [`Mono::MAX`] without such calls.
    calls_since: Mono,
    recent: Recent,
}

impl NearEntry {
    /// Whether the notice holds.
    fn holds(&self, now: Mono) -> bool {
        now < self.until && now < self.calls_since.plus(RENEWED_WITHIN)
    }

    fn is_of(&self, resource: &Resource, domain: &str) -> bool {
        self.resource == resource.id && self.domain.is(domain)
    }
}

/// One call's copies that are let through, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taking {
    /// The call's copies; 0 for a call that only looks.
    pub(crate) copies: u32,
    pub(crate) at: Timestamp,
    pub(crate) now: Mono,
}

/// Copies that this agent let through lately, by steps of time: for longer than it takes until a notice includes
/// them.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    /// The newest stamp of each step, ascending, and its copies.
    steps: [(Timestamp, u64); STEPS],
    len: usize,
}

/// The number of steps, of some 4 ms each.
const STEPS: usize = 16;

fn step_of(at: Timestamp) -> u64 {
    at.as_micros() >> 12
}

impl Recent {
    fn add(&mut self, at: Timestamp, copies: u64) {
        let step = step_of(at);
        if let Some(last) = self.steps.get_mut(..self.len).and_then(<[_]>::last_mut)
            && step <= step_of(last.0)
        {
            *last = (last.0.max(at), last.1.saturating_add(copies));
            return;
        }
        if self.len == STEPS {
            // The two oldest steps become one, with the newer stamp: their copies count against `left` for longer.
            let [(_, oldest), (_, second), ..] = &mut self.steps;
            *second = second.saturating_add(*oldest);
            self.steps.copy_within(1.., 0);
            self.len -= 1;
        }
        if let Some(next) = self.steps.get_mut(self.len) {
            *next = (at, copies);
            self.len += 1;
        }
    }

    /// The notice includes the copies that are stamped up to `since`. A step of which it includes only a part is
    /// kept.
    fn forget_upto(&mut self, since: Timestamp) {
        let known = self.steps.get(..self.len).unwrap_or_default();
        let old = known.partition_point(|(newest, _)| *newest <= since);
        self.steps.copy_within(old..self.len, 0);
        self.len -= old;
    }

    fn sum(&self) -> u64 {
        let known = self.steps.get(..self.len).unwrap_or_default();
        known
            .iter()
            .fold(0, |sum, (_, copies)| sum.saturating_add(*copies))
    }
}

impl DenyView {
    /// What a pair has left after this call, if it is near its limit.
    pub(crate) fn left(
        &self,
        resource: &Resource,
        fingerprint: u64,
        domain: &str,
        taking: Taking,
    ) -> Option<Left> {
        if self.near_len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut entry = self.near.get_mut(&fingerprint)?;
        if !entry.is_of(resource, domain) || !entry.holds(taking.now) {
            return None;
        }
        if taking.copies != 0 {
            entry.calls_since = entry.calls_since.min(taking.now);
            entry.recent.add(taking.at, u64::from(taking.copies));
            self.near_called.store(taking.now.0, Ordering::Relaxed);
        }
        Some(Left {
            remaining: entry.left.saturating_sub(entry.recent.sum()),
            limit: entry.limit,
            window: entry.window,
            cause: entry.cause,
            more_in: match entry.more {
                Mono::MAX => Span::MAX,
                more => more.since(taking.now),
            },
        })
    }
}

/// Callers look for the notice of all domains only if this flag is set. They clear it themselves.
fn set_whole(resource: &Resource, notice: &Notice) {
    if *notice.domain == *EVERYBODY {
        resource.set_flag(NEAR_WHOLE, true);
    }
}

impl DenyView {
    /// When a call of a pair near its limit was last let through: aggregators need such calls soon, so the flusher
    /// hurries.
    pub(crate) fn near_called(&self) -> Mono {
        Mono(self.near_called.load(Ordering::Relaxed))
    }
}

/// The result of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noticed {
    /// The pair was not near before.
    Nearing,
    /// The pair was near, and this notice is newer.
    Renewed,
    /// The agent has a newer notice, or this one is over.
    Known,
    /// There is no room: the agent does not know what the pair has left.
    NoRoom,
}

/// The writer's side of the notices.
#[derive(Debug)]
pub(crate) struct NearList {
    view: Arc<DenyView>,
    max: usize,
    next_sweep: Mono,
}

impl NearList {
    pub(crate) fn new(view: Arc<DenyView>, max: usize) -> Self {
        Self {
            view,
            max,
            next_sweep: Mono::ZERO,
        }
    }

    /// Pairs that have a notice.
    pub(crate) fn len(&self) -> usize {
        self.view.near_len.load(Ordering::Relaxed)
    }

    /// Applies a notice, in a frame of this aggregator that was delayed by `late`.
    pub(crate) fn take(
        &self,
        resource: &Resource,
        publisher: usize,
        notice: &Notice,
        late: Span,
        now: Mono,
    ) -> Noticed {
        let near_for = notice.near_for.min(HOLDS_FOR).saturating_sub(late);
        if near_for == Span::ZERO {
            return Noticed::Known;
        }
        let fingerprint = resource.fingerprint(&notice.domain);
        let until = now.plus(near_for);
        match *notice.domain == *EVERYBODY {
            true => resource.hurry().extend(until),
            false => self.view.recent.note(fingerprint, until),
        }
        let mut fresh = NearEntry {
            resource: resource.id,
            domain: EntryName::new(&notice.domain),
            publisher,
            partition: notice.partition,
            cause: notice.cause,
            left: notice.left,
            limit: notice.limit,
            window: notice.window,
            since: notice.since,
            more: match notice.more_in {
                Span::MAX => Mono::MAX,
                more_in => now.plus(more_in.saturating_sub(late)),
            },
            until,
            calls_since: Mono::MAX,
            recent: Recent::default(),
        };
        if let Some(mut known) = self.view.near.get_mut(&fingerprint) {
            if !known.is_of(resource, &notice.domain) {
                // Two pairs with one fingerprint.
                return Noticed::NoRoom;
            }
            let was_near = known.holds(now);
            if notice.since < known.since && was_near {
                return Noticed::Known;
            }
            fresh.recent = known.recent;
            fresh.recent.forget_upto(notice.since);
            if fresh.recent.len != 0 {
                fresh.calls_since = now;
            }
            *known = fresh;
            set_whole(resource, notice);
            return match was_near {
                true => Noticed::Renewed,
                false => Noticed::Nearing,
            };
        }
        if self.max <= self.len() {
            return Noticed::NoRoom;
        }
        self.view.near.insert(fingerprint, fresh);
        self.view.near_len.fetch_add(1, Ordering::Relaxed);
        set_whole(resource, notice);
        self.view.filter.add(fingerprint);
        self.view.rebuild_filter_if_stuck();
        Noticed::Nearing
    }

    /// Notices of a resource from one aggregator, or of all its resources, were missed: its earlier notices are void.
    pub(crate) fn void(&self, publisher: usize, resource: Option<ResourceId>) {
        self.remove_where(|entry| {
            entry.publisher == publisher && resource.is_none_or(|one| entry.resource == one)
        });
    }

    /// A denial of a pair was lifted, so that it has another number left.
    pub(crate) fn void_pair(&self, resource: &Resource, domain: &str) {
        let fingerprint = resource.fingerprint(domain);
        let is_of = |entry: &NearEntry| entry.is_of(resource, domain);
        if self.len() != 0
            && self
                .view
                .near
                .get(&fingerprint)
                .is_some_and(|one| is_of(&one))
        {
            self.remove(fingerprint);
        }
    }

    /// The limits of a resource changed.
    pub(crate) fn void_resource(&self, resource: ResourceId) {
        self.remove_where(|entry| entry.resource == resource);
    }

    /// A partition's log was recreated.
    pub(crate) fn void_partition(&self, partition: u32) {
        self.remove_where(|entry| entry.partition == partition);
    }

    /// Removes notices that have ended.
    pub(crate) fn expire(&mut self, now: Mono) {
        if self.next_sweep <= now {
            self.next_sweep = now.plus(SWEEP_EVERY);
            self.remove_where(|entry| !entry.holds(now));
        }
    }

    fn remove_where(&self, wanted: impl Fn(&NearEntry) -> bool) {
        if self.len() == 0 {
            return;
        }
        let found: Vec<u64> = { self.view.near.iter() }
            .filter(|entry| wanted(entry.value()))
            .map(|entry| *entry.key())
            .collect();
        found.into_iter().for_each(|one| self.remove(one));
    }

    fn remove(&self, fingerprint: u64) {
        self.view.near.remove(&fingerprint);
        self.view.near_len.fetch_sub(1, Ordering::Relaxed);
        self.view.filter.remove(fingerprint);
    }
}

#[cfg(test)]
mod tests;
