//! Blocks of fixed sizes, in chunks: where stored pairs lie.
//!
//! ```text
//! class 0   32 bytes a block, 256 blocks a chunk          class 14   128 bytes a block
//! block     identity (16) | first byte of the state, FF if the block is free | …
//! ```
//!
//! A block that is given back is used again for the next of its size; chunks are never moved, so
//! nothing pauses while the arena grows. A frozen copy of an arena shares its chunks; the first
//! change to a shared chunk copies that chunk alone. Knows nothing of what a state means. What stays
//! true: a block is either on its class's free list and marked so, or in use.

use std::sync::Arc;

use super::identity::Identity;
use super::index::Handle;

/// Sizes of blocks, identity included. Steps of four bytes where most pairs are.
const SIZES: [usize; 15] = [32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96, 112, 128];
/// Bytes of an identity.
const IDENTITY_BYTES: usize = 16;
/// The most bytes of a state that a block holds.
pub(super) const STATE_BYTES_MAX: usize = SIZES[SIZES.len() - 1] - IDENTITY_BYTES;
/// Blocks of a chunk: some ten kilobytes, so that copying a shared one is no pause.
const CHUNK_BLOCKS: u32 = 256;
/// Bits of a handle that number the block within its class.
const NUMBER_BITS: u32 = 28;
/// The first byte of a state that no state has.
const FREE: u8 = 0xff;
/// No block.
const NONE: u32 = u32::MAX;

#[derive(Clone)]
enum Chunk {
    Own(Box<[u8]>),
    Shared(Arc<Box<[u8]>>),
}

#[derive(Clone, Default)]
struct Class {
    chunks: Vec<Chunk>,
    /// The first free block of those that were used before.
    free: u32,
    /// Blocks that were ever used.
    used: u32,
}

/// All blocks.
#[derive(Clone)]
pub(super) struct Arena {
    classes: [Class; SIZES.len()],
}

impl Handle {
    fn new(class: usize, number: u32) -> Self {
        Self(((class as u32) << NUMBER_BITS) | number)
    }

    fn class(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }

    fn number(self) -> u32 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }
}

impl Chunk {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Self::Shared(bytes) = self {
            let own = Arc::try_unwrap(std::mem::take(bytes));
            *self = Self::Own(own.unwrap_or_else(|shared| (*shared).clone()));
        }
        match self {
            Self::Own(bytes) => bytes,
            // Made its own above.
            Self::Shared(_) => &mut [],
        }
    }
}

fn range(class: usize, number: u32) -> (usize, std::ops::Range<usize>) {
    let start = (number % CHUNK_BLOCKS) as usize * SIZES[class];
    let chunk = (number / CHUNK_BLOCKS) as usize;
    (chunk, start..start + SIZES[class])
}

impl Arena {
    pub fn new() -> Self {
        let class = Class {
            free: NONE,
            ..Class::default()
        };
        Self {
            classes: std::array::from_fn(|_| class.clone()),
        }
    }

    /// Whether a state of this size is best kept in the block it lies in: it fits, and a smaller
    /// block would save little.
    pub fn suits(handle: Handle, state_bytes: usize) -> bool {
        const WORTH_BYTES: usize = 12;
        let size = SIZES[handle.class()];
        let needed = IDENTITY_BYTES + state_bytes;
        needed <= size && size - needed < WORTH_BYTES.max(size / 3)
    }

    /// A block for a state of at most [`STATE_BYTES_MAX`] bytes; none if there are as many as can be
    /// numbered.
    pub fn insert(&mut self, identity: Identity, state: &[u8]) -> Option<Handle> {
        let needed = IDENTITY_BYTES + state.len();
        let index = SIZES.iter().position(|size| needed <= *size)?;
        let class = &mut self.classes[index];
        let number = if class.free != NONE {
            let number = class.free;
            let (chunk, range) = range(index, number);
            let next = class.chunks[chunk].bytes()[range].first_chunk::<4>();
            class.free = next.map_or(NONE, |next| u32::from_le_bytes(*next));
            number
        } else {
            if class.used == (1 << NUMBER_BITS) - 1 {
                return None;
            }
            if class.used % CHUNK_BLOCKS == 0 {
                let bytes = vec![FREE; SIZES[index] * CHUNK_BLOCKS as usize];
                class.chunks.push(Chunk::Own(bytes.into_boxed_slice()));
            }
            class.used += 1;
            class.used - 1
        };
        let handle = Handle::new(index, number);
        let block = self.block_mut(handle);
        block[..IDENTITY_BYTES].copy_from_slice(&identity.0.to_le_bytes());
        block[IDENTITY_BYTES..needed].copy_from_slice(state);
        Some(handle)
    }

    /// Writes another state into a block that [`Arena::suits`] it.
    #[inline]
    pub fn write(&mut self, handle: Handle, state: &[u8]) {
        self.block_mut(handle)[IDENTITY_BYTES..][..state.len()].copy_from_slice(state);
    }

    /// Gives a block back.
    pub fn remove(&mut self, handle: Handle) {
        let next = self.classes[handle.class()].free;
        let block = self.block_mut(handle);
        block[..4].copy_from_slice(&next.to_le_bytes());
        block[IDENTITY_BYTES] = FREE;
        self.classes[handle.class()].free = handle.number();
    }

    /// Whose block it is.
    #[inline]
    pub fn identity(&self, handle: Handle) -> Identity {
        let bytes = self.block(handle).first_chunk::<IDENTITY_BYTES>();
        Identity(bytes.map_or(0, |bytes| u128::from_le_bytes(*bytes)))
    }

    /// The state in a block, with whatever lies behind it.
    #[inline]
    pub fn state(&self, handle: Handle) -> &[u8] {
        &self.block(handle)[IDENTITY_BYTES..]
    }

    /// The first block in use at or after a position, and the position behind it; none at the end.
    /// Looks at no more than `blocks` blocks, which it counts down; at zero it gives no block and
    /// the position reached.
    pub fn next_in_use(&self, from: Handle, blocks: &mut u32) -> Option<(Option<Handle>, Handle)> {
        let (mut index, mut number) = (from.class(), from.number());
        loop {
            let class = self.classes.get(index)?;
            if class.used <= number {
                (index, number) = (index + 1, 0);
                if index == SIZES.len() {
                    return None;
                }
                continue;
            }
            let handle = Handle::new(index, number);
            if *blocks == 0 {
                return Some((None, handle));
            }
            *blocks -= 1;
            number += 1;
            if self.state(handle)[0] != FREE {
                return Some((Some(handle), Handle::new(index, number)));
            }
        }
    }

    /// A copy that shares all chunks with this one.
    pub fn freeze(&mut self) -> Self {
        for class in &mut self.classes {
            for chunk in &mut class.chunks {
                if let Chunk::Own(bytes) = chunk {
                    *chunk = Chunk::Shared(Arc::new(std::mem::take(bytes)));
                }
            }
        }
        self.clone()
    }

    #[inline]
    fn block(&self, handle: Handle) -> &[u8] {
        let (chunk, range) = range(handle.class(), handle.number());
        &self.classes[handle.class()].chunks[chunk].bytes()[range]
    }

    #[inline]
    fn block_mut(&mut self, handle: Handle) -> &mut [u8] {
        let (chunk, range) = range(handle.class(), handle.number());
        &mut self.classes[handle.class()].chunks[chunk].bytes_mut()[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(n: u8) -> Vec<u8> {
        vec![n; 14 + n as usize % 80]
    }

    fn all(arena: &Arena) -> Vec<Handle> {
        let (mut handles, mut at) = (Vec::new(), Handle(0));
        while let Some((handle, next)) = arena.next_in_use(at, &mut 1_000_000) {
            handles.extend(handle);
            at = next;
        }
        handles
    }

    #[test]
    fn blocks_keep_what_was_written_and_are_used_again() {
        let mut arena = Arena::new();
        let handles: Vec<Handle> = (0..200u8)
            .map(|n| arena.insert(Identity(n.into()), &state(n)).expect("room"))
            .collect();
        for (n, handle) in (0..200u8).zip(&handles) {
            assert_eq!(arena.identity(*handle), Identity(n.into()));
            assert!(arena.state(*handle).starts_with(&state(n)));
        }
        assert_eq!(all(&arena).len(), 200);
        for handle in handles.iter().step_by(2) {
            arena.remove(*handle);
        }
        assert_eq!(all(&arena).len(), 100);
        let used: Vec<u32> = arena.classes.iter().map(|class| class.used).collect();
        for n in (0..200u8).step_by(2) {
            arena.insert(Identity(n.into()), &state(n));
        }
        let now: Vec<u32> = arena.classes.iter().map(|class| class.used).collect();
        assert_eq!(used, now);
    }

    #[test]
    fn a_frozen_copy_does_not_see_what_changes_later() {
        let mut arena = Arena::new();
        let handle = arena.insert(Identity(1), &state(1)).expect("room");
        let frozen = arena.freeze();
        arena.write(handle, &state(1).iter().map(|_| 9).collect::<Vec<_>>());
        arena.insert(Identity(2), &state(1));
        assert!(frozen.state(handle).starts_with(&state(1)));
        assert_eq!(arena.state(handle)[0], 9);
        assert_eq!((all(&frozen).len(), all(&arena).len()), (1, 2));
    }

    #[test]
    fn a_walk_stops_where_it_is_told_to_and_goes_on_from_there() {
        let mut arena = Arena::new();
        for n in 0..100u8 {
            arena.insert(Identity(n.into()), &state(n));
        }
        let (mut seen, mut at) = (0, Handle(0));
        while let Some((handle, next)) = arena.next_in_use(at, &mut 1) {
            seen += usize::from(handle.is_some());
            at = next;
        }
        assert_eq!(seen, 100);
    }
}
