//! The hold session: what this agent holds, and everything that it sends to the log about it.
//!
//! ```text
//! hold 7      operation in the next record; in the list or digest of every heartbeat from then on
//! reserve 8   operation; every heartbeat names it as awaited until its verdict arrives
//! release 7   operation; in no heartbeat any more, so that the next list corrects a lost one
//! ```
//!
//! Operations of a partition are sent in the order in which they were done, and a heartbeat is sent only when no
//! operation waits before it: so a heartbeat is true at its sequence. While the log accepts nothing, heartbeats do
//! not pile up. A record that was sent again or refused may have been overtaken, and an overtaken record is never
//! applied: so everything is listed soon after.
//!
//! A state machine: it knows no socket and no clock. What stays true: a number is used once; operations that wait are
//! bounded, and at the bound the next list replaces them.

#[cfg(test)]
mod bench;
mod entry;
mod heartbeats;
mod origin;
mod verdicts;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_shared::log_position::LogId;
use tollgate_shared::names::partition_of_resource;
use tollgate_shared::time::Span;
use tollgate_shared::wire::heartbeat::HeartbeatHead;

use entry::{HeldResource, KeptHold, Stands};
pub(crate) use origin::Origin;

use super::news::OnHold;
use super::notice::{HoldAnswer, HoldNotice, HoldStanding, NoticeKind, RareNotice};
use super::revoked::RevokedHolds;
use crate::batch::Payload;
use crate::batch::holds::{Heartbeat, HoldAct, HoldOps, Operation};
use crate::clock::Mono;
use crate::courier::UnderWay;
use crate::resource::{Resource, ResourceId, Resources};
use crate::stats::Counters;

/// The most operations that may wait for the log in one partition: some megabytes.
const OPERATIONS_MAX: usize = 65_536;

/// Bytes of a record of operations, as of one of hits.
const RECORD_BYTES: usize = 64 * 1024;

/// With this many records of operations and heartbeats in flight in a partition, no more are sent.
const EAGER: usize = 4;

/// How soon a list follows a possible loss: not at once, since more may be lost with it.
const HEAL_AFTER: Span = Span::from_millis(100);

/// The hold session of one agent.
#[derive(Debug)]
pub(crate) struct HoldSession {
    origin: Origin,
    resources: Arc<Resources>,
    counters: Arc<Counters>,
    revoked: Arc<RevokedHolds>,
    on_hold: Option<OnHold>,
    /// 0 while unknown.
    partitions: u32,
    held: BTreeMap<ResourceId, HeldResource>,
    queues: BTreeMap<u32, SessionQueue>,
    /// How often limits had changed at the last look.
    limits_changes: u64,
    /// The epoch is over: nothing more is sent.
    ended: bool,
}

/// One partition's queue.
#[derive(Debug, Default)]
struct SessionQueue {
    operations: VecDeque<Operation>,
    /// When the next heartbeat is due; `None` if nothing is held and no heartbeat is owed.
    heartbeat_at: Option<Mono>,
    /// A heartbeat is due although nothing is held.
    owed: bool,
    /// Whether anything was ever sent there.
    used: bool,
    /// How many records were acknowledged at the last look.
    acknowledged: u64,
    /// When a record was last acknowledged, or there was nothing to send.
    acknowledged_at: Option<Mono>,
    /// The partition's log, if known.
    log: Option<LogId>,
}

impl HoldSession {
    pub(crate) fn new(
        origin: Origin,
        resources: Arc<Resources>,
        counters: Arc<Counters>,
        revoked: Arc<RevokedHolds>,
        on_hold: Option<OnHold>,
    ) -> Self {
        Self {
            origin,
            resources,
            counters,
            revoked,
            on_hold,
            partitions: 0,
            held: BTreeMap::new(),
            queues: BTreeMap::new(),
            limits_changes: 0,
            ended: false,
        }
    }

    /// Applies notices, in their order.
    pub(crate) fn take(&mut self, notices: Vec<HoldNotice>, now: Mono) {
        Counters::add(&self.counters.hold_operations, notices.len() as u64);
        for notice in notices {
            self.take_one(notice, now);
        }
        self.tell_live();
    }

    fn tell_live(&self) {
        let live: usize = self.held.values().map(|held| held.holds.len()).sum();
        self.counters
            .holds_live
            .store(live as u64, Ordering::Relaxed);
    }

    fn take_one(&mut self, notice: HoldNotice, now: Mono) {
        let number = notice.number;
        let Some(what) = self.revoked.take(number, notice.what) else {
            return;
        };
        let Some(held) = self.held(notice.resource, now) else {
            return;
        };
        let act = match what {
            NoticeKind::Hold { domain, copies } => {
                let kept = KeptHold {
                    domain: Arc::clone(&domain),
                    copies,
                    start: notice.at,
                    ..KeptHold::new(Stands::InUse, now)
                };
                held.put(number, kept);
                HoldAct::Hold { domain, copies }
            }
            // A hold that was never granted has nothing to give back.
            NoticeKind::Release { copies } if !held.lessen(number, copies) => return,
            NoticeKind::Release { copies } => HoldAct::Release { copies },
            NoticeKind::Cancel if held.remove(number).is_none() => return,
            NoticeKind::Cancel => HoldAct::Cancel,
            NoticeKind::Rare(rare) => match Self::take_rare(held, number, *rare, notice.at, now) {
                Some(act) => act,
                None => return,
            },
        };
        let partition = held.partition;
        let operation = Operation {
            resource: notice.resource,
            number,
            at: notice.at,
            act,
        };
        self.queue(partition, operation, now);
    }

    /// Applies a rare operation. Returns what to send to the log.
    fn take_rare(
        held: &mut HeldResource,
        number: u64,
        rare: RareNotice,
        at: tollgate_shared::time::Timestamp,
        now: Mono,
    ) -> Option<HoldAct> {
        match rare {
            RareNotice::Reserve {
                domain,
                copies,
                min,
                answer,
            } => {
                let kept = KeptHold {
                    domain: Arc::clone(&domain),
                    copies,
                    start: at,
                    strict: true,
                    ..KeptHold::new(Stands::Awaited(answer), now)
                };
                held.put(number, kept);
                Some(HoldAct::Reserve {
                    domain,
                    copies,
                    min,
                })
            }
            RareNotice::Seize { from, answer } => {
                let kept = KeptHold {
                    start: at,
                    seized: Some(from),
                    ..KeptHold::new(Stands::Awaited(answer), now)
                };
                held.put(number, kept);
                Some(HoldAct::Seize { from })
            }
            RareNotice::Transfer { copies, to, ttl } => held
                .lessen(number, copies)
                .then_some(HoldAct::Transfer { copies, to, ttl }),
            RareNotice::Confirm { answer } => {
                // If the hold is unknown, the sender is dropped, which answers the caller.
                let kept = held.holds.get_mut(&number)?;
                match kept.standing() {
                    Some(standing) => drop(answer.send(standing)),
                    None => KeptHold::wait(&mut kept.confirm, answer),
                }
                None
            }
            RareNotice::Watch { answer } => {
                let gives_back = held.resource.gives_back();
                let kept = held.holds.get_mut(&number)?;
                match kept.standing() {
                    Some(standing @ HoldStanding::Excess(..)) if gives_back => {
                        drop(answer.send(standing))
                    }
                    _ => KeptHold::wait(&mut kept.watch, answer),
                }
                None
            }
        }
    }

    /// The holds of a resource. `None` if there is no such resource.
    fn held(&mut self, id: ResourceId, now: Mono) -> Option<&mut HeldResource> {
        if !self.held.contains_key(&id) {
            let resource = self.resources.by_id(id)?;
            self.use_resource(&resource, now);
        }
        self.held.get_mut(&id)
    }

    /// The agent uses a resource: what its predecessor held of it is over.
    pub(crate) fn use_resource(&mut self, resource: &Arc<Resource>, now: Mono) {
        if self.held.contains_key(&resource.id) {
            return;
        }
        let partition = self.partition_of(resource);
        let revoked = Arc::clone(&self.revoked);
        let held = HeldResource::new(Arc::clone(resource), partition, revoked);
        self.held.insert(resource.id, held);
        if self.origin.replaces.is_some() {
            let queue = self.queues.entry(partition).or_default();
            (queue.owed, queue.heartbeat_at) = (true, Some(now));
        }
    }

    fn partition_of(&self, resource: &Resource) -> u32 {
        partition_of_resource(&resource.name, self.partitions)
    }

    fn queue(&mut self, partition: u32, operation: Operation, now: Mono) {
        let queue = self.queues.entry(partition).or_default();
        if OPERATIONS_MAX <= queue.operations.len() {
            return self.overflow(partition, operation, now);
        }
        queue.operations.push_back(operation);
        // An operation that is overtaken on its way is not ruled, and no verdict states that. A heartbeat after it
        // shows whether both sides count the same, even if nothing is held any more by then.
        queue.owed = true;
        if queue.heartbeat_at.is_none() {
            let at = now.plus(self.heartbeat_every(partition));
            self.queues.entry(partition).or_default().heartbeat_at = Some(at);
        }
    }

    /// Too much waits: all of it is dropped, and the next list states what is held.
    fn overflow(&mut self, partition: u32, last: Operation, now: Mono) {
        let Some(queue) = self.queues.get_mut(&partition) else {
            return;
        };
        let lost: Vec<Operation> = queue.operations.drain(..).chain([last]).collect();
        Counters::add(&self.counters.hold_operations_dropped, lost.len() as u64);
        for operation in lost {
            let awaited = matches!(
                operation.act,
                HoldAct::Reserve { .. } | HoldAct::Seize { .. }
            );
            if awaited && let Some(held) = self.held.get_mut(&operation.resource) {
                Self::not_granted(held, operation.number, HoldAnswer::Lost);
            }
        }
        self.heal(partition, now);
    }

    /// Sets the number of partitions, and moves waiting operations to their partitions. These are those of another log.
    pub(crate) fn set_partitions(&mut self, partitions: u32, now: Mono) {
        if partitions == 0 || partitions == self.partitions {
            return;
        }
        self.partitions = partitions;
        let queues = std::mem::take(&mut self.queues);
        for held in self.held.values_mut() {
            held.partition = partition_of_resource(&held.resource.name, partitions);
            held.list_wanted = true;
            held.forget_positions();
            held.doubt(now);
            let queue = self.queues.entry(held.partition).or_default();
            (queue.owed, queue.heartbeat_at) = (self.origin.replaces.is_some(), Some(now));
        }
        for operation in queues.into_values().flat_map(|queue| queue.operations) {
            if let Some(partition) = self.held.get(&operation.resource).map(|one| one.partition) {
                self.queue(partition, operation, now);
            }
        }
    }

    /// Sets the log of each partition. Another log does not count what was sent to the one before, and log positions
    /// of the two cannot be compared.
    pub(crate) fn know_logs(&mut self, log_of: impl Fn(u32) -> Option<LogId>, now: Mono) {
        let mut changed = Vec::new();
        for (partition, queue) in &mut self.queues {
            if let Some(log) = log_of(*partition)
                && queue.log != Some(log)
                && queue.log.replace(log).is_some()
            {
                changed.push(*partition);
            }
        }
        for partition in changed {
            let held = self.held.values_mut();
            for held in held.filter(|held| held.partition == partition) {
                held.forget_positions();
                held.doubt(now);
            }
            self.heal(partition, now);
        }
    }

    /// A record of this partition may have been lost or overtaken.
    pub(crate) fn heal(&mut self, partition: u32, now: Mono) {
        for held in self.held.values_mut() {
            held.list_wanted |= held.partition == partition;
        }
        self.heartbeat_by(partition, now.plus(HEAL_AFTER));
    }

    /// Makes a heartbeat due at this instant, even if nothing is held.
    fn heartbeat_by(&mut self, partition: u32, at: Mono) {
        let queue = self.queues.entry(partition).or_default();
        queue.owed = true;
        queue.heartbeat_at = Some(queue.heartbeat_at.map_or(at, |before| before.min(at)));
    }

    /// What to send now, given what is in flight in a partition.
    pub(crate) fn next(&mut self, now: Mono, under_way: impl Fn(u32) -> UnderWay) -> Vec<Payload> {
        if self.partitions == 0 || self.ended {
            return Vec::new();
        }
        self.heartbeats_in_time(now);
        let mut payloads = Vec::new();
        let partitions: Vec<u32> = self.queues.keys().copied().collect();
        for partition in partitions {
            let under_way = under_way(partition);
            self.look_for_silence(partition, under_way, now);
            let room = EAGER.saturating_sub(under_way.holdings);
            let sent = self.send_operations(partition, room, &mut payloads);
            if sent < room {
                self.heartbeat_if_due(partition, now, &mut payloads);
            }
        }
        payloads
    }

    /// After a long silence ruling aggregators may have counted this agent as gone. They then count its holds again
    /// as soon as they receive a record of it, and the verdicts of that may be lost. They receive its records at
    /// about the time of their acknowledgement: so a slow but steady log is no silence.
    fn look_for_silence(&mut self, partition: u32, under_way: UnderWay, now: Mono) {
        let Some(queue) = self.queues.get_mut(&partition) else {
            return;
        };
        let is_idle = under_way.holdings == 0 && queue.heartbeat_at.is_none();
        if !is_idle && queue.acknowledged == under_way.acknowledged {
            return;
        }
        queue.acknowledged = under_way.acknowledged;
        let before = queue.acknowledged_at.replace(now);
        let silence = before.map_or(Span::ZERO, |before| now.since(before));
        // Nearly always: an idle agent passes here on each turn.
        if silence < entry::SILENCE_MIN {
            return;
        }
        let held = self.held.values_mut();
        for held in held.filter(|held| held.partition == partition && held.may_be_gone(silence)) {
            held.doubt(now);
        }
    }

    fn send_operations(&mut self, partition: u32, room: usize, out: &mut Vec<Payload>) -> usize {
        let Some(queue) = self.queues.get_mut(&partition) else {
            return 0;
        };
        let mut sent = 0;
        while sent < room && !queue.operations.is_empty() {
            let mut payload = HoldOps::new(partition);
            while payload.bytes() < RECORD_BYTES && payload.resources() < heartbeats::RESOURCES_MAX
            {
                let Some(operation) = queue.operations.pop_front() else {
                    break;
                };
                if let Some(held) = self.held.get(&operation.resource) {
                    payload.push(&held.resource.name, operation);
                }
            }
            if !payload.is_empty() {
                queue.used = true;
                sent += 1;
                out.push(Payload::Holds(payload));
            }
        }
        sent
    }

    /// Every tracked hold: resource, number, domain, copies, whether they are in use.
    #[cfg(feature = "testing")]
    pub(crate) fn kept(&self) -> impl Iterator<Item = (&str, u64, &str, u32, bool)> {
        self.held.values().flat_map(|held| {
            let name = &*held.resource.name;
            let holds = held.holds.iter();
            holds.map(move |(number, kept)| {
                (name, *number, &*kept.domain, kept.copies, kept.in_use())
            })
        })
    }

    /// Whether the number of partitions is known. Until then operations can only wait.
    pub(crate) fn knows_where_to(&self) -> bool {
        self.partitions != 0
    }

    /// Operations that wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.queues
            .values()
            .map(|queue| queue.operations.len())
            .sum()
    }

    /// Whether nothing waits here, and no heartbeat is planned.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle =
            |queue: &SessionQueue| queue.operations.is_empty() && queue.heartbeat_at.is_none();
        self.queues.values().all(is_idle)
    }

    /// The epoch is over: everything is given back, after the operations that wait.
    pub(crate) fn end(&mut self) -> Vec<Payload> {
        let mut payloads = Vec::new();
        if self.partitions == 0 {
            return payloads;
        }
        let partitions: Vec<u32> = self.queues.keys().copied().collect();
        for partition in partitions {
            self.send_operations(partition, usize::MAX, &mut payloads);
            if self.queues.get(&partition).is_some_and(|queue| queue.used) {
                let head = HeartbeatHead {
                    replaces: self.origin.replaces,
                    more: false,
                    last: true,
                };
                payloads.push(Payload::Heartbeat(Heartbeat {
                    partition,
                    head,
                    parts: Vec::new(),
                }));
            }
        }
        self.held.clear();
        self.queues.clear();
        self.ended = true;
        self.tell_live();
        payloads
    }
}

#[cfg(test)]
mod standing_tests;
#[cfg(test)]
mod tests;
