//! The last second: what hard and global limits count.
//!
//! ```text
//! hard 2; hits at 0.0 and 0.3
//! at 1.0        still two in the last second: closed
//! at 1.000001   one has left: open
//! ```
//!
//! The same edge as a window's: a hit has left when now > hit + 1 s. Knows nothing of tiers beyond
//! that each keeps its own hits. What stays true: every granted hit of the last second is counted
//! once, whichever tier granted it and whether or not that tier is still there.

use tollgate_shared::time::{Span, Timestamp};

use super::state::State;

/// What hard and global limits count over.
pub const SECOND: Span = Span::from_secs(1);

/// Granted hits of the last second at `now`.
pub fn held(state: &State, now: Timestamp) -> u64 {
    let loose = state.loose.held(SECOND, now);
    state.tiers().iter().fold(loose, |sum, tier| {
        sum.saturating_add(tier.window.held(SECOND, now))
    })
}

/// How many more hits a hard limit takes at `now`.
pub fn room(hard: Option<u64>, state: &State, now: Timestamp) -> u64 {
    match hard {
        Some(hard) => hard.saturating_sub(held(state, now)),
        None => u64::MAX,
    }
}

/// The stamp of the `nth` newest of the hits of the last second at `now`, counted from 1; none if
/// there are fewer.
pub fn nth_newest(state: &State, now: Timestamp, nth: u64) -> Option<Timestamp> {
    let mut skip = held(state, now).checked_sub(nth).filter(|_| nth != 0)?;
    let windows = || {
        let tiers = state.tiers().iter().map(|tier| &tier.window);
        tiers.chain([&state.loose])
    };
    let of_last_second = |window: &super::Stamps| window.nth_newest(window.held(SECOND, now));
    if skip == 0 {
        // The limit is just reached, as it always is unless it was lowered: the oldest of them.
        return windows().filter_map(of_last_second).min();
    }
    let mut runs: Vec<(Timestamp, u64)> = windows()
        .flat_map(super::Stamps::runs)
        .filter(|(at, _)| now <= at.saturating_add(SECOND))
        .collect();
    runs.sort_unstable();
    for (at, hits) in runs {
        if skip < hits {
            return Some(at);
        }
        skip -= hits;
    }
    None
}
