//! From an identity to a handle: extendible hashing in segments of four kilobytes.
//!
//! ```text
//! identity   … | tag 8 bits | home group 6 bits | directory: as many low bits as necessary
//! directory  [ s0, s1, s0, s2 ] ──> segment: 64 groups of one cache line: 12 tags, 12 handles
//! ```
//!
//! A lookup reads one line of the directory and mostly one line of a segment; the tag rules out most
//! other entries before a pair itself is read. A full segment splits into two, which moves some
//! hundred handles; only the directory (four bytes for each segment) ever doubles. Knows nothing of
//! what a handle refers to: a function of the caller compares identities. What stays true: an entry
//! is in the first group from its home on that had room, and each group counts the entries that
//! passed it, so that a search knows where to stop and a removal leaves no trace.

use super::identity::Identity;

/// Entries of a group: with their tags they fill one cache line.
const GROUP_SLOTS: usize = 12;
/// Groups of a segment.
const SEGMENT_GROUPS: usize = 64;
/// Entries at which a segment splits: seven eighths. With more of them searches become long.
const SEGMENT_FULL: u16 = (GROUP_SLOTS * SEGMENT_GROUPS * 7 / 8) as u16;
/// How many bits of an identity the directory may use; the next ones choose the group.
const DIRECTORY_BITS: u32 = 32;
/// A directory of so many entries is always worth its memory.
const DIRECTORY_MIN: usize = 64;

/// The place of a pair in the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle(pub u32);

/// The place of an entry in the index. Valid until the next insertion or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexSlot {
    segment: u32,
    group: u8,
    slot: u8,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct IndexGroup {
    /// For each slot the tag of its entry; 0: free.
    tags: [u8; GROUP_SLOTS],
    /// Entries whose home is at or before this group and that are in a later one.
    passed: u32,
    handles: [Handle; GROUP_SLOTS],
}

struct Segment {
    /// How many low bits of the identity all entries have in common.
    depth: u32,
    len: u16,
    groups: [IndexGroup; SEGMENT_GROUPS],
}

/// The index.
pub(super) struct Index {
    depth: u32,
    directory: Vec<u32>,
    segments: Vec<Box<Segment>>,
    len: usize,
}

fn home(identity: Identity) -> usize {
    ((identity.0 >> 32) as usize) % SEGMENT_GROUPS
}

fn tag(identity: Identity) -> u8 {
    // 0 stands for a free slot, so the tag 1 is twice as frequent as the others.
    ((identity.0 >> 40) as u8).max(1)
}

impl IndexGroup {
    const EMPTY: Self = Self {
        tags: [0; GROUP_SLOTS],
        passed: 0,
        handles: [Handle(0); GROUP_SLOTS],
    };

    /// Sets the top bit of the byte of each slot that has this tag.
    #[inline]
    fn matches(&self, tag: u8) -> u128 {
        const LOW_BITS: u128 = 0x7f7f_7f7f_7f7f_7f7f_7f7f_7f7f;
        let mut tags = [0; 16];
        tags[..GROUP_SLOTS].copy_from_slice(&self.tags);
        // A byte that is zero here has the tag; the addition shows which other bytes have any bit
        // set.
        let differing = u128::from_le_bytes(tags) ^ (u128::from(tag) * (LOW_BITS / 0x7f));
        let some = ((differing & LOW_BITS) + LOW_BITS) | differing;
        !some & (LOW_BITS + LOW_BITS / 0x7f) & !LOW_BITS
    }

    fn free_slot(&self) -> Option<usize> {
        self.tags.iter().position(|tag| *tag == 0)
    }
}

impl Segment {
    fn new(depth: u32) -> Box<Self> {
        Box::new(Self {
            depth,
            len: 0,
            groups: [IndexGroup::EMPTY; SEGMENT_GROUPS],
        })
    }

    fn insert(&mut self, identity: Identity, handle: Handle) -> Option<(usize, usize)> {
        let mut group = home(identity);
        for _ in 0..SEGMENT_GROUPS {
            if let Some(slot) = self.groups[group].free_slot() {
                self.groups[group].tags[slot] = tag(identity);
                self.groups[group].handles[slot] = handle;
                self.len += 1;
                return Some((group, slot));
            }
            self.groups[group].passed += 1;
            group = (group + 1) % SEGMENT_GROUPS;
        }
        None
    }
}

impl Index {
    pub fn new() -> Self {
        Self {
            depth: 0,
            directory: vec![0],
            segments: vec![Segment::new(0)],
            len: 0,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry of `identity`; `is` returns whether a handle is that pair's.
    #[inline]
    pub fn find(
        &self,
        identity: Identity,
        is: impl Fn(Handle) -> bool,
    ) -> Option<(IndexSlot, Handle)> {
        let segment = self.segment_of(identity);
        let groups = &self.segments[segment as usize].groups;
        let tag = tag(identity);
        let mut at = home(identity);
        for _ in 0..SEGMENT_GROUPS {
            let group = &groups[at];
            let mut matches = group.matches(tag);
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize / 8;
                let handle = group.handles[slot];
                if is(handle) {
                    let slot = IndexSlot {
                        segment,
                        group: at as u8,
                        slot: slot as u8,
                    };
                    return Some((slot, handle));
                }
                matches &= matches - 1;
            }
            if group.passed == 0 {
                return None;
            }
            at = (at + 1) % SEGMENT_GROUPS;
        }
        None
    }

    /// A handle that may be the pair's, for reading ahead: the first with its tag. Does not read the
    /// pair itself.
    #[inline]
    pub fn guess(&self, identity: Identity) -> Option<Handle> {
        let segment = &self.segments[self.segment_of(identity) as usize];
        let group = &segment.groups[home(identity)];
        match group.matches(tag(identity)) {
            0 => None,
            matches => Some(group.handles[matches.trailing_zeros() as usize / 8]),
        }
    }

    /// Sets the handle of an entry.
    pub fn set(&mut self, slot: IndexSlot, handle: Handle) {
        let group = &mut self.segments[slot.segment as usize].groups[slot.group as usize];
        group.handles[slot.slot as usize] = handle;
    }

    /// Adds an identity that is not there. `of` returns the identity of an entry that has to move.
    /// `None`, and nothing has changed, if a segment is full of identities that agree in so many
    /// bits that splitting it would cost more directory than there are entries. With a keyed hash
    /// this never occurs.
    pub fn insert(
        &mut self,
        identity: Identity,
        handle: Handle,
        of: impl Fn(Handle) -> Identity,
    ) -> Option<IndexSlot> {
        let mut segment = self.segment_of(identity);
        while SEGMENT_FULL <= self.segments[segment as usize].len {
            if !self.split(segment, &of) {
                break;
            }
            segment = self.segment_of(identity);
        }
        let full = GROUP_SLOTS * SEGMENT_GROUPS;
        if usize::from(self.segments[segment as usize].len) == full {
            return None;
        }
        let (group, slot) = self.segments[segment as usize].insert(identity, handle)?;
        self.len += 1;
        Some(IndexSlot {
            segment,
            group: group as u8,
            slot: slot as u8,
        })
    }

    /// Removes an entry.
    pub fn remove(&mut self, identity: Identity, slot: IndexSlot) {
        let segment = &mut self.segments[slot.segment as usize];
        segment.groups[slot.group as usize].tags[slot.slot as usize] = 0;
        segment.len -= 1;
        self.len -= 1;
        let mut group = home(identity);
        while group != slot.group as usize {
            segment.groups[group].passed -= 1;
            group = (group + 1) % SEGMENT_GROUPS;
        }
    }

    #[inline]
    fn segment_of(&self, identity: Identity) -> u32 {
        let mask = self.directory.len() - 1;
        self.directory[(identity.0 as u32 as usize) & mask]
    }

    /// Splits a segment in two by one more bit. False if no bit is left.
    fn split(&mut self, number: u32, of: &impl Fn(Handle) -> Identity) -> bool {
        let depth = self.segments[number as usize].depth;
        if depth == DIRECTORY_BITS {
            return false;
        }
        if depth == self.depth {
            if self.len.max(DIRECTORY_MIN) < self.directory.len() {
                return false;
            }
            self.directory.extend_from_within(..);
            self.depth += 1;
        }
        let old = std::mem::replace(&mut self.segments[number as usize], Segment::new(depth + 1));
        let upper_number = self.segments.len() as u32;
        let mut upper = Segment::new(depth + 1);
        let mut some_bits = 0;
        for group in &old.groups {
            for (slot, _) in group.tags.iter().enumerate().filter(|(_, tag)| **tag != 0) {
                let handle = group.handles[slot];
                let identity = of(handle);
                some_bits = identity.0 as u32;
                let half = match (some_bits >> depth) & 1 {
                    0 => &mut self.segments[number as usize],
                    _ => &mut upper,
                };
                // There is room: neither half gets more than the whole had.
                let _ = half.insert(identity, handle);
            }
        }
        self.segments.push(upper);
        let low_bits = (some_bits as usize) & ((1 << depth) - 1);
        let first = low_bits | (1 << depth);
        for entry in self.directory[first..].iter_mut().step_by(2 << depth) {
            *entry = upper_number;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(n: u32) -> Identity {
        let mut digest = super::super::mix(0, u64::from(n));
        digest = super::super::mix(digest, 7);
        Identity(digest)
    }

    #[test]
    fn only_entries_that_were_inserted_are_found() {
        let mut index = Index::new();
        let of = |handle: Handle| identity(handle.0);
        let is = |n: u32| move |handle: Handle| handle.0 == n;
        for n in 0..50_000 {
            assert!(index.insert(identity(n), Handle(n), of).is_some());
        }
        for n in (0..50_000).step_by(3) {
            let (slot, _) = index.find(identity(n), is(n)).expect("it is there");
            index.remove(identity(n), slot);
        }
        for n in 0..60_000 {
            let there = n < 50_000 && n % 3 != 0;
            assert_eq!(index.find(identity(n), is(n)).is_some(), there, "{n}");
        }
        for n in (0..50_000).step_by(3) {
            assert!(index.insert(identity(n), Handle(n), of).is_some());
        }
        assert_eq!(index.len(), 50_000);
        assert!((0..50_000).all(|n| index.find(identity(n), is(n)).is_some()));
    }

    #[test]
    fn an_emptied_index_has_no_trace_of_its_entries() {
        let mut index = Index::new();
        for n in 0..600 {
            index.insert(identity(n), Handle(n), |handle| identity(handle.0));
        }
        for n in 0..600 {
            let found = index.find(identity(n), |handle| handle.0 == n);
            index.remove(identity(n), found.expect("it is there").0);
        }
        assert_eq!(index.len(), 0);
        let groups = &index.segments[0].groups;
        assert!(groups.iter().all(|group| group.passed == 0));
    }

    #[test]
    fn identities_that_agree_fill_one_segment_and_no_more_memory() {
        let mut index = Index::new();
        let alike = |n: u32| Identity(u128::from(n) << 64);
        let of = |handle: Handle| alike(handle.0);
        let taken = (0..2_000).filter(|n| index.insert(alike(*n), Handle(*n), of).is_some());
        assert_eq!(taken.count(), GROUP_SLOTS * SEGMENT_GROUPS);
        assert!(index.directory.len() <= 2_048, "{}", index.directory.len());
        let there = |n: &u32| index.find(alike(*n), |handle| handle.0 == *n).is_some();
        assert_eq!((0..2_000).filter(there).count(), index.len());
    }
}
