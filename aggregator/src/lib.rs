//! The aggregator: reads the log, rules it, announces denials; and the command line's rooms.

pub mod log;
pub mod traffic;
