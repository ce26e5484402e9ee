//! How many pairs there are, and a digest of them, by the half second in which each leaves.
//!
//! ```text
//! log slot 100    pairs that leave after slot 1300: 5, after slot 1301: 2      7 are alive
//! log slot 1301   the five of 1300 have left, all at once; their memory is taken back later
//! ```
//!
//! A tick may let half a million pairs go; to visit them all would be a pause. So each pair's part
//! stands under the slot up to which it stays, and a tick takes out whole slots. Knows nothing of
//! where pairs lie. What stays true: count and digest are those of the pairs that have not left,
//! whatever memory has been taken back.

use std::collections::BTreeMap;

use tollgate_shared::time::{Span, Timestamp};

/// Log time is counted in slots of this length.
pub(crate) const SLOT: Span = Span::from_millis(500);

/// Slots that are kept in a ring: the ten minutes that every pair stays, and more than a minute
/// around them. Others, of longer windows and cooldowns, are in a map.
const RING_SLOTS: u64 = 2048;

/// The slot that an instant lies in.
pub(crate) fn slot_of(at: Timestamp) -> u64 {
    at.as_micros() / SLOT.as_micros()
}

/// Some pairs: how many, and the sum of their digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    digest: u128,
    count: u64,
}

/// All pairs that are alive.
#[derive(Clone, Debug)]
pub(crate) struct Alive {
    /// The slot of the last counted tick: who stays up to an earlier one has left.
    now: u64,
    /// The first slot that the ring covers.
    first: u64,
    ring: Vec<Sum>,
    beyond: BTreeMap<u64, Sum>,
    total: Sum,
}

impl Alive {
    pub fn new() -> Self {
        Self {
            now: 0,
            first: 0,
            ring: Vec::new(),
            beyond: BTreeMap::new(),
            total: Sum::default(),
        }
    }

    /// Pairs alive.
    pub fn count(&self) -> u64 {
        self.total.count
    }

    /// The sum of their digests.
    pub fn digest(&self) -> u128 {
        self.total.digest
    }

    /// The slot of the last counted tick.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether a pair that stays up to `slot` is still there.
    pub fn is(&self, slot: u64) -> bool {
        self.now <= slot
    }

    /// A pair that stays up to `slot` came in.
    #[inline]
    pub fn enter(&mut self, slot: u64, digest: u128) {
        self.add(slot, digest, 1);
    }

    /// A pair that would have stayed up to `slot`, and is alive, is taken out.
    #[inline]
    pub fn take_out(&mut self, slot: u64, digest: u128) {
        self.add(slot, digest.wrapping_neg(), u64::MAX);
    }

    /// A pair that is alive changes: from a slot and digest to others.
    #[inline]
    pub fn change(&mut self, before: (u64, u128), after: (u64, u128)) {
        if before.0 == after.0 {
            self.add(after.0, after.1.wrapping_sub(before.1), 0);
        } else {
            self.take_out(before.0, before.1);
            self.enter(after.0, after.1);
        }
    }

    /// A tick of this slot was counted. Slots only rise.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        let past: Vec<u64> = self.beyond.range(..now).map(|(slot, _)| *slot).collect();
        for slot in past {
            let left = self.beyond.remove(&slot).unwrap_or_default();
            self.total.sub(left);
        }
        let ring_end = self.first.saturating_add(RING_SLOTS);
        for slot in self.first..now.min(ring_end) {
            if let Some(sum) = self.ring.get_mut((slot % RING_SLOTS) as usize) {
                let left = std::mem::take(sum);
                self.total.sub(left);
            }
        }
        if self.first < now {
            self.first = now;
            self.fill_ring();
        }
    }

    /// Moves into the ring what it has come to cover.
    fn fill_ring(&mut self) {
        let end = self.first.saturating_add(RING_SLOTS);
        let near: Vec<u64> = self
            .beyond
            .range(self.first..end)
            .map(|(slot, _)| *slot)
            .collect();
        for slot in near {
            let sum = self.beyond.remove(&slot).unwrap_or_default();
            *self.ring_slot(slot) = sum;
        }
    }

    #[inline]
    fn add(&mut self, slot: u64, digest: u128, count: u64) {
        self.total.add(digest, count);
        let end = self.first.saturating_add(RING_SLOTS);
        if self.first <= slot && slot < end {
            self.ring_slot(slot).add(digest, count);
            return;
        }
        if count == 1 && self.total.count == 1 && self.beyond.is_empty() && self.first < slot {
            // The very first pair of a log: the ring begins near it, not at the epoch.
            self.first = slot.saturating_sub(RING_SLOTS / 2).max(self.now);
            return self.put_first(slot, digest, count);
        }
        let sum = self.beyond.entry(slot).or_default();
        sum.add(digest, count);
        if sum.count == 0 {
            self.beyond.remove(&slot);
        }
    }

    fn put_first(&mut self, slot: u64, digest: u128, count: u64) {
        if slot < self.first.saturating_add(RING_SLOTS) {
            self.ring_slot(slot).add(digest, count);
        } else {
            self.beyond.entry(slot).or_default().add(digest, count);
        }
    }

    #[inline]
    fn ring_slot(&mut self, slot: u64) -> &mut Sum {
        if self.ring.is_empty() {
            self.ring = vec![Sum::default(); RING_SLOTS as usize];
        }
        &mut self.ring[(slot % RING_SLOTS) as usize]
    }
}

impl Sum {
    fn add(&mut self, digest: u128, count: u64) {
        self.digest = self.digest.wrapping_add(digest);
        self.count = self.count.wrapping_add(count);
    }

    fn sub(&mut self, other: Self) {
        self.digest = self.digest.wrapping_sub(other.digest);
        self.count = self.count.wrapping_sub(other.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ring_is_a_plain_list_of_pairs(
            start in prop_oneof![Just(0u64), Just(3_500_000_000u64)],
            steps in prop::collection::vec((0u8..4, 0u64..6_000, any::<u128>()), 1..80),
        ) {
            let mut alive = Alive::new();
            let mut plain: Vec<(u64, u128)> = Vec::new();
            let mut now = 0;
            for (kind, distance, digest) in steps {
                match kind {
                    0 => {
                        now = now.max(start) + distance / 4;
                        alive.advance(now);
                        plain.retain(|(slot, _)| now <= *slot);
                    }
                    1 if !plain.is_empty() => {
                        let index = distance as usize % plain.len();
                        let (slot, digest) = plain.swap_remove(index);
                        alive.take_out(slot, digest);
                    }
                    _ => {
                        let slot = match distance % 50 {
                            0 => u64::MAX,
                            _ => start.max(now) + distance,
                        };
                        alive.enter(slot, digest);
                        plain.push((slot, digest));
                    }
                }
                let sum = plain.iter().fold(0u128, |sum, (_, digest)| sum.wrapping_add(*digest));
                prop_assert_eq!(alive.count(), plain.len() as u64);
                prop_assert_eq!(alive.digest(), sum);
            }
        }
    }
}
