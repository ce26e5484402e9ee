//! The offered load: pairs by Zipf's law from a fixed seed, and batches of them as agents send them.
//!
//! What stays true: the same numbers give the same load, on any machine.

pub mod batches;
pub mod names;
pub mod partition;
pub mod zipf;

/// The seed of all random numbers.
pub const SEED: u64 = 0x7011_6A7E;
