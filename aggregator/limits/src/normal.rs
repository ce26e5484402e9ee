//! Normalisation: converts tiers to the form on which the rules work (Charon, section 4.1).
//!
//! ```text
//! never active          limit 5  window 1s  active 0s                tier is dropped
//! window above active   limit 5  window 10s active 4s   ->  window 4s
//! a part of a window    limit 5  window 3s  active 10s  ->  active 9s
//! ```
//!
//! A partial window at the end of an active period would, with no cooldown, let a domain make
//! nearly twice its limit across the edge. Knows nothing of names; it reports what it did as
//! changes. What stays true: normalised tiers do not change when they are normalised again.

use tollgate_shared::time::Span;

use super::rate::Tier;

/// A change of one tier by normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierChange {
    /// The tier was never active and is gone.
    Dropped,
    /// The window was longer than the active time.
    WindowCut {
        /// As written.
        before: Span,
        /// As effective.
        after: Span,
    },
    /// The active time was not a whole number of windows.
    ActiveTrimmed {
        /// As written.
        before: Span,
        /// As effective.
        after: Span,
    },
}

/// The effective tiers, and the changes: the tier's number as written, from 1, and the change.
pub fn normalise(tiers: &[Tier]) -> (Box<[Tier]>, Vec<(usize, TierChange)>) {
    let mut changes = Vec::new();
    let mut normal = Vec::with_capacity(tiers.len());
    for (index, &tier) in tiers.iter().enumerate() {
        match normalise_tier(tier) {
            None => changes.push((index + 1, TierChange::Dropped)),
            Some(after) => {
                if after.window != tier.window {
                    changes.push((
                        index + 1,
                        TierChange::WindowCut {
                            before: tier.window,
                            after: after.window,
                        },
                    ));
                }
                if after.active != tier.active {
                    changes.push((
                        index + 1,
                        TierChange::ActiveTrimmed {
                            before: tier.active,
                            after: after.active,
                        },
                    ));
                }
                normal.push(after);
            }
        }
    }
    (normal.into_boxed_slice(), changes)
}

fn normalise_tier(tier: Tier) -> Option<Tier> {
    if tier.active == Span::ZERO {
        return None;
    }
    let window = tier.window.min(tier.active);
    let active = match tier.active.as_micros().checked_rem(window.as_micros()) {
        Some(part) => tier.active.saturating_sub(Span::from_micros(part)),
        // A document cannot contain a window of length zero; it divides everything.
        None => tier.active,
    };
    Some(Tier {
        window,
        active,
        ..tier
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    /// `tests/vectors/normalize.jsonl` of the repository.
    const VECTORS: &str = include_str!("../../../tests/vectors/normalize.jsonl");

    #[derive(Deserialize)]
    struct Case {
        name: String,
        tiers: Vec<RawTier>,
        expect: Vec<RawTier>,
    }

    #[derive(Deserialize)]
    struct RawTier {
        limit: u64,
        window: u64,
        active: u64,
        cooldown: u64,
        skippable: bool,
    }

    fn tiers(raw: &[RawTier]) -> Vec<Tier> {
        raw.iter()
            .map(|raw| Tier {
                limit: raw.limit,
                window: Span::from_micros(raw.window),
                active: Span::from_micros(raw.active),
                cooldown: Span::from_micros(raw.cooldown),
                skippable: raw.skippable,
            })
            .collect()
    }

    #[test]
    fn the_vectors_hold() {
        let mut cases = 0;
        for line in VECTORS.lines().filter(|line| !line.trim().is_empty()) {
            let case: Case = serde_json::from_str(line).expect("a vector is well-formed");
            let (normal, changes) = normalise(&tiers(&case.tiers));
            assert_eq!(*normal, tiers(&case.expect), "{}", case.name);
            assert_eq!(
                changes.is_empty(),
                *normal == tiers(&case.tiers),
                "{}: a change is told, and only a change",
                case.name
            );
            cases += 1;
        }
        assert!(5 <= cases);
    }

    proptest! {
        #[test]
        fn normalised_tiers_are_stable_and_hold_whole_windows(
            raw in prop::collection::vec((0u64..9, 1u64..2_000, 0u64..9_000, 0u64..9), 0..5),
        ) {
            let written: Vec<Tier> = raw
                .iter()
                .map(|&(limit, window, active, cooldown)| Tier {
                    limit,
                    window: Span::from_micros(window),
                    active: Span::from_micros(active),
                    cooldown: Span::from_micros(cooldown),
                    skippable: limit % 2 == 0,
                })
                .collect();
            let (normal, _) = normalise(&written);
            for tier in &normal {
                prop_assert!(tier.window <= tier.active);
                prop_assert_eq!(tier.active.as_micros() % tier.window.as_micros(), 0);
            }
            let (again, changes) = normalise(&normal);
            prop_assert_eq!(again, normal);
            prop_assert!(changes.is_empty());
        }
    }
}
