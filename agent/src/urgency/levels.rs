//! How much of their limits pairs used recently, in a table whose memory is fixed.
//!
//! ```text
//! places of four pairs      acme 30 %, globex 2 %, initech 0 %, umbrella 8 %
//! hooli uses 1 %            initech's place is hooli's, at 1 %
//! initech uses 1 %          no place: hooli's is the lowest level, so its place is initech's, at 2 %
//! ```
//!
//! The fingerprint of a pair says in which set of four places it is looked for, and a tag which of them is its own. If
//! it has none, it takes the one with the lowest level, and goes on from there. All levels fall equally fast, and the
//! lowest of a set is never lower than that of a pair that lost its place: so a pair's level is never lower than if each
//! pair had a place (what the *space-saving* algorithm of Metwally, Agrawal and El Abbadi, 2005, does for counts), and
//! with up to four pairs in use in a set it is no higher.
//!
//! Knows no resources, and of limits what a copy's share is. Calls read levels while the flusher, and only it, writes
//! them; a call that sees half of a change finds a level that is wrong for it alone.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{FALLS_BY, Wait, wait_at};
use crate::clock::Mono;

/// Sets of places. 256 KiB.
const SETS: usize = 1 << 12;

/// Pairs of a set that have levels of their own: a cache line.
const PLACES: usize = 4;

const SHARE_BITS: u32 = 32;

/// The highest level, in parts of [`super::WHOLE`].
const SHARE_MAX: u64 = (1 << SHARE_BITS) - 1;

/// The table.
#[derive(Debug)]
pub(super) struct Levels {
    sets: Box<[Set]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    places: [Place; PLACES],
}

#[derive(Debug, Default)]
struct Place {
    /// Whose level it is, the upper half of the fingerprint, and the level, as a share of the limit.
    level: AtomicU64,
    /// When it was that, in the agent's microseconds.
    at: AtomicU64,
}

/// The place of a pair, its own or the one that it would take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level<'a> {
    place: &'a Place,
    fingerprint: u64,
}

impl Levels {
    pub(super) fn new() -> Self {
        Self::with_sets(SETS)
    }

    fn with_sets(sets: usize) -> Self {
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
        }
    }

    /// The level of a pair.
    pub(super) fn of(&self, fingerprint: u64, now: Mono) -> Option<Level<'_>> {
        let set = self.sets.get(fingerprint as usize % self.sets.len())?;
        let own = set.places.iter().find(|place| place.is_of(fingerprint));
        let lowest = || set.places.iter().min_by_key(|place| place.share(now));
        let place = own.or_else(lowest)?;
        Some(Level { place, fingerprint })
    }
}

impl Place {
    fn is_of(&self, fingerprint: u64) -> bool {
        self.level.load(Ordering::Relaxed) >> SHARE_BITS == fingerprint >> SHARE_BITS
    }

    /// The level, as a share of the limit.
    fn share(&self, now: Mono) -> u64 {
        let since = now.since(Mono(self.at.load(Ordering::Relaxed)));
        let fallen = since.as_micros().saturating_mul(FALLS_BY);
        let share = self.level.load(Ordering::Relaxed) & SHARE_MAX;
        share.saturating_sub(fallen)
    }
}

impl Level<'_> {
    /// The level with further copies, as a share of the limit.
    fn with(self, copies: u32, limit: u64, now: Mono) -> u64 {
        let added = (u64::from(copies) << SHARE_BITS).div_ceil(limit.max(1));
        self.place.share(now).saturating_add(added).min(SHARE_MAX)
    }

    /// How long further copies may wait.
    pub(super) fn wait_of(self, copies: u32, limit: u64, now: Mono) -> Wait {
        wait_at(self.with(copies, limit, now), limit)
    }

    /// Adds copies. Returns how long they may wait. Only the flusher calls this.
    pub(super) fn take(self, copies: u32, limit: u64, now: Mono) -> Wait {
        let share = self.with(copies, limit, now);
        let whose = self.fingerprint & !SHARE_MAX;
        self.place.level.store(whose | share, Ordering::Relaxed);
        self.place.at.fetch_max(now.0, Ordering::Relaxed);
        wait_at(share, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tollgate_shared::time::Span;

    use super::*;

    const START: Mono = Mono(5_000_000);

    /// A fingerprint of the one set.
    fn fingerprint(pair: u64) -> u64 {
        pair << SHARE_BITS
    }

    fn share(levels: &Levels, pair: u64, now: Mono) -> u64 {
        levels.of(fingerprint(pair), now).unwrap().place.share(now)
    }

    fn take(levels: &Levels, pair: u64, copies: u32, now: Mono) {
        let level = levels.of(fingerprint(pair), now).unwrap();
        level.take(copies, 100, now);
    }

    /// Parts of a hundredth of the limit, rounded.
    fn hundredths(share: u64) -> u64 {
        (100 * share + (1 << 31)) >> SHARE_BITS
    }

    #[test]
    fn a_pair_without_a_place_takes_the_lowest_level() {
        let levels = Levels::with_sets(1);
        for (pair, copies) in [(1, 30), (2, 2), (3, 1), (4, 8)] {
            take(&levels, pair, copies, START);
        }
        let after = START.plus(Span::from_millis(40));
        take(&levels, 5, 1, after);
        let of = |pairs: &[u64]| -> Vec<u64> {
            let share = |pair| share(&levels, pair, after);
            pairs.iter().map(|pair| hundredths(share(*pair))).collect()
        };
        // A hundredth is gone in 40 ms.
        assert_eq!(of(&[1, 2, 4, 5]), [29, 1, 7, 1]);
        take(&levels, 3, 1, after);
        assert_eq!(of(&[1, 3, 4, 5]), [29, 2, 7, 1]);
        take(&levels, 2, 1, after);
        assert_eq!(of(&[1, 2, 3, 4]), [29, 2, 2, 7]);
    }

    #[test]
    fn pairs_of_several_sets_do_not_meet() {
        let levels = Levels::with_sets(2);
        for pair in 0..8_u64 {
            let level = levels.of(fingerprint(pair) | (pair % 2), START).unwrap();
            level.take(pair as u32, 100, START);
        }
        for pair in 0..8 {
            let level = levels.of(fingerprint(pair) | (pair % 2), START).unwrap();
            assert_eq!(hundredths(level.place.share(START)), pair);
        }
    }

    proptest! {
        /// Beside levels of which each pair has its own.
        #[test]
        fn a_level_is_never_lower_than_with_a_place_for_each_pair(
            pairs in 1..9_u64,
            calls in prop::collection::vec((any::<u64>(), 1..6_u32, 0..60_000_u64), 1..200),
        ) {
            let levels = Levels::with_sets(1);
            let mut own: HashMap<u64, (u64, Mono)> = HashMap::new();
            let mut now = START;
            for (any, copies, pause) in calls {
                now = now.plus(Span::from_micros(pause));
                let pair = any % pairs;
                let fallen = |(share, at): (u64, Mono)| {
                    share.saturating_sub(now.since(at).as_micros() * FALLS_BY)
                };
                let before = own.get(&pair).copied().map_or(0, fallen);
                let added = (u64::from(copies) << 32).div_ceil(100);
                own.insert(pair, ((before + added).min(SHARE_MAX), now));
                take(&levels, pair, copies, now);
                for (pair, level) in &own {
                    let (level, found) = (fallen(*level), share(&levels, *pair, now));
                    prop_assert!(level <= found, "{pair}: {found} instead of {level}");
                    prop_assert!(4 < pairs || level == found, "{pair}: {found} instead of {level}");
                }
            }
        }
    }
}
