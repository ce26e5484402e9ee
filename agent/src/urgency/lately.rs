//! What calls were let through since the flusher's last visit, while it rests.
//!
//! ```text
//! acme 1, acme 1, globex 1, acme 3       acme 5, globex 1; four calls
//! the flusher visits                     nothing
//! ```
//!
//! Written by calls, without a lock. While the flusher rests there are few calls, and it sees all of them on its visit.
//! Pairs that share a slot add up, which errs towards urgency: of 250 pairs some four share one with another.
//!
//! Knows nothing of limits. What stays true: no copy is forgotten before the flusher's visit; the memory is fixed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots. 64 KiB.
const SLOTS: usize = 1 << 13;

const COPIES_BITS: u32 = 32;

/// The calls since the last visit.
#[derive(Debug)]
pub(super) struct Lately {
    /// From this many calls on the flusher has to come.
    many: u32,
    /// The number of the visit.
    visit: AtomicU32,
    calls: AtomicU32,
    /// The number of the visit, and the copies since.
    slots: Box<[AtomicU64]>,
}

impl Lately {
    pub(super) fn new(many: u32) -> Self {
        Self {
            many,
            visit: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Forgets everything. Only the flusher calls this.
    pub(super) fn begin(&self) {
        self.visit.fetch_add(1, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Counts a call. Returns whether there are many now.
    pub(super) fn are_many(&self) -> bool {
        self.many <= self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds copies of a pair. Returns how many there are now.
    pub(super) fn add(&self, fingerprint: u64, copies: u32) -> u32 {
        let Some(slot) = self.slots.get(fingerprint as usize % SLOTS) else {
            return copies;
        };
        let visit = u64::from(self.visit.load(Ordering::Relaxed)) << COPIES_BITS;
        let with = |word: u64| match word >> COPIES_BITS == visit >> COPIES_BITS {
            true => (word as u32).saturating_add(copies),
            false => copies,
        };
        let order = Ordering::Relaxed;
        let added = slot.fetch_update(order, order, |word| Some(visit | u64::from(with(word))));
        added.map_or(copies, with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACME: u64 = 0x1234_5678_9abc_def0;
    /// Has the same slot.
    const GLOBEX: u64 = ACME ^ 1 << 60;

    #[test]
    fn copies_of_a_pair_add_up_until_the_next_visit() {
        let lately = Lately::new(4);
        let of = |fingerprint, copies| lately.add(fingerprint, copies);
        assert_eq!((of(ACME, 1), of(ACME, 2), of(ACME ^ 1, 5)), (1, 3, 5));
        assert_eq!(of(GLOBEX, 4), 7, "it shares the slot");
        assert_eq!((of(ACME, u32::MAX), of(ACME, 1)), (u32::MAX, u32::MAX));
        lately.begin();
        assert_eq!((of(ACME, 1), of(GLOBEX, 4)), (1, 5));
    }

    #[test]
    fn copies_of_several_threads_add_up() {
        let lately = Lately::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        lately.add(ACME, 1);
                    }
                });
            }
        });
        assert_eq!(lately.add(ACME, 1), 40_001);
    }

    #[test]
    fn many_calls_are_many_until_the_next_visit() {
        let lately = Lately::new(4);
        let few = (0..4).filter(|_| !lately.are_many()).count();
        assert_eq!((few, lately.are_many()), (4, true));
        lately.begin();
        assert!(!lately.are_many());
    }
}
