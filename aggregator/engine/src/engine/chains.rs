//! Order of totals: which hits record of which partition was totalled last for a resource.
//!
//! ```text
//! partition 3 totals its records 10, 17, 20 for api.search: previous none, 10, 17
//! if 20 arrives first at the resource's partition: its previous, 17, was not applied, so 20 is refused
//! ```
//!
//! So each granted hit counts once under the global limit, and in order. Knows nothing of what a
//! total counts. What stays true: chains are never forgotten, even while the limits have no global
//! limit, since a chain with a gap would stay broken. There is one for each globally limited
//! resource and partition.

use std::collections::BTreeMap;

use crate::pairs::{Identities, mix};

/// Both ends of this partition's chains.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    /// By resource: the offset of this partition's record that was totalled last.
    due: BTreeMap<Box<str>, u64>,
    /// By resource and source partition: the source offset of the total that was applied last.
    applied: BTreeMap<(Box<str>, u32), u64>,
    digest: u128,
}

/// Replaces the source partition in the digest of the `due` links, to tell the two kinds of links
/// apart.
const DUE: u64 = u64::MAX;

impl Chains {
    /// Notes that this partition's record at `offset` has a total for `resource`; returns the
    /// offset of the total before it.
    pub fn total(&mut self, identities: &Identities, resource: &str, offset: u64) -> Option<u64> {
        let before = match self.due.get_mut(resource) {
            Some(last) => Some(std::mem::replace(last, offset)),
            None => self.due.insert(resource.into(), offset),
        };
        self.note(identities, resource, DUE, before, offset);
        before
    }

    /// Notes a total of another partition's record; false if it is not the next one of its chain.
    ///
    /// In a log whose beginning is gone (`began` is false) the first total of a source is accepted
    /// whatever its previous one, since earlier totals can no longer arrive.
    pub fn apply(
        &mut self,
        identities: &Identities,
        resource: &str,
        source: (u32, u64),
        previous: Option<u64>,
        began: bool,
    ) -> bool {
        let (partition, offset) = source;
        let key = (Box::from(resource), partition);
        let last = self.applied.get(&key).copied();
        let follows = last == previous || (last.is_none() && !began);
        if follows {
            self.applied.insert(key, offset);
            self.note(identities, resource, u64::from(partition), last, offset);
        }
        follows
    }

    /// A digest of the links alone.
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// The last totalled own record of each resource.
    pub fn due(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.due
            .iter()
            .map(|(resource, offset)| (&**resource, *offset))
    }

    /// The last applied total of one resource and source partition.
    pub fn last_applied(&self, resource: &str, source: u32) -> Option<u64> {
        self.applied.get(&(Box::from(resource), source)).copied()
    }

    /// The last applied total of each resource and source partition.
    pub fn applied(&self) -> impl ExactSizeIterator<Item = (&str, u32, u64)> {
        let links = self.applied.iter();
        links.map(|((resource, partition), offset)| (&**resource, *partition, *offset))
    }

    fn note(
        &mut self,
        identities: &Identities,
        resource: &str,
        end: u64,
        before: Option<u64>,
        after: u64,
    ) {
        let link = |offset| mix(identities.of_numbered(resource, end).0, offset);
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(link(before));
        }
        self.digest = self.digest.wrapping_add(link(after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::place::LogId;

    #[test]
    fn only_the_next_link_is_taken() {
        let identities = Identities::new(LogId::default());
        let mut chains = Chains::default();
        let mut apply =
            |offset, previous| chains.apply(&identities, "r", (3, offset), previous, true);
        assert!(!apply(17, Some(10)));
        assert!(apply(10, None));
        assert!(!apply(10, None));
        assert!(!apply(20, Some(17)));
        assert!(apply(17, Some(10)));
        assert!(apply(20, Some(17)));
    }

    #[test]
    fn a_log_without_its_beginning_takes_a_source_up_where_it_is_met() {
        let identities = Identities::new(LogId::default());
        let mut chains = Chains::default();
        assert!(chains.apply(&identities, "r", (3, 17), Some(10), false));
        assert!(!chains.apply(&identities, "r", (3, 30), Some(20), false));
    }

    #[test]
    fn the_digest_is_of_the_links_and_not_of_the_way_to_them() {
        let identities = Identities::new(LogId::default());
        let (mut one, mut other) = (Chains::default(), Chains::default());
        assert_eq!(one.total(&identities, "r", 1), None);
        assert_eq!(one.total(&identities, "r", 5), Some(1));
        assert_eq!(other.total(&identities, "r", 5), None);
        assert_eq!(one.digest(), other.digest());
        other.apply(&identities, "r", (0, 5), None, true);
        assert_ne!(one.digest(), other.digest());
    }
}
