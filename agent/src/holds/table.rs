//! The hold table: calls take copies here and give them back, and the flusher collects their notices.
//!
//! ```text
//! reserve, drop ──> shard of the pair { what each pair holds here, notices } ── sweep ──> flusher ──> hold session
//! ```
//!
//! A shard is a lock over two small tables, and no thread waits for anything while it has the lock: calls look up one
//! number and write one notice; the flusher takes all notices in one exchange. The network thread never uses the
//! table while the agent runs.
//!
//! Notices are stamped under the lock, from one counter, and a sweep takes those that were stamped before it began:
//! so a release is always sent before any hold that was taken after it, on any thread. Otherwise a domain at its
//! limit would now and then seem to have too much.
//!
//! What stays true: holds, pairs and notices are bounded; at the bound copies are granted without being recorded, and
//! counted. A shard with more pairs than it may remember has no idle pair. Giving back a recorded hold is always
//! recorded; the number of holds bounds these notices.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_shared::time::Timestamp;

use super::notice::{HoldNotice, NoticeKind, RareNotice};
use crate::deny::Unhashed;
use crate::resource::{NO_RESOURCE, Resource, ResourceId};

/// The number of locks. With as many threads as a machine has cores two seldom meet.
const SHARDS: usize = 64;

/// The most notices of one shard that may wait for the flusher, apart from those that give back a recorded hold: some
/// milliseconds of as many calls as one core can make.
const WORDS_MAX: usize = 8_192;

/// The least number of pairs that each shard remembers while nothing is held of them: about 100 bytes each, so that a
/// domain that returns soon allocates nothing, however few holds may be recorded.
const PAIRS_MIN: usize = 16;

/// The most recorded holds of one agent, unless its builder sets another number.
pub(crate) const HOLDS_MAX: usize = 1 << 18;

/// The hold table of one agent.
#[derive(Debug)]
pub(crate) struct HoldTable {
    shards: Box<[TableShard]>,
    /// The last stamp; stamps of holds are their numbers.
    order: AtomicU64,
    /// Recorded holds that are not over.
    live: AtomicUsize,
    holds_max: usize,
    /// Pairs of one shard beyond which only pairs with holds are kept.
    pairs_idle_max: usize,
    /// Pairs beyond that, in all shards; at most as many as holds. Their distribution over shards is random.
    pairs_beyond: AtomicUsize,
    unrecorded: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct TableShard {
    /// Whether notices may be waiting. Set before a notice is stamped.
    busy: AtomicBool,
    table: Mutex<ShardTable>,
}

#[derive(Debug, Default)]
struct ShardTable {
    pairs: HashMap<u64, HeldPair, BuildHasherDefault<Unhashed>>,
    notices: Vec<HoldNotice>,
    closed: bool,
}

/// One domain's use of a resource, in this process.
#[derive(Debug)]
struct HeldPair {
    resource: ResourceId,
    domain: Arc<str>,
    /// Copies.
    held: u64,
}

/// Identifies a hold in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) resource: ResourceId,
    pub(crate) fingerprint: u64,
    /// 0: the hold is not recorded.
    pub(crate) number: u64,
    /// Whether its pair's sum includes it.
    summed: bool,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// These copies are taken.
    Copies(Ticket, u32),
    /// The domain's limit has too little left.
    Full,
}

/// What a call wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedCopies<'a> {
    pub(crate) fingerprint: u64,
    pub(crate) domain: &'a str,
    pub(crate) max: u32,
    pub(crate) min: u32,
    /// The most copies that the domain may have, if known.
    pub(crate) limit: Option<u64>,
    pub(crate) at: Timestamp,
}

impl WantedCopies<'_> {
    /// How much of it there is room for, if this many copies are held; `None` if that is less than the minimum.
    #[inline]
    pub(crate) fn fits_beside(&self, held: u64) -> Option<u32> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let room = u32::try_from(limit.saturating_sub(held)).unwrap_or(u32::MAX);
        let copies = self.max.min(room);
        (self.min.max(1) <= copies).then_some(copies)
    }
}

impl HoldTable {
    pub(crate) fn new(holds_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| TableShard::default()).collect(),
            order: AtomicU64::new(0),
            live: AtomicUsize::new(0),
            holds_max,
            pairs_idle_max: holds_max.div_ceil(SHARDS).max(PAIRS_MIN),
            pairs_beyond: AtomicUsize::new(0),
            unrecorded: AtomicU64::new(0),
        }
    }

    /// Takes copies that are in use from now on.
    #[inline]
    pub(crate) fn take(&self, resource: &Resource, wanted: &WantedCopies<'_>) -> Taken {
        let Some(shard) = self.shard(wanted.fingerprint) else {
            return Taken::Full;
        };
        let mut table = shard.lock();
        let known = self.pair(&mut table, resource, wanted);
        let held = known.as_ref().map_or(0, |pair| pair.held);
        let Some(copies) = wanted.fits_beside(held) else {
            if held == 0 {
                self.let_go(&mut table, wanted.fingerprint);
            }
            return Taken::Full;
        };
        let mut ticket = Ticket {
            resource: resource.id,
            fingerprint: wanted.fingerprint,
            number: 0,
            summed: false,
        };
        let domain = known.map(|pair| {
            pair.held = pair.held.saturating_add(u64::from(copies));
            ticket.summed = true;
            Arc::clone(&pair.domain)
        });
        let has_room = self.has_room() && table.notices.len() < WORDS_MAX && !table.closed;
        let recorded = domain.filter(|_| has_room);
        let Some(domain) = recorded.filter(|_| resource.id != NO_RESOURCE) else {
            drop(table);
            self.unrecorded.fetch_add(1, Ordering::Relaxed);
            return Taken::Copies(ticket, copies);
        };
        self.live.fetch_add(1, Ordering::Relaxed);
        ticket.number = self.write(shard, &mut table, resource.id, None, wanted.at, || {
            NoticeKind::Hold { domain, copies }
        });
        Taken::Copies(ticket, copies)
    }

    /// Begins a hold whose copies are not in use yet; `None` if there is no room to record it.
    pub(crate) fn begin(
        &self,
        resource: &Resource,
        fingerprint: u64,
        at: Timestamp,
        rare: RareNotice,
    ) -> Option<Ticket> {
        let shard = self.shard(fingerprint)?;
        let mut table = shard.lock();
        let has_room = self.has_room() && table.notices.len() < WORDS_MAX && !table.closed;
        if !has_room || resource.id == NO_RESOURCE {
            return None;
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        let number = self.write(shard, &mut table, resource.id, None, at, || {
            NoticeKind::Rare(Box::new(rare))
        });
        Some(Ticket {
            resource: resource.id,
            fingerprint,
            number,
            summed: false,
        })
    }

    /// Copies that were granted to a hold that was begun are in use from now on. Their domain may be known only now.
    pub(crate) fn sum(&self, resource: &Resource, ticket: &mut Ticket, domain: &str, copies: u32) {
        ticket.fingerprint = resource.fingerprint(domain);
        let Some(shard) = self.shard(ticket.fingerprint) else {
            return;
        };
        let wanted = WantedCopies {
            fingerprint: ticket.fingerprint,
            domain,
            max: copies,
            min: copies,
            limit: None,
            at: Timestamp::ZERO,
        };
        if let Some(pair) = self.pair(&mut shard.lock(), resource, &wanted) {
            pair.held = pair.held.saturating_add(u64::from(copies));
            ticket.summed = true;
        }
    }

    /// Records a notice about a hold: `less` copies are no longer in use, and the hold is over if `over`.
    #[inline]
    pub(crate) fn note(
        &self,
        ticket: Ticket,
        at: Timestamp,
        less: u32,
        over: bool,
        what: impl FnOnce() -> NoticeKind,
    ) {
        let Some(shard) = self.shard(ticket.fingerprint) else {
            return;
        };
        let mut table = shard.lock();
        if ticket.summed
            && less != 0
            && let Some(pair) = table.pairs.get_mut(&ticket.fingerprint)
        {
            pair.held = pair.held.saturating_sub(u64::from(less));
            if pair.held == 0 {
                self.let_go(&mut table, ticket.fingerprint);
            }
        }
        if ticket.number == 0 {
            return;
        }
        if over {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
        if !table.closed {
            self.write(
                shard,
                &mut table,
                ticket.resource,
                Some(ticket.number),
                at,
                what,
            );
        }
    }

    /// The pair's sum. `None` if there is no room for one, or another pair has its fingerprint.
    #[inline]
    fn pair<'a>(
        &self,
        table: &'a mut ShardTable,
        resource: &Resource,
        wanted: &WantedCopies<'_>,
    ) -> Option<&'a mut HeldPair> {
        let has_room = table.pairs.len() < self.pairs_idle_max
            || self.has_room_beyond(table, wanted.fingerprint);
        let pair = match table.pairs.entry(wanted.fingerprint) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if has_room => place.insert(HeldPair {
                resource: resource.id,
                domain: wanted.domain.into(),
                held: 0,
            }),
            Entry::Vacant(_) => return None,
        };
        (pair.resource == resource.id && *pair.domain == *wanted.domain).then_some(pair)
    }

    /// Whether a pair is known, or there is room for it, in a shard with at least as many pairs as may be idle.
    #[cold]
    fn has_room_beyond(&self, table: &mut ShardTable, fingerprint: u64) -> bool {
        if table.pairs.contains_key(&fingerprint) {
            return true;
        }
        if table.pairs.len() == self.pairs_idle_max {
            // All idle pairs at once, so that the next ones find room without a search. If there are more pairs, none
            // is idle.
            table.pairs.retain(|_, pair| pair.held != 0);
        }
        if self.pairs_idle_max <= table.pairs.len() {
            // Threads that come at once may exceed the bound by a few. While everything that is held is recorded, the
            // bound on holds is reached before this one.
            let beyond = self.pairs_beyond.load(Ordering::Relaxed);
            if self.holds_max <= beyond || !self.has_room() {
                return false;
            }
            self.pairs_beyond.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Nothing is held of a pair any more: it is remembered if there is room for idle pairs.
    #[inline]
    fn let_go(&self, table: &mut ShardTable, fingerprint: u64) {
        if self.pairs_idle_max < table.pairs.len() {
            self.forget(table, fingerprint);
        }
    }

    #[cold]
    fn forget(&self, table: &mut ShardTable, fingerprint: u64) {
        let idle = |pair: &HeldPair| pair.held == 0;
        if table.pairs.get(&fingerprint).is_some_and(idle) {
            table.pairs.remove(&fingerprint);
            self.pairs_beyond.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Threads that come at once may exceed the bound by a few.
    #[inline]
    fn has_room(&self) -> bool {
        self.live.load(Ordering::Relaxed) < self.holds_max
    }

    #[inline]
    fn write(
        &self,
        shard: &TableShard,
        table: &mut ShardTable,
        resource: ResourceId,
        number: Option<u64>,
        at: Timestamp,
        what: impl FnOnce() -> NoticeKind,
    ) -> u64 {
        // Before the stamp: a thread that sees the stamp sees this.
        shard.busy.store(true, Ordering::Relaxed);
        let order = self.order.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let number = number.unwrap_or(order);
        table.notices.push(HoldNotice {
            order,
            resource,
            number,
            at,
            what: what(),
        });
        number
    }

    /// Hands out every notice that was recorded before this call, in order. One thread only.
    pub(crate) fn sweep(&self, notices: &mut Vec<HoldNotice>) {
        let before = notices.len();
        let upto = self.order.load(Ordering::Acquire);
        for shard in &self.shards {
            // Only the sweep clears it, under the lock, so that it is never clear while a notice waits.
            if !shard.busy.load(Ordering::Relaxed) {
                continue;
            }
            let mut table = shard.lock();
            let ripe = table.notices.partition_point(|notice| notice.order <= upto);
            notices.extend(table.notices.drain(..ripe));
            shard
                .busy
                .store(!table.notices.is_empty(), Ordering::Relaxed);
        }
        if let Some(new) = notices.get_mut(before..) {
            new.sort_unstable_by_key(|notice| notice.order);
        }
    }

    /// From now on nothing is recorded; waiting callers learn that there will be no answer.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut table = shard.lock();
            table.closed = true;
            table.notices = Vec::new();
        }
    }

    /// Holds that were granted without being recorded.
    pub(crate) fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// Copies that a pair holds in this process.
    pub(crate) fn held(&self, resource: &Resource, fingerprint: u64, domain: &str) -> u64 {
        let Some(shard) = self.shard(fingerprint) else {
            return 0;
        };
        let table = shard.lock();
        let pair = table.pairs.get(&fingerprint);
        pair.filter(|pair| pair.resource == resource.id && *pair.domain == *domain)
            .map_or(0, |pair| pair.held)
    }

    #[inline]
    fn shard(&self, fingerprint: u64) -> Option<&TableShard> {
        self.shards.get(shard_of(fingerprint))
    }
}

/// The shard of a pair. The tables take the low bits for places and the top seven for tags: if shards took any of
/// these, the pairs of a shard would differ in few tags, and finding one would compare more of them.
#[inline]
fn shard_of(fingerprint: u64) -> usize {
    (fingerprint >> 40) as usize % SHARDS
}

impl TableShard {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, ShardTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
