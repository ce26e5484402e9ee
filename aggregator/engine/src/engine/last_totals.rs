//! The last totals: which record of which partition was totalled last for a resource.
//!
//! ```text
//! partition 3 totals its records 10, 17, 20 for api.search; at the resource's partition arrive
//! 10: applied    20: applied    17: not after 20, not applied    20: not after 20, not applied
//! ```
//!
//! So each granted hit counts at most once under the global limit. A total that arrives after a later one of its
//! source counts nothing. It would hardly count otherwise: a global limit is of one second, and appends of one process
//! pass each other only where the log refused one for longer. Knows nothing of what a total counts. What stays true:
//! last totals are never forgotten, even while the limits have no global limit, since a total could count again. There
//! is one for each globally limited resource and partition.

use std::collections::BTreeMap;

use crate::pairs::{Identities, mix};

/// The last totals of this partition's records, and of those that it applied.
#[derive(Clone, Debug, Default)]
pub(super) struct LastTotals {
    /// By resource: the offset of this partition's record that was totalled last.
    due: BTreeMap<Box<str>, u64>,
    /// By resource and source partition: the source offset of the total that was applied last.
    applied: BTreeMap<(Box<str>, u32), u64>,
    digest: u128,
}

/// Replaces the source partition in the digest of `due`, to tell the two kinds of totals apart.
const DUE: u64 = u64::MAX;

impl LastTotals {
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

    /// Notes a total of another partition's record; false if it is not after the last one of its
    /// source.
    pub fn apply(&mut self, identities: &Identities, resource: &str, source: (u32, u64)) -> bool {
        let (partition, offset) = source;
        let key = (Box::from(resource), partition);
        let last = self.applied.get(&key).copied();
        let is_later = last.is_none_or(|last| last < offset);
        if is_later {
            self.applied.insert(key, offset);
            self.note(identities, resource, u64::from(partition), last, offset);
        }
        is_later
    }

    /// A digest of these totals alone.
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
        let all = self.applied.iter();
        all.map(|((resource, partition), offset)| (&**resource, *partition, *offset))
    }

    fn note(
        &mut self,
        identities: &Identities,
        resource: &str,
        end: u64,
        before: Option<u64>,
        after: u64,
    ) {
        let of = |offset| mix(identities.of_numbered(resource, end).0, offset);
        if let Some(before) = before {
            self.digest = self.digest.wrapping_sub(of(before));
        }
        self.digest = self.digest.wrapping_add(of(after));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_shared::log_position::LogId;

    #[test]
    fn a_total_is_taken_once_and_never_after_a_later_one() {
        let identities = Identities::new(LogId::default());
        let mut last = LastTotals::default();
        let mut apply = |source, offset| last.apply(&identities, "r", (source, offset));
        assert!(apply(3, 10));
        assert!(!apply(3, 10));
        assert!(apply(3, 20), "a gap is no reason to wait");
        assert!(!apply(3, 17));
        assert!(apply(4, 17), "each source has its own order");
        assert!(apply(3, 21));
    }

    #[test]
    fn the_digest_covers_only_the_last_totals() {
        let identities = Identities::new(LogId::default());
        let (mut one, mut other) = (LastTotals::default(), LastTotals::default());
        assert_eq!(one.total(&identities, "r", 1), None);
        assert_eq!(one.total(&identities, "r", 5), Some(1));
        assert_eq!(other.total(&identities, "r", 5), None);
        assert_eq!(one.digest(), other.digest());
        other.apply(&identities, "r", (0, 5));
        assert_ne!(one.digest(), other.digest());
    }
}
