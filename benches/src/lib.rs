//! Workloads and benchmarks of Tollgate, each beside its peers in the same run.
//!
//! ```text
//! catalog    the table of benchmarks: one line each
//! benches    the benchmarks: one file each, which returns figures
//! load       the offered load: pairs, Zipf, batches as agents write them
//! harness    clocks, memory, rounds, child processes, the report, RESULTS.md
//! ```
//!
//! What stays true: a figure states what was measured and how; a peer's figure is of the same run;
//! a target that was missed is reported as missed.

pub mod benches;
pub mod catalog;
pub mod harness;
pub mod load;
