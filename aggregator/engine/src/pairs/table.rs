//! The pairs of one partition: open one, let the rules work on it, close it.
//!
//! ```text
//! open(identity)    its state is read from its block (or is new) into the working copy
//! close()           the working copy is written back, into the same block if that still suits it
//! sweep(n)          looks at the next n blocks and frees those of evicted pairs
//! ```
//!
//! There is one working copy, which is reused, so that a known pair costs no allocation. A state that outgrew
//! blocks is kept decoded elsewhere, and swapped with the working copy. Knows nothing of limits and rules. What
//! stays true: an evicted pair is never opened as known, whether or not its memory was freed.

use std::collections::BTreeMap;

use super::alive::{Alive, Stay};
use super::arena::Arena;
use super::codec::{BLOCK_BYTES_MAX, Head, Stored, digest_of_bytes};
use super::identity::{Identity, pad, padded};
use super::index::{Handle, Index};
use super::large::Large;

/// States above this many bytes are kept decoded: reading and writing them byte by byte would cost more
/// than the rules themselves.
const LARGE_BYTES: usize = BLOCK_BYTES_MAX;
/// At this many bytes a decoded state returns to a block. It is less than the bound above, so that a
/// pair at the edge does not change places again and again.
const SMALL_AGAIN_BYTES: usize = LARGE_BYTES / 2;

/// Whether a pair was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It was known.
    Known,
    /// It was not, or it has been evicted.
    New,
}

/// A guess at a pair's place, from reading ahead. If it is wrong, the pair is searched for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint(Option<Handle>);

/// The pair that is open; it must be closed or dropped before another is opened.
#[derive(Clone, Copy, Debug)]
struct Open {
    identity: Identity,
    /// The block; `None` if it is new.
    place: Option<Handle>,
    /// The number of its state if that is stored outside of blocks.
    large: Option<u32>,
    /// Its stay and digest as counted among those alive; `None` if it is new or evicted.
    alive: Option<(Stay, u128)>,
    /// The ordinal of the version by which it was ruled last, if it was in memory.
    ordinal: Option<u32>,
}

/// All pairs of a partition.
pub(crate) struct Table {
    index: Index,
    arena: Arena,
    large: Large,
    alive: Alive,
    /// Number of pairs in memory, by the ordinal of the version that ruled them last.
    by_ordinal: BTreeMap<u32, u64>,
    working: Stored,
    open: Option<Open>,
    bytes: Vec<u8>,
    evicted: u64,
    /// Where the next sweep begins.
    hand: Handle,
}

impl Table {
    pub fn new() -> Self {
        Self {
            index: Index::new(),
            arena: Arena::new(),
            large: Large::default(),
            alive: Alive::new(),
            by_ordinal: BTreeMap::new(),
            working: Stored::default(),
            open: None,
            bytes: Vec::new(),
            evicted: 0,
            hand: Handle(0),
        }
    }

    /// The pairs that are not evicted.
    pub fn alive(&self) -> &Alive {
        &self.alive
    }

    /// Number of pairs in memory, including evicted ones that were not swept yet.
    pub fn in_memory(&self) -> usize {
        self.index.len()
    }

    /// The ordinal of the oldest version by which a pair in memory was ruled last.
    pub fn oldest_ordinal(&self) -> Option<u32> {
        self.by_ordinal.keys().next().copied()
    }

    /// Notes a counted tick of this slot: evicts pairs that stay up to an earlier one.
    pub fn advance(&mut self, slot: u64) {
        self.alive.advance(slot);
    }

    /// Whether there are `cap` pairs that all still remember something. Pairs that do not, at the slot
    /// of the last counted tick, are evicted first, once for each slot.
    pub fn is_full(&mut self, cap: u64) -> bool {
        let before = self.alive.count();
        if cap <= before && self.alive.room_made() < self.alive.now() {
            self.alive.make_room();
            self.evicted += before - self.alive.count();
        }
        cap <= self.alive.count()
    }

    /// How many pairs were evicted to make room since the last call.
    pub fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// Restores the slot in which room was last made.
    pub fn restore_room_made(&mut self, slot: u64) {
        self.alive.make_room_of(slot);
    }

    /// Whether evicted pairs in memory take more than a quarter of the space of `cap` pairs.
    pub fn is_crowded(&self, cap: u64) -> bool {
        cap.saturating_add(cap / 4) < self.index.len() as u64
    }

    /// Opens a pair. Changes to a pair that was open before and not closed are dropped.
    pub fn open(&mut self, identity: Identity) -> Opened {
        self.open_near(identity, Hint::default())
    }

    /// The same with a hint about its place, which may be outdated.
    #[inline]
    pub fn open_near(&mut self, identity: Identity, hint: Hint) -> Opened {
        let arena = &self.arena;
        let place = match hint.0.filter(|handle| arena.is(*handle, identity)) {
            Some(handle) => Some(handle),
            None => self
                .index
                .find(identity, |handle| arena.identity(handle) == identity)
                .map(|(_, handle)| handle),
        };
        let mut open = Open {
            identity,
            place,
            large: None,
            alive: None,
            ordinal: None,
        };
        if let Some(handle) = place {
            self.read_block(handle, &mut open);
        }
        let opened = match open.alive {
            Some(_) => Opened::Known,
            None => Opened::New,
        };
        self.open = Some(open);
        opened
    }

    /// Reads a block into the working copy, unless its pair was evicted.
    #[inline]
    fn read_block(&mut self, handle: Handle, open: &mut Open) {
        let (bytes, mut at) = (self.arena.state(handle), 0);
        // Blocks contain only what was written, so this cannot fail.
        let Some(head) = Head::read(bytes, &mut at) else {
            return;
        };
        (open.ordinal, open.large) = (Some(head.ordinal), head.large);
        if !self.alive.is(head.stay) {
            return;
        }
        let digest = match head.large {
            Some(number) => self.large.swap(number, &mut self.working, 0),
            None => {
                let _ = self.working.load_behind(&head, bytes, &mut at);
                digest_of_bytes(open.identity, &bytes[..padded(at)])
            }
        };
        open.alive = Some((head.stay, digest));
    }

    /// The state of the open pair. For a new pair its content is arbitrary.
    pub fn working(&mut self) -> &mut Stored {
        &mut self.working
    }

    /// Writes the open pair back. It is evicted at once if everything it remembers was over when room
    /// was last made. Returns false, and the pair is not stored, if there is no room for it.
    pub fn close(&mut self) -> bool {
        let Some(open) = self.open.take() else {
            return false;
        };
        self.working.leaves = self.working.leaves.max(self.alive.now());
        let (leaves, rest) = (self.working.leaves, self.working.rest);
        let (stay, ordinal) = (Stay { leaves, rest }, self.working.ordinal);
        let bound = match open.large {
            Some(_) => SMALL_AGAIN_BYTES,
            None => LARGE_BYTES,
        };
        let digest = self.working.digest(open.identity, &mut self.bytes);
        // The digest of a small state has just written the bytes; that of a large one writes none.
        let fits = !self.bytes.is_empty() && self.bytes.len() <= bound;
        let apart = (!fits).then(|| self.put_apart(open, digest));
        if !self.store(open) {
            apart
                .into_iter()
                .for_each(|number| self.large.remove(number));
            return false;
        }
        if let (None, Some(number)) = (apart, open.large) {
            self.large.remove(number);
        }
        match (open.alive, self.alive.is(stay)) {
            (Some(before), true) => self.alive.change(before, (stay, digest)),
            (Some((before, digest)), false) => self.alive.take_out(before, digest),
            (None, true) => self.alive.enter(stay, digest),
            (None, false) => {}
        }
        self.count_ordinal(open.ordinal, Some(ordinal));
        true
    }

    /// Drops the changes to the open pair.
    pub fn abandon(&mut self) {
        if let Some(open) = self.open.take()
            && let (Some(number), Some(_)) = (open.large, open.alive)
        {
            let digest = open.alive.map_or(0, |(_, digest)| digest);
            self.large.swap(number, &mut self.working, digest);
        }
    }

    /// A copy of a pair's state, if it is known.
    pub fn peek(&self, identity: Identity) -> Option<Stored> {
        let of = |handle: Handle| self.arena.identity(handle) == identity;
        let (_, handle) = self.index.find(identity, of)?;
        self.read_at(handle)
    }

    /// Frees the memory of evicted pairs among the next `blocks` blocks, of at most `pairs` pairs:
    /// looking costs nanoseconds, freeing some tenths of a microsecond.
    pub fn sweep(&mut self, mut blocks: u32, mut pairs: u32) {
        if self.index.len() as u64 == self.alive.count() {
            return;
        }
        while 0 < blocks && 0 < pairs {
            let Some((handle, next)) = self.arena.next_in_use(self.hand, &mut blocks) else {
                self.hand = Handle(0);
                return;
            };
            self.hand = next;
            if let Some(handle) = handle {
                pairs -= u32::from(self.take_back_if_left(handle));
            }
        }
    }

    /// A copy of all pairs that later changes do not affect, for a snapshot that is written meanwhile.
    pub fn freeze(&mut self) -> FrozenTable {
        FrozenTable {
            arena: self.arena.freeze(),
            large: self.large.clone(),
            alive: self.alive.clone(),
        }
    }

    /// Reads from memory what the next pairs need, so that it is in the cache when they are opened. For
    /// a single pair the processor would wait for the index, then for its block, then for its state if that outgrew
    /// blocks; for many pairs it waits for all of one kind at once.
    pub fn read_ahead<'h>(&self, pairs: impl Iterator<Item = (Identity, &'h mut Hint)>) {
        const AHEAD: usize = 32;
        let mut guesses = [None; AHEAD];
        for (guess, (identity, hint)) in guesses.iter_mut().zip(pairs) {
            *guess = self.index.guess(identity);
            hint.0 = *guess;
        }
        let blocks = guesses.map(|guess| guess.map(|handle| self.arena.state(handle)));
        let large = blocks.map(|block| self.large.get(Head::number_of_large(block?)?));
        let now = large.map(|state| state.map_or(0, |state| state.pair.now().as_micros()));
        let first = large.map(|state| state.map_or(0, Stored::first_byte));
        std::hint::black_box((now, first));
    }

    fn take_back_if_left(&mut self, handle: Handle) -> bool {
        let Some(head) = Head::read(self.arena.state(handle), &mut 0) else {
            return false;
        };
        if self.alive.is(head.stay) {
            return false;
        }
        let identity = self.arena.identity(handle);
        if let Some((slot, _)) = self.index.find(identity, |found| found == handle) {
            self.index.remove(identity, slot);
        }
        if self.give_back(handle) {
            // Another block has moved here, which the sweep has not seen.
            self.hand = handle;
        }
        if let Some(number) = head.large {
            self.large.remove(number);
        }
        self.count_ordinal(Some(head.ordinal), None);
        true
    }

    /// Moves the working copy to the large states; the block gets a reference.
    fn put_apart(&mut self, open: Open, digest: u128) -> u32 {
        let number = match open.large {
            Some(number) => number,
            None => self.large.insert(),
        };
        self.bytes.clear();
        self.working.write_large(number, &mut self.bytes);
        pad(&mut self.bytes);
        self.large.swap(number, &mut self.working, digest);
        number
    }

    /// Writes `bytes` into the pair's block, or into one that suits them better.
    fn store(&mut self, open: Open) -> bool {
        if let Some(handle) = open.place
            && Arena::suits(handle, self.bytes.len())
        {
            self.arena.write(handle, &self.bytes);
            return true;
        }
        let Some(handle) = self.arena.insert(open.identity, &self.bytes) else {
            return false;
        };
        match open.place {
            Some(old) => {
                self.point(open.identity, old, handle);
                self.give_back(old);
                true
            }
            None => {
                let arena = &self.arena;
                let of = |handle| arena.identity(handle);
                let stored = self.index.insert(open.identity, handle, of).is_some();
                if !stored {
                    self.give_back(handle);
                }
                stored
            }
        }
    }

    /// Frees a block; true if another one has moved into it.
    fn give_back(&mut self, handle: Handle) -> bool {
        let mut filled = false;
        for moved in self.arena.remove(handle).into_iter().flatten() {
            let identity = self.arena.identity(moved.to);
            self.point(identity, moved.from, moved.to);
            filled |= moved.to == handle;
        }
        filled
    }

    /// Updates the index after a pair's block has moved.
    fn point(&mut self, identity: Identity, from: Handle, to: Handle) {
        if let Some((slot, _)) = self.index.find(identity, |found| found == from) {
            self.index.set(slot, to);
        }
    }

    fn count_ordinal(&mut self, before: Option<u32>, after: Option<u32>) {
        if before == after {
            return;
        }
        if let Some(ordinal) = before
            && let Some(count) = self.by_ordinal.get_mut(&ordinal)
        {
            *count -= 1;
            if *count == 0 {
                self.by_ordinal.remove(&ordinal);
            }
        }
        if let Some(ordinal) = after {
            *self.by_ordinal.entry(ordinal).or_default() += 1;
        }
    }

    fn read_at(&self, handle: Handle) -> Option<Stored> {
        read_at(&self.arena, &self.large, &self.alive, handle)
    }
}

/// A copy of a table at one moment.
pub(crate) struct FrozenTable {
    arena: Arena,
    large: Large,
    alive: Alive,
}

impl FrozenTable {
    /// Every pair that was not evicted.
    pub fn pairs(&self) -> impl Iterator<Item = (Identity, Stored)> + '_ {
        let mut at = Handle(0);
        std::iter::from_fn(move || {
            loop {
                let mut blocks = u32::MAX;
                let (handle, next) = self.arena.next_in_use(at, &mut blocks)?;
                at = next;
                let Some(handle) = handle else { continue };
                if let Some(stored) = read_at(&self.arena, &self.large, &self.alive, handle) {
                    return Some((self.arena.identity(handle), stored));
                }
            }
        })
    }
}

fn read_at(arena: &Arena, large: &Large, alive: &Alive, handle: Handle) -> Option<Stored> {
    let head = Head::read(arena.state(handle), &mut 0).filter(|head| alive.is(head.stay))?;
    match head.large {
        Some(number) => large.get(number).cloned(),
        None => {
            let mut stored = Stored::default();
            stored.read(arena.state(handle), &mut 0)?;
            Some(stored)
        }
    }
}

#[cfg(test)]
mod tests;
