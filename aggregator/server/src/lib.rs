//! The aggregator as a library: reads the log, rules it, announces denials, answers agents and operators.
//!
//! ```text
//! bounded_file  files that are read whole
//! config     settings from `tollgate.toml`, the environment and flags
//! domains    hashes of typed names, where the log has keyed hashes
//! core       all decisions, as a state machine without I/O
//! edge       bounds, deadlines and counters for every peer
//! link       agents' connections
//! feed       the denial feed
//! http       queries and amendments of operators
//! record_keys  the keys of aggregators' records, from their file
//! security   who may do what: tokens, roles, certificates
//! serve      the loop that owns all of it
//! telemetry  its log lines
//! ```
//!
//! Knows nothing of command lines, exit codes, agents' insides and the slow model.

pub mod bounded_file;
pub mod config;
pub mod core;
pub mod domains;
pub mod edge;
mod error;
pub mod feed;
pub mod http;
#[cfg(test)]
#[path = "../../../tests/src/json_schema.rs"]
mod json_schema;
pub mod link;
pub mod record_keys;
pub mod security;
pub mod serve;
pub mod telemetry;

pub use error::ServeError;
