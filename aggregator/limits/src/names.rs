//! A table of names: many short strings, looked up by hash, walked in order.
//!
//! A million tenants may have limits of their own, and every new pair looks its domain up. A hash
//! map of boxed strings would spend an allocation and some eighty bytes on each; here all names are
//! in one sorted text, and a name costs its bytes and about twenty more. Built once, never changed.
//! Knows nothing of what a name stands for: it numbers names densely, in their order.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// Names in ascending order of their bytes, each with its number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NameTable {
    text: Box<str>,
    ends: Box<[u32]>,
    slots: Box<[NameSlot]>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct NameSlot {
    /// Half of the name's hash: rules out most other names without reading them.
    tag: u32,
    /// The name's number plus one; zero: the slot is empty.
    number: u32,
}

/// How many bytes the names of one table may have together: offsets are 32 bits wide.
pub const TABLE_BYTES_MAX: usize = u32::MAX as usize;

impl NameTable {
    /// A table of names, which must ascend without duplicates. Names beyond [`TABLE_BYTES_MAX`]
    /// bytes are left out; documents are bounded far below it.
    pub fn from_sorted<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut text = String::new();
        let mut ends = Vec::new();
        for name in names {
            let Ok(end) = u32::try_from(text.len() + name.len()) else {
                break;
            };
            text.push_str(name);
            ends.push(end);
        }
        let mut table = Self {
            text: text.into_boxed_str(),
            ends: ends.into_boxed_slice(),
            slots: Box::default(),
        };
        table.fill_slots();
        table
    }

    /// The name's number, if it is in the table.
    ///
    /// One hash, and for a name that is not in the table mostly one memory access.
    pub fn number_of(&self, name: &str) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mask = self.slots.len() - 1;
        let (mut at, tag) = self.home_of(name);
        loop {
            let slot = self.slots[at];
            if slot.number == 0 {
                return None;
            }
            let number = slot.number as usize - 1;
            if slot.tag == tag && self.name(number) == name {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// The name with this number. Panics for an unknown number: numbers come from this table.
    pub fn name(&self, number: usize) -> &str {
        let start = match number {
            0 => 0,
            _ => self.ends[number - 1] as usize,
        };
        &self.text[start..self.ends[number] as usize]
    }

    /// All names, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.ends.len()).map(|number| self.name(number))
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends) + size_of_val(&*self.slots)
    }

    fn fill_slots(&mut self) {
        if self.ends.is_empty() {
            return;
        }
        // At most three quarters full, so that a search for an unknown name ends soon.
        let wanted = self.ends.len() + self.ends.len() / 3 + 1;
        self.slots = vec![NameSlot::default(); wanted.next_power_of_two()].into_boxed_slice();
        let mask = self.slots.len() - 1;
        for number in 0..self.ends.len() {
            let (mut at, tag) = self.home_of(self.name(number));
            while self.slots[at].number != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = NameSlot {
                tag,
                number: number as u32 + 1,
            };
        }
    }

    fn home_of(&self, name: &str) -> (usize, u32) {
        // The key is fixed: the names come from an operator's document, so a caller who chooses
        // names can at most hit the longest run that happens to be in the table.
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        let hash = hasher.finish();
        (hash as usize & (self.slots.len() - 1), (hash >> 32) as u32)
    }
}

impl std::fmt::Debug for NameTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_under_its_number_and_no_other_is() {
        let names: Vec<String> = (0..10_000).map(|n| format!("tenant-{n:05}")).collect();
        let table = NameTable::from_sorted(names.iter().map(String::as_str));
        assert_eq!(table.len(), 10_000);
        for (number, name) in names.iter().enumerate() {
            assert_eq!(table.number_of(name), Some(number));
            assert_eq!(table.name(number), name);
        }
        for n in 10_000..20_000 {
            assert_eq!(table.number_of(&format!("tenant-{n}")), None);
        }
        assert!(table.iter().eq(names.iter().map(String::as_str)));
    }

    #[test]
    fn a_stranger_with_the_same_hash_bits_stays_a_stranger() {
        // Among so many names some agree in slot and tag with the one name of a table.
        let one = NameTable::from_sorted(["x"].into_iter());
        let mut seen = std::collections::HashMap::new();
        let mut pairs = 0;
        for n in 0..500_000u32 {
            let name = n.to_string();
            if let Some(other) = seen.insert(one.home_of(&name), n) {
                let table = NameTable::from_sorted([name.as_str()].into_iter());
                assert_eq!(table.number_of(&name), Some(0));
                assert_eq!(table.number_of(&other.to_string()), None);
                pairs += 1;
            }
        }
        assert!(0 < pairs);
    }

    #[test]
    fn an_empty_table_finds_no_name() {
        let table = NameTable::default();
        assert!(table.is_empty());
        assert_eq!(table.number_of("acme"), None);
        assert_eq!(NameTable::from_sorted([].into_iter()), table);
    }

    #[test]
    fn a_million_names_take_modest_memory() {
        let names: Vec<String> = (0..1_000_000).map(|n| format!("t{n:07}")).collect();
        let table = NameTable::from_sorted(names.iter().map(String::as_str));
        // Eight bytes of name, four of end, and at load 0.48 two slots of eight.
        assert!(
            table.heap_bytes() < 30 * 1_000_000,
            "{}",
            table.heap_bytes()
        );
        assert_eq!(table.number_of("t0999999"), Some(999_999));
    }
}
