//! The rules of rates, one file each: pure functions of limits, state, instant and copies.
//!
//! ```text
//! stamps       granted hits in a sliding window            (run: how they lie in memory)
//! state        what is remembered of one pair's tiers
//! tiers        phases of a tier, the current tier, the climb of a request
//! second       the hard limit: granted hits of the last second
//! request      the largest grant of a request, with its min
//! late         hits that come after the pair's time has passed them
//! refund       granted hits that an operator takes out again
//! open_again   when one more hit would be granted
//! carry_over   what survives a new version of the limits
//! whole        the global limit on (resource, *)
//! ```
//!
//! They know one pair at a time, and neither names nor records. What stays true: a refused hit
//! changes nothing, and asking changes nothing.

pub mod carry_over;
pub mod late;
pub mod open_again;
pub mod refund;
pub mod request;
pub(crate) mod run;
pub mod second;
pub mod stamps;
pub mod state;
pub mod tiers;
pub mod whole;

#[cfg(test)]
pub(crate) mod picture;

pub use open_again::Until;
pub use stamps::Stamps;
pub use state::{State, TierState};
