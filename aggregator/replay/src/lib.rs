//! Logs and recorded traffic, replayed: what was announced is checked, explained, exported, tried under other limits.
//!
//! ```text
//! source     logs that are read: a journal, Kafka, an export
//! range      which part of a log
//! work       what somebody wants of a log; partitions side by side
//! start      where a partition's replay begins
//! replay     records of one partition into an engine of its own
//! export     a range of a log in one portable, digested file
//! audit      is what was announced what the log says?             (with the model)
//! judge      what the model says of one fleet's refusals           (with the model)
//! explain    why a call was refused, or what became of a pair
//! tags       aggregators' records, checked or taken as good
//! traffic    recorded traffic as people have it: access logs, CSV, JSON lines
//! backtest   recorded traffic, or a log, under other limits
//! cases      test vectors, played through the rules
//! fill       how much of each constraint other than tiers is used
//! picture    the tiers over time, in text
//! ```
//!
//! Knows nothing of command lines, servers and agents. What stays true: a log is only read, never written.

#[cfg(feature = "model")]
pub mod audit;
pub mod backtest;
pub mod cases;
pub mod explain;
pub mod export;
pub mod fill;
#[cfg(feature = "model")]
pub mod judge;
pub mod picture;
pub mod range;
pub mod replay;
pub mod source;
mod start;
pub mod tags;
pub mod traffic;
pub mod work;
