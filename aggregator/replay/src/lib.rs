//! Replays logs and recorded traffic, to audit, explain and export them, and to try other limits.
//!
//! ```text
//! source     logs that are read: a journal, Kafka, an export
//! range      which part of a log
//! work       a task on a log; partitions in parallel
//! start      where a partition's replay begins
//! replay     records of one partition into an engine of its own
//! export     a range of a log in one portable file with digests
//! audit      does what was announced follow from the log?          (with the model)
//! judge      does the model confirm a fleet's refusals?            (with the model)
//! explain    why a call was refused, or how a pair was ruled
//! tags       tags of aggregators' records, checked or trusted
//! traffic    recorded traffic in common formats: access logs, CSV, JSON lines
//! backtest   recorded traffic, or a log, under other limits
//! cases      test vectors, played through the rules
//! fill       how much of each constraint other than tiers is used
//! picture    the tiers over time, in text
//! ```
//!
//! Knows nothing of command lines, servers and agents. What stays true: a log is only read, never
//! written.

#[cfg(feature = "model")]
pub mod audit;
pub mod backtest;
pub mod cases;
pub mod explain;
pub mod export;
pub mod fill;
#[cfg(feature = "model")]
pub mod model_check;
pub mod picture;
pub mod range;
pub mod replay;
pub mod source;
mod start;
pub mod tags;
pub mod traffic;
pub mod work;
