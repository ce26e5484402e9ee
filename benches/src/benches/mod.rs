//! The benchmarks, one file each. None knows another.

pub mod comeback;
pub mod copies;
pub mod copies_lift;
pub mod copies_return;
pub mod cores;
pub mod cost;
pub mod doors;
pub mod effect;
pub mod engine;
pub mod fanout;
pub mod fleet;
pub mod hit;
pub mod holds;
pub mod pairs;
pub mod propagation;
