//! Backtests with the binary, and the recorded traffic that they read, in the forms that others write.

mod backtest;
mod backtest_answers;
mod backtest_clocks;
mod backtest_files;
mod backtest_log;
#[path = "../support/rows.rs"]
mod rows;
#[path = "../support/mod.rs"]
mod support;
mod traffic_dirt;
mod traffic_forms;
mod traffic_frameworks;
mod traffic_json;
