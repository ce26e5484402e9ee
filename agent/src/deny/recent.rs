//! Pairs with a recent denial or notice: calls of them are sent at once.
//!
//! ```text
//! denial of acme until 12:00:05        acme's calls are urgent until 12:00:15
//! notice of globex, near for 90 ms     globex's calls are urgent for 90 ms
//! ```
//!
//! The deny list and the notices forget what has ended. This table remembers it for a while, because a pair that was
//! just at its limit is the likeliest to reach it again. Each slot is one word, written by the listener and read by
//! calls and the flusher; a pair that is noted later takes the slot of an earlier one. Calls of an evicted pair wait up to
//! `flush_relaxed` longer until its next notice or denial; nothing more depends on this table.
//!
//! Knows nothing of limits. What stays true: its memory is fixed, and nothing here refuses a call.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_shared::time::Span;

use crate::clock::Mono;

/// How long after its end a denial is remembered.
pub(crate) const REMEMBERED: Span = Span::from_secs(10);

/// Twice as many as pairs can have notices, so that few share a slot. They take 256 KiB.
const SLOTS: usize = 1 << 15;

/// An instant is stored in steps of 16 ms, so that 32 bits reach for two years.
const STEP_BITS: u32 = 14;

/// The table.
#[derive(Debug)]
pub(crate) struct RecentPairs {
    /// The upper half of a fingerprint, and the step in which its time ends.
    slots: Box<[AtomicU64]>,
}

impl Default for RecentPairs {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl RecentPairs {
    /// The calls of a pair are urgent until this instant, or until the later one that is already stored. Only the
    /// listener calls this.
    pub(crate) fn note(&self, fingerprint: u64, until: Mono) {
        let Some(slot) = self.slot(fingerprint) else {
            return;
        };
        let known = slot.load(Ordering::Relaxed);
        let fresh = tag(fingerprint) | u64::from(step_after(until));
        // For one pair, the greater word has the later end.
        let is_later = known < fresh;
        if tag(known) != tag(fingerprint) || is_later {
            slot.store(fresh, Ordering::Relaxed);
        }
    }

    /// Whether the calls of a pair are urgent.
    #[inline]
    pub(crate) fn has(&self, fingerprint: u64, now: Mono) -> bool {
        let Some(slot) = self.slot(fingerprint) else {
            return false;
        };
        let known = slot.load(Ordering::Relaxed);
        tag(known) == tag(fingerprint) && now.0 >> STEP_BITS < known & u64::from(u32::MAX)
    }

    #[inline]
    fn slot(&self, fingerprint: u64) -> Option<&AtomicU64> {
        self.slots.get(fingerprint as usize % SLOTS)
    }
}

/// The upper half of a word. The lower half of a fingerprint chooses the slot.
#[inline]
const fn tag(word: u64) -> u64 {
    word & !(u32::MAX as u64)
}

/// The first step that is not before an instant.
fn step_after(until: Mono) -> u32 {
    u32::try_from(until.0 >> STEP_BITS).map_or(u32::MAX, |step| step.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Mono = Mono(5_000_000);

    #[test]
    fn a_pair_is_remembered_until_the_later_of_two_ends() {
        let recent = RecentPairs::default();
        let pair = 0x1234_5678_0000_0042;
        assert!(!recent.has(pair, NOW));
        recent.note(pair, NOW.plus(Span::from_secs(5)));
        recent.note(pair, NOW.plus(Span::from_secs(1)));
        assert!(recent.has(pair, NOW.plus(Span::from_millis(4_999))));
        assert!(!recent.has(pair, NOW.plus(Span::from_millis(5_033))));
        recent.note(pair, Mono::MAX);
        assert!(recent.has(pair, NOW.plus(Span::from_secs(3_600))));
    }

    #[test]
    fn a_later_pair_replaces_another_in_its_slot() {
        let recent = RecentPairs::default();
        let (one, other) = (0x1_0000_0042, 0x2_0000_0042);
        recent.note(one, Mono::MAX);
        assert!(!recent.has(other, NOW), "it has the slot, not the name");
        recent.note(other, NOW.plus(Span::from_secs(1)));
        assert_eq!(
            (recent.has(one, NOW), recent.has(other, NOW)),
            (false, true)
        );
    }
}
