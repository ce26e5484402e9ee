//! The global limit in the stream reading: granted hits of all domains, on a pair of their own.
//!
//! ```text
//! global 3   2 hits in ms 0 and 2 in ms 400: one of the latter is excess
//!            denied until 1.000001, when the two of ms 0 have left
//! ```
//!
//! As on any pair, what is granted occupies the second and what is excess does not. Late means only
//! that a hit has left its second at the pair's time; any other counts under its own stamp. Knows
//! nothing of totals and where they come from.

use tollgate_shared::time::Timestamp;

use super::second::SECOND;
use super::stamps::Stamps;

/// What became of hits. The three add up to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Under the limit.
    pub granted: u64,
    /// Above it.
    pub excess: u64,
    /// Too late to say.
    pub late: u64,
}

/// Counts `hits` hits stamped `at` at the pair's time `now`, which is not before it.
pub fn count(limit: u64, second: &mut Stamps, now: Timestamp, at: Timestamp, hits: u64) -> Share {
    if at.saturating_add(SECOND) < now {
        return Share {
            late: hits,
            ..Share::default()
        };
    }
    let granted = hits.min(limit.saturating_sub(second.held(SECOND, now)));
    second.take(at, granted);
    Share {
        granted,
        excess: hits - granted,
        late: 0,
    }
}
