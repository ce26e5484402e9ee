//! How many pairs are alive, and a digest of them, by the half second in which each is evicted.
//!
//! ```text
//! log slot 100    pairs that stay up to slot 1300: 5, up to slot 1301: 2       7 are alive
//! log slot 1301   the five of 1300 are evicted at once; their memory is freed later
//! room is made    pairs that remember nothing any more are evicted now, not ten minutes after their time
//! ```
//!
//! A tick may evict half a million pairs; visiting each would be a pause. So each pair's digest is added to
//! the sum of the slot up to which it stays, and a tick takes out whole slots. There is such a list of
//! slots for each [`Rest`], so that making room takes out whole slots as well. Knows nothing of where pairs
//! are stored. What stays true: count and digest are those of the pairs that are not evicted, whether or
//! not memory was freed; and whether a pair is evicted follows from its [`Stay`], log time and when room
//! was last made.

use std::collections::BTreeMap;

use tollgate_shared::time::{Span, Timestamp};

use crate::stream::STAYS;

/// Log time is counted in slots of this length.
pub(crate) const SLOT: Span = Span::from_millis(500);

/// Slots that are kept in a ring: the ten minutes that every pair stays, and more than a minute around
/// them. Later slots, of longer windows and cooldowns, are in a map.
const RING_SLOTS: u64 = 2048;

/// Slots that every pair stays after its time, if no room is made.
const STAYS_SLOTS: u64 = STAYS.as_micros() / SLOT.as_micros();

/// The slot that an instant lies in.
pub(crate) fn slot_of(at: Timestamp) -> u64 {
    at.as_micros() / SLOT.as_micros()
}

/// How long after its time a pair remembers something that may close it (windows, debt, denials), rounded
/// up to one of a few lengths: after that it is evicted when room is made.
///
/// Few lengths, because pairs are counted by them: three more lists of slots (64 KiB each, if there is such
/// a pair) find all such pairs at once, where a list sorted by exact instants would cost more than the
/// pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest(u8);

impl Rest {
    /// Longer than any of [`Self::SPANS`]: making room does not shorten its stay. Also for a pair that was
    /// denied when an amendment or a version was applied, as these rule at other instants than the pair's
    /// time.
    pub const LONG: Self = Self(3);
    /// A second, ten seconds, a minute, each with a slot more: a full window denies for a microsecond
    /// longer than its length.
    const SPANS: [Span; 3] = [
        Span::from_millis(1_500),
        Span::from_millis(10_500),
        Span::from_millis(60_500),
    ];
    const COUNT: usize = Self::SPANS.len() + 1;

    /// The rest of a pair that remembers something until an instant.
    #[inline]
    pub fn of(time: Timestamp, until: Timestamp) -> Self {
        let remembers = until.since(time);
        let shorter = Self::SPANS.iter().take_while(|span| **span < remembers);
        Self(shorter.count() as u8)
    }

    /// The two bits by which it is written.
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The rest that two bits encode.
    pub fn of_bits(bits: u64) -> Self {
        Self((bits & 3) as u8)
    }

    /// The slot by which a pair of this rest is listed, that is, up to which it stays if no room is made.
    /// `slot` is the one up to which it stays if room is made.
    fn listed(self, slot: u64) -> Option<u64> {
        let rest = Self::SPANS.get(usize::from(self.0))?;
        let sooner = STAYS_SLOTS.saturating_sub(rest.as_micros() / SLOT.as_micros());
        Some(slot.saturating_add(sooner))
    }
}

/// How long a pair stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    /// The slot up to which it stays if no room is made.
    pub leaves: u64,
    /// How much sooner it is evicted when room is made.
    pub rest: Rest,
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
    /// The slot of the last counted tick.
    now: u64,
    /// The slot of the counted tick when room was last made.
    room_made: u64,
    total: Sum,
    /// By [`Rest`].
    slots: [Slots; Rest::COUNT],
}

impl Alive {
    pub fn new() -> Self {
        Self {
            now: 0,
            room_made: 0,
            total: Sum::default(),
            slots: std::array::from_fn(|_| Slots::new()),
        }
    }

    /// Number of pairs alive.
    #[inline]
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

    /// The slot in which room was last made.
    pub fn room_made(&self) -> u64 {
        self.room_made
    }

    /// For how many slots room has not been made, at most as many as pairs stay: then nothing depends on it any more.
    pub fn room_age(&self) -> u64 {
        self.now.saturating_sub(self.room_made).min(STAYS_SLOTS)
    }

    /// Whether a pair with this stay is still alive.
    #[inline]
    pub fn is(&self, stay: Stay) -> bool {
        self.of(stay.rest).now <= stay.leaves
    }

    /// Adds a pair.
    #[inline]
    pub fn enter(&mut self, stay: Stay, digest: u128) {
        self.total.add(digest, 1);
        self.of_mut(stay.rest).add(stay.leaves, digest, 1);
    }

    /// Removes a pair that is alive before its stay is over.
    #[inline]
    pub fn take_out(&mut self, stay: Stay, digest: u128) {
        let (digest, count) = (digest.wrapping_neg(), u64::MAX);
        self.total.add(digest, count);
        self.of_mut(stay.rest).add(stay.leaves, digest, count);
    }

    /// Replaces stay and digest of a pair that is alive.
    #[inline]
    pub fn change(&mut self, before: (Stay, u128), after: (Stay, u128)) {
        if before.0 == after.0 {
            let digest = after.1.wrapping_sub(before.1);
            self.total.add(digest, 0);
            self.of_mut(after.0.rest).add(after.0.leaves, digest, 0);
        } else {
            self.take_out(before.0, before.1);
            self.enter(after.0, after.1);
        }
    }

    /// Notes a counted tick of this slot. Slots only rise.
    pub fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        for slots in &mut self.slots {
            self.total.sub(slots.advance(now));
        }
    }

    /// Evicts the pairs that remember nothing any more, as of the slot of the last counted tick.
    pub fn make_room(&mut self) {
        self.make_room_of(self.now);
    }

    /// The same as of an earlier slot, to restore a table.
    pub fn make_room_of(&mut self, slot: u64) {
        self.room_made = slot;
        for (rest, slots) in (0..).map(Rest).zip(&mut self.slots) {
            if let Some(listed) = rest.listed(slot) {
                self.total.sub(slots.advance(listed));
            }
        }
    }

    fn of(&self, rest: Rest) -> &Slots {
        &self.slots[usize::from(rest.0 & 3)]
    }

    fn of_mut(&mut self, rest: Rest) -> &mut Slots {
        &mut self.slots[usize::from(rest.0 & 3)]
    }
}

/// Pairs of one rest, by the slot up to which they stay.
#[derive(Clone, Debug)]
struct Slots {
    /// Pairs that stay up to an earlier slot are evicted.
    now: u64,
    /// The first slot that the ring covers.
    first: u64,
    ring: Vec<Sum>,
    beyond: BTreeMap<u64, Sum>,
    count: u64,
}

impl Slots {
    fn new() -> Self {
        Self {
            now: 0,
            first: 0,
            ring: Vec::new(),
            beyond: BTreeMap::new(),
            count: 0,
        }
    }

    /// Evicts the pairs that stay up to an earlier slot; returns their sum.
    fn advance(&mut self, now: u64) -> Sum {
        let mut left = Sum::default();
        if now <= self.now {
            return left;
        }
        self.now = now;
        let past: Vec<u64> = self.beyond.range(..now).map(|(slot, _)| *slot).collect();
        for slot in past {
            let sum = self.beyond.remove(&slot).unwrap_or_default();
            left.add(sum.digest, sum.count);
        }
        let ring_end = self.first.saturating_add(RING_SLOTS);
        for slot in self.first..now.min(ring_end) {
            if let Some(sum) = self.ring.get_mut((slot % RING_SLOTS) as usize) {
                let sum = std::mem::take(sum);
                left.add(sum.digest, sum.count);
            }
        }
        if self.first < now {
            self.first = now;
            self.fill_ring();
        }
        self.count = self.count.wrapping_sub(left.count);
        left
    }

    /// Moves the slots that the ring covers by now from the map into it.
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
        self.count = self.count.wrapping_add(count);
        let end = self.first.saturating_add(RING_SLOTS);
        if self.first <= slot && slot < end {
            self.ring_slot(slot).add(digest, count);
            return;
        }
        if count == 1 && self.count == 1 && self.beyond.is_empty() && self.first < slot {
            // The very first pair of a log: the ring begins near it, not at the Unix epoch.
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
        fn the_rings_are_a_plain_list_of_pairs(
            start in prop_oneof![Just(0u64), Just(3_500_000_000u64)],
            steps in prop::collection::vec((0u8..6, 0u64..6_000, any::<u128>()), 1..80),
        ) {
            let mut alive = Alive::new();
            let mut plain: Vec<(Stay, u128)> = Vec::new();
            let mut now = 0;
            for (kind, distance, digest) in steps {
                match kind {
                    0 => {
                        now = now.max(start) + distance / 4;
                        alive.advance(now);
                        plain.retain(|(stay, _)| now <= stay.leaves);
                    }
                    1 => {
                        alive.make_room();
                        // Ten minutes are 1,200 slots; a second and a half is three of them.
                        plain.retain(|(stay, _)| match stay.rest.0 {
                            0 => now + 1_200 <= stay.leaves.saturating_add(3),
                            1 => now + 1_200 <= stay.leaves.saturating_add(21),
                            2 => now + 1_200 <= stay.leaves.saturating_add(121),
                            _ => true,
                        });
                    }
                    2 if !plain.is_empty() => {
                        let index = distance as usize % plain.len();
                        let (stay, digest) = plain.swap_remove(index);
                        alive.take_out(stay, digest);
                    }
                    _ => {
                        let leaves = match distance % 50 {
                            0 => u64::MAX,
                            _ => start.max(now) + distance / (1 + distance % 5),
                        };
                        let stay = Stay { leaves, rest: Rest(distance as u8 % 4) };
                        if !alive.is(stay) {
                            continue;
                        }
                        alive.enter(stay, digest);
                        plain.push((stay, digest));
                    }
                }
                let sum = plain.iter().fold(0u128, |sum, (_, digest)| sum.wrapping_add(*digest));
                prop_assert_eq!(alive.count(), plain.len() as u64);
                prop_assert_eq!(alive.digest(), sum);
                prop_assert!(plain.iter().all(|(stay, _)| alive.is(*stay)));
            }
        }
    }
}
