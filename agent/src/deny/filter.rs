//! The filter in front of the deny list: "surely not denied", in one word of memory.
//!
//! ```text
//! fingerprint   0x9c3f51d2 ........     the upper half chooses the word
//!                        ...7 2 1       the lower half chooses three of its 64 bits
//! word          0 0 1 0 0 0 0 1 …       one of the three is zero: surely not denied
//! counters      0 0 2 0 0 0 0 1 …       how many fingerprints set each bit: only the writer needs them
//! ```
//!
//! A blocked Bloom filter with 16 bits a denial, which is all that callers read: 2 MB for a million denials. Each bit has
//! a counter of four bits, so that a denial can be removed. A counter that has reached 15 is stuck, since it is no longer
//! known how many fingerprints it counts; when too many are stuck, the filter is rebuilt from the exact list.
//!
//! Has one writer: the lock is for metrics, and a rebuild loses what another thread adds to the filter before the list.
//! Knows nothing of names. What stays true: a fingerprint that was added and not removed is never called surely not
//! denied.

use std::sync::PoisonError;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Denials for each word of 64 bits.
const DENIALS_A_WORD: usize = 4;

/// Words of counters for each word of bits: sixteen counters in each.
const COUNTER_WORDS: usize = 4;

/// The value at which a counter sticks.
const STUCK: u64 = 15;

/// The filter.
#[derive(Debug)]
pub(crate) struct Filter {
    /// What callers read.
    words: Box<[AtomicU64]>,
    counters: Mutex<BitCounters>,
}

/// How many fingerprints set each bit.
#[derive(Debug)]
struct BitCounters {
    words: Box<[u64]>,
    /// Counters that are stuck.
    stuck: u64,
}

/// Where a fingerprint's bits are.
#[derive(Clone, Copy)]
struct FilterSlot {
    word: usize,
    /// Its three bits.
    mask: u64,
}

impl Filter {
    /// A filter for about this many denials: if the list is full, seven of a thousand lookups pass to the exact list in
    /// vain; if it is a tenth full, one of twenty thousand.
    pub(crate) fn new(denials_max: usize) -> Self {
        let words = denials_max.clamp(64, 1 << 31).div_ceil(DENIALS_A_WORD);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            counters: Mutex::new(BitCounters::new(words)),
        }
    }

    /// Whether the fingerprint may have been added. `false` is certain.
    #[inline]
    pub(crate) fn maybe(&self, fingerprint: u64) -> bool {
        let slot = self.slot(fingerprint);
        let Some(word) = self.words.get(slot.word) else {
            return true;
        };
        word.load(Ordering::Relaxed) & slot.mask == slot.mask
    }

    /// Adds a fingerprint. Each denial is added once.
    pub(crate) fn add(&self, fingerprint: u64) {
        let slot = self.slot(fingerprint);
        let mut counters = self.counters();
        counters.add(slot);
        self.change(slot, |word| word | slot.mask);
    }

    /// Removes a fingerprint that was added.
    pub(crate) fn remove(&self, fingerprint: u64) {
        let slot = self.slot(fingerprint);
        let mut counters = self.counters();
        let free = counters.remove(slot);
        self.change(slot, |word| word & !free);
    }

    /// Counters that are stuck.
    pub(crate) fn stuck(&self) -> u64 {
        self.counters().stuck
    }

    /// Whether so many counters are stuck that it slows lookups: one in a hundred.
    pub(crate) fn wants_rebuild(&self) -> bool {
        (self.words.len() as u64).saturating_mul(64) / 100 < self.stuck()
    }

    /// Rebuilds the filter from all fingerprints that are in it. Readers see each word either in its old or its new
    /// state, and both contain all fingerprints.
    pub(crate) fn rebuild(&self, fingerprints: impl Iterator<Item = u64>) {
        let mut words = vec![0u64; self.words.len()];
        let mut counters = BitCounters::new(words.len());
        for fingerprint in fingerprints {
            let slot = self.slot(fingerprint);
            counters.add(slot);
            if let Some(word) = words.get_mut(slot.word) {
                *word |= slot.mask;
            }
        }
        let mut locked = self.counters();
        *locked = counters;
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Changes a word; only while the counters are locked.
    fn change(&self, slot: FilterSlot, change: impl FnOnce(u64) -> u64) {
        if let Some(word) = self.words.get(slot.word) {
            word.store(change(word.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    }

    fn counters(&self) -> MutexGuard<'_, BitCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn slot(&self, fingerprint: u64) -> FilterSlot {
        // The product of two numbers below 2^32 keeps the upper half spread evenly over the words.
        let word = ((fingerprint >> 32) * self.words.len() as u64) >> 32;
        // Steps of 1 to 16 and of 1 to 32: together below 64, so that the three differ.
        let lower = fingerprint as u32;
        let (first, second, third) = (lower, lower >> 6 & 15, lower >> 10 & 31);
        let apart = 1 | 2u64.rotate_left(second) | 4u64.rotate_left(second + third);
        FilterSlot {
            word: word as usize,
            mask: apart.rotate_left(first),
        }
    }
}

impl BitCounters {
    fn new(words: usize) -> Self {
        Self {
            words: vec![0; words * COUNTER_WORDS].into(),
            stuck: 0,
        }
    }

    fn add(&mut self, slot: FilterSlot) {
        for bit in bits_of(slot.mask) {
            if let Some((word, shift)) = self.counter(slot.word, bit)
                && (*word >> shift) & STUCK != STUCK
            {
                *word += 1 << shift;
                let is_stuck = (*word >> shift) & STUCK == STUCK;
                self.stuck += u64::from(is_stuck);
            }
        }
    }

    /// Returns the bits that no fingerprint needs any more.
    fn remove(&mut self, slot: FilterSlot) -> u64 {
        let mut free = 0;
        for bit in bits_of(slot.mask) {
            if let Some((word, shift)) = self.counter(slot.word, bit)
                && !matches!((*word >> shift) & STUCK, 0 | STUCK)
            {
                *word -= 1 << shift;
                let is_free = (*word >> shift) & STUCK == 0;
                free |= u64::from(is_free) << bit;
            }
        }
        free
    }

    /// The word that contains the counter of a bit, and by how much to shift it.
    fn counter(&mut self, word: usize, bit: u32) -> Option<(&mut u64, u32)> {
        let counters = self
            .words
            .get_mut(word * COUNTER_WORDS + bit as usize / 16)?;
        Some((counters, bit % 16 * 4))
    }
}

fn bits_of(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit)
    })
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
        ) {
            // In two words, and the first bits of an eighth of their bits, so that counters stick.
            let crowded = |number: u64| {
                let lower = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                number << 63 | lower & !0x38
            };
            let filter = Filter::new(1);
            let mut inside: BTreeMap<u64, ()> = (0..400).map(|n| (crowded(n), ())).collect();
            inside.keys().for_each(|one| filter.add(*one));
            prop_assert!(filter.wants_rebuild());
            for (add, number, rebuild) in steps {
                let fingerprint = crowded(number);
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
        let crowd: Vec<u64> = (0..512u64).collect();
        crowd.iter().for_each(|one| filter.add(*one));
        crowd.iter().for_each(|one| filter.remove(*one));
        assert!(filter.wants_rebuild());
        assert!(crowd.iter().any(|one| filter.maybe(*one)));
        filter.rebuild([7].into_iter());
        assert!(!filter.wants_rebuild());
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
        let for_nothing = || {
            let others = 10_000..110_000;
            others.filter(|n| filter.maybe(mix(*n))).count()
        };
        (0..1_000).for_each(|n| filter.add(mix(n)));
        let tenth = for_nothing();
        (1_000..10_000).for_each(|n| filter.add(mix(n)));
        let full = for_nothing();
        assert!(tenth < 15 && full < 1_000, "{tenth} and {full} of 100,000");
    }
}
