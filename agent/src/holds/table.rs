//! The desk: where calls take copies and give them back, and what they leave there for the flusher.
//!
//! ```text
//! reserve, drop ──> shard of the pair { what each pair holds here, words } ── sweep ──> flusher ──> keeper
//! ```
//!
//! A shard is a lock over two small tables, and nobody who holds it waits for anything: calls look up
//! one number and write one word, the flusher takes the words away in one exchange. The network thread
//! never comes here while the agent runs.
//!
//! Words are stamped under the lock, from one count, and a sweep takes what was stamped before it began:
//! so a release is told before any hold that was taken after it, on whatever thread. Without that a
//! domain at its limit would now and then be told to have too much.
//!
//! What stays true: holds, pairs and words are bounded; at the bound copies are granted, unrecorded, and
//! counted. A shard with more pairs than it may remember has none that is idle. What is given back of a
//! recorded hold is always recorded, which the copies held bound.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_shared::time::Timestamp;

use super::notice::{HoldNotice, NoticeKind, RareNotice};
use crate::deny::Unhashed;
use crate::resource::{NO_RESOURCE, Resource, ResourceId};

/// Locks. With as many threads as a machine has cores two seldom meet.
const SHARDS: usize = 64;

/// Words of one shard that may wait for the flusher, beside those that give back what is on record: some
/// milliseconds of as many calls as one core can make.
const WORDS_MAX: usize = 8_192;

/// Pairs that each shard remembers while nothing is held of them, at least: about 100 bytes each, so that
/// a domain that comes again soon allocates nothing, however few holds may be on record.
const PAIRS_MIN: usize = 16;

/// Holds that one agent may have on record, unless its builder says otherwise.
pub(crate) const HOLDS_MAX: usize = 1 << 18;

/// The desk of one agent.
#[derive(Debug)]
pub(crate) struct HoldTable {
    shards: Box<[TableShard]>,
    /// The last stamp; stamps of holds are their numbers.
    order: AtomicU64,
    /// Recorded holds that are not over.
    live: AtomicUsize,
    holds_max: usize,
    /// Pairs of one shard, beyond which only those are kept of which something is held.
    pairs_idle_max: usize,
    /// Pairs beyond that, of all shards; as many as holds at most. Which shards they are in is chance.
    pairs_beyond: AtomicUsize,
    unrecorded: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct TableShard {
    /// Words may be waiting. Set before a word is stamped.
    busy: AtomicBool,
    table: Mutex<ShardTable>,
}

#[derive(Debug, Default)]
struct ShardTable {
    pairs: HashMap<u64, HeldPair, BuildHasherDefault<Unhashed>>,
    words: Vec<HoldNotice>,
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

/// Where a hold stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) resource: ResourceId,
    pub(crate) fingerprint: u64,
    /// 0: it is not on record.
    pub(crate) number: u64,
    /// Whether its pair's sum has it.
    summed: bool,
}

/// What a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// These copies.
    Copies(Ticket, u32),
    /// Too little is left of the domain's limit.
    Full,
}

/// What a call wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedCopies<'a> {
    pub(crate) fingerprint: u64,
    pub(crate) domain: &'a str,
    pub(crate) max: u32,
    pub(crate) min: u32,
    /// What the domain may have, where that is known.
    pub(crate) limit: Option<u64>,
    pub(crate) at: Timestamp,
}

impl WantedCopies<'_> {
    /// As much of it as there is where so many copies are held; none: less than is of use.
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
        let has_room = self.has_room() && table.words.len() < WORDS_MAX && !table.closed;
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

    /// Begins a hold whose copies are not in use yet; none: there is no room on record.
    pub(crate) fn begin(
        &self,
        resource: &Resource,
        fingerprint: u64,
        at: Timestamp,
        seldom: RareNotice,
    ) -> Option<Ticket> {
        let shard = self.shard(fingerprint)?;
        let mut table = shard.lock();
        let has_room = self.has_room() && table.words.len() < WORDS_MAX && !table.closed;
        if !has_room || resource.id == NO_RESOURCE {
            return None;
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        let number = self.write(shard, &mut table, resource.id, None, at, || {
            NoticeKind::Seldom(Box::new(seldom))
        });
        Some(Ticket {
            resource: resource.id,
            fingerprint,
            number,
            summed: false,
        })
    }

    /// Copies that were granted to a hold that was begun are in use from now on; whose they are may only
    /// be known now.
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

    /// Says something about a hold: `less` copies are in use, and it is over with that, or not.
    #[inline]
    pub(crate) fn tell(
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

    /// The pair's sum. None: there is no room for one, or another pair has its fingerprint.
    #[inline]
    fn pair<'a>(
        &self,
        table: &'a mut ShardTable,
        resource: &Resource,
        wanted: &WantedCopies<'_>,
    ) -> Option<&'a mut HeldPair> {
        if !table.pairs.contains_key(&wanted.fingerprint) {
            self.make_pair(table, resource, wanted);
        }
        table
            .pairs
            .get_mut(&wanted.fingerprint)
            .filter(|pair| pair.resource == resource.id && *pair.domain == *wanted.domain)
    }

    #[cold]
    fn make_pair(&self, table: &mut ShardTable, resource: &Resource, wanted: &WantedCopies<'_>) {
        if table.pairs.len() == self.pairs_idle_max {
            // All that are idle at once, so that the next ones find room without looking. Where there are more,
            // none is.
            table.pairs.retain(|_, pair| pair.held != 0);
        }
        if self.pairs_idle_max <= table.pairs.len() {
            // A few more than the bound may be made by threads that come at once. While everything that is held
            // is on record this bound is not reached before that on holds.
            let beyond = self.pairs_beyond.load(Ordering::Relaxed);
            if self.holds_max <= beyond || !self.has_room() {
                return;
            }
            self.pairs_beyond.fetch_add(1, Ordering::Relaxed);
        }
        let pair = HeldPair {
            resource: resource.id,
            domain: wanted.domain.into(),
            held: 0,
        };
        table.pairs.insert(wanted.fingerprint, pair);
    }

    /// Nothing is held of a pair any more: it is remembered, where there is room for those that are idle.
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

    /// A few more than the bound may be taken by threads that come at once.
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
        // Before the stamp: whoever sees the stamp sees this.
        shard.busy.store(true, Ordering::Relaxed);
        let order = self.order.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let number = number.unwrap_or(order);
        table.words.push(HoldNotice {
            order,
            resource,
            number,
            at,
            what: what(),
        });
        number
    }

    /// Hands out every word that was said before this call, in order. By one thread alone.
    pub(crate) fn sweep(&self, words: &mut Vec<HoldNotice>) {
        let before = words.len();
        let upto = self.order.load(Ordering::Acquire);
        for shard in &self.shards {
            // Only the sweep clears it, and under the lock, so that it is never clear over a word.
            if !shard.busy.load(Ordering::Relaxed) {
                continue;
            }
            let mut table = shard.lock();
            let ripe = table.words.partition_point(|word| word.order <= upto);
            words.extend(table.words.drain(..ripe));
            shard.busy.store(!table.words.is_empty(), Ordering::Relaxed);
        }
        if let Some(new) = words.get_mut(before..) {
            new.sort_unstable_by_key(|word| word.order);
        }
    }

    /// From now on nothing is recorded any more; who waits for an answer hears that there is none.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut table = shard.lock();
            table.closed = true;
            table.words = Vec::new();
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
        // The high bits: the tables use the low ones.
        self.shards.get((fingerprint >> 58) as usize % SHARDS)
    }
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
