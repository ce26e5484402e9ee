//! The rules of rates, one file each: pure functions of limits, state, instant and copies.
//!
//! ```text
//! stamps       copies in a sliding window                 (run: their bytes in memory)
//! state        the state of one pair                      (pool: reuses its memory for the next pair)
//! window       sliding windows, and the hard limit, which is one of a second
//! calendar     days, weeks, months and years of a zone
//! quota        a count per calendar period
//! bucket       a burst and a rate
//! tiers        phases of a tier, the current tier, the climb of a request
//! request      the largest grant of a request, with its min
//! excess       which copies count that were let through without room
//! late         hits with stamps before their pair's time
//! left         how many more copies would be granted, for information
//! refund       copies that a settlement or an operator takes out again
//! open_again   when one more copy would be granted
//! carry_over   what a pair's state keeps under a new version of the limits
//! whole        the global limit on (resource, *)
//! ```
//!
//! They see one pair at a time, and neither names nor records. What stays true: a refused request
//! changes nothing, and queries change nothing.

pub mod bucket;
pub mod calendar;
pub mod carry_over;
pub mod excess;
pub mod late;
pub mod left;
pub mod open_again;
mod pool;
pub mod quota;
pub mod refund;
pub mod request;
pub(crate) mod run;
pub mod stamps;
pub mod state;
pub mod tiers;
pub mod whole;
pub mod window;

#[cfg(test)]
pub(crate) mod picture;

pub use left::{Left, Near};
pub use open_again::Until;
pub use pool::Pool;
pub use stamps::Stamps;
pub use state::{State, TierState};
