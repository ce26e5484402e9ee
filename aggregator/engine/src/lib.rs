//! The pure core of Tollgate: the rules by which a log is ruled.
//!
//! One entry point: a record of the log goes in, rulings come out; plus snapshot and restore. No
//! I/O, no clock, no randomness, no logging. Time enters on a record. What stays true: rulings are
//! a function of the log alone, on any machine and in the next release.
//!
//! ```text
//! rules     what one pair is granted, and until when it is closed
//! inline    the rules applied before each request            (the paper's reading)
//! stream    the rules applied to hits that were let through  (the log's reading)
//! engine    one partition: records in, rulings out
//! copies    how many copies are held at a time, and by whom
//! ```

pub mod copies;
pub mod engine;
pub mod inline;
mod pairs;
pub mod rules;
pub mod stream;
mod varint;

pub use engine::{Engine, Fate, Rulings, Stop, Versions};
