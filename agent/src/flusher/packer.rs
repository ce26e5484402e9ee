//! The packer: events become batches, in one queue for each partition.
//!
//! ```text
//! api.search acme 12:00:00.000100   ┐ one entry, 2 copies ┐
//! api.search acme 12:00:00.000100   ┘                     ├ batch of partition 3
//! api.search beta 12:00:00.000200     one entry           ┘
//! api.search gone refused, refused    one entry of refused calls, ten times a second
//! ```
//!
//! A partition queue with an urgent call hands its batch over at once while few of its batches are in flight, so that
//! the hit is in the log as soon as possible. The more are in flight, the longer the queue gathers, so that a busy
//! queue costs less per hit. A queue without an urgent call waits, and all waiting queues hand over together, because
//! waking the network thread and the aggregator costs most; while the agent is busy, so do queues whose calls may wait
//! shortly. Knows nothing of threads and sockets, nor of what makes a call urgent. What stays true: bytes in queues and
//! in flight are bounded; at the bound the newest entry is dropped, and counted.

mod refused;

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use tollgate_shared::names::{partition_of_pair, partition_of_resource};
use tollgate_shared::time::{Span, Timestamp};
use tollgate_shared::wire::hits::HitKind;

use super::partition_queue::PartitionQueue;
use crate::batch::calls::{CallBatch, Calls, RefusedSum};
use crate::clock::Mono;
use crate::guard::Guards;
use crate::recorder::{Happened, RecorderEvent};
use crate::resource::{IGNORED, NO_RESOURCE, Resource, ResourceId, Resources};
use crate::urgency::{Urgency, Wait};
use refused::{REFUSED_EVERY, RefusedSums};

/// How long calls wait that may wait shortly, while the agent is busy.
const SHORTLY: Span = Span::from_millis(5);

/// How many calls the packer dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) hits: u64,
    pub(crate) refused: u64,
}

/// When urgent calls were last taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UrgentAt {
    /// One that may not wait at all.
    pub(super) at_once: Option<Mono>,
    /// One that may wait shortly.
    pub(super) shortly: Option<Mono>,
}

/// The packer.
#[derive(Debug)]
pub(crate) struct Packer {
    resources: Arc<Resources>,
    /// The resources seen so far, by number, because looking one up takes a lock.
    met: Vec<Arc<Resource>>,
    urgency: Arc<Urgency>,
    /// Since when something that is not urgent waits, at most.
    waits_since: Option<Mono>,
    urgent: UrgentAt,
    /// Since when calls wait that may wait shortly, at most.
    shortly_since: Option<Mono>,
    /// Whether the agent has many calls.
    is_busy: bool,
    /// `None` while the number is unknown: then all entries wait in one queue.
    partitions: Option<u32>,
    queues: Vec<PartitionQueue>,
    next_queue: usize,
    bytes_max: usize,
    /// Bytes in full batches of all queues.
    full_bytes: usize,
    handed_over_bytes: Arc<AtomicUsize>,
    refused: RefusedSums,
    refused_since: Option<Mono>,
    hash: RandomState,
    dropped: Dropped,
    /// Which partitions have a current watermark.
    guards: Guards,
    /// Whether the kill switch is on.
    is_killed: bool,
    /// No call in the recorder was made before this instant.
    since: Mono,
    /// Calls that were packed as unguarded.
    unguarded: u64,
}

impl Packer {
    pub(crate) fn new(resources: Arc<Resources>, urgency: Arc<Urgency>, bytes_max: usize) -> Self {
        let mut packer = Self {
            resources,
            met: Vec::new(),
            urgency,
            waits_since: None,
            urgent: UrgentAt::default(),
            shortly_since: None,
            is_busy: false,
            partitions: None,
            queues: Vec::new(),
            next_queue: 0,
            bytes_max,
            full_bytes: 0,
            handed_over_bytes: Arc::default(),
            refused: RefusedSums::default(),
            refused_since: None,
            hash: RandomState::default(),
            dropped: Dropped::default(),
            guards: Guards::default(),
            is_killed: false,
            since: Mono::ZERO,
            unguarded: 0,
        };
        packer.make_queues(1);
        packer
    }

    /// What was dropped since the last call of this function.
    pub(crate) fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.dropped)
    }

    /// Calls packed as unguarded since the last call of this function.
    pub(crate) fn take_unguarded(&mut self) -> u64 {
        std::mem::take(&mut self.unguarded)
    }

    /// Sets by what the next calls are marked as unguarded. None of them was made before `since`, whatever its stamp
    /// is: the wall clock may have been put forward after it.
    pub(crate) fn guard_by(&mut self, guards: Guards, is_killed: bool, since: Mono) {
        (self.guards, self.is_killed, self.since) = (guards, is_killed, since);
    }

    /// Sets whether the agent has many calls: then some wait shortly, to travel together.
    pub(super) fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Packs an event; `now` and `wall` are one instant.
    pub(crate) fn take(&mut self, event: &RecorderEvent<'_>, now: Mono, wall: Timestamp) {
        // A resource beyond the bound has no number, and is not in the registry.
        if event.resource == NO_RESOURCE {
            match event.happened {
                Happened::Refused { .. } => self.dropped.refused += 1,
                _ => self.dropped.hits += 1,
            }
            return;
        }
        let (copies, min, kind, unguarded) = match event.happened {
            Happened::Hit {
                copies,
                min,
                unguarded,
            } => (copies, min, HitKind::Hit, unguarded),
            Happened::Estimate { copies, unguarded } => {
                (copies, None, HitKind::Estimate, unguarded)
            }
            Happened::Charge { copies } => (copies, None, HitKind::Charge, false),
            Happened::Refund {
                estimated,
                actual,
                made,
            } => {
                let kind = HitKind::Refund {
                    made,
                    estimated,
                    actual,
                };
                (estimated.saturating_sub(actual), None, kind, false)
            }
            Happened::Refused {
                copies,
                cause,
                position,
            } => {
                let sum = RefusedSum {
                    calls: 1,
                    copies: u64::from(copies),
                    first: event.at,
                    last: event.at,
                    cause,
                    position,
                };
                self.take_refused(event.resource, event.domain, sum, now);
                return;
            }
        };
        if self.is_at_bound() {
            self.dropped.hits += 1;
            return;
        }
        let index = self.queue_of_hit(event.resource, event.domain);
        let made = now.0.saturating_sub(wall.since(event.at).as_micros());
        let made = Mono(made).max(self.since);
        let unguarded = unguarded || self.is_unguarded(event.resource, index, made);
        self.unguarded += u64::from(unguarded);
        let wait = self.wait_of(event, (copies, kind), now);
        let calls = Calls {
            resource: event.resource,
            domain: event.domain,
            at: event.at,
            copies,
            calls: 1,
            min,
            kind,
            unguarded,
        };
        self.put(&calls, index, wait, now);
    }

    /// How long a call may wait. A refund may: until then too much counts, as the estimate intends.
    fn wait_of(
        &mut self,
        event: &RecorderEvent<'_>,
        (copies, kind): (u32, HitKind),
        now: Mono,
    ) -> Wait {
        if matches!(kind, HitKind::Refund { .. }) {
            return Wait::Relaxed;
        }
        let resource = self.met.get(event.resource.0 as usize);
        let urgency = &self.urgency;
        let wait = resource.map_or(Wait::Not, |resource| {
            urgency.take(resource, event.domain, copies, now)
        });
        match wait {
            Wait::Not => self.urgent.at_once = Some(now),
            Wait::Shortly => self.urgent.shortly = Some(now),
            Wait::Relaxed => {}
        }
        wait
    }

    /// Whether calls wait that may wait shortly.
    pub(super) fn waits_shortly(&self) -> bool {
        self.shortly_since.is_some()
    }

    /// When urgent calls were last taken.
    pub(super) fn urgent(&self) -> UrgentAt {
        self.urgent
    }

    /// Whether something should go, and could not: too much is in flight.
    pub(crate) fn is_held_up(&self) -> bool {
        let is_due = |queue: &PartitionQueue| {
            !queue.full.is_empty() || (queue.is_urgent && !queue.open.is_empty())
        };
        self.partitions.is_some() && self.queues.iter().any(is_due)
    }

    /// Whether nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.queues.iter().all(PartitionQueue::is_empty)
    }

    /// Whether no aggregator could have denied the call in time, or denials were ignored. The switches are read now,
    /// some milliseconds after the call: a denied call that they let through was marked at the call itself.
    fn is_unguarded(&self, resource: ResourceId, partition: usize, made: Mono) -> bool {
        let is_ignored = || {
            let resource = self.met.get(resource.0 as usize);
            resource.is_some_and(|one| one.flags() & IGNORED != 0)
        };
        self.partitions.is_none()
            || self.is_killed
            || !self.guards.is_guarded(partition, made)
            || is_ignored()
    }

    fn is_at_bound(&self) -> bool {
        let open: usize = if self.partitions.is_none() {
            self.queues.first().map_or(0, |queue| queue.open.bytes())
        } else {
            // Open batches are bounded by their number.
            0
        };
        self.bytes_max <= open + self.full_bytes + self.handed_over_bytes.load(Ordering::Relaxed)
    }

    fn put(&mut self, calls: &Calls<'_>, index: usize, wait: Wait, now: Mono) {
        let hash = self.hash_of(calls);
        let Some(queue) = self.queues.get_mut(index) else {
            self.dropped.hits += u64::from(calls.calls);
            return;
        };
        if queue.open.is_empty() {
            queue.opened = now;
        }
        match wait {
            Wait::Shortly if self.is_busy => {
                queue.waits_shortly = true;
                self.shortly_since.get_or_insert(self.since);
            }
            Wait::Not | Wait::Shortly => queue.is_urgent = true,
            Wait::Relaxed => {}
        }
        if !queue.is_urgent {
            // Made after the last visit. So what is found after a rest of that length waits no longer.
            self.waits_since.get_or_insert(self.since);
        }
        let merges = calls.may_merge();
        if merges
            && let Some(number) = queue.index.get(&hash)
            && queue.open.merge(*number, calls)
        {
            return;
        }
        let number = queue.open.push(calls);
        if merges {
            queue.index.insert(hash, number);
        }
        self.close_if_full(index);
    }

    fn hash_of(&self, calls: &Calls<'_>) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u32(calls.resource.0);
        hasher.write_u64(calls.at.as_micros());
        hasher.write_u32(calls.copies);
        let kind = match calls.kind {
            HitKind::Hit => 0,
            HitKind::Charge => 2,
            HitKind::Estimate => 4,
            HitKind::Refund { .. } => 6,
        };
        hasher.write_u8(u8::from(calls.unguarded) | kind);
        hasher.write(calls.domain.as_bytes());
        hasher.finish()
    }

    /// Hits belong to their pair's partition, also if the resource is used as one of copies: the log refuses a batch
    /// with a hit of another partition, with all other hits in it.
    fn queue_of_hit(&mut self, resource: ResourceId, domain: &str) -> usize {
        let Some(partitions) = self.partitions else {
            return 0;
        };
        let name = self.resource(resource).map_or("", |one| &*one.name);
        partition_of_pair(name, domain, partitions) as usize
    }

    /// Refused calls are counted where the resource or its pairs are ruled.
    fn queue_of_refused(&mut self, resource: ResourceId, domain: &str) -> usize {
        match (self.partitions, self.resource(resource)) {
            (Some(partitions), Some(one)) if one.is_of_copies() => {
                partition_of_resource(&one.name, partitions) as usize
            }
            _ => self.queue_of_hit(resource, domain),
        }
    }

    fn resource(&mut self, resource: ResourceId) -> Option<&Resource> {
        if self.met.len() <= resource.0 as usize {
            self.resources.add_newer(&mut self.met);
        }
        self.met.get(resource.0 as usize).map(|one| &**one)
    }

    fn close_if_full(&mut self, index: usize) {
        // While partitions are unknown, nothing can be sent: the one queue grows up to the bound.
        if self.partitions.is_none() {
            return;
        }
        let Some(queue) = self
            .queues
            .get_mut(index)
            .filter(|queue| queue.open.is_full())
        else {
            return;
        };
        let batch = queue.close();
        let bytes = batch.bytes();
        queue.full.push_back(batch);
        self.full_bytes += bytes;
    }

    /// Sets the number of partitions, and moves waiting entries to their partitions.
    pub(crate) fn set_partitions(&mut self, partitions: u32, now: Mono) {
        if partitions == 0 || self.partitions == Some(partitions) {
            return;
        }
        self.partitions = Some(partitions);
        let old = std::mem::take(&mut self.queues);
        self.full_bytes = 0;
        self.make_queues(partitions);
        for queue in old {
            for batch in queue.full.into_iter().chain([queue.open]) {
                self.put_again(&batch, now);
            }
        }
        // The entries have waited for long already.
        self.waits_since = Some(Mono::ZERO);
    }

    fn put_again(&mut self, batch: &CallBatch, now: Mono) {
        for calls in batch.entries() {
            let index = self.queue_of_hit(calls.resource, calls.domain);
            self.put(&calls, index, Wait::Relaxed, now);
        }
        for (resource, domain, sum) in batch.refused() {
            self.put_sum(resource, domain, sum, now);
        }
    }

    fn make_queues(&mut self, count: u32) {
        let bytes = &self.handed_over_bytes;
        self.queues = (0..count)
            .map(|partition| PartitionQueue::new(partition, self.hash.clone(), Arc::clone(bytes)))
            .collect();
        self.next_queue = 0;
    }

    /// The next batch that should go now; `last` empties everything, however much is in flight.
    pub(crate) fn next(&mut self, now: Mono, last: bool) -> Option<CallBatch> {
        self.partitions?;
        let is_over = |since: Option<Mono>, wait: Span| {
            since.is_some_and(|since| last || wait <= now.since(since))
        };
        let refused_are_due = is_over(self.refused_since, REFUSED_EVERY);
        if refused_are_due {
            self.put_refused(now);
        }
        if refused_are_due || is_over(self.waits_since, self.urgency.relaxed()) {
            // All together, so that the network thread and the aggregator are woken once.
            self.waits_since = None;
            for queue in &mut self.queues {
                queue.is_urgent = !queue.open.is_empty();
            }
        }
        if self.shortly_since.is_some() && (!self.is_busy || is_over(self.shortly_since, SHORTLY)) {
            self.shortly_since = None;
            for queue in &mut self.queues {
                queue.is_urgent |= std::mem::take(&mut queue.waits_shortly);
            }
        }
        let queues = self.queues.len();
        for step in 0..queues {
            let index = (self.next_queue + step) % queues;
            let Some(queue) = self.queues.get_mut(index) else {
                continue;
            };
            let Some(mut batch) = queue.next(now, last) else {
                continue;
            };
            if batch.is_full() {
                self.full_bytes = self.full_bytes.saturating_sub(batch.bytes());
            }
            batch.handed_over(&queue.loads);
            self.next_queue = index + 1;
            return Some(batch);
        }
        None
    }

    /// Whether the number of partitions is known. Until then entries can only wait.
    pub(crate) fn knows_where_to(&self) -> bool {
        self.partitions.is_some()
    }

    /// Takes back a batch that could not be handed over.
    pub(crate) fn take_back(&mut self, mut batch: CallBatch) {
        batch.taken_back();
        if let Some(queue) = self.queues.get_mut(batch.partition as usize) {
            self.full_bytes += if batch.is_full() { batch.bytes() } else { 0 };
            queue.full.push_front(batch);
        }
    }

    /// Gives up everything, at the agent's end; it counts as dropped.
    pub(crate) fn give_up(&mut self) {
        for queue in &mut self.queues {
            for batch in queue
                .full
                .drain(..)
                .chain([std::mem::take(&mut queue.open)])
            {
                self.dropped.hits += batch.hits;
                self.dropped.refused += batch.refused_calls;
            }
        }
        self.dropped.refused += std::mem::take(&mut self.refused).calls();
    }
}

#[cfg(test)]
#[path = "packer/busy_tests.rs"]
mod busy_tests;
#[cfg(test)]
#[path = "packer_tests.rs"]
mod tests;
