//! Limits as checked types: what a limits document says, after everything wrong was refused.
//!
//! Text becomes a raw structure, which becomes these types; the rules see only these. Knows nothing
//! of the state of any pair.

pub mod rate;

pub use rate::{RateClass, Tier};
