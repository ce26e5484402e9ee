//! Groups by name with their counts, and the sets of groups that holds were taken under.
//!
//! ```text
//! a domain in red and blue    set {blue, red}     a hold names the set, four bytes
//! the domain leaves blue      set {red}           holds from before still name {blue, red}
//! ```
//!
//! Sets are interned, because a million holds are taken under a handful of them. Knows nothing of
//! domains and holds beyond their number. What stays true: a group stays while limits name it or a
//! hold was taken under it; the groups of a set are ordered by name.

use std::collections::BTreeMap;

use super::digest;
use super::limits::CopyLimits;

/// A group of a resource, by its number; valid until the next version of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupIx(pub(super) u32);

/// The set without groups; it always exists.
pub(super) const NO_GROUPS: u32 = 0;

#[derive(Clone, Debug)]
pub(super) struct CopiesGroup {
    pub(super) name: Box<str>,
    pub(super) copies: u64,
    /// The effective limit; `None`: the limits in force do not have the group.
    pub(super) limit: Option<u64>,
    /// Number of sets that contain it.
    sets: u32,
}

#[derive(Clone, Debug, Default)]
struct Set {
    groups: Box<[u32]>,
    /// Number of holds and transfers under it.
    refs: u64,
    mark: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Groups {
    groups: Vec<CopiesGroup>,
    by_name: BTreeMap<Box<str>, u32>,
    free_groups: Vec<u32>,
    sets: Vec<Set>,
    by_groups: BTreeMap<Box<[u32]>, u32>,
    free_sets: Vec<u32>,
    /// The set of each class of the limits in force.
    set_of_class: Vec<u32>,
}

impl CopiesGroup {
    /// Whether it has no room.
    pub(super) fn full(&self) -> bool {
        self.limit.is_some_and(|limit| limit <= self.copies)
    }
}

impl Groups {
    pub(super) fn new() -> Self {
        let mut groups = Self {
            groups: Vec::new(),
            by_name: BTreeMap::new(),
            free_groups: Vec::new(),
            sets: Vec::new(),
            by_groups: BTreeMap::new(),
            free_sets: Vec::new(),
            set_of_class: Vec::new(),
        };
        groups.intern_set(Vec::new());
        groups
    }

    /// Brings a version of the limits into force.
    pub(super) fn new_limits(&mut self, limits: &CopyLimits) {
        for group in &mut self.groups {
            group.limit = None;
        }
        let numbers: Vec<u32> = limits
            .groups
            .iter()
            .map(|named| {
                let number = self.intern_group(&named.name);
                self.groups[number as usize].limit = Some(named.limit);
                number
            })
            .collect();
        self.set_of_class = limits
            .classes
            .iter()
            .map(|class| {
                let groups = class.groups.iter().map(|of| numbers[*of as usize]);
                self.intern_set(groups.collect())
            })
            .collect();
        self.sweep();
    }

    /// The set of a class of the limits in force.
    #[inline]
    pub(super) fn set_of_class(&self, class: u32) -> u32 {
        self.set_of_class[class as usize]
    }

    /// The set of the groups with these names; unknown groups are added.
    pub(super) fn set_of_names<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> u32 {
        let groups = names.map(|name| self.intern_group(name)).collect();
        self.intern_set(groups)
    }

    /// The groups of a set, by name.
    #[inline]
    pub(super) fn of_set(
        &self,
        set: u32,
    ) -> impl DoubleEndedIterator<Item = (GroupIx, &CopiesGroup)> {
        let groups = self.sets[set as usize].groups.iter();
        groups.map(|&number| (GroupIx(number), &self.groups[number as usize]))
    }

    /// A fingerprint of the names in a set.
    pub(super) fn mark_of_set(&self, set: u32) -> u64 {
        self.sets[set as usize].mark
    }

    /// Sets that have holds or transfers, in arbitrary order.
    pub(super) fn sets_in_use(&self) -> impl Iterator<Item = u32> {
        let used = self.sets.iter().zip(0u32..).filter(|(set, _)| 0 < set.refs);
        used.map(|(_, number)| number)
    }

    /// All groups that limits name or that have holds, by name.
    pub(super) fn by_name(&self) -> impl Iterator<Item = &CopiesGroup> {
        self.by_name
            .values()
            .map(|&number| &self.groups[number as usize])
    }

    pub(super) fn get(&self, name: &str) -> Option<&CopiesGroup> {
        let number = self.by_name.get(name)?;
        Some(&self.groups[*number as usize])
    }

    pub(super) fn at(&self, group: GroupIx) -> Option<&CopiesGroup> {
        self.groups.get(group.0 as usize)
    }

    /// Counts copies in under every group of a set.
    #[inline]
    pub(super) fn count_in(&mut self, set: u32, copies: u64) {
        for &number in &self.sets[set as usize].groups {
            self.groups[number as usize].copies += copies;
        }
    }

    /// Counts copies out, and calls `opened` for each group that was full and has room now.
    #[inline]
    pub(super) fn count_out(&mut self, set: u32, copies: u64, mut opened: impl FnMut(&str)) {
        for &number in &self.sets[set as usize].groups {
            let group = &mut self.groups[number as usize];
            let was_full = group.full();
            group.copies -= copies;
            if was_full && !group.full() {
                opened(&group.name);
            }
        }
    }

    /// One more hold or transfer is under a set.
    #[inline]
    pub(super) fn refer(&mut self, set: u32) {
        self.sets[set as usize].refs += 1;
    }

    /// One hold or transfer fewer is under a set.
    #[inline]
    pub(super) fn unrefer(&mut self, set: u32) {
        self.sets[set as usize].refs -= 1;
    }

    fn intern_group(&mut self, name: &str) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let group = CopiesGroup {
            name: name.into(),
            copies: 0,
            limit: None,
            sets: 0,
        };
        let number = match self.free_groups.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        self.by_name.insert(name.into(), number);
        number
    }

    fn intern_set(&mut self, groups: Vec<u32>) -> u32 {
        if let Some(set) = self.by_groups.get(groups.as_slice()) {
            return *set;
        }
        let groups = groups.into_boxed_slice();
        for &number in &groups {
            self.groups[number as usize].sets += 1;
        }
        let names = groups
            .iter()
            .map(|number| &*self.groups[*number as usize].name);
        let set = Set {
            mark: digest::of_names(names),
            groups: groups.clone(),
            refs: 0,
        };
        let number = match self.free_sets.pop() {
            Some(number) => {
                self.sets[number as usize] = set;
                number
            }
            None => {
                self.sets.push(set);
                self.sets.len() as u32 - 1
            }
        };
        self.by_groups.insert(groups, number);
        number
    }

    /// Drops sets that have no hold and no class, then groups that no set and no limits name.
    fn sweep(&mut self) {
        let mut wanted = vec![false; self.sets.len()];
        wanted[NO_GROUPS as usize] = true;
        for set in &self.set_of_class {
            wanted[*set as usize] = true;
        }
        let (sets, groups, free) = (&self.sets, &mut self.groups, &mut self.free_sets);
        self.by_groups.retain(|_, number| {
            let set = &sets[*number as usize];
            let stays = wanted[*number as usize] || 0 < set.refs;
            if !stays {
                for group in &set.groups {
                    groups[*group as usize].sets -= 1;
                }
                free.push(*number);
            }
            stays
        });
        let free = &mut self.free_groups;
        self.by_name.retain(|_, number| {
            let group = &groups[*number as usize];
            let stays = group.limit.is_some() || 0 < group.sets;
            if !stays {
                free.push(*number);
            }
            stays
        });
    }

    /// Bytes on the heap, without the names.
    pub(super) fn heap_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<CopiesGroup>() + self.sets.capacity() * size_of::<Set>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(groups: &[&str]) -> CopyLimits {
        let builder = CopyLimits::builder(5);
        let named = groups
            .iter()
            .fold(builder, |builder, name| builder.group(name, 3, ["acme"]));
        named.build()
    }

    #[test]
    fn a_group_stays_while_something_was_taken_under_it() {
        let mut groups = Groups::new();
        groups.new_limits(&limits(&["red"]));
        let class = limits(&["red"]).class_of("acme");
        let set = groups.set_of_class(class);
        groups.refer(set);
        groups.count_in(set, 2);
        groups.new_limits(&limits(&["blue"]));
        let names: Vec<&str> = groups.by_name().map(|group| &*group.name).collect();
        assert_eq!(names, ["blue", "red"]);
        groups.count_out(set, 2, |_| {});
        groups.unrefer(set);
        groups.new_limits(&limits(&["blue"]));
        assert!(groups.get("red").is_none());
    }

    #[test]
    fn endless_versions_take_bounded_memory() {
        let mut groups = Groups::new();
        for n in 0..1_000 {
            groups.new_limits(&limits(&[&format!("g{n}"), &format!("h{n}")]));
        }
        assert!(groups.groups.len() <= 4, "{}", groups.groups.len());
        assert!(groups.sets.len() <= 4, "{}", groups.sets.len());
    }
}
