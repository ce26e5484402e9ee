//! A table that grows one entry at a time: slots in chunks, found through chains.
//!
//! ```text
//! chunks   [slot slot slot …] [slot slot …]     a slot never moves; freed ones are reused
//! heads    bucket -> first slot of its chain     one more bucket with each entry beyond the last
//! ```
//!
//! A growing vector or hash map would copy everything once in a while: half of its memory is empty, and
//! the copy is a pause at a million holds. Linear hashing splits one bucket at an insertion instead, so
//! an entry costs its size and four bytes, and no insertion costs more than a chunk. A frozen copy
//! shares the chunks. Knows nothing of what the entries mean. What stays true: every live entry is in
//! exactly one chain; the order of chains and slots is visible nowhere outside.

use super::chunk::Chunk;

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

/// Slots in a chunk: some kilobytes. The first change to a chunk that a frozen copy shares copies it,
/// and a record may change a few hundred.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 7;

/// Heads in a chunk: as many bytes.
const HEADS: usize = 1 << HEADS_BITS;
const HEADS_BITS: u32 = 10;

/// An entry that contains the link of its chain.
pub(super) trait Chained: Copy {
    /// The next slot in the chain, or in the list of free slots.
    fn chain(&self) -> u32;
    /// Sets it.
    fn set_chain(&mut self, next: u32);
    /// The hash by which it is found. Only called for live entries.
    fn hash(&self) -> u32;
}

#[derive(Clone, Debug)]
pub(super) struct Table<T: Copy> {
    chunks: Vec<Chunk<T>>,
    heads: Vec<Chunk<u32>>,
    buckets: u32,
    free: u32,
    slots: u32,
    len: u32,
}

impl<T: Chained> Table<T> {
    pub(super) fn new() -> Self {
        let mut table = Self {
            chunks: Vec::new(),
            heads: Vec::new(),
            buckets: 0,
            free: NIL,
            slots: 0,
            len: 0,
        };
        table.push_bucket(NIL);
        table
    }

    /// A copy of the present state; it shares all chunks.
    pub(super) fn freeze(&mut self) -> Self {
        Self {
            chunks: self.chunks.iter_mut().map(Chunk::share).collect(),
            heads: self.heads.iter_mut().map(Chunk::share).collect(),
            ..*self
        }
    }

    /// Live entries.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The entry in a slot. Slots come from this table.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> &T {
        &self.chunks[(slot >> CHUNK_BITS) as usize].all()[slot as usize & (CHUNK - 1)]
    }

    /// The entry in a slot, for changes; the fields that its hash depends on must stay the same.
    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut T {
        &mut self.chunks[(slot >> CHUNK_BITS) as usize].all_mut()[slot as usize & (CHUNK - 1)]
    }

    /// The slot of the entry with this hash for which `is_meant` is true.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_meant: impl Fn(&T) -> bool) -> Option<u32> {
        let mut slot = self.head(self.bucket_of(hash));
        while slot != NIL {
            let entry = self.at(slot);
            if is_meant(entry) {
                return Some(slot);
            }
            slot = entry.chain();
        }
        None
    }

    /// The first slot of the chain for this hash.
    #[inline]
    pub(super) fn first(&self, hash: u32) -> u32 {
        self.head(self.bucket_of(hash))
    }

    /// Puts an entry into a slot.
    pub(super) fn insert(&mut self, mut entry: T) -> u32 {
        let bucket = self.bucket_of(entry.hash());
        entry.set_chain(self.head(bucket));
        let slot = self.take_slot(entry);
        *self.head_mut(bucket) = slot;
        self.len += 1;
        if self.buckets < self.len {
            self.split();
        }
        slot
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, slot: u32) {
        let (hash, next) = {
            let entry = self.at(slot);
            (entry.hash(), entry.chain())
        };
        let bucket = self.bucket_of(hash);
        let mut before = self.head(bucket);
        if before == slot {
            *self.head_mut(bucket) = next;
        } else {
            while self.at(before).chain() != slot {
                before = self.at(before).chain();
            }
            self.at_mut(before).set_chain(next);
        }
        let free = self.free;
        self.at_mut(slot).set_chain(free);
        self.free = slot;
        self.len -= 1;
    }

    /// The slots of all live entries, in arbitrary order.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        (0..self.buckets).flat_map(move |bucket| {
            let mut slot = self.head(bucket);
            std::iter::from_fn(move || {
                let found = slot;
                if found == NIL {
                    return None;
                }
                slot = self.at(found).chain();
                Some(found)
            })
        })
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        let chunk_bytes = CHUNK * size_of::<T>() + size_of::<Chunk<T>>();
        let head_bytes = HEADS * size_of::<u32>() + size_of::<Chunk<u32>>();
        self.chunks.len() * chunk_bytes + self.heads.len() * head_bytes
    }

    fn take_slot(&mut self, entry: T) -> u32 {
        if self.free != NIL {
            let slot = self.free;
            self.free = self.at(slot).chain();
            *self.at_mut(slot) = entry;
            return slot;
        }
        let slot = self.slots;
        if (slot as usize).is_multiple_of(CHUNK) {
            self.chunks.push(Chunk::with_room(CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.all_mut().push(entry);
        }
        self.slots += 1;
        slot
    }

    #[inline]
    fn bucket_of(&self, hash: u32) -> u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash & mask;
        // A bucket that does not exist yet is still part of the one from which it will be split.
        if bucket < self.buckets {
            bucket
        } else {
            bucket & (mask >> 1)
        }
    }

    #[inline]
    fn head(&self, bucket: u32) -> u32 {
        self.heads[(bucket >> HEADS_BITS) as usize].all()[bucket as usize & (HEADS - 1)]
    }

    #[inline]
    fn head_mut(&mut self, bucket: u32) -> &mut u32 {
        &mut self.heads[(bucket >> HEADS_BITS) as usize].all_mut()[bucket as usize & (HEADS - 1)]
    }

    fn push_bucket(&mut self, head: u32) {
        if (self.buckets as usize).is_multiple_of(HEADS) {
            self.heads.push(Chunk::with_room(HEADS));
        }
        if let Some(heads) = self.heads.last_mut() {
            heads.all_mut().push(head);
        }
        self.buckets += 1;
    }

    /// Adds a bucket, and moves its entries into it from the bucket that they shared.
    fn split(&mut self) {
        let new = self.buckets;
        let level = (new + 1).next_power_of_two();
        let source = new - level / 2;
        let mut slot = self.head(source);
        let (mut stays, mut moves) = (NIL, NIL);
        while slot != NIL {
            let entry = self.at(slot);
            let (next, hash) = (entry.chain(), entry.hash());
            let side = if hash & (level - 1) == new {
                &mut moves
            } else {
                &mut stays
            };
            let behind = std::mem::replace(side, slot);
            self.at_mut(slot).set_chain(behind);
            slot = next;
        }
        *self.head_mut(source) = stays;
        self.push_bucket(moves);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    struct Entry {
        key: u32,
        chain: u32,
    }

    impl Chained for Entry {
        fn chain(&self) -> u32 {
            self.chain
        }
        fn set_chain(&mut self, next: u32) {
            self.chain = next;
        }
        fn hash(&self) -> u32 {
            self.key.wrapping_mul(0x9e37_79b1)
        }
    }

    #[test]
    fn an_entry_is_found_until_it_is_removed() {
        let mut table = Table::new();
        let mut slots = BTreeMap::new();
        let find = |table: &Table<Entry>, key: u32| {
            table.find(key.wrapping_mul(0x9e37_79b1), |entry| entry.key == key)
        };
        for round in 0..20_000u32 {
            // Inserts more than it removes, and uses every key several times.
            let key = round.wrapping_mul(2_654_435_761) % 4_096;
            match slots.remove(&key) {
                Some(slot) if round % 3 == 0 => table.remove(slot),
                Some(slot) => {
                    slots.insert(key, slot);
                }
                None => {
                    let slot = table.insert(Entry { key, chain: NIL });
                    slots.insert(key, slot);
                }
            }
            assert_eq!(find(&table, key), slots.get(&key).copied());
            assert_eq!(table.len() as usize, slots.len());
        }
        for key in 0..4_096 {
            assert_eq!(find(&table, key), slots.get(&key).copied(), "{key}");
        }
        let mut listed: Vec<u32> = table.slots().collect();
        listed.sort_unstable();
        let mut live: Vec<u32> = slots.into_values().collect();
        live.sort_unstable();
        assert_eq!(listed, live);
    }

    #[test]
    fn a_frozen_table_stays_as_it_was_and_the_other_goes_on() {
        let mut table = Table::new();
        for key in 0..3_000 {
            table.insert(Entry { key, chain: NIL });
        }
        let frozen = table.freeze();
        let all: Vec<u32> = table.slots().collect();
        for slot in all.iter().step_by(3) {
            table.remove(*slot);
        }
        for key in 3_000..6_000 {
            table.insert(Entry { key, chain: NIL });
        }
        let keys = |table: &Table<Entry>| {
            let mut keys: Vec<u32> = table.slots().map(|slot| table.at(slot).key).collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(keys(&frozen), (0..3_000).collect::<Vec<u32>>());
        assert_eq!(frozen.slots().collect::<Vec<u32>>(), all);
        assert_eq!((keys(&table).len(), table.len()), (5_000, 5_000));
    }

    #[test]
    fn a_freed_slot_is_used_before_the_table_grows() {
        let mut table = Table::new();
        for key in 0..5_000 {
            table.insert(Entry { key, chain: NIL });
        }
        let bytes = table.heap_bytes();
        for _ in 0..3 {
            let slots: Vec<u32> = table.slots().collect();
            slots.into_iter().for_each(|slot| table.remove(slot));
            for key in 0..5_000 {
                table.insert(Entry { key, chain: NIL });
            }
        }
        assert_eq!(table.heap_bytes(), bytes);
    }
}
