//! Domains that hold copies: how many, and how they are limited.
//!
//! A domain takes 28 bytes, a bucket and its name, and is removed with its last hold. Knows nothing
//! of holds beyond their number. What stays true: a domain is here exactly while a hold, a lost
//! hold of a gone agent or a transfer refers to it.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::names::{NameCells, NameRef};
use super::table::{Chained, NIL, Table};

/// The secret under which names are hashed: a caller who chooses domain names must not be able to
/// choose a bucket. All aggregators that rule a log use the same key, because they compare digests.
#[derive(Clone, Copy)]
pub struct NameKey {
    /// The first half.
    pub k0: u64,
    /// The second half.
    pub k1: u64,
}

impl std::fmt::Debug for NameKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NameKey(…)")
    }
}

/// One domain. Words of four bytes, to avoid padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopiesDomain {
    copies: [u32; 2],
    tag: u32,
    refs: u32,
    name: NameRef,
    /// The class of its limits, counted over all versions; see [`Domains::class_at`].
    class: u32,
    chain: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Domains {
    table: Table<CopiesDomain>,
    names: NameCells,
    key: NameKey,
}

impl CopiesDomain {
    #[inline]
    pub(super) fn copies(&self) -> u64 {
        u64::from(self.copies[0]) | u64::from(self.copies[1]) << 32
    }

    pub(super) fn tag(&self) -> u32 {
        self.tag
    }

    fn set_copies(&mut self, copies: u64) {
        self.copies = [copies as u32, (copies >> 32) as u32];
    }
}

impl Chained for CopiesDomain {
    fn chain(&self) -> u32 {
        self.chain
    }
    fn set_chain(&mut self, next: u32) {
        self.chain = next;
    }
    fn hash(&self) -> u32 {
        self.tag
    }
}

impl Domains {
    pub(super) fn new(key: NameKey) -> Self {
        Self {
            table: Table::new(),
            names: NameCells::new(),
            key,
        }
    }

    /// A copy of the present state; it shares the memory of domains and names.
    pub(super) fn freeze(&mut self) -> Self {
        Self {
            table: self.table.freeze(),
            names: self.names.freeze(),
            key: self.key,
        }
    }

    #[inline]
    pub(super) fn tag_of(&self, name: &str) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.key.k0, self.key.k1);
        hasher.write(name.as_bytes());
        hasher.finish() as u32
    }

    /// The first slot of the chain for this tag.
    #[inline]
    pub(super) fn first(&self, tag: u32) -> u32 {
        self.table.first(tag)
    }

    /// Reads a domain and its name into the cache.
    #[inline]
    pub(super) fn touch(&self, slot: u32) -> u32 {
        let domain = self.table.at(slot);
        let first = self.names.bytes(domain.name).first();
        domain.chain ^ u32::from(first.copied().unwrap_or_default())
    }

    #[inline]
    pub(super) fn find(&self, name: &str, tag: u32) -> Option<u32> {
        self.table.find(tag, |domain| {
            domain.tag == tag && self.names.bytes(domain.name) == name.as_bytes()
        })
    }

    /// Adds a domain that is not here yet, with no copies counted and no references.
    pub(super) fn insert(&mut self, name: &str, tag: u32, class: u32) -> u32 {
        let name = self.names.keep(name);
        self.table.insert(CopiesDomain {
            copies: [0; 2],
            tag,
            refs: 0,
            name,
            class,
            chain: NIL,
        })
    }

    #[inline]
    pub(super) fn at(&self, slot: u32) -> &CopiesDomain {
        self.table.at(slot)
    }

    pub(super) fn name(&self, slot: u32) -> &str {
        self.names.text(self.table.at(slot).name)
    }

    #[inline]
    pub(super) fn count_in(&mut self, slot: u32, copies: u64) {
        let domain = self.table.at_mut(slot);
        domain.set_copies(domain.copies() + copies);
    }

    #[inline]
    pub(super) fn count_out(&mut self, slot: u32, copies: u64) {
        let domain = self.table.at_mut(slot);
        domain.set_copies(domain.copies() - copies);
    }

    #[inline]
    pub(super) fn refer(&mut self, slot: u32) {
        self.table.at_mut(slot).refs += 1;
    }

    /// Removes one reference; with the last one the domain is removed.
    #[inline]
    pub(super) fn unrefer(&mut self, slot: u32) {
        let domain = self.table.at_mut(slot);
        domain.refs -= 1;
        if domain.refs == 0 {
            let name = domain.name;
            self.table.remove(slot);
            self.names.free(name);
        }
    }

    /// The class that was last found for a domain.
    #[inline]
    pub(super) fn class_at(&self, slot: u32) -> u32 {
        self.table.at(slot).class
    }

    #[inline]
    pub(super) fn set_class(&mut self, slot: u32, class: u32) {
        self.table.at_mut(slot).class = class;
    }

    /// All domains, by name.
    pub(super) fn by_name(&self) -> Vec<(&str, u32)> {
        let slots = self.table.slots();
        let mut all: Vec<(&str, u32)> = slots.map(|slot| (self.name(slot), slot)).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn len(&self) -> u32 {
        self.table.len()
    }

    pub(super) fn refs(&self, slot: u32) -> u32 {
        self.table.at(slot).refs
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.table.slots()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.names.heap_bytes()
    }
}
