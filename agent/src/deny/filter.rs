//! The filter in front of the deny list: "surely not denied", in one word of memory.
//!
//! ```text
//! fingerprint   0x9c3f51d2 ........     the upper half chooses the word
//!                        ...7 2 1       the lower half chooses three of its sixteen counters
//! word          0010 0000 0001 …        one of the three is zero: surely not denied
//! ```
//!
//! A blocked counting filter: each word holds sixteen counters of four bits, so that a denial can be removed, and a
//! lookup reads one word. A counter that has reached 15 is stuck, since it is no longer known how many fingerprints
//! it counts; when too many are stuck, the filter is rebuilt from the exact list.
//!
//! Has one writer. Knows nothing of names. What stays true: a fingerprint that was added and not removed is never
//! called surely not denied.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The value at which a counter sticks.
const STUCK: u64 = 15;

/// The filter.
#[derive(Debug)]
pub(crate) struct Filter {
    words: Box<[AtomicU64]>,
    stuck: AtomicU64,
}

/// Where a fingerprint's counters are.
#[derive(Clone, Copy)]
struct FilterSlot {
    word: usize,
    /// By how much to shift the word for each of its three counters; all different.
    shifts: [u32; 3],
}

impl Filter {
    /// A filter for about this many denials. With one word for each: if the list is full, three of a hundred lookups
    /// pass to the exact list in vain; if it is a tenth full, one of a thousand.
    pub(crate) fn new(denials_max: usize) -> Self {
        let words = denials_max.clamp(64, 1 << 31);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            stuck: AtomicU64::new(0),
        }
    }

    /// Whether the fingerprint may have been added. `false` is certain.
    #[inline]
    pub(crate) fn maybe(&self, fingerprint: u64) -> bool {
        let slot = self.slot(fingerprint);
        let Some(word) = self.words.get(slot.word) else {
            return true;
        };
        let word = word.load(Ordering::Relaxed);
        let [a, b, c] = slot.shifts;
        (word >> a) & STUCK != 0 && (word >> b) & STUCK != 0 && (word >> c) & STUCK != 0
    }

    /// Adds a fingerprint. Each denial is added once.
    pub(crate) fn add(&self, fingerprint: u64) {
        let slot = self.slot(fingerprint);
        let Some(word) = self.words.get(slot.word) else {
            return;
        };
        let before = word.load(Ordering::Relaxed);
        let (after, stuck) = added(before, slot.shifts);
        word.store(after, Ordering::Relaxed);
        if stuck != 0 {
            self.stuck.fetch_add(stuck, Ordering::Relaxed);
        }
    }

    /// Removes a fingerprint that was added.
    pub(crate) fn remove(&self, fingerprint: u64) {
        let slot = self.slot(fingerprint);
        let Some(word) = self.words.get(slot.word) else {
            return;
        };
        let mut value = word.load(Ordering::Relaxed);
        for shift in slot.shifts {
            let counter = (value >> shift) & STUCK;
            if counter != STUCK && counter != 0 {
                value -= 1 << shift;
            }
        }
        word.store(value, Ordering::Relaxed);
    }

    /// Counters that are stuck.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Whether so many counters are stuck that it slows lookups: one in a hundred.
    pub(crate) fn wants_rebuild(&self) -> bool {
        (self.words.len() as u64).saturating_mul(16) / 100 < self.stuck()
    }

    /// Rebuilds the counters from all fingerprints that are in the filter. Readers see each word either in its old or
    /// its new state, and both contain all fingerprints.
    pub(crate) fn rebuild(&self, fingerprints: impl Iterator<Item = u64>) {
        let mut fresh = vec![0u64; self.words.len()];
        let mut all_stuck = 0;
        for fingerprint in fingerprints {
            let slot = self.slot(fingerprint);
            if let Some(word) = fresh.get_mut(slot.word) {
                let (after, stuck) = added(*word, slot.shifts);
                *word = after;
                all_stuck += stuck;
            }
        }
        for (word, value) in self.words.iter().zip(fresh) {
            word.store(value, Ordering::Relaxed);
        }
        self.stuck.store(all_stuck, Ordering::Relaxed);
    }

    #[inline]
    fn slot(&self, fingerprint: u64) -> FilterSlot {
        // The product of two numbers below 2^32 keeps the upper half spread evenly over the words.
        let word = ((fingerprint >> 32) * self.words.len() as u64) >> 32;
        // Steps of 1 to 4 and of 1 to 8: together below 16, so that the three differ.
        let first = fingerprint as u32 & 15;
        let second = first + 1 + ((fingerprint as u32 >> 4) & 3);
        let third = second + 1 + ((fingerprint as u32 >> 6) & 7);
        FilterSlot {
            word: word as usize,
            shifts: [first * 4, (second & 15) * 4, (third & 15) * 4],
        }
    }
}

/// A word with one more fingerprint, and how many of its counters became stuck.
fn added(mut word: u64, shifts: [u32; 3]) -> (u64, u64) {
    let mut stuck = 0;
    for shift in shifts {
        let counter = (word >> shift) & STUCK;
        if counter != STUCK {
            word += 1 << shift;
            stuck += u64::from(counter + 1 == STUCK);
        }
    }
    (word, stuck)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_filter_has_no_false_negatives(
            steps in prop::collection::vec((any::<bool>(), 0u64..400, any::<bool>()), 1..2_000),
            words in 1usize..4,
        ) {
            // Few words and many fingerprints, so that counters stick.
            let filter = Filter::new(words);
            let mut inside: BTreeMap<u64, ()> = BTreeMap::new();
            for (add, number, rebuild) in steps {
                let fingerprint = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                if add && inside.insert(fingerprint, ()).is_none() {
                    filter.add(fingerprint);
                } else if !add && inside.remove(&fingerprint).is_some() {
                    filter.remove(fingerprint);
                }
                if rebuild && filter.wants_rebuild() {
                    filter.rebuild(inside.keys().copied());
                }
                for fingerprint in inside.keys() {
                    prop_assert!(filter.maybe(*fingerprint));
                }
            }
        }
    }

    #[test]
    fn a_removed_fingerprint_is_not_found_unless_stuck() {
        let filter = Filter::new(1_000);
        let fingerprints: Vec<u64> = (1..500u64)
            .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        fingerprints.iter().for_each(|one| filter.add(*one));
        fingerprints.iter().for_each(|one| filter.remove(*one));
        assert!(fingerprints.iter().all(|one| !filter.maybe(*one)));
    }

    #[test]
    fn a_stuck_counter_is_freed_by_a_rebuild() {
        let filter = Filter::new(64);
        // All of them in one word: the upper half is the same.
        let crowd: Vec<u64> = (0..256u64).collect();
        crowd.iter().for_each(|one| filter.add(*one));
        crowd.iter().for_each(|one| filter.remove(*one));
        assert!(0 < filter.stuck());
        assert!(crowd.iter().any(|one| filter.maybe(*one)));
        filter.rebuild([7].into_iter());
        assert_eq!(filter.stuck(), 0);
        assert!(filter.maybe(7) && !filter.maybe(8));
    }

    #[test]
    fn false_positives_are_rare() {
        let filter = Filter::new(10_000);
        let mix = |n: u64| {
            let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (z >> 3)
        };
        (0..1_000).for_each(|n| filter.add(mix(n)));
        let for_nothing = (1_000..101_000).filter(|n| filter.maybe(mix(*n))).count();
        assert!(for_nothing < 400, "{for_nothing} of 100,000");
    }
}
