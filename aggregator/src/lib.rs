//! The one binary: its command line, its exit codes, its demonstration.

pub mod cli;
pub mod convert;
pub mod demo;
pub mod exit;
pub mod keys;
pub mod reach;
