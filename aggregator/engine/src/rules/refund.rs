//! A refund: granted hits are taken out of the windows again, the newest first.
//!
//! ```text
//! tier 1   3 per 10s        hits 0.0 0.1 in tier 1, 0.2 in tier 2
//! refund 2 at 1.0           0.2 and 0.1 are gone; 0.0 stays until its window ends
//! ```
//!
//! Only hits that count at the pair's time are given back: those in the window of the tier that
//! granted them, and those of the last second. Of one instant those in a window go first, of a higher tier before a
//! lower one. Tiers stay as they were entered. Knows nothing of operators. What stays true: what is
//! left is what there would be had the others never been granted, tiers excepted.

use std::collections::BTreeMap;

use tollgate_shared::time::Timestamp;

use super::second::SECOND;
use super::stamps::Stamps;
use super::state::State;
use crate::limits::RateClass;

/// Hits of one instant that may be given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    at: Timestamp,
    in_window: bool,
    /// Counted from 1; 0: of a tier that is gone.
    tier: usize,
    hits: u64,
}

/// Takes out at most so many hits.
pub fn refund(class: &RateClass, state: &mut State, now: Timestamp, mut hits: u64) {
    let mut runs = counting(class, state, now);
    runs.sort_unstable_by(|a, b| b.cmp(a));
    let mut taken: Vec<Run> = Vec::new();
    for run in runs {
        if hits == 0 {
            break;
        }
        let part = run.hits.min(hits);
        hits -= part;
        taken.push(Run { hits: part, ..run });
    }
    for (index, tier) in state.tiers_mut().iter_mut().enumerate() {
        take_out(&mut tier.window, &taken, index + 1);
    }
    take_out(&mut state.loose, &taken, 0);
}

/// Everything that still counts somewhere.
fn counting(class: &RateClass, state: &State, now: Timestamp) -> Vec<Run> {
    let mut found = Vec::new();
    let mut add = |stamps: &Stamps, tier: usize, window| {
        for (at, hits) in stamps.runs() {
            let in_window = Some(at).zip(window).is_some_and(|(at, window)| {
                let leaves: Timestamp = at.saturating_add(window);
                now <= leaves
            });
            if in_window || now <= at.saturating_add(SECOND) {
                found.push(Run {
                    at,
                    in_window,
                    tier,
                    hits,
                });
            }
        }
    };
    for (index, (tier, limits)) in state.tiers().iter().zip(class.tiers()).enumerate() {
        add(&tier.window, index + 1, Some(limits.window));
    }
    add(&state.loose, 0, None);
    found
}

fn take_out(stamps: &mut Stamps, taken: &[Run], tier: usize) {
    let mut out: BTreeMap<Timestamp, u64> = BTreeMap::new();
    for run in taken.iter().filter(|run| run.tier == tier) {
        *out.entry(run.at).or_default() += run.hits;
    }
    if out.is_empty() {
        return;
    }
    let left: Vec<(Timestamp, u64)> = stamps
        .runs()
        .map(|(at, hits)| {
            let out = out.get(&at).copied().unwrap_or(0);
            (at, hits.saturating_sub(out))
        })
        .collect();
    stamps.clear();
    for (at, hits) in left {
        stamps.take(at, hits);
    }
}
