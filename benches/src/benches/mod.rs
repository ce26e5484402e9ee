//! The benchmarks, one file each. None knows another.

pub mod engine;
pub mod pairs;
