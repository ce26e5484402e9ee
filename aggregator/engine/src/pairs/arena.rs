//! Blocks of fixed sizes, in chunks: the memory of stored pairs.
//!
//! ```text
//! chunk     8 kilobytes, for any class              class 0   256 blocks of 32 bytes
//! block     identity (16) | first byte of the state, FF if the block is free | …
//! handle    class (4 bits) | chunk of the class (20) | block in the chunk (8)
//! ```
//!
//! Pairs grow and shrink, so blocks of every size come free. If too many of one size are free, the
//! last block in use moves into a free one and its chunk is freed. So the arena is about as large as
//! its content; and because all chunks have one size, any class can use a chunk that another has
//! freed. Chunks themselves never move, so growing causes no pause. A frozen copy shares the chunks;
//! the first change to a shared chunk copies that chunk alone. Knows nothing of what a state means.
//! What stays true: in each class, every block below `used` is either in use, or marked as free and in
//! the list of free blocks.

use std::sync::Arc;

use super::identity::Identity;
use super::index::Handle;

/// Sizes of blocks, identity included. One more hit takes four more bytes, so steps of eight waste at
/// most the space of one hit, and every second hit moves its pair to a larger block.
const SIZES: [usize; 13] = [32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128];
/// Bytes of an identity.
const IDENTITY_BYTES: usize = 16;
/// The most bytes of a state that a block holds.
pub(super) const STATE_BYTES_MAX: usize = SIZES[SIZES.len() - 1] - IDENTITY_BYTES;
/// Bytes of a chunk. Copying five hundred shared chunks, as the record after a freeze may have to,
/// takes about a millisecond; so does sharing the chunks of a million pairs.
const CHUNK_BYTES: usize = 8_192;
/// How many free blocks of a class are tolerated: these, and one in `FREE_ONE_IN` used ones.
const FREE_MIN: u32 = 256;
const FREE_ONE_IN: u32 = 16;
/// Bits of a handle that number the block within its class, and how many of them number it within its
/// chunk.
const NUMBER_BITS: u32 = 28;
const SLOT_BITS: u32 = 8;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// A first byte that no state has.
const FREE: u8 = 0xff;
/// No block.
const NONE: u32 = u32::MAX;

/// The memory of a chunk, aligned to a cache line, so that a small block is within one line.
struct Memory {
    bytes: Box<[u8]>,
    start: usize,
}

#[derive(Clone)]
enum ArenaChunk {
    Own(Memory),
    Shared(Arc<Memory>),
}

#[derive(Clone)]
struct Class {
    chunks: Vec<ArenaChunk>,
    /// The block that was freed last: the head of a list in which each free block has its neighbours'
    /// numbers.
    free: u32,
    free_len: u32,
    /// The first block that was never used: blocks below it are in use or free.
    used: u32,
}

/// The blocks of all classes.
#[derive(Clone)]
pub(super) struct Arena {
    classes: [Class; SIZES.len()],
}

/// A block was moved into a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub from: Handle,
    pub to: Handle,
}

impl Handle {
    fn new(class: usize, number: u32) -> Self {
        Self(((class as u32) << NUMBER_BITS) | number)
    }

    #[inline]
    fn class(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }

    #[inline]
    fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl Memory {
    /// Memory with all blocks marked as free.
    fn new() -> Self {
        const LINE_BYTES: usize = 64;
        let bytes = vec![FREE; CHUNK_BYTES + LINE_BYTES].into_boxed_slice();
        let over = bytes.as_ptr() as usize % LINE_BYTES;
        Self {
            bytes,
            start: LINE_BYTES - over,
        }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    fn copy(&self) -> Self {
        let mut copy = Self::new();
        copy.bytes_mut()[..CHUNK_BYTES].copy_from_slice(&self.bytes()[..CHUNK_BYTES]);
        copy
    }
}

impl ArenaChunk {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(memory) => memory.bytes(),
            Self::Shared(memory) => memory.bytes(),
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Self::Shared(memory) = self {
            *self = Self::Own(memory.copy());
        }
        match self {
            Self::Own(memory) => memory.bytes_mut(),
            // Was made `Own` above.
            Self::Shared(_) => &mut [],
        }
    }

    /// Shares the chunk with a copy.
    fn share(&mut self) -> Self {
        let none = Memory {
            bytes: Box::default(),
            start: 0,
        };
        let shared = match std::mem::replace(self, Self::Own(none)) {
            Self::Own(memory) => Self::Shared(Arc::new(memory)),
            shared => shared,
        };
        *self = shared.clone();
        shared
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        self.copy()
    }
}

/// Number of blocks in a chunk.
const fn blocks_of(size: usize) -> u32 {
    (CHUNK_BYTES / size) as u32
}

const _: () = assert!(blocks_of(SIZES[0]) <= 1 << SLOT_BITS);

/// The number after a block's.
#[inline]
fn behind(size: usize, number: u32) -> u32 {
    match (number & SLOT_MASK) + 1 == blocks_of(size) {
        true => ((number >> SLOT_BITS) + 1) << SLOT_BITS,
        false => number + 1,
    }
}

/// The number before a block's, which is not the first.
fn before(size: usize, number: u32) -> u32 {
    match number & SLOT_MASK {
        0 => number - (1 << SLOT_BITS) + blocks_of(size) - 1,
        _ => number - 1,
    }
}

impl Class {
    const EMPTY: Self = Self {
        chunks: Vec::new(),
        free: NONE,
        free_len: 0,
        used: 0,
    };

    #[inline]
    fn block(&self, size: usize, number: u32) -> &[u8] {
        let start = (number & SLOT_MASK) as usize * size;
        &self.chunks[(number >> SLOT_BITS) as usize].bytes()[start..start + size]
    }

    #[inline]
    fn block_mut(&mut self, size: usize, number: u32) -> &mut [u8] {
        let start = (number & SLOT_MASK) as usize * size;
        &mut self.chunks[(number >> SLOT_BITS) as usize].bytes_mut()[start..start + size]
    }

    fn is_free(&self, size: usize, number: u32) -> bool {
        self.block(size, number)[IDENTITY_BYTES] == FREE
    }

    /// The numbers before and after a free block in the list.
    fn links(&self, size: usize, number: u32) -> (u32, u32) {
        let block = self.block(size, number);
        let link = |at: usize| {
            let bytes = block[at..].first_chunk::<4>();
            bytes.map_or(NONE, |bytes| u32::from_le_bytes(*bytes))
        };
        (link(0), link(4))
    }

    fn set_link(&mut self, size: usize, number: u32, at: usize, to: u32) {
        if number != NONE {
            self.block_mut(size, number)[at..at + 4].copy_from_slice(&to.to_le_bytes());
        }
    }

    /// Adds a block at the head of the list of free blocks.
    fn put_free(&mut self, size: usize, number: u32) {
        let next = self.free;
        self.block_mut(size, number)[IDENTITY_BYTES] = FREE;
        self.set_link(size, number, 0, NONE);
        self.set_link(size, number, 4, next);
        self.set_link(size, next, 0, number);
        self.free = number;
        self.free_len += 1;
    }

    /// Removes a block from the list of free blocks.
    fn take_free(&mut self, size: usize, number: u32) {
        let (before, behind) = self.links(size, number);
        match before {
            NONE => self.free = behind,
            before => self.set_link(size, before, 4, behind),
        }
        self.set_link(size, behind, 0, before);
        self.free_len -= 1;
    }

    /// A block to write to; `None` if no more blocks can be numbered.
    fn take(&mut self, size: usize) -> Option<u32> {
        if self.free != NONE {
            let number = self.free;
            self.take_free(size, number);
            return Some(number);
        }
        let chunk = (self.used >> SLOT_BITS) as usize;
        if chunk == 1 << (NUMBER_BITS - SLOT_BITS) {
            return None;
        }
        if chunk == self.chunks.len() {
            self.chunks.push(ArenaChunk::Own(Memory::new()));
        }
        let number = self.used;
        self.used = behind(size, number);
        Some(number)
    }

    /// Whether more blocks are free than tolerated.
    fn is_sparse(&self, size: usize) -> bool {
        let used = (self.used >> SLOT_BITS) * blocks_of(size) + (self.used & SLOT_MASK);
        FREE_MIN + used / FREE_ONE_IN < self.free_len
    }

    /// Removes the last block; if it was in use, moves it and returns both numbers.
    fn shrink(&mut self, size: usize) -> Option<(u32, u32)> {
        let last = before(size, self.used);
        let moved = match self.is_free(size, last) {
            true => {
                self.take_free(size, last);
                None
            }
            false => {
                let hole = self.free;
                self.take_free(size, hole);
                let (mut block, len) = ([0; SIZES[SIZES.len() - 1]], size);
                block[..len].copy_from_slice(self.block(size, last));
                self.block_mut(size, hole).copy_from_slice(&block[..len]);
                Some((last, hole))
            }
        };
        self.used = last;
        // One empty chunk is kept, so that a class at the edge of a chunk does not free and allocate
        // it in turn.
        let needed = self.used.div_ceil(1 << SLOT_BITS) as usize + 1;
        self.chunks.truncate(needed);
        moved
    }
}

impl Arena {
    pub fn new() -> Self {
        Self {
            classes: [Class::EMPTY; SIZES.len()],
        }
    }

    /// Whether a state of this size should stay in its block: it fits, and a smaller block would save
    /// little.
    #[inline]
    pub fn suits(handle: Handle, state_bytes: usize) -> bool {
        const WORTH_BYTES: usize = 24;
        let size = SIZES[handle.class()];
        let needed = IDENTITY_BYTES + state_bytes;
        needed <= size && size - needed < WORTH_BYTES
    }

    /// The class of the smallest blocks that hold a state.
    fn index_of(state: &[u8]) -> Option<usize> {
        let needed = IDENTITY_BYTES + state.len();
        SIZES.iter().position(|size| needed <= *size)
    }

    /// A block for a state of at most [`STATE_BYTES_MAX`] bytes; `None` if no more blocks can be
    /// numbered.
    pub fn insert(&mut self, identity: Identity, state: &[u8]) -> Option<Handle> {
        let needed = IDENTITY_BYTES + state.len();
        let index = Self::index_of(state)?;
        let number = self.classes[index].take(SIZES[index])?;
        let block = self.classes[index].block_mut(SIZES[index], number);
        block[..IDENTITY_BYTES].copy_from_slice(&identity.0.to_le_bytes());
        block[IDENTITY_BYTES..needed].copy_from_slice(state);
        Some(Handle::new(index, number))
    }

    /// Writes another state into a block, which must suit it: see [`Arena::suits`].
    #[inline]
    pub fn write(&mut self, handle: Handle, state: &[u8]) {
        let block = self.classes[handle.class()].block_mut(SIZES[handle.class()], handle.number());
        block[IDENTITY_BYTES..][..state.len()].copy_from_slice(state);
    }

    /// Frees a block. Up to two other blocks move to keep the arena dense (moving one would only keep
    /// it as sparse as it was); the caller has to update its handles of them.
    #[must_use]
    pub fn remove(&mut self, handle: Handle) -> [Option<Moved>; 2] {
        let (class, size) = (handle.class(), SIZES[handle.class()]);
        self.classes[class].put_free(size, handle.number());
        std::array::from_fn(|_| {
            let class = &mut self.classes[class];
            let moved = class.is_sparse(size).then(|| class.shrink(size)).flatten();
            moved.map(|(from, to)| Moved {
                from: Handle::new(handle.class(), from),
                to: Handle::new(handle.class(), to),
            })
        })
    }

    /// The identity of the pair in a block.
    #[inline]
    pub fn identity(&self, handle: Handle) -> Identity {
        let bytes = self.block(handle).first_chunk::<IDENTITY_BYTES>();
        Identity(bytes.map_or(0, |bytes| u128::from_le_bytes(*bytes)))
    }

    /// Whether there is such a block, in use and of this identity: a check for handles that may be
    /// outdated.
    #[inline]
    pub fn is(&self, handle: Handle, identity: Identity) -> bool {
        let class = self.classes.get(handle.class());
        class.is_some_and(|class| handle.number() < class.used)
            && self.identity(handle) == identity
            && self.state(handle)[0] != FREE
    }

    /// The state in a block, and the bytes after it.
    #[inline]
    pub fn state(&self, handle: Handle) -> &[u8] {
        &self.block(handle)[IDENTITY_BYTES..]
    }

    /// The first block in use at or after a position, and the position after it; `None` at the end.
    /// Looks at no more than `blocks` blocks, which it counts down; at zero it returns no block and
    /// the position reached.
    pub fn next_in_use(&self, from: Handle, blocks: &mut u32) -> Option<(Option<Handle>, Handle)> {
        let (mut index, mut number) = (from.class(), from.number());
        loop {
            let class = self.classes.get(index)?;
            if class.used <= number {
                (index, number) = (index + 1, 0);
                continue;
            }
            let handle = Handle::new(index, number);
            if *blocks == 0 {
                return Some((None, handle));
            }
            *blocks -= 1;
            number = behind(SIZES[index], number);
            if self.state(handle)[0] != FREE {
                return Some((Some(handle), Handle::new(index, number)));
            }
        }
    }

    /// A copy that shares all chunks with this one.
    pub fn freeze(&mut self) -> Self {
        let share = |class: &mut Class| Class {
            chunks: class.chunks.iter_mut().map(ArenaChunk::share).collect(),
            ..*class
        };
        Self {
            classes: self.classes.each_mut().map(share),
        }
    }

    #[inline]
    fn block(&self, handle: Handle) -> &[u8] {
        self.classes[handle.class()].block(SIZES[handle.class()], handle.number())
    }
}

#[cfg(test)]
mod tests;
