//! The pairs of one partition: open one, let the rules work on it, close it.
//!
//! ```text
//! open(identity)    its state is read from its block (or is new) into the working copy
//! close()           the working copy goes back, into the same block if it still suits it
//! sweep(n)          looks at the next n blocks and takes back those of pairs that have left
//! ```
//!
//! There is one working copy, filled again and again, so that a known pair costs no allocation.
//! A state that outgrew blocks is kept apart as it is and only changes places with the working copy.
//! Knows nothing of limits and rules. What stays true: a pair that has left is never opened as known,
//! whether or not its memory was taken back.

use std::collections::BTreeMap;

use super::alive::{Alive, Stay};
use super::arena::Arena;
use super::codec::{BLOCK_BYTES_MAX, Head, Stored, digest_of_bytes};
use super::identity::{Identity, pad, padded};
use super::index::{Handle, Index};
use super::large::Large;

/// States above this many bytes are kept apart: reading and writing them byte by byte would cost
/// more than the rules themselves.
const LARGE_BYTES: usize = BLOCK_BYTES_MAX;
/// A state that is kept apart comes back to a block at this many bytes, and not at one less than
/// sent it away, so that a pair at the edge does not go to and fro.
const SMALL_AGAIN_BYTES: usize = LARGE_BYTES / 2;

/// Whether a pair was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It was.
    Known,
    /// It was not, or it has left.
    New,
}

/// Where a pair may be, from reading ahead. Wrong at worst: then it is searched for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint(Option<Handle>);

/// What was opened, and must be closed or dropped before anything else is opened.
#[derive(Clone, Copy, Debug)]
struct Open {
    identity: Identity,
    /// Where it lies; none if it is new.
    place: Option<Handle>,
    /// Where its state lies, if apart.
    large: Option<u32>,
    /// What it stands for among those alive: its stay and digest; none if it is new or has left.
    alive: Option<(Stay, u128)>,
    /// The version by which it was ruled last, if it was in memory.
    ordinal: Option<u32>,
}

/// All pairs of a partition.
pub(crate) struct Table {
    index: Index,
    arena: Arena,
    large: Large,
    alive: Alive,
    /// Pairs in memory by the version that ruled them last.
    by_ordinal: BTreeMap<u32, u64>,
    working: Stored,
    open: Option<Open>,
    bytes: Vec<u8>,
    evicted: u64,
    /// Where the sweep goes on.
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

    /// The pairs that have not left.
    pub fn alive(&self) -> &Alive {
        &self.alive
    }

    /// Pairs in memory, those included that have left and were not swept yet.
    pub fn in_memory(&self) -> usize {
        self.index.len()
    }

    /// The lowest version by which a pair in memory was ruled last.
    pub fn oldest_ordinal(&self) -> Option<u32> {
        self.by_ordinal.keys().next().copied()
    }

    /// A tick of this slot was counted: pairs that stay up to an earlier one have left.
    pub fn advance(&mut self, slot: u64) {
        self.alive.advance(slot);
    }

    /// Whether `cap` pairs are there that all still remember something: those that do not any more, at
    /// the slot of the last counted tick, are let go first, once a slot.
    pub fn is_full(&mut self, cap: u64) -> bool {
        let before = self.alive.count();
        if cap <= before && self.alive.room_made() < self.alive.now() {
            self.alive.make_room();
            self.evicted += before - self.alive.count();
        }
        cap <= self.alive.count()
    }

    /// How many pairs were let go to make room since this was asked last.
    pub fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    /// In a table that is restored, room was made last in this slot.
    pub fn restore_room_made(&mut self, slot: u64) {
        self.alive.make_room_of(slot);
    }

    /// Whether those in memory that have left take more than a quarter of what `cap` pairs do.
    pub fn is_crowded(&self, cap: u64) -> bool {
        cap.saturating_add(cap / 4) < self.index.len() as u64
    }

    /// Opens a pair. What was open before is forgotten unless it was closed.
    pub fn open(&mut self, identity: Identity) -> Opened {
        self.open_near(identity, Hint::default())
    }

    /// The same with a hint where it may be, however old.
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

    /// Reads a block into the working copy, unless its pair has left.
    #[inline]
    fn read_block(&mut self, handle: Handle, open: &mut Open) {
        let (bytes, mut at) = (self.arena.state(handle), 0);
        // Blocks hold only what was written, so that nothing here can fail.
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

    /// The state of what is open. Of a new pair it is anything.
    pub fn working(&mut self) -> &mut Stored {
        &mut self.working
    }

    /// Puts back what is open, as it is now; it has left at once if what it remembers was over when room
    /// was made last. False, and it is not there, if there is no room for it.
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
        // The digest of a small state has just written it, and that of a large one nothing.
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

    /// Leaves what is open as it was.
    pub fn abandon(&mut self) {
        if let Some(open) = self.open.take()
            && let (Some(number), Some(_)) = (open.large, open.alive)
        {
            let digest = open.alive.map_or(0, |(_, digest)| digest);
            self.large.swap(number, &mut self.working, digest);
        }
    }

    /// A copy of a pair's state, if it is there.
    pub fn peek(&self, identity: Identity) -> Option<Stored> {
        let of = |handle: Handle| self.arena.identity(handle) == identity;
        let (_, handle) = self.index.find(identity, of)?;
        self.read_at(handle)
    }

    /// Takes back the memory of pairs that have left among the next `blocks` blocks, of `pairs` of
    /// them at most: looking costs nanoseconds, taking back some tenths of a microsecond.
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

    /// A copy of all pairs that later changes do not reach, for a snapshot written meanwhile.
    pub fn freeze(&mut self) -> FrozenTable {
        FrozenTable {
            arena: self.arena.freeze(),
            large: self.large.clone(),
            alive: self.alive.clone(),
        }
    }

    /// Reads what some pairs that come next need of memory, so that it is at hand when they are
    /// opened. One pair alone would wait for the index and then for its block; of many pairs the
    /// processor waits for all at once.
    pub fn read_ahead<'h>(&self, pairs: impl Iterator<Item = (Identity, &'h mut Hint)>) {
        const AHEAD: usize = 32;
        let mut guesses = [None; AHEAD];
        for (guess, (identity, hint)) in guesses.iter_mut().zip(pairs) {
            *guess = self.index.guess(identity);
            hint.0 = *guess;
        }
        let read = guesses.iter().flatten();
        let bytes = read.map(|handle| u32::from(self.arena.state(*handle)[0]));
        std::hint::black_box(bytes.sum::<u32>());
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
            // Another block has come to lie here, which the hand has not seen.
            self.hand = handle;
        }
        if let Some(number) = head.large {
            self.large.remove(number);
        }
        self.count_ordinal(Some(head.ordinal), None);
        true
    }

    /// Moves the working copy to where large states are; the block gets a reference.
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

    /// Writes `bytes` into the pair's block or into a better one.
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

    /// Gives a block back; true if another one has moved into it.
    fn give_back(&mut self, handle: Handle) -> bool {
        let mut filled = false;
        for moved in self.arena.remove(handle).into_iter().flatten() {
            let identity = self.arena.identity(moved.to);
            self.point(identity, moved.from, moved.to);
            filled |= moved.to == handle;
        }
        filled
    }

    /// Points the index at where a pair's block is now.
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
    /// Every pair that had not left.
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
