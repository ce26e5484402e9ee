//! The aggregator: reads the log, rules it, announces denials; and the command line's rooms.

pub mod audit;
pub mod backtest;
pub mod cli;
pub mod config;
pub mod core;
pub mod demo;
pub mod domains;
pub mod edge;
pub mod explain;
pub mod feed;
pub mod fill;
pub mod http;
pub mod judge;
pub mod link;
pub mod log;
pub mod picture;
pub mod serve;
pub mod telemetry;
pub mod traffic;
